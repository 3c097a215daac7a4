"""Fixtures that every kind of test shares."""

import os

import pytest
import torch
from hypothesis import settings

from railsearch import DotProduct, MixtureOfLogits
from railsearch.similarity import Similarity

# Times vary too much on shared machines for a deadline; CI repeats the same cases so that it never surprises.
settings.register_profile("railsearch", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("railsearch")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the cores are the workers'


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def make_similarity(kind: str) -> Similarity:
    """One of each kind of similarity, with 6-dimensional inputs, in eval mode and with weights that matter."""
    sizes = {"query_dim": 6, "item_dim": 6, "component_dim": 4, "projection_dim": 8, "gate_dim": 8}
    similarity = {
        "dot": lambda: DotProduct(dim=6),
        "cosine": lambda: DotProduct(dim=6, cosine=True, temperature=0.05),
        "mixture": lambda: MixtureOfLogits(num_query_components=3, num_item_components=2, **sizes),
        "mixture-1x1": lambda: MixtureOfLogits(num_query_components=1, num_item_components=1, **sizes),
        "mixture-uniform": lambda: MixtureOfLogits(
            num_query_components=2, num_item_components=2, gate_inputs=[], **sizes
        ),
        "mixture-pair": lambda: MixtureOfLogits(
            num_query_components=2, num_item_components=3, gate_inputs=["pair"], **sizes
        ),
        "mixture-user": lambda: MixtureOfLogits(
            num_query_components=3, num_item_components=2, user_table_size=5, **sizes
        ),
    }[kind]()
    if isinstance(similarity, MixtureOfLogits):
        generator = torch.Generator().manual_seed(1)
        similarity.reset_parameters(generator)
        with torch.no_grad():
            for parameter in similarity.parameters():  # biases too, and large enough for a gate that chooses
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return similarity.train(False)


KINDS = ["dot", "cosine", "mixture", "mixture-1x1", "mixture-uniform", "mixture-pair", "mixture-user"]


@pytest.fixture(params=KINDS)
def similarity(request: pytest.FixtureRequest) -> Similarity:
    return make_similarity(request.param)
