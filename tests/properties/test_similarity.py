"""Properties of every similarity, for any weights and inputs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch import MixtureOfLogits
from railsearch.similarity import Similarity, load_balance_loss
from tests.support.similarities import KINDS, make_similarity

SEEDS = st.integers(0, 2**31 - 1)


def draw(seed: int, num_queries: int = 4, num_items: int = 11, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(num_queries, 6, generator=generator) * scale,
        torch.randn(num_items, 6, generator=generator) * scale,
    )


@given(seed=SEEDS, kind=st.sampled_from(KINDS), scale=st.sampled_from([1e-3, 1.0, 30.0]))
def test_weights_sum_to_one_and_bound_the_score(seed: int, kind: str, scale: float) -> None:
    similarity = make_similarity(kind)
    queries, items = draw(seed, scale=scale)
    found = similarity.compare(similarity.query_parts(queries), similarity.item_parts(items))
    assert bool((found.gate_weights >= 0).all())
    torch.testing.assert_close(found.gate_weights.sum(dim=-1), torch.ones(4, 11), rtol=0, atol=1e-6)
    slack = 1e-6 * found.component_scores.abs().amax(dim=-1)
    assert bool((found.scores <= found.component_scores.amax(dim=-1) + slack).all())
    assert bool((found.scores >= found.component_scores.amin(dim=-1) - slack).all())


@given(seed=SEEDS, dropout=st.floats(0.01, 0.99), num_pairs=st.sampled_from([1, 4]))
def test_weights_sum_to_one_while_training(seed: int, dropout: float, num_pairs: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        mol = MixtureOfLogits(
            query_dim=6, item_dim=6, num_query_components=num_pairs, num_item_components=1, component_dim=4,
            projection_dim=8, gate_dim=8, gate_dropout=dropout,
        )  # fmt: skip
        queries, items = draw(seed)
        found = mol.compare(mol.query_parts(queries), mol.item_parts(items))
    torch.testing.assert_close(found.gate_weights.sum(dim=-1), torch.ones(4, 11), rtol=0, atol=1e-5)


@given(seed=SEEDS, kind=st.sampled_from(KINDS))
def test_permuting_items_permutes_scores(seed: int, kind: str) -> None:
    similarity = make_similarity(kind)
    queries, items = draw(seed)
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed))
    query_parts = similarity.query_parts(queries)
    scores = similarity.score(query_parts, similarity.item_parts(items))
    permuted = similarity.score(query_parts, similarity.item_parts(items[order]))
    torch.testing.assert_close(permuted, scores[:, order], rtol=1e-5, atol=1e-4)


@given(seed=SEEDS, kind=st.sampled_from(KINDS))
def test_candidates_score_as_all_pairs_do(seed: int, kind: str) -> None:
    similarity = make_similarity(kind)
    queries, items = draw(seed)
    query_parts, item_parts = similarity.query_parts(queries), similarity.item_parts(items)
    candidates = torch.randint(len(items), (len(queries), 5), generator=torch.Generator().manual_seed(seed))
    own = similarity.score_candidates(query_parts, item_parts[candidates])
    expected = similarity.score(query_parts, item_parts).gather(1, candidates)
    torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-4)


@settings(max_examples=15)
@given(seed=SEEDS)
def test_fp32_agrees_with_fp64(seed: int) -> None:
    similarity = make_similarity("mixture")
    assert isinstance(similarity, MixtureOfLogits)
    queries, items = draw(seed)
    single = similarity(queries, items)
    double = similarity.double()(queries.double(), items.double())
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-4)  # scores reach 20


@given(seed=SEEDS, num_rows=st.integers(1, 20), num_pairs=st.integers(1, 8))
def test_load_balance_loss_is_negative_mutual_information(seed: int, num_rows: int, num_pairs: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(num_rows, num_pairs, generator=generator, dtype=torch.float64).mul(3).softmax(dim=-1)
    loss = float(load_balance_loss(weights))
    assert -torch.log(torch.tensor(float(min(num_rows, num_pairs)))) - 1e-9 <= loss <= 1e-9
    joint = weights / num_rows
    independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    assert loss == pytest.approx(-float((joint * (joint / independent).log()).sum()), abs=1e-9)


def test_gradients(similarity: Similarity) -> None:
    assert isinstance(similarity, torch.nn.Module)
    similarity.double()
    queries, items = draw(0, num_queries=2, num_items=3)
    weights = list(similarity.parameters())
    users = {"user_ids": torch.tensor([1, 7])} if getattr(similarity, "user_table", None) is not None else {}

    def scores(queries: torch.Tensor, items: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return similarity.score(similarity.query_parts(queries, **users), similarity.item_parts(items))

    inputs = (queries.double().requires_grad_(), items.double().requires_grad_(), *weights)
    assert torch.autograd.gradcheck(scores, inputs, fast_mode=True)


def test_gradient_of_load_balance_loss() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: load_balance_loss(z.softmax(-1)), (logits,))
