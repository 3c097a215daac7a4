"""Native searches by component and above thresholds: what a naive search of all native scores and bounds finds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import DotProduct
from railsearch.kernels import NO_ROW, RowFilter, TorchKernel, select_best
from railsearch.kernels.native import NativeKernel
from tests.support.native import FORMS, ISAS, LATE, PRECISIONS, bits, forced, make_parts, make_similarity, needs_native

pytestmark = needs_native

SEEDS = st.integers(0, 2**31 - 1)


def make_filter(seed: int, num_queries: int, num_items: int, share: float) -> RowFilter | None:
    if not share:
        return None
    generator = torch.Generator().manual_seed(seed)
    lists = [
        torch.randperm(num_items, generator=generator)[: int(share * num_items)].repeat(2) for _ in range(num_queries)
    ]
    allowed = torch.rand(num_items, generator=generator) >= share / 2
    return RowFilter.from_lists(lists, device=torch.device("cpu"), is_allowed=allowed)


def hide(values: Tensor, row_filter: RowFilter | None) -> Tensor:
    values = values.clone()
    if row_filter is not None:
        row_filter.hide(values, 0)
    return values


def threshold_of(bounds: Tensor, share: float) -> Tensor:
    """Return thresholds (B,) that this share of the bounds (B, N) reaches; each is a bound, so that ties count."""
    return bounds.sort(dim=1).values[:, int((1 - share) * (bounds.shape[1] - 1))]


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_queries=st.integers(0, 12),
    num_items=st.integers(1, 130),
    gate_inputs=st.sampled_from(FORMS),
    dtype=st.sampled_from(PRECISIONS),
    isa=st.sampled_from(ISAS),
    num_threads=st.sampled_from([1, 3]),
    share_hidden=st.sampled_from([0.0, 0.1, 0.9]),
    share_above=st.sampled_from([0.0, 0.05, 0.3, 0.9, 1.0]),
    k=st.integers(1, 60),
)
def test_top_k_above(
    seed: int,
    num_queries: int,
    num_items: int,
    gate_inputs: list[str],
    dtype: torch.dtype,
    isa: str,
    num_threads: int,
    share_hidden: float,
    share_above: float,
    k: int,
) -> None:
    mixture = make_similarity(3, 2, 9, 5, gate_inputs, seed=seed)
    queries, items = make_parts(mixture, num_queries, num_items, dtype=dtype, seed=seed)
    kernel, k = NativeKernel(mixture), min(k, num_items)
    row_filter = make_filter(seed, num_queries, num_items, share_hidden)
    with forced("portable"):
        bounds = hide(kernel.bounds(queries, items), row_filter)  # (B, N)
        scores = hide(kernel.score(queries, items, 0, num_items), row_filter)  # (B, N)
    thresholds = threshold_of(bounds, share_above)  # (B,)
    with forced(isa, num_threads=num_threads):
        found = kernel.top_k_above(queries, items, k, thresholds, row_filter)
    is_scored = (bounds >= thresholds[:, None]) & (bounds > -torch.inf)  # (B, N)
    best, rows = select_best(scores.masked_fill(~is_scored, -torch.inf), k)  # (B, K)
    assert torch.equal(bits(found.scores), bits(best))
    assert torch.equal(found.rows[best > -torch.inf], rows[best > -torch.inf])
    assert torch.equal(found.num_scored, is_scored.sum(dim=1))
    skipped = bounds.masked_fill(is_scored, -torch.inf)
    assert torch.equal(bits(found.best_skipped), bits(skipped.amax(dim=1)))


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_queries=st.integers(0, 12),
    num_items=st.integers(1, 130),
    dtype=st.sampled_from(PRECISIONS),
    isa=st.sampled_from(ISAS),
    num_threads=st.sampled_from([1, 3]),
    share_hidden=st.sampled_from([0.0, 0.1, 0.9]),
    n=st.integers(1, 40),
    m=st.integers(1, 140),
    gate_inputs=st.sampled_from([["pair"], LATE]),
)
def test_best_by_component(
    seed: int,
    num_queries: int,
    num_items: int,
    dtype: torch.dtype,
    isa: str,
    num_threads: int,
    share_hidden: float,
    n: int,
    m: int,
    gate_inputs: list[str],
) -> None:
    mixture = make_similarity(3, 2, 9, 5, gate_inputs, seed=seed)
    queries, items = make_parts(mixture, num_queries, num_items, dtype=dtype, seed=seed)
    row_filter = make_filter(seed, num_queries, num_items, share_hidden)
    kernel = NativeKernel(mixture)
    vectors = queries.components / mixture.temperature  # (B, Pq, d)
    with forced(isa, num_threads=num_threads):
        found = kernel.best_by_component(queries, items, n, m, row_filter)
    with forced("portable"):
        for component in range(2):
            own = kernel.scan(vectors, items.components[:, component], n, row_filter)
            assert torch.equal(found.rows.unflatten(1, (3, 2))[:, :, component], own.rows)
            assert torch.equal(bits(found.scores.unflatten(1, (3, 2))[:, :, component]), bits(own.scores))
        bounds, rows = select_best(hide(kernel.bounds(queries, items), row_filter), min(m, num_items))
    assert torch.equal(bits(found.bounds), bits(bounds))
    assert torch.equal(found.bound_rows, rows.masked_fill(bounds == -torch.inf, NO_ROW))


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_items=st.integers(1, 90),
    share_hidden=st.sampled_from([0.0, 0.5]),
    above=st.floats(0, 1),
    gate_inputs=st.sampled_from([["query", "pair"], LATE]),
)
def test_torch_returns_the_same_rows_and_counts(
    seed: int, num_items: int, share_hidden: float, above: float, gate_inputs: list[str]
) -> None:
    mixture = make_similarity(3, 2, 9, 5, gate_inputs, seed=seed)
    queries, items = make_parts(mixture, 5, num_items, seed=seed)
    row_filter = make_filter(seed, 5, num_items, share_hidden)
    native, reference = NativeKernel(mixture), TorchKernel(mixture)
    by_native = native.best_by_component(queries, items, 7, 20, row_filter)
    by_torch = reference.best_by_component(queries, items, 7, 20, row_filter)
    torch.testing.assert_close(by_native.scores, by_torch.scores, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(by_native.bounds, by_torch.bounds, rtol=1e-4, atol=1e-4)
    # Rounding may put a bound that equals the threshold on either side of it: thresholds lie below one, and a query
    # with another bound close to its threshold is not compared.
    k, bounds = min(9, num_items), native.bounds(queries, items)
    thresholds = threshold_of(bounds, above) - 1e-2
    is_clear = ((bounds - thresholds[:, None]).abs() > 1e-3).all(dim=1)  # (B,)
    mine = native.top_k_above(queries, items, k, thresholds, row_filter)
    right = reference.top_k_above(queries, items, k, thresholds, row_filter)
    visible = RowFilter.nothing(device=torch.device("cpu")) if row_filter is None else row_filter
    num_visible = visible.num_visible(5, num_items)
    is_complete = right.num_scored == num_visible  # torch scores all rows if that is cheaper
    is_comparable = is_clear & ~is_complete
    torch.testing.assert_close(mine.scores[is_comparable], right.scores[is_comparable], rtol=1e-4, atol=1e-3)
    assert torch.equal(mine.num_scored[is_comparable], right.num_scored[is_comparable])
    whole = native.top_k_above(queries, items, k, torch.full_like(thresholds, -torch.inf), row_filter)
    torch.testing.assert_close(whole.scores[is_complete], right.scores[is_complete], rtol=1e-4, atol=1e-3)
    assert torch.equal(whole.num_scored, num_visible)
    assert bool((mine.scores <= whole.scores).all())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("gate_inputs", [["query", "item", "pair"], LATE], ids=["mixture", "late"])
def test_threads_and_query_blocks_do_not_change_searches_above_thresholds(isa: str, gate_inputs: list[str]) -> None:
    num_items = 400 if isa == "portable" else 3000
    mixture = make_similarity(8, 4, 32, 16, gate_inputs)
    queries, items = make_parts(mixture, 70, num_items)
    kernel = NativeKernel(mixture)
    with forced(isa, num_threads=1):
        thresholds = threshold_of(kernel.bounds(queries, items), 0.1)
        above = kernel.top_k_above(queries, items, 20, thresholds)
        by_component = kernel.best_by_component(queries, items, 5, 50)
    with forced(isa, num_threads=4):
        again = kernel.top_k_above(queries, items, 20, thresholds)
        component_again = kernel.best_by_component(queries, items, 5, 50)
        alone = kernel.top_k_above(queries[69:], items, 20, thresholds[69:])
    for name in ("scores", "rows", "num_scored", "best_skipped"):
        assert torch.equal(getattr(above, name), getattr(again, name))
        assert torch.equal(getattr(above, name)[69:], getattr(alone, name))
    for name in ("scores", "rows", "bounds", "bound_rows"):
        assert torch.equal(getattr(by_component, name), getattr(component_again, name))


def test_dot_products_above_a_threshold() -> None:
    dot = DotProduct(dim=2)
    queries, items = dot.query_parts(torch.eye(2)), dot.item_parts(torch.tensor([[1.0, 2.0], [4.0, 3.0], [-0.0, 5.0]]))
    found = NativeKernel(dot).top_k_above(queries, items, 2, torch.tensor([1.0, 3.0]))
    assert found.scores.tolist() == [[4.0, 1.0], [5.0, 3.0]]
    assert found.rows.tolist() == [[1, 0], [2, 1]]
    assert found.num_scored.tolist() == [2, 2]
    assert found.best_skipped.tolist() == [0.0, 2.0]
