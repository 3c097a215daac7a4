"""`evaluate`: ranks and metrics of a similarity on fixed embeddings, against a plain sort; wrong input."""

import json

import numpy as np
import pytest
import torch

from railsearch import DotProduct, MixtureOfLogits, evaluate
from railsearch.data import make_world
from railsearch.errors import InvalidInputError
from railsearch.evaluation import Evaluation
from railsearch.foundation.metrics import hit_rate, mean_reciprocal_rank, ndcg
from tests.support.similarities import make_similarity

QUERIES = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
ITEMS = torch.randn(30, 6, generator=torch.Generator().manual_seed(1))
PAIRS = [[3, 4], [3, 20], [0, 7], [11, 29], [5, 5]]


def naive_rank(similarity: DotProduct, query: int, right: set[int], seen: set[int]) -> int:
    scores = similarity(QUERIES, ITEMS)[query].tolist()
    order = sorted((item for item in range(30) if item not in seen - right), key=lambda item: -scores[item])
    return 1 + min(order.index(item) for item in right)


def test_ranks_and_metrics() -> None:
    cosine = DotProduct(dim=6, cosine=True)
    seen = [[3, item] for item in range(10)] + [[0, 7], [1, 1]]
    found = evaluate(cosine, QUERIES, ITEMS, PAIRS, seen_pairs=seen, cutoffs=(1, 5))
    expected = [
        naive_rank(cosine, 0, {7}, {7}),
        naive_rank(cosine, 3, {4, 20}, set(range(10))),
        naive_rank(cosine, 5, {5}, set()),
        naive_rank(cosine, 11, {29}, set()),
    ]
    assert found.ranks.tolist() == expected
    assert found.query_rows.tolist() == [0, 3, 5, 11]
    assert found.metrics == {
        "HR@1": hit_rate(expected, 1), "HR@5": hit_rate(expected, 5), "MRR": mean_reciprocal_rank(expected),
        "NDCG@5": ndcg(expected, 5),
    }  # fmt: skip
    assert found.num_queries == 4
    assert found.protocol.startswith("4 queries, ranked against all 30 items, except those that")
    for name, value in found.metrics.items():
        assert found.values(name).mean() == pytest.approx(value)
        assert found.intervals[name].low <= value <= found.intervals[name].high


def test_what_is_printed_and_stored() -> None:
    found = evaluate(DotProduct(dim=6), QUERIES, ITEMS, PAIRS)
    assert "tensor" not in repr(found)
    assert "except" not in found.protocol
    stored = json.loads(json.dumps(found.to_dict()))
    assert stored["metrics"] == found.metrics
    assert stored["intervals"]["MRR"] == [found.intervals["MRR"].low, found.intervals["MRR"].high]
    assert str(found).splitlines()[1] == found.protocol


def test_any_array_and_any_precision() -> None:
    expected = evaluate(DotProduct(dim=6), QUERIES, ITEMS, PAIRS)
    for queries, items in ((QUERIES.numpy(), ITEMS.tolist()), (QUERIES.double(), ITEMS.numpy().astype("float64"))):
        found = evaluate(DotProduct(dim=6), queries, items, np.array(PAIRS, dtype=np.int32), seen_pairs=[])
        assert found == expected
        assert torch.equal(found.ranks, expected.ranks)


def test_a_similarity_in_training_is_measured_without_dropout_and_stays_in_training() -> None:
    mol = MixtureOfLogits(query_dim=6, item_dim=6, component_dim=4, item_dropout=0.5, gate_dropout=0.5, seed=0)
    calm = evaluate(mol.eval(), QUERIES, ITEMS, PAIRS)
    assert torch.equal(evaluate(mol.train(), QUERIES, ITEMS, PAIRS).ranks, calm.ranks)
    assert mol.training


def test_users_have_their_own_components() -> None:
    similarity = make_similarity("mixture-user")
    users = torch.arange(12) % 5
    found = evaluate(similarity, QUERIES, ITEMS, PAIRS, user_ids=users)
    other = evaluate(similarity, QUERIES, ITEMS, PAIRS, user_ids=(users + 1) % 5)
    assert found.ranks.tolist() != other.ranks.tolist()


def test_the_planted_truth_is_ahead() -> None:
    world = make_world(num_users=60, num_items=80, num_interests=2, num_aspects=1, taste_dim=3, temperature=0.02)
    found = evaluate(
        world.truth, world.query_embeddings, world.item_embeddings, world.test_pairs, seen_pairs=world.train_pairs
    )
    assert found.metrics["HR@10"] > 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pairs": [[0, 30]]}, r"pairs\[0\] names item row 30 but there are 30 item embeddings"),
        ({"pairs": []}, r"pairs has shape \(0,\)"),
        ({"pairs": [[0.0, 1.0]]}, "pairs holds torch.float64 values; give integers"),
        ({"seen_pairs": [[12, 0]]}, r"seen_pairs\[0\] names query row 12"),
        ({"query_embeddings": QUERIES[:, :5]}, r"query_embeddings has shape \(12, 5\) but \(rows, 6\)"),
        ({"item_embeddings": ITEMS * torch.nan}, "item_embeddings has NaN"),
        ({"cutoffs": [0]}, "each of cutoffs is 0"),
        ({"user_ids": [1] * 12}, "the similarity has no user table"),
        ({"similarity": DotProduct}, "similarity is DotProduct; give a similarity"),
        ({"similarity": make_similarity("mixture-user")}, "has a user table but user_ids is None"),
    ],
)
def test_wrong_input(change: dict[str, object], message: str) -> None:
    given = {
        "similarity": DotProduct(dim=6), "query_embeddings": QUERIES, "item_embeddings": ITEMS, "pairs": PAIRS,
    } | change  # fmt: skip
    with pytest.raises(InvalidInputError, match=message):
        evaluate(**given)


def test_an_unknown_metric() -> None:
    with pytest.raises(InvalidInputError, match="metric is 'accuracy'; choose from: HR@1, MRR"):
        Evaluation.of_ranks([1], cutoffs=[1], protocol="").values("accuracy")
