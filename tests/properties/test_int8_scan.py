"""Scans in int8: every bound holds, and the result is that of a scan in full precision, bit for bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch.kernels import RowFilter
from railsearch.kernels.native import Int8Table, scan
from tests.support.hard_tables import KINDS, make_rows
from tests.support.native import ISAS, PRECISIONS, bits, forced, needs_native
from tests.support.trials import trials

pytestmark = needs_native

SEEDS = st.integers(0, 2**31 - 1)


@settings(deadline=None)
@given(
    seed=SEEDS,
    kind=st.sampled_from(KINDS),
    vector_kind=st.sampled_from(KINDS),
    num_rows=st.integers(1, 120),
    dim=st.integers(1, 70),
    num_vectors=st.integers(1, 9),
    dtype=st.sampled_from(PRECISIONS),
    isa=st.sampled_from(ISAS),
)
def test_every_score_lies_between_its_bounds(
    seed: int,
    kind: str,
    vector_kind: str,
    num_rows: int,
    dim: int,
    num_vectors: int,
    dtype: torch.dtype,
    isa: str,
) -> None:
    table = make_rows(kind, num_rows, dim, seed).to(dtype)
    vectors = make_rows(vector_kind, num_vectors, dim, seed + 1)
    with forced(isa):
        scores = all_scores(vectors, table)  # (V, N)
        int8 = Int8Table(table)
        low, high, _ = int8.bounds(vectors, vectors.new_zeros(num_vectors))
        assert bool((low <= scores).all())
        assert bool((scores <= high).all())
        exact = vectors.double() @ table.double().T  # (V, N)
        assert bool((low.double() <= exact).all())
        assert bool((exact <= high.double()).all())
        for row in {0, num_rows // 2, num_rows - 1}:
            _, _, is_reached = int8.bounds(vectors, scores[:, row])
            assert bool((is_reached | (scores < scores[:, row : row + 1])).all())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("most_digit", [63, 127])
def test_the_greatest_possible_error_is_within_the_bounds(most_digit: int, isa: str) -> None:
    # All digits of one side are off by one half, in the direction of the other side, which has no error.
    dim = 33
    halfway = (torch.arange(dim) - 16.5) / 64
    halfway[0] = most_digit / 64  # so that the scale is 1 / 64
    for off in (halfway, -halfway, halfway.abs()):
        signs = torch.sign(off * 64 - torch.round(off * 64))
        signs[0] = 1.0
        for vector, row in ((signs, off), (off, signs), (-signs, off), (off, -signs)):
            with forced(isa):
                scores = all_scores(vector[None], row[None])
                low, high, is_reached = Int8Table(row[None]).bounds(vector[None], scores[:, 0])
            assert bool((low <= scores).all())
            assert bool((scores <= high).all())
            assert bool(is_reached.all())


@pytest.mark.parametrize("isa", ISAS)
def test_bounds_are_narrow(isa: str) -> None:
    table, vectors = make_rows("normal", 500, 32, 0), make_rows("normal", 8, 32, 1)
    with forced(isa):
        scores = all_scores(vectors, table)
        low, high, is_reached = Int8Table(table).bounds(vectors, scores.amax(dim=1))
    assert float((high - low).mean()) < 0.4 * float(scores.std())
    assert int(is_reached.sum()) < 40


@settings(deadline=None, max_examples=trials(15, 60))
@given(
    seed=SEEDS,
    kind=st.sampled_from(KINDS),
    num_rows=st.integers(0, 3000),
    dim=st.integers(1, 40),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 24)),
    n=st.integers(1, 90),
    dtype=st.sampled_from(PRECISIONS),
    isa=st.sampled_from(ISAS),
    num_threads=st.sampled_from([1, 2, 5]),
    is_filtered=st.booleans(),
    is_dense=st.booleans(),
)
def test_a_scan_in_int8_returns_the_bits_of_full_precision(
    seed: int,
    kind: str,
    num_rows: int,
    dim: int,
    shape: tuple[int, int],
    n: int,
    dtype: torch.dtype,
    isa: str,
    num_threads: int,
    is_filtered: bool,
    is_dense: bool,
) -> None:
    table = make_rows(kind, num_rows, dim, seed).to(dtype)
    if not is_dense:
        table = torch.stack([table, -table, table], dim=1)[:, 1]
    vectors = make_rows("normal", shape[0] * shape[1], dim, seed + 1).view(*shape, dim)
    check_same(vectors, table, n, random_filter(seed, shape[0], num_rows) if is_filtered else None, isa, num_threads)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", KINDS)
def test_large_tables_of_every_kind(kind: str, isa: str) -> None:
    num_rows = 6000 if isa == "portable" else 20_000
    table = make_rows(kind, num_rows, 16, 3)
    vectors = make_rows("normal", 6, 16, 4).view(6, 1, 16)
    for n in (1, 100):
        check_same(vectors, table, n, None, isa, num_threads=2)


@pytest.mark.parametrize("n", [1, 64, 120])
def test_a_guess_that_is_wrong_does_no_harm(n: int) -> None:
    # The panels that are looked at first hold rows of the greatest length, and no others are like them.
    table = make_rows("normal", 48 * 64 * 3, 8, 0)
    is_sampled = (torch.arange(len(table)) // 48) % 64 == 0
    table[is_sampled] *= 100.0
    check_same(make_rows("normal", 5, 8, 1).view(5, 1, 8), table, n, None, ISAS[0], num_threads=2)
    table = torch.zeros(48 * 64 * 3, 8)
    table[48:50] = 1.0  # and here all rows but two have the same score
    check_same(torch.ones(3, 1, 8), table, n, None, ISAS[0], num_threads=2)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dim", [1, 3, 4, 5, 255, 256, 257, 1100])
def test_every_dimension(dim: int, isa: str) -> None:
    num_rows = 200 if isa == "portable" else 700
    table = make_rows("normal", num_rows, dim, 5)
    check_same(make_rows("normal", 7, dim, 6).view(1, 7, dim), table, 4, None, isa, num_threads=1)


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 1e30])
def test_numbers_that_int8_cannot_hold_are_scanned_in_full_precision(value: float) -> None:
    vectors = make_rows("normal", 4, 8, 0).view(4, 1, 8)
    table = make_rows("normal", 500, 8, 1)
    great = vectors.clone()
    great[2, 0, 3] = value
    check_same(great, table, 5, None, ISAS[0], num_threads=1)
    table[77, 5] = value
    assert Int8Table(table).num_bytes == 0
    check_same(vectors, table, 5, None, ISAS[0], num_threads=1)


def test_other_queries_are_scanned_with_torch() -> None:
    table, vectors = make_rows("normal", 300, 8, 0), make_rows("normal", 2, 8, 1).view(2, 1, 8)
    assert Int8Table(table)(vectors.double(), table, 3, None).scores.dtype == torch.float64
    assert Int8Table(table)(vectors[:0], table, 3, None).rows.shape == (0, 1, 3)


def test_a_filter_that_leaves_less_than_n() -> None:
    table, vectors = make_rows("normal", 5000, 8, 0), make_rows("normal", 3, 8, 1).view(3, 1, 8)
    for num_left in (0, 1, 70):
        allowed = torch.zeros(len(table), dtype=torch.bool)
        allowed[torch.randperm(len(table), generator=torch.Generator().manual_seed(0))[:num_left]] = True
        row_filter = RowFilter.from_lists([], device=torch.device("cpu"), is_allowed=allowed)
        for isa in ISAS:
            check_same(vectors, table, 100, row_filter, isa, num_threads=2)


def check_same(
    vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, isa: str, num_threads: int
) -> None:
    with forced(isa, num_threads=num_threads):
        expected = scan(vectors, table, n, row_filter)
        if not len(table):
            return
        found = Int8Table(table)(vectors, table, n, row_filter)
    assert torch.equal(bits(found.scores), bits(expected.scores))
    assert torch.equal(found.rows, expected.rows)


def random_filter(seed: int, num_queries: int, num_rows: int) -> RowFilter:
    generator = torch.Generator().manual_seed(seed)
    lists = [torch.randperm(num_rows, generator=generator)[: num_rows // 5] for _ in range(num_queries)]
    share = float(torch.rand((), generator=generator))
    allowed = torch.rand(num_rows, generator=generator) < share
    return RowFilter.from_lists(lists, device=torch.device("cpu"), is_allowed=allowed)


def all_scores(vectors: Tensor, table: Tensor) -> Tensor:
    """Return the scores (V, N) of a scan in full precision."""
    raised = torch.full((len(vectors), len(table)), -torch.inf)
    scan(vectors[:, None], table, 1, None, bounds=raised)
    return raised
