"""Every strategy against brute force in fp64: certificates hold, exact means exact, filters are kept."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from railsearch import (
    Adaptive,
    Average,
    BruteForce,
    Combined,
    DotProduct,
    Index,
    InvalidInputError,
    MixtureOfLogits,
    NotEnoughItemsError,
    PerComponent,
    SearchResult,
    TwoPass,
)
from railsearch.index import Precision, Strategy
from railsearch.index.corpus import Corpus
from railsearch.similarity import Comparison, ItemParts, QueryParts, Similarity
from railsearch.similarity.parts import all_pairs, best_pairs, own_pairs

EXACT = (BruteForce(), TwoPass(), Adaptive())
TOLERANCE = 5e-3  # of scores that reach 50: fp32 against fp64, through gates that magnify rounding thirty times


def make_world(kind: str, num_items: int, seed: int) -> tuple[Similarity, Tensor, Tensor]:
    """A similarity and embeddings that make life hard: sharp gates, near ties, duplicates, one component."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"query_dim": 6, "item_dim": 6, "component_dim": 5, "projection_dim": 8, "gate_dim": 8}
    items, queries = torch.randn(num_items, 6, generator=generator), torch.randn(3, 6, generator=generator)
    if kind == "dot":
        return DotProduct(dim=6), items, queries
    if kind == "single":
        mol = MixtureOfLogits(num_query_components=1, num_item_components=1, **sizes)
    else:
        mol = MixtureOfLogits(num_query_components=3, num_item_components=2, temperature=0.02, **sizes)
    mol.reset_parameters(generator)
    with torch.no_grad():
        for parameter in mol.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.4)
        if kind == "sharp":
            mol.gate.pair.output.weight.mul_(30.0)
    if kind == "near ties":
        items = items[:1] + 1e-6 * items
    if kind == "duplicates":
        items = items[torch.randint(max(1, num_items // 4), (num_items,), generator=generator)]
    return mol.eval(), items, queries


WORLDS = ["random", "sharp", "near ties", "duplicates", "single", "dot"]


@torch.no_grad()
def fp64_scores(index: Index, queries: Tensor, items: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    similarity = copy.deepcopy(index.similarity)
    assert isinstance(similarity, nn.Module)
    like = next(iter(similarity.parameters()), torch.empty(0))
    item_parts, query_parts = similarity.item_parts(items.to(like)).to(dtype), similarity.query_parts(queries.to(like))

    def double(part: Tensor | None) -> Tensor | None:
        return None if part is None else part.double()

    return similarity.double().score(
        QueryParts(double(query_parts.components), double(query_parts.gate)),
        ItemParts(double(item_parts.components), double(item_parts.gate)),
    )


def check_result(result: SearchResult, truth: Tensor, ids: Tensor, k: int, visible: list[set[int]]) -> None:
    """Everything that a certificate promises, against the fp64 scores of the items that each query may be given."""
    row_of = {int(item): row for row, item in enumerate(ids)}
    for query in range(len(truth)):
        returned = [int(item) for item in result.ids[query] if item != -1]
        allowed = visible[query]
        assert len(returned) == len(set(returned)) == min(k, len(allowed))
        assert set(returned) <= allowed
        own = {item: float(truth[query, row_of[item]]) for item in allowed}
        for item, score in zip(returned, result.scores[query].tolist(), strict=False):
            assert abs(own[item] - score) <= TOLERANCE
        ranked = sorted(own.values(), reverse=True)[:k]
        if len(ranked) < k:  # all that there is was returned
            continue
        true_kth, found_kth = ranked[-1], float(result.scores[query, -1])
        assert true_kth - found_kth <= float(result.gap[query]) + TOLERANCE
        if bool(result.is_exact[query]):
            missed = [score for item, score in own.items() if item not in returned]
            assert max(missed, default=-np.inf) <= found_kth + TOLERANCE
        for item in returned[: int(result.num_certified[query])]:
            assert own[item] >= true_kth - TOLERANCE


@settings(max_examples=600)
@given(
    kind=st.sampled_from(WORLDS),
    seed=st.integers(0, 2**31 - 1),
    num_items=st.integers(1, 60),
    k=st.integers(1, 60),
    n=st.integers(1, 70),
    filters=st.sampled_from(["none", "exclude", "allow", "both"]),
    precision=st.sampled_from(Precision),
)
def test_certificates_hold(
    kind: str, seed: int, num_items: int, k: int, n: int, filters: str, precision: Precision
) -> None:
    k = min(k, num_items)
    similarity, items, queries = make_world(kind, num_items, seed)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(1000, generator=generator)[:num_items]
    index = Index.build(similarity, items, ids, precision=precision)
    truth = fp64_scores(index, queries, items, precision.dtype)
    exclude = allow = None
    visible = [set(ids.tolist()) for _ in range(3)]
    if filters in ("exclude", "both"):
        exclude = [ids[torch.rand(num_items, generator=generator) < 0.3] for _ in range(3)]
        visible = [mine - set(gone.tolist()) for mine, gone in zip(visible, exclude, strict=True)]
    if filters in ("allow", "both"):
        allow = ids[torch.rand(num_items, generator=generator) < 0.6]
        visible = [mine & set(allow.tolist()) for mine in visible]
    strategies: list[Strategy] = [
        *EXACT,
        PerComponent(n),
        Average(max(n, k)),
        Combined(max(1, n // 4), n),
        Adaptive(max_gap=0.5),
        Adaptive(max_scored=max(n, k)),
    ]
    for strategy in strategies:
        result = index.search(queries, k, strategy, exclude, allow, pad=True)
        check_result(result, truth, ids, k, visible)
        if strategy in EXACT:
            assert bool(result.is_exact.all()), strategy
            assert bool((result.gap == 0).all()), strategy
        if strategy == Adaptive(max_gap=0.5):
            assert bool((result.gap <= 0.5).all())
        if isinstance(strategy, Adaptive) and strategy.max_scored is not None:
            assert bool((result.num_scored <= strategy.max_scored).all())


@settings(max_examples=150)
@given(kind=st.sampled_from(WORLDS), seed=st.integers(0, 2**31 - 1))
def test_no_score_exceeds_its_bound_by_more_than_the_slack(kind: str, seed: int) -> None:
    similarity, items, queries = make_world(kind, 200, seed)
    with torch.no_grad():
        query_parts, item_parts = similarity.query_parts(queries), similarity.item_parts(items)
    similarity.train(False)
    corpus = Corpus.build(similarity, item_parts)
    bounds, slack = corpus.bounds(query_parts, None), corpus.slack(query_parts)
    everything = torch.arange(200).expand(3, 200)
    with torch.no_grad():
        for scores in (
            similarity.score(query_parts, item_parts),
            similarity.score_candidates(query_parts, item_parts[everything]),
        ):
            assert bool((scores <= bounds + slack[:, None]).all())
            assert bool((scores <= corpus.trivial_ceiling(query_parts)[:, None]).all())
    assert float(slack.max()) < 1e-3 * float(corpus.trivial_ceiling(query_parts).max())


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["always whole", "never whole"])
@pytest.mark.parametrize("kind", ["random", "sharp", "duplicates"])
def test_two_pass_over_many_stretches(kind: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railsearch.index.strategies.ROWS_PER_STRETCH", 64)
    monkeypatch.setattr("railsearch.index.strategies.WHOLE_SHARE", share)
    similarity, items, queries = make_world(kind, 3000, seed=5)
    index = Index.build(similarity, items)
    expected, found = index.search(queries, 20), index.search(queries, 20, TwoPass())
    torch.testing.assert_close(found.scores, expected.scores, rtol=1e-5, atol=TOLERANCE)
    assert bool(found.is_exact.all())
    if kind != "duplicates":
        assert torch.equal(found.ids, expected.ids)


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("k", [1, 4])
def test_adaptive_over_many_rounds(kind: str, k: int) -> None:
    similarity, items, queries = make_world(kind, 1500, seed=7)
    index = Index.build(similarity, items)
    truth, ids = fp64_scores(index, queries, items), torch.arange(1500)
    everything = [set(range(1500)) for _ in range(3)]
    for strategy in (Adaptive(), Adaptive(max_gap=0.3), Adaptive(max_scored=100), PerComponent(3), Combined(3, 10)):
        result = index.search(queries, k, strategy)
        check_result(result, truth, ids, k, everything)
        if strategy == Adaptive():
            assert bool(result.is_exact.all())
        if strategy == Adaptive(max_gap=0.3):
            assert bool((result.gap <= 0.3).all())


@given(seed=st.integers(0, 2**31 - 1), n=st.integers(1, 12), k=st.integers(1, 5), by_average=st.integers(0, 9))
def test_ceiling_is_the_best_component_of_what_was_not_scored(seed: int, n: int, k: int, by_average: int) -> None:
    similarity, items, queries = make_world("random", 300, seed)
    index = Index.build(similarity, items)
    strategy = Combined(n, by_average) if by_average else PerComponent(n)
    result = index.search(queries, k, strategy)
    with torch.no_grad():
        found = similarity.compare(similarity.query_parts(queries), similarity.item_parts(items)).component_scores
        slack = Corpus.build(similarity, similarity.item_parts(items)).slack(similarity.query_parts(queries))
    for query in range(3):
        chosen = {int(row) for pair in range(6) for row in found[query, :, pair].topk(n).indices}
        by_sum = found[query].sum(dim=-1)
        chosen |= set(by_sum.topk(by_average).indices.tolist())
        if len(chosen) < k:
            chosen |= set(by_sum.topk(k).indices.tolist())
        rest = [row for row in range(300) if row not in chosen]
        assert int(result.num_scored[query]) == len(chosen)
        expected = float(found[query, rest].max() + slack[query])
        assert float(result.ceiling[query]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("num_items", [7, 70, 700])
def test_ties_go_to_the_smaller_id_in_every_exact_strategy(num_items: int) -> None:
    # Small whole numbers are summed without rounding, so that ties are common and exact.
    generator = torch.Generator().manual_seed(num_items)
    items = torch.randint(-1, 2, (num_items, 4), generator=generator).float()
    queries = torch.randint(-1, 2, (40, 4), generator=generator).float()
    index = Index.build(DotProduct(dim=4), items, ids=torch.randperm(num_items, generator=generator))
    for k in (1, 5):
        expected = index.search(queries, k)
        for strategy in (*EXACT, PerComponent(num_items), Average(num_items), Adaptive(max_scored=num_items)):
            assert torch.equal(index.search(queries, k, strategy).ids, expected.ids), strategy


def test_what_scores_everything_is_exact() -> None:
    similarity, items, queries = make_world("random", 30, seed=3)
    index = Index.build(similarity, items)
    everything = (Average(30), Average(99), PerComponent(30), PerComponent(99), Combined(1, 30))
    for strategy in (*everything, Adaptive(max_scored=30)):
        result = index.search(queries, 5, strategy)
        assert bool(result.is_exact.all()), strategy
        assert result.num_certified.tolist() == [5, 5, 5]
    few = index.search(queries, 5, Average(6), allow=list(range(6)))
    assert bool(few.is_exact.all())  # all that may be given was scored


def planted_index(sharpness: float) -> Index:
    """5,000 items under a gate that follows the best of its pairs, more or less closely."""
    mol = MixtureOfLogits(
        num_query_components=2, num_item_components=2, component_dim=8, gate_inputs=["pair"], gate_dim=4,
        query_projection="ready", item_projection="ready",
    ).eval()  # fmt: skip
    with torch.no_grad():
        for layer in (mol.gate.pair.hidden, mol.gate.pair.output):
            layer.weight.copy_(torch.eye(4))
            layer.bias.zero_()
        mol.gate.pair.hidden.weight.mul_(sharpness)
    return Index.build(mol, torch.randn(5000, 2, 8, generator=torch.Generator().manual_seed(0)))


def test_two_pass_and_adaptive_pass_over_most_of_a_corpus_with_structure() -> None:
    index, queries = planted_index(1.0), torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(1))
    expected = index.search(queries, 10)
    for strategy in (TwoPass(), Adaptive()):
        found = index.search(queries, 10, strategy)
        assert torch.equal(found.ids, expected.ids)
        assert bool((found.num_scored < 2500).all())


def test_a_wider_gap_is_reached_sooner_and_never_exceeded() -> None:
    index, queries = planted_index(0.1), torch.randn(60, 2, 8, generator=torch.Generator().manual_seed(1))
    num_scored = []
    for max_gap in (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0):
        found = index.search(queries, 10, Adaptive(max_gap))
        assert bool((found.gap <= max_gap).all())
        num_scored.append(int(found.num_scored.sum()))
    assert num_scored == sorted(num_scored, reverse=True)
    assert num_scored[0] > 2 * num_scored[-1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(9), Combined(5, 9)], ids=str)
def test_models_in_other_precisions(dtype: torch.dtype, strategy: Strategy) -> None:
    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(
        num_query_components=1, num_item_components=3, component_dim=16, gate_inputs=["pair"], gate_dim=8, seed=0,
        query_projection="ready", item_projection="ready",
    ).to(dtype)  # fmt: skip
    centre = torch.randn(1, 3, 16, generator=generator)
    items = centre + 0.05 * torch.randn(2000, 3, 16, generator=generator)
    queries = torch.randn(40, 1, 16, generator=generator)
    index = Index.build(mol, items.to(dtype))
    truth = fp64_scores(index, queries, items.to(dtype).to(torch.promote_types(dtype, torch.float32)))
    result = index.search(queries, 5, strategy)
    check_result(result, truth, torch.arange(2000), 5, [set(range(2000))] * 40)


@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(9), Average(9), Combined(5, 9)], ids=str)
def test_no_promise_no_certificate(strategy: Strategy) -> None:
    class Squared(DotProduct):
        is_certifiable = False

        def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
            return super().score(query_parts, item_parts).square()

        def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
            return super().score_candidates(query_parts, candidate_parts).square()

    generator = torch.Generator().manual_seed(0)
    index = Index.build(Squared(dim=4), torch.randn(500, 4, generator=generator))
    queries = torch.randn(4, 4, generator=generator)
    expected, found = index.search(queries, 5), index.search(queries, 5, strategy)
    if strategy in EXACT:
        assert torch.equal(found.ids, expected.ids)
        assert bool(found.is_exact.all())
    else:
        assert bool((found.ceiling == torch.inf).all())
        assert not bool(found.is_exact.any())


@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(3), Average(5), Combined(2, 5)], ids=str)
@pytest.mark.parametrize("kind", ["random", "dot"])
def test_no_queries_no_answers(kind: str, strategy: Strategy) -> None:
    similarity, items, _ = make_world(kind, 100, seed=0)
    result = Index.build(similarity, items).search(torch.empty(0, 6), 5, strategy, exclude=[])
    assert result.ids.shape == result.scores.shape == (0, 5)
    assert result.ceiling.shape == result.num_scored.shape == (0,)


@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(500), Average(500)], ids=str)
def test_a_query_of_zeros(strategy: Strategy) -> None:
    index = Index.build(DotProduct(dim=4), torch.randn(500, 4, generator=torch.Generator().manual_seed(0)))
    result = index.search(torch.zeros(1, 4), 3, strategy)
    assert result.ids.tolist() == [[0, 1, 2]]


