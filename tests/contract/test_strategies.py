"""Every strategy against brute force in fp64: certificates are true, exact means exact, filters are obeyed."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import Adaptive, Average, Combined, DotProduct, Index, MixtureOfLogits, PerComponent, TwoPass, Weighted
from railsearch.errors import InvalidInputError
from railsearch.index import Precision, ScanPrecision, Strategy
from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.segment import Segment
from railsearch.similarity import ItemParts, QueryParts
from tests.support.search_worlds import EXACT, WORLDS, check_result, fp64_scores, make_world, tolerance_of
from tests.support.trials import trials


@pytest.mark.usefixtures("each_kernel")
@settings(max_examples=trials(30, 300))
@given(
    kind=st.sampled_from(WORLDS),
    seed=st.integers(0, 2**31 - 1),
    num_items=st.integers(1, 60),
    k=st.integers(1, 60),
    n=st.integers(1, 70),
    filters=st.sampled_from(["none", "exclude", "allow", "both"]),
    precision=st.sampled_from(Precision),
    scan=st.sampled_from(ScanPrecision),
)
def test_certificates_hold(
    kind: str, seed: int, num_items: int, k: int, n: int, filters: str, precision: Precision, scan: ScanPrecision
) -> None:
    k = min(k, num_items)
    similarity, items, queries = make_world(kind, num_items, seed)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(1000, generator=generator)[:num_items]
    index = Index.build(similarity, items, ids, precision=precision, scan=scan)
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
        Weighted(max(n, k)),
        Combined(max(1, n // 4), n),
        Adaptive(max_gap=0.5),
        Adaptive(max_scored=max(n, k)),
    ]
    for strategy in strategies:
        result = index.search(queries, k, strategy, exclude, allow, pad=True)
        check_result(result, truth, ids, k, visible, tolerance_of(kind))
        if strategy in EXACT:
            assert bool(result.is_exact.all()), strategy
            assert bool((result.gap == 0).all()), strategy
        if strategy == Adaptive(max_gap=0.5):
            assert bool((result.gap <= 0.5).all())
        if isinstance(strategy, Adaptive) and strategy.max_scored is not None:
            assert bool((result.num_scored <= strategy.max_scored).all())


@pytest.mark.usefixtures("each_kernel")
@settings(max_examples=trials(20, 150))
@given(kind=st.sampled_from(WORLDS), seed=st.integers(0, 2**31 - 1))
def test_no_score_exceeds_its_bound_by_more_than_the_slack(kind: str, seed: int) -> None:
    similarity, items, queries = make_world(kind, 200, seed)
    with torch.no_grad():
        query_parts, item_parts = similarity.query_parts(queries), similarity.item_parts(items)
    similarity.train(False)
    corpus = Corpus.build(similarity, [Segment.build(torch.arange(200), item_parts)])
    certificate = Certificate.start(corpus, query_parts)
    bounds, slack = certificate.bounds(None), certificate.slack
    trivial = certificate.skip_unseen(torch.ones(3, dtype=torch.bool)).ceiling
    everything = torch.arange(200).expand(3, 200)
    with torch.no_grad():
        for scores in (
            similarity.score(query_parts, item_parts),
            similarity.score_candidates(query_parts, item_parts[everything]),
        ):
            assert bool((scores <= bounds + slack[:, None]).all())
            assert bool((scores <= trivial[:, None]).all())
    assert float(slack.max()) < 1e-3 * float(trivial.max())


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("share", [0.0, 1.0], ids=["always complete", "never complete"])
@pytest.mark.parametrize("kind", ["random", "sharp", "duplicates"])
def test_the_rest_over_many_stretches(kind: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railsearch.index.strategies.rest.ROWS_PER_STRETCH", 170)
    monkeypatch.setattr("railsearch.index.strategies.rest.PAIRS_PER_STRETCH", 1)
    monkeypatch.setattr("railsearch.kernels.torch_kernel.COMPLETE_SHARE", share)
    similarity, items, queries = make_world(kind, 3000, seed=5)
    index = Index.build(similarity, items)
    expected = index.search(queries, 20)
    for strategy in (TwoPass(), Adaptive()):
        found = index.search(queries, 20, strategy)
        torch.testing.assert_close(found.scores, expected.scores, rtol=1e-5, atol=tolerance_of(kind))
        assert bool(found.is_exact.all())
        if kind != "duplicates":
            assert torch.equal(found.ids, expected.ids)


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("k", [1, 4])
def test_adaptive_over_many_rounds(kind: str, k: int) -> None:
    similarity, items, queries = make_world(kind, 1500, seed=7)
    index = Index.build(similarity, items)
    truth, ids = fp64_scores(index, queries, items), torch.arange(1500)
    everything = [set(range(1500)) for _ in range(3)]
    for strategy in (Adaptive(), Adaptive(max_gap=0.3), Adaptive(max_scored=100), PerComponent(3), Combined(3, 10)):
        result = index.search(queries, k, strategy)
        check_result(result, truth, ids, k, everything, tolerance_of(kind))
        if strategy == Adaptive():
            assert bool(result.is_exact.all())
        if strategy == Adaptive(max_gap=0.3):
            assert bool((result.gap <= 0.3).all())


def has_clear_last_place(scores: torch.Tensor, count: int) -> bool:
    """Return False if rounding, or the order of ids, decides which item is the last of the best `count`."""
    values = scores.topk(count + 1).values
    return count == 0 or float(values[count - 1] - values[count]) > 1e-3


@pytest.mark.usefixtures("each_kernel")
@given(seed=st.integers(0, 2**31 - 1), n=st.integers(1, 12), k=st.integers(1, 5), by_average=st.integers(0, 9))
def test_ceiling_is_the_best_component_of_what_was_not_scored(seed: int, n: int, k: int, by_average: int) -> None:
    similarity, items, queries = make_world("random", 300, seed)
    index = Index.build(similarity, items)
    strategy = Combined(n, by_average) if by_average else PerComponent(n)
    result = index.search(queries, k, strategy)
    with torch.no_grad():
        found = similarity.compare(similarity.query_parts(queries), similarity.item_parts(items)).component_scores
        segment = Segment.build(torch.arange(300), similarity.item_parts(items))
        slack = Certificate.start(Corpus.build(similarity, [segment]), similarity.query_parts(queries)).slack
    for query in range(3):
        by_sum = found[query].sum(dim=-1)
        assume(all(has_clear_last_place(found[query, :, pair], n) for pair in range(6)))
        assume(has_clear_last_place(by_sum, by_average) and has_clear_last_place(by_sum, k))
        chosen = {int(row) for pair in range(6) for row in found[query, :, pair].topk(n).indices}
        chosen |= set(by_sum.topk(by_average).indices.tolist())
        if len(chosen) < k:
            chosen |= set(by_sum.topk(k).indices.tolist())
        rest = [row for row in range(300) if row not in chosen]
        assert int(result.num_scored[query]) == len(chosen)
        expected = float(found[query, rest].max() + slack[query])
        assert float(result.ceiling[query]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.usefixtures("each_kernel")
@pytest.mark.parametrize("num_items", [7, 70, 700])
def test_ties_go_to_the_smaller_id_in_every_exact_strategy(num_items: int) -> None:
    # Small whole numbers are summed without rounding, so that ties are common and exact.
    generator = torch.Generator().manual_seed(num_items)
    items = torch.randint(-1, 2, (num_items, 4), generator=generator).float()
    queries = torch.randint(-1, 2, (40, 4), generator=generator).float()
    index = Index.build(DotProduct(dim=4), items, ids=torch.randperm(num_items, generator=generator))
    some = (PerComponent(num_items), Average(num_items), Weighted(num_items))
    for k in (1, 5):
        expected = index.search(queries, k)
        for strategy in (*EXACT, *some, Adaptive(max_scored=num_items)):
            assert torch.equal(index.search(queries, k, strategy).ids, expected.ids), strategy


def test_what_scores_everything_is_exact() -> None:
    similarity, items, queries = make_world("random", 30, seed=3)
    index = Index.build(similarity, items)
    everything = (Average(30), Average(99), PerComponent(30), PerComponent(99), Combined(1, 30), Weighted(30))
    for strategy in (*everything, Adaptive(max_scored=30)):
        result = index.search(queries, 5, strategy)
        assert bool(result.is_exact.all()), strategy
        assert result.num_certified.tolist() == [5, 5, 5]
    for strategy in (Average(6), Weighted(7)):
        few = index.search(queries, 5, strategy, allow=list(range(6)))
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
@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(9), Combined(5, 9), Weighted(9)], ids=str)
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


@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(9), Average(9), Combined(5, 9), Weighted(9)], ids=str)
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


@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(3), Average(5), Combined(2, 5), Weighted(5)], ids=str)
@pytest.mark.parametrize("kind", ["random", "dot"])
def test_no_queries_no_answers(kind: str, strategy: Strategy) -> None:
    similarity, items, _ = make_world(kind, 100, seed=0)
    result = Index.build(similarity, items).search(torch.empty(0, 6), 5, strategy, exclude=[])
    assert result.ids.shape == result.scores.shape == (0, 5)
    assert result.ceiling.shape == result.num_scored.shape == (0,)


@pytest.mark.parametrize("strategy", [*EXACT, PerComponent(500), Average(500), Weighted(500)], ids=str)
def test_a_query_of_zeros(strategy: Strategy) -> None:
    index = Index.build(DotProduct(dim=4), torch.randn(500, 4, generator=torch.Generator().manual_seed(0)))
    result = index.search(torch.zeros(1, 4), 3, strategy)
    assert result.ids.tolist() == [[0, 1, 2]]


def test_results_carry_no_graph_and_count_each_item_once() -> None:
    similarity, items, queries = make_world("random", 300, seed=0)
    index = Index.build(similarity, items)
    for strategy in (*EXACT, PerComponent(5), Average(50), Combined(5, 50), Weighted(50)):
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


def test_average_is_exact_where_weights_are_uniform() -> None:
    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(query_dim=6, item_dim=6, gate_inputs=[], seed=0).eval()
    items, queries = torch.randn(500, 6, generator=generator), torch.randn(5, 6, generator=generator)
    index = Index.build(mol, items)
    expected, found = index.search(queries, 10), index.search(queries, 10, Average(12))
    assert torch.equal(found.ids, expected.ids)
    assert not bool(found.is_exact.any())  # true, but not to be known from what was looked at
    torch.testing.assert_close(found.ceiling, torch.full((5,), 20.0), rtol=1e-3, atol=0)


def test_weighted_finds_what_average_misses_under_a_gate_of_one_pair_for_each_query() -> None:
    generator = torch.Generator().manual_seed(0)
    mol = MixtureOfLogits(
        num_query_components=4, num_item_components=4, component_dim=16, gate_inputs=["query"], gate_dim=8,
        query_projection="ready", item_projection="ready", seed=0,
    ).eval()  # fmt: skip
    with torch.no_grad():
        mol.gate.query.output.weight.mul_(400)
    index = Index.build(mol, torch.randn(3000, 4, 16, generator=generator))
    queries = torch.randn(20, 4, 16, generator=generator)
    expected = index.search(queries, 10)

    def recall(strategy: Strategy) -> float:
        found = index.search(queries, 10, strategy)
        assert bool((found.num_scored <= 60).all())
        return float((found.scores >= expected.kth_score[:, None] - 1e-4).double().mean())

    assert recall(Weighted(12)) > 0.99  # the gate is the same for all items, so that the linearisation is exact
    assert recall(Average(44)) < 0.5


def test_weighted_asks_for_enough_items() -> None:
    similarity, items, queries = make_world("random", 50, seed=1)
    with pytest.raises(InvalidInputError, match=r"k is 9 but Weighted\(8\) chooses only 8 items; use Weighted\(9\)"):
        Index.build(similarity, items).search(queries, 9, Weighted(8))


def test_small_unions_are_filled_up_to_k() -> None:
    similarity, items, queries = make_world("random", 50, seed=1)
    result = Index.build(similarity, items).search(queries, 40, PerComponent(1))
    assert all(len(set(row)) == 40 for row in result.ids.tolist())


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (lambda: Average(0), "n is 0; ask for n >= 1"),
        (lambda: PerComponent(-1), "n is -1"),
        (lambda: Weighted(0), "n is 0; ask for n >= 1"),
        (lambda: Combined(1, 0), "by_average is 0"),
        (lambda: Combined(1.5, 2), "per_component is 1.5"),
        (lambda: Adaptive(max_gap=-1.0), "max_gap is -1.0"),
        (lambda: Adaptive(max_scored=0), "max_scored is 0"),
        (lambda: Adaptive(max_gap=10**400), r"max_gap is 1000+\.\.\.; give a number that fits into fp64"),
        (lambda: Adaptive(max_gap=-(10**5000)), "max_gap is a number of thousands of digits; give a number that fits"),
        (lambda: Adaptive(max_gap=float("inf")), "max_gap is inf; give a finite number"),
        (lambda: Adaptive(max_gap=float("nan")), "max_gap is nan; give a finite number"),
        (lambda: Adaptive(max_gap=True), "max_gap is True; give a number"),
        (
            lambda: Adaptive(max_scored=10**5000),
            "max_scored is a number of thousands of digits; ask for max_scored <=",
        ),
        (lambda: Average(10**5000), "n is a number of thousands of digits; ask for n <= 9223372036854775807"),
        (lambda: PerComponent(-(10**5000)), "n is a number of thousands of digits; ask for n >= 1"),
        (
            lambda: Combined(1, 10**5000),
            "by_average is a number of thousands of digits; ask for by_average <=",
        ),
    ],
)
def test_bad_strategies(strategy: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        strategy()


def test_sizes_far_beyond_the_corpus_score_all_of_it() -> None:
    similarity, items, queries = make_world("random", 50, seed=1)
    index = Index.build(similarity, items)
    expected = index.search(queries, 5)
    large = 10**18
    for strategy in (
        Average(large), Weighted(large), PerComponent(large), Combined(large, large), Adaptive(1e300, large),
    ):  # fmt: skip
        found = index.search(queries, 5, strategy)
        if not isinstance(strategy, Adaptive):
            assert torch.equal(found.ids, expected.ids), strategy
            assert bool(found.is_exact.all()), strategy
        assert bool((found.num_scored <= 50).all())


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_low_precision_halves_memory_and_stays_near(precision: str) -> None:
    similarity, items, queries = make_world("random", 500, seed=4)
    full, half = Index.build(similarity, items), Index.build(similarity, items, precision=precision)
    assert half.describe()["precision"] == precision
    near = {"fp16": 0.1, "bf16": 1.0}[precision]  # of scores that reach 50
    torch.testing.assert_close(half.search(queries, 9).scores, full.search(queries, 9).scores, rtol=0, atol=near)
    with pytest.raises(InvalidInputError, match="precision is 'int8'; choose from: fp32, fp16, bf16"):
        Index.build(similarity, items, precision="int8")
    with pytest.raises(InvalidInputError, match="item components has NaN or infinite"):
        Index.build(DotProduct(dim=1), torch.tensor([[1e5]]), precision="fp16")
