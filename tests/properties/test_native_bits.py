"""Native scores: near those of fp64, and the same bits for a query-item pair however it is computed."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch.kernels import RowFilter, TorchKernel, select_best
from railsearch.kernels.native import NativeKernel, scan
from railsearch.similarity import ItemParts
from tests.support.native import (
    FORMS,
    ISAS,
    LATE,
    PRECISIONS,
    Pieces,
    bits,
    forced,
    fp64_scores,
    make_mixture,
    make_parts,
    make_similarity,
    needs_native,
)

pytestmark = needs_native

SEEDS = st.integers(0, 2**31 - 1)
SHAPES = st.fixed_dictionaries(
    {
        "num_query_components": st.integers(1, 9),
        "num_item_components": st.integers(1, 5),
        "dim": st.integers(1, 40),
        "gate_dim": st.integers(1, 20),
        "gate_inputs": st.sampled_from(FORMS),
        "activation": st.sampled_from(["silu", "identity"]),
        "seed": SEEDS,
    }
)


@settings(deadline=None)
@given(shape=SHAPES, num_queries=st.integers(0, 12), num_items=st.integers(0, 70), dtype=st.sampled_from(PRECISIONS))
def test_scores_are_those_of_fp64_and_of_torch(
    shape: dict[str, int], num_queries: int, num_items: int, dtype: torch.dtype
) -> None:
    mixture = make_similarity(**shape)
    queries, items = make_parts(mixture, num_queries, num_items, dtype=dtype, seed=shape["seed"])
    scores = NativeKernel(mixture).score(queries, items, 0, num_items)
    assert scores.shape == (num_queries, num_items)
    torch.testing.assert_close(scores.double(), fp64_scores(mixture, queries, items), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(scores, TorchKernel(mixture).score(queries, items, 0, num_items), rtol=1e-4, atol=1e-3)
    bounds = NativeKernel(mixture).bounds(queries, items)
    torch.testing.assert_close(bounds, TorchKernel(mixture).bounds(queries, items), rtol=1e-5, atol=1e-4)
    assert bool((scores <= bounds).all()), "no slack is needed: score and bound share their component scores"


@settings(deadline=None)
@given(
    shape=SHAPES,
    num_queries=st.integers(1, 9),
    num_items=st.integers(1, 60),
    dtype=st.sampled_from(PRECISIONS),
    isa=st.sampled_from(ISAS),
    data=st.data(),
)
def test_bits_never_depend_on_neighbours(
    shape: dict[str, int], num_queries: int, num_items: int, dtype: torch.dtype, isa: str, data: st.DataObject
) -> None:
    mixture = make_similarity(**shape)
    queries, items = make_parts(mixture, num_queries, num_items, dtype=dtype, seed=shape["seed"])
    kernel = NativeKernel(mixture)
    with forced("portable"):
        whole = kernel.score(queries, items, 0, num_items)  # (B, N)
    first = data.draw(st.integers(0, num_items))
    last = data.draw(st.integers(first, num_items))
    query = data.draw(st.integers(0, num_queries - 1))
    cuts = sorted({0, num_items, *data.draw(st.lists(st.integers(0, num_items), max_size=3))})
    rows = torch.randint(num_items, (num_queries, 30), generator=torch.Generator().manual_seed(shape["seed"]))
    with forced(isa):
        assert torch.equal(bits(kernel.score(queries, items, first, last)), bits(whole[:, first:last]))
        assert torch.equal(bits(kernel.score(queries[query : query + 1], items, 0, num_items)[0]), bits(whole[query]))
        pieces = Pieces([items[left:right] for left, right in itertools.pairwise(cuts)])
        own = kernel.score_candidates(queries, pieces, rows)
        assert torch.equal(bits(own), bits(whole.gather(1, rows)))
        assert torch.equal(bits(kernel.score_candidates(queries, items, rows)), bits(own))
        k = data.draw(st.integers(1, num_items))
        scores, found = kernel.top_k(queries, items, k)
    best, expected = select_best(whole, k)
    assert torch.equal(bits(scores), bits(best))
    assert torch.equal(found, expected)


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_copies=st.integers(2, 80),
    isa=st.sampled_from(ISAS),
    gate_inputs=st.sampled_from([["query", "item", "pair"], LATE]),
)
def test_copies_of_an_item_score_the_same_and_stand_in_the_order_of_rows(
    seed: int, num_copies: int, isa: str, gate_inputs: list[str]
) -> None:
    mixture = make_similarity(3, 2, 7, 5, gate_inputs, seed=seed)
    queries, items = make_parts(mixture, 4, 1, seed=seed)
    copies = ItemParts(items.components.repeat(num_copies, 1, 1), items.gate.repeat(num_copies, 1))
    with forced(isa):
        scores, rows = NativeKernel(mixture).top_k(queries, copies, num_copies)
    assert torch.equal(bits(scores), bits(scores[:, :1].expand_as(scores)))
    assert torch.equal(rows, torch.arange(num_copies).expand_as(rows))


@settings(deadline=None)
@given(seed=SEEDS, num_items=st.integers(1, 60), k=st.integers(1, 60), num_hidden=st.integers(0, 60), data=st.data())
def test_top_k_with_a_filter(seed: int, num_items: int, k: int, num_hidden: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(seed)
    mixture = make_similarity(2, 2, 5, 3, data.draw(st.sampled_from([["pair"], LATE])), seed=seed)
    queries, items = make_parts(mixture, 3, num_items, seed=seed)
    lists = [torch.randperm(num_items, generator=generator)[:num_hidden] for _ in range(3)]
    share = data.draw(st.sampled_from([0.0, 0.1, 0.9]))
    allowed = torch.rand(num_items, generator=generator) >= share
    row_filter = RowFilter.from_lists(lists, device=torch.device("cpu"), is_allowed=allowed)
    k = min(k, num_items)
    whole = NativeKernel(mixture).score(queries, items, 0, num_items)
    row_filter.hide(whole, 0)
    best, expected = select_best(whole, k)
    scores, rows = NativeKernel(mixture).top_k(queries, items, k, row_filter)
    assert torch.equal(scores, best)
    is_real = best > -torch.inf
    assert torch.equal(rows[is_real], expected[is_real])


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_rows=st.integers(0, 90),
    dim=st.integers(1, 40),
    num_queries=st.integers(0, 5),
    num_vectors=st.integers(0, 70),
    n=st.integers(1, 90),
    dtype=st.sampled_from(PRECISIONS),
    isa=st.sampled_from(ISAS),
    is_filtered=st.booleans(),
)
def test_scan(
    seed: int,
    num_rows: int,
    dim: int,
    num_queries: int,
    num_vectors: int,
    n: int,
    dtype: torch.dtype,
    isa: str,
    is_filtered: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Small whole numbers are summed without rounding: ties are common, and torch returns the same bits.
    vectors = torch.randint(-2, 3, (num_queries, num_vectors, dim), generator=generator).float()
    table = torch.randint(-2, 3, (num_rows, 3, dim), generator=generator).to(dtype)[:, 1]  # rows that are not dense
    row_filter = None
    if is_filtered:
        lists = [torch.randperm(num_rows, generator=generator)[: num_rows // 3] for _ in range(num_queries)]
        allowed = torch.rand(num_rows, generator=generator) < 0.8
        row_filter = RowFilter.from_lists(lists, device=torch.device("cpu"), is_allowed=allowed)
    all_bounds = torch.full((2, num_queries, num_rows + 5), -torch.inf)
    mine, right = all_bounds[0, :, 2 : num_rows + 2], all_bounds[1, :, 2 : num_rows + 2]
    with forced(isa):
        found = scan(vectors, table, n, row_filter, bounds=mine)
    expected = TorchKernel(make_mixture(1, 1, 1, 1, [])).scan(vectors, table, n, row_filter, bounds=right)
    assert torch.equal(found.scores, expected.scores)
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(all_bounds[0], all_bounds[1])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("gate_inputs", [["query", "item", "pair"], LATE], ids=["mixture", "late"])
def test_threads_and_layouts_do_not_change_bits(isa: str, gate_inputs: list[str]) -> None:
    num_items = 700 if isa == "portable" else 5000
    mixture = make_similarity(8, 4, 32, 16, gate_inputs)
    queries, items = make_parts(mixture, 70, num_items)
    kernel = NativeKernel(mixture)
    rows = torch.randint(num_items, (70, 50), generator=torch.Generator().manual_seed(0))
    pieces = Pieces([items[: num_items // 3], items[num_items // 3 :]])
    with forced(isa, num_threads=1):
        whole = kernel.score(queries, items, 0, num_items)
        best = kernel.top_k(queries, items, 20)
    for num_threads in (2, 5):
        with forced(isa, num_threads=num_threads):
            assert torch.equal(bits(kernel.score(queries, items, 0, num_items)), bits(whole))
            assert torch.equal(bits(kernel.score_candidates(queries, pieces, rows)), bits(whole.gather(1, rows)))
            scores, found = kernel.top_k(queries, items, 20)
            assert torch.equal(bits(scores), bits(best[0]))
            assert torch.equal(found, best[1])


@pytest.mark.parametrize("isa", ISAS)
def test_a_component_score_has_the_same_bits_in_a_scan_and_in_a_bound(isa: str) -> None:
    mixture = make_mixture(3, 2, 300, 4, ["pair"])  # longer than one block of depth
    queries, items = make_parts(mixture, 5, 200)
    vectors = queries.components / mixture.temperature
    raised = torch.full((5, 200), -torch.inf)
    with forced(isa):
        for component in range(2):
            scan(vectors, items.components[:, component], 3, None, bounds=raised)
        assert torch.equal(bits(raised), bits(NativeKernel(mixture).bounds(queries, items)))


@pytest.mark.parametrize("num_values", [2, 5, 1000])
@pytest.mark.parametrize("n", [1, 100, 300, 2500])
def test_selection_among_many_rows_and_ties(num_values: int, n: int) -> None:
    generator = torch.Generator().manual_seed(num_values)
    table = torch.randint(num_values, (9000, 2), generator=generator).float()
    table[::7] *= -1
    vectors = torch.tensor([[[1.0, 0.0], [0.0, -1.0], [1.0, 1.0], [0.0, 0.0]]])
    for num_threads in (1, 3):
        with forced(num_threads=num_threads):
            found = scan(vectors, table, n, None)
            products = (vectors[0] @ table.T) + 0.0  # whole numbers: no rounding
            best, rows = select_best(products, n)
            assert torch.equal(found.scores[0], best)
            assert torch.equal(found.rows[0], rows)