def test_results_carry_no_graph_and_count_each_item_once() -> None:
    similarity, items, queries = make_world("random", 300, seed=0)
    index = Index.build(similarity, items)
    for strategy in (*EXACT, PerComponent(5), Average(50), Combined(5, 50)):
        result = index.search(similarity.query_parts(queries), 3, strategy)
        assert not any(part.requires_grad for part in (result.scores, result.ceiling))
        assert bool((result.num_scored <= 300).all())


def test_tiny_numbers_are_not_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    index = Index.build(DotProduct(dim=4), 1e-24 * torch.randn(500, 4, generator=generator))
    queries = 1e5 * torch.randn(8, 4, generator=generator)
    expected = index.search(queries, 5)
    assert not bool(index.search(queries, 5, Average(6)).is_exact.any())
    assert torch.equal(index.search(queries, 5, TwoPass()).ids, expected.ids)


class TableSimilarity(nn.Module):
    """Component scores and gate weights as the paper's worked example states them: items only, one query."""

    num_query_components, num_item_components, component_dim = 1, 2, 1
    temperature, is_certifiable, takes_user_ids, values_per_pair = 1.0, True, False, 2
    query_shape, item_shape, config = (1,), (4,), {}

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        return QueryParts(queries[:, None], None)

    def item_parts(self, items: Tensor) -> ItemParts:
        return ItemParts(items[:, :2, None], items[:, 2:])

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        return self._weigh(all_pairs(query_parts.components, item_parts.components), item_parts.gate)

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        return self._weigh(own_pairs(query_parts.components, candidate_parts.components), candidate_parts.gate)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return best_pairs(query_parts.components, item_parts.components)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return self.compare(query_parts, item_parts).scores

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        return self.compare_candidates(query_parts, candidate_parts).scores

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        return torch.zeros(())

    def _weigh(self, component_scores: Tensor, gate: Tensor) -> Comparison:
        weights = gate.expand_as(component_scores)
        return Comparison((weights * component_scores).sum(-1), component_scores, weights)


