"""Objects as an interactive session prints them: one line that says what they are, without tensors."""

import pytest
import torch
from torch import nn

from railsearch import DotProduct, Index, MixtureOfLogits
from railsearch.baselines import ItemKNN, Popularity
from railsearch.data import leave_last_out, make_shape, make_world
from railsearch.training import FitReport
from railsearch.training.report import EpochReport
from tests.support.training_worlds import random_walks

MIXTURE = MixtureOfLogits(num_query_components=2, num_item_components=3, component_dim=5, seed=0)
SPLIT = leave_last_out(random_walks())
OBJECTS = {
    "mixture": (MIXTURE, "MixtureOfLogits(2 x 3 components of 5, gate query+item+pair, "),
    "users": (MixtureOfLogits(user_table_size=1000, gate_inputs=["pair"]), "gate pair, 1,000 users, "),
    "uniform": (MixtureOfLogits(gate_inputs=[]), "gate uniform, "),
    "dot product": (DotProduct(dim=7), "DotProduct(dim 7, temperature 1)"),
    "cosine": (DotProduct(dim=7, cosine=True, temperature=0.05), "DotProduct(cosine, dim 7, temperature 0.05)"),
    "query parts": (MIXTURE.query_parts(torch.zeros(4, 64)), "QueryParts(4 queries, components (4, 2, 5))"),
    "item parts": (MIXTURE.item_parts(torch.zeros(4, 64)), "ItemParts(4 items, components (4, 3, 5))"),
    "index": (Index.build(DotProduct(dim=1), torch.ones(1200, 1)), "Index(1,200 items, DotProduct)"),
    "start": (FitReport((EpochReport(0, None, None, None, 0.0),), 0), "FitReport(0 epochs in 0.0 s, best epoch 0)"),
    "split": (SPLIT, "training events; chronological, last item for test"),
    "held out": (SPLIT.test, "HeldOut(50 items)"),
    "world": (make_world(num_users=40, num_items=50), "World(40 users, 50 items, 800 likes, truth Mixture"),
    "shape": (make_shape("ml-20m", num_items=20, num_queries=3), "Shape(ml-20m, 20 items, 3 queries, sharpness"),
    "popularity": (Popularity.fit(SPLIT), "Popularity(40 items, "),
    "knn": (ItemKNN.fit(SPLIT), "ItemKNN(40 items, "),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_a_repr_is_one_line(name: str) -> None:
    value, expected = OBJECTS[name]
    text = repr(value)
    assert expected in text
    assert "\n" not in text
    assert "tensor(" not in text
    assert len(text) < 200


def test_a_mixture_counts_its_weights() -> None:
    num_weights = sum(weight.numel() for weight in MIXTURE.parameters())
    assert repr(MIXTURE).endswith(f", {num_weights:,} weights)")


def test_a_module_prints_the_similarity_inside_it() -> None:
    assert str(nn.Sequential(MIXTURE)) == f"Sequential(\n  (0): {MIXTURE!r}\n)"
