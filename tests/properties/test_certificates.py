"""Certificates against brute force in fp64, in worlds where rounding, underflow, ties and filters could break them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import (
    Adaptive,
    Average,
    BruteForce,
    Combined,
    DotProduct,
    Index,
    MixtureOfLogits,
    PerComponent,
    SearchResult,
    TwoPass,
    Weighted,
)
from railsearch.errors import InvalidInputError
from railsearch.index import Precision, ScanPrecision, Strategy
from railsearch.index.certificate import Certificate, as_float32
from railsearch.index.corpus import Corpus
from railsearch.index.segment import Segment
from tests.support.search_worlds import EXACT
from tests.support.trials import trials

SEEDS = st.integers(0, 2**31 - 1)
STRATEGIES: tuple[Strategy, ...] = (
    *EXACT, PerComponent(5), Average(9), Combined(3, 9), Weighted(9), Adaptive(max_gap=0.1),
    Adaptive(max_scored=20),
)  # fmt: skip


def check_certificate(result: SearchResult, truth: Tensor, k: int, tolerance: Tensor) -> None:
    """Check gap, exactness and certified items against fp64 scores (B, N), within a tolerance (B,)."""
    true_kth = truth.topk(k).values[:, -1]  # (B,)
    own = truth.gather(1, result.ids)  # (B, K)
    assert bool(((own - result.scores.double()).abs() <= tolerance[:, None]).all())
    assert bool((true_kth - own.amin(dim=1) <= result.gap.double() + 2 * tolerance).all())
    missed = truth.scatter(1, result.ids, -torch.inf).amax(dim=1)  # (B,)
    assert bool((missed <= result.ceiling.double() + tolerance)[~result.is_exact].all())
    assert bool((missed <= own.amin(dim=1) + 2 * tolerance)[result.is_exact].all())


def rounding_of(queries: Tensor, items: Tensor) -> Tensor:
    """Return the ordinary fp32 rounding (B,) of dot products as large as these can be."""
    longest = items.double().norm(dim=1).max()
    return queries.double().norm(dim=1) * longest * (2.0**-24 * (items.shape[1] + 8))


@settings(max_examples=trials(15, 40))
@given(
    seed=SEEDS,
    query_power=st.integers(-25, 3),
    item_power=st.integers(-25, 3),
    share_tiny=st.sampled_from([0.0, 0.5, 0.98]),
    tiny_power=st.integers(-45, -20),
    precision=st.sampled_from(Precision),
    scan=st.sampled_from(ScanPrecision),
    flushes=st.booleans(),
)
def test_underflow_is_refused_or_covered(
    seed: int,
    query_power: int,
    item_power: int,
    share_tiny: float,
    tiny_power: int,
    precision: Precision,
    scan: ScanPrecision,
    flushes: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    items = 10.0**item_power * torch.randn(200, 4, generator=generator)
    is_tiny = torch.rand(200, generator=generator) < share_tiny
    items[is_tiny] = (items[is_tiny].double() * 10.0**tiny_power).float()
    queries = 10.0**query_power * torch.randn(5, 4, generator=generator)
    stored = items.to(precision.dtype).double()
    index = None
    try:
        index = Index.build(DotProduct(dim=4), items, precision=precision, scan=scan)
    except InvalidInputError as error:
        assert "underflow" in str(error)  # noqa: PT017
    if index is None:
        assert bool((stored == 0).all(dim=1)[(items != 0).any(dim=1)].any())
        return
    truth = queries.double() @ stored.T  # (B, N)
    for strategy in STRATEGIES:
        try:
            torch.set_flush_denormal(flushes)  # numbers below the smallest normal one become zero
            result = index.search(queries, 5, strategy)
        except InvalidInputError as error:
            assert "underflow" in str(error)  # noqa: PT017
            assert float(truth.abs().max()) < 1e-30
            continue
        finally:
            torch.set_flush_denormal(False)
        check_certificate(result, truth, 5, rounding_of(queries, stored))


@pytest.mark.parametrize("power", [-20, -21, -22, -23, -24, -25])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_queries_and_items_that_are_both_tiny_are_refused(power: int, strategy: Strategy) -> None:
    generator = torch.Generator().manual_seed(-power)
    index = Index.build(DotProduct(dim=4), 10.0**power * torch.randn(300, 4, generator=generator))
    queries = 10.0**power * torch.randn(3, 4, generator=generator)
    with pytest.raises(InvalidInputError, match=r"products underflow in fp32; scale the embeddings up"):
        index.search(queries, 5, strategy)
    result = index.search(queries * 10.0**-power, 5, strategy)
    truth = (queries * 10.0**-power).double() @ index_items(index).T
    check_certificate(result, truth, 5, rounding_of(queries * 10.0**-power, index_items(index)))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_embeddings_whose_components_underflow_to_zero_are_refused(strategy: Strategy) -> None:
    mol = MixtureOfLogits(
        query_dim=4, item_dim=4, num_query_components=2, num_item_components=2, component_dim=4, seed=0,
        item_projection="swiglu",
    ).eval()  # fmt: skip
    items = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
    index = Index.build(mol, items)
    with pytest.raises(InvalidInputError, match=r"queries has a row.*underflow.*scale the embeddings up"):
        index.search(torch.stack([items[0], 1e-23 * items[1]]), 3, strategy)
    with pytest.raises(InvalidInputError, match=r"items has a row.*underflow.*scale the embeddings up"):
        index.add(1e-23 * items)
    assert index.search(torch.zeros(1, 4), 3, strategy).scores.shape == (1, 3)  # zeros lose nothing


def index_items(index: Index) -> Tensor:
    return index._corpus.segments[0].parts.components[:, 0].double()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_items_that_vanish_in_storage_are_refused(precision: str) -> None:
    items = torch.ones(3, 4)
    items[1] = 1e-9 if precision == "fp16" else 1e-42
    with pytest.raises(InvalidInputError, match=r"row 1.*underflow"):
        Index.build(DotProduct(dim=4), items, precision=precision)
    items[1] = 0.0  # an item of zeros loses nothing
    assert len(Index.build(DotProduct(dim=4), items, precision=precision)) == 3


def test_zeros_are_no_underflow() -> None:
    index = Index.build(DotProduct(dim=4), torch.zeros(300, 4))
    for strategy in STRATEGIES:
        assert index.search(torch.ones(1, 4), 3, strategy).ids.tolist() == [[0, 1, 2]]
        assert index.search(torch.zeros(1, 4), 3, strategy).ids.tolist() == [[0, 1, 2]]


@settings(max_examples=15)
@given(
    seed=SEEDS,
    num_segments=st.integers(1, 4),
    share_removed=st.sampled_from([0.0, 0.3]),
    k=st.integers(1, 9),
    scan=st.sampled_from(ScanPrecision),
)
def test_ties_are_exact_over_segments_filters_and_removals(
    seed: int, num_segments: int, share_removed: float, k: int, scan: ScanPrecision
) -> None:
    # Small whole numbers are summed without rounding: ties are common, and truth is exact.
    generator = torch.Generator().manual_seed(seed)
    items = torch.randint(-1, 2, (120, 3), generator=generator).float()
    queries = torch.randint(-1, 2, (6, 3), generator=generator).float()
    ids = torch.randperm(500, generator=generator)[:120]
    pieces = torch.arange(120).chunk(num_segments)
    index = Index.build(DotProduct(dim=3), items[pieces[0]], ids[pieces[0]], scan=scan)
    for piece in pieces[1:]:
        index.add(items[piece], ids[piece])
    is_gone = torch.rand(120, generator=generator) < share_removed
    if bool(is_gone.any()):
        index.remove(ids[is_gone])
    is_allowed = torch.rand(120, generator=generator) < 0.7
    exclude = [ids[torch.rand(120, generator=generator) < 0.2] for _ in range(6)]
    truth = queries @ items.T  # (B, N)
    for query in range(6):
        truth[query, is_gone | ~is_allowed | torch.isin(ids, exclude[query])] = -torch.inf
    order = sorted(range(120), key=lambda row: int(ids[row]))
    expected = [
        [int(ids[row]) for row in sorted(order, key=lambda row, own=own: -float(own[row]))[:k]] for own in truth
    ]
    for strategy in (*EXACT, PerComponent(120), Average(120), Weighted(120)):
        result = index.search(queries, k, strategy, exclude, ids[is_allowed], pad=True)
        visible = (truth > -torch.inf).sum(dim=1)
        for query in range(6):
            count = min(k, int(visible[query]))
            assert result.ids[query, :count].tolist() == expected[query][:count], strategy
    for strategy in (PerComponent(3), Average(10), Combined(2, 10), Weighted(10), Adaptive(max_gap=1.0)):
        result = index.search(queries, k, strategy, exclude, ids[is_allowed], pad=True)
        kth = truth.topk(k).values[:, -1]
        is_claimed = result.is_exact & (kth > -torch.inf)
        assert torch.equal(result.kth_score[is_claimed], kth[is_claimed]), strategy


@settings(max_examples=trials(15, 40))
@given(seed=SEEDS, precision=st.sampled_from(Precision), scale=st.sampled_from([1.0, 30.0]))
def test_storage_slack_covers_the_items_as_they_were(seed: int, precision: Precision, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    mol = MixtureOfLogits(
        num_query_components=2, num_item_components=2, component_dim=8, gate_inputs=[], seed=0,
        query_projection="ready", item_projection="ready",
    ).eval()  # fmt: skip
    items = scale * torch.randn(100, 2, 8, generator=generator)
    parts, query_parts = mol.item_parts(items), mol.query_parts(torch.randn(3, 2, 8, generator=generator))
    corpus = Corpus.build(mol, [Segment.build(torch.arange(100), parts.to(precision.dtype))])
    certificate = Certificate.start(corpus, query_parts)
    with torch.no_grad():
        true_scores = mol.double().score(
            type(query_parts)(query_parts.components.double(), None), parts.to(torch.float64)
        )
    bounds = certificate.bounds(None).double()
    assert bool((true_scores <= bounds + certificate.slack[:, None].double()).all())


def test_a_ceiling_stays_above_a_score_that_rounds_to_the_same_float() -> None:
    kth = torch.tensor([1.0, 1.0 - 2e-9, 1.0, 1.0], dtype=torch.float64)
    ceiling = torch.tensor([1.0 + 1e-12, 1.0 - 1e-9, 1.0, -torch.inf], dtype=torch.float64)
    rounded = as_float32(ceiling, kth)
    assert (rounded > kth.float()).tolist() == [True, True, False, False]
    assert rounded.dtype == torch.float32


def test_a_model_in_fp64_certifies_no_near_tie() -> None:
    generator = torch.Generator().manual_seed(0)
    items = 1 + 1e-12 * torch.randn(400, 2, dtype=torch.float64, generator=generator)
    mol = MixtureOfLogits(
        num_query_components=1, num_item_components=1, component_dim=2, gate_inputs=[], seed=0,
        query_projection="ready", item_projection="ready",
    ).double().eval()  # fmt: skip
    index = Index.build(mol, items[:, None])
    queries = torch.randn(4, 1, 2, dtype=torch.float64, generator=generator)
    assert bool(index.search(queries, 3, BruteForce()).is_exact.all())
    assert not bool(index.search(queries, 3, Average(5)).is_exact.any())
    assert bool(index.search(queries, 3, TwoPass()).is_exact.all())