@pytest.fixture
def worked_example() -> Index:
    """Items a to e of the paper's appendix: two component scores and two gate weights each."""
    table = torch.tensor(
        [
            [1.0, 1.0, 0.5, 0.5],
            [0.8, 0.0, 0.5, 0.5],
            [0.0, 0.8, 0.5, 0.5],
            [0.7, 0.0, 1.0, 0.0],
            [0.2, 0.2, 0.5, 0.5],
        ]
    )
    return Index.build(TableSimilarity(), table)


def test_worked_example_of_the_paper(worked_example: Index) -> None:
    query = torch.ones(1, 1)
    for strategy in EXACT:
        found = worked_example.search(query, 2, strategy)
        assert found.ids.tolist() == [[0, 3]]  # a and d
        torch.testing.assert_close(found.scores, torch.tensor([[1.0, 0.7]]))
        assert bool(found.is_exact.all())
    found = worked_example.search(query, 2, PerComponent(2))
    assert found.ids.tolist() == [[0, 1]]  # a, then b and c tie at 0.4
    assert float(found.kth_score) == pytest.approx(0.4)
    assert float(found.gap) == pytest.approx(0.3, abs=1e-5)  # and d's true score is just that much better
    assert found.num_scored.tolist() == [3]
    assert found.num_certified.tolist() == [1]
    # Item d is second by average once the others are out of the way: together nothing better is left than e.
    combined = worked_example.search(query, 2, Combined(2, 4))
    assert combined.ids.tolist() == [[0, 3]]
    assert bool(combined.is_exact.all())


def test_average_is_exact_where_weights_are_uniform() -> None:
    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(query_dim=6, item_dim=6, gate_inputs=[], seed=0).eval()
    items, queries = torch.randn(500, 6, generator=generator), torch.randn(5, 6, generator=generator)
    index = Index.build(mol, items)
    expected, found = index.search(queries, 10), index.search(queries, 10, Average(12))
    assert torch.equal(found.ids, expected.ids)
    assert not bool(found.is_exact.any())  # true, but not to be known from what was looked at
    torch.testing.assert_close(found.ceiling, torch.full((5,), 20.0), rtol=1e-3, atol=0)


def test_small_unions_are_filled_up_to_k() -> None:
    similarity, items, queries = make_world("random", 50, seed=1)
    result = Index.build(similarity, items).search(queries, 40, PerComponent(1))
    assert all(len(set(row)) == 40 for row in result.ids.tolist())


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (lambda: Average(0), "n is 0; ask for n >= 1"),
        (lambda: PerComponent(-1), "n is -1"),
        (lambda: Combined(1, 0), "by_average is 0"),
        (lambda: Combined(1.5, 2), "per_component is 1.5"),
        (lambda: Adaptive(max_gap=-1.0), "max_gap is -1.0"),
        (lambda: Adaptive(max_scored=0), "max_scored is 0"),
    ],
)
def test_bad_strategies(strategy: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        strategy()


def test_strategies_too_small_for_k(worked_example: Index) -> None:
    query = torch.ones(1, 1)
    with pytest.raises(InvalidInputError, match=r"k is 3 but Average\(2\) scores only 2 items; use Average\(3\)"):
        worked_example.search(query, 3, Average(2))
    with pytest.raises(InvalidInputError, match="k is 3 but max_scored is 2; ask for max_scored >= 3"):
        worked_example.search(query, 3, Adaptive(max_scored=2))


def test_allow_forms(worked_example: Index) -> None:
    query = torch.ones(1, 1)
    mask = torch.tensor([False, True, False, True, True])
    for allow in (
        mask,
        mask.numpy(),
        mask.tolist(),
        [1, 3, 4],
        {1, 3, 4},
        frozenset({1, 3, 4}),
        np.array([4, 3, 1, 999]),
    ):
        assert worked_example.search(query, 2, allow=allow).ids.tolist() == [[3, 1]]
    with pytest.raises(InvalidInputError, match=r"mask of shape \(2,\) but the index holds 5 items"):
        worked_example.search(query, 1, allow=[True, False])
    with pytest.raises(InvalidInputError, match="allow holds"):
        worked_example.search(query, 1, allow=[0.5])
    with pytest.raises(NotEnoughItemsError, match="k is 2 but allow leaves only 1 of 5 items"):
        worked_example.search(query, 2, allow=[3])
    with pytest.raises(NotEnoughItemsError, match="exclude leaves query 0 only 1 of 5 items"):
        worked_example.search(query, 2, allow=[3, 4], exclude=[[4]])


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_low_precision_halves_memory_and_stays_near(precision: str) -> None:
    similarity, items, queries = make_world("random", 500, seed=4)
    full, half = Index.build(similarity, items), Index.build(similarity, items, precision=precision)
    assert half._corpus.parts.components.element_size() == 2
    near = {"fp16": 0.1, "bf16": 1.0}[precision]  # of scores that reach 50
    torch.testing.assert_close(half.search(queries, 9).scores, full.search(queries, 9).scores, rtol=0, atol=near)
    with pytest.raises(InvalidInputError, match="precision is 'int8'; choose from: fp32, fp16, bf16"):
        Index.build(similarity, items, precision="int8")
    with pytest.raises(InvalidInputError, match="item components has NaN or infinite"):
        Index.build(DotProduct(dim=1), torch.tensor([[1e5]]), precision="fp16")


@pytest.mark.parametrize("precision", Precision)
def test_explanation_sums_to_the_score(precision: Precision) -> None:
    similarity, items, queries = make_world("sharp", 40, seed=2)
    index = Index.build(similarity, items, ids=torch.arange(40) + 100, precision=precision)
    result = index.search(queries, 5)
    for query in range(3):
        for item, score in zip(result.ids[query].tolist(), result.scores[query].tolist(), strict=True):
            explained = index.explain(queries[query], item)
            assert explained.item_id == item
            assert explained.score == pytest.approx(score, abs=1e-4)
            assert float(explained.contributions.sum()) == pytest.approx(explained.score, abs=1e-5)
            ranked = explained.ranked()
            values = [value for _, _, value in ranked]
            assert values == sorted(values, reverse=True)
            assert len({(i, j) for i, j, _ in ranked}) == 6
            i, j, value = ranked[0]
            assert value == pytest.approx(float(explained.gate_weights[i, j] * explained.component_scores[i, j]))


@pytest.mark.parametrize(
    ("query", "item", "message"),
    [
        (torch.zeros(6), 99, "item_id is 99, which is not among the 40 items"),
        (torch.zeros(6), 141, "item_id is 141, which is not among the 40 items"),
        (torch.zeros(6), "a", "item_id is 'a'"),
        (torch.zeros(6), 2**70, "which is not among the 40 items"),
        (torch.zeros(1, 6), 100, r"query has shape \(1, 1, 6\)"),
        (torch.full((6,), torch.nan), 100, "query has NaN"),
    ],
)
def test_bad_explanations(query: Tensor, item: int, message: str) -> None:
    similarity, items, _ = make_world("random", 40, seed=2)
    index = Index.build(similarity, items, ids=torch.arange(40) + 100)
    with pytest.raises(InvalidInputError, match=message):
        index.explain(query, item)
