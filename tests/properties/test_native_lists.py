"""Native lists: united and selected as the torch operations do it, bit for bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch.kernels import KernelName, native, select_best, unite, use_kernel
from tests.support.native import bits, forced, needs_native

pytestmark = needs_native

SEEDS = st.integers(0, 2**31 - 1)


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_lists=st.integers(0, 6),
    width=st.integers(1, 700),
    share=st.floats(0, 1),
    num_values=st.sampled_from([1, 4, 10_000]),
    has_ties=st.booleans(),
    num_threads=st.sampled_from([1, 3]),
)
def test_select_best(
    seed: int, num_lists: int, width: int, share: float, num_values: int, has_ties: bool, num_threads: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-num_values, num_values, (num_lists, width), generator=generator).float() * 0.25
    scores[torch.rand(scores.shape, generator=generator) < 0.1] = -torch.inf
    scores[torch.rand(scores.shape, generator=generator) < 0.1] *= 0.0
    scores.nan_to_num_(nan=-torch.inf)  # zeros of both signs are left
    ties = None
    if has_ties:
        ties = torch.rand(num_lists, 3 * width, generator=generator).argsort(dim=1)[:, :width]  # all different
    k = max(1, int(share * width))
    with forced(num_threads=num_threads):
        best, columns = select_best(scores, k, ties)
    with use_kernel(KernelName.TORCH):
        right, right_columns = select_best(scores, k, ties)
    assert torch.equal(best, right)
    is_real = right > -torch.inf
    assert torch.equal(columns[is_real], right_columns[is_real])
    assert torch.equal(bits(best), bits(scores.gather(1, columns)))


@settings(deadline=None)
@given(
    seed=SEEDS,
    num_queries=st.integers(0, 6),
    widths=st.lists(st.integers(0, 200), min_size=1, max_size=3),
    num_rows=st.sampled_from([1, 50, 10_000]),
    share_empty=st.sampled_from([0.0, 0.5, 1.0]),
    num_threads=st.sampled_from([1, 3]),
)
def test_unite(
    seed: int, num_queries: int, widths: list[int], num_rows: int, share_empty: float, num_threads: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    lists = []
    for width in widths:
        rows = torch.randint(num_rows, (num_queries, width), generator=generator)
        lists.append(rows.masked_fill(torch.rand(rows.shape, generator=generator) < share_empty, -1))
    with forced(num_threads=num_threads):
        rows, is_real = unite(lists, num_rows)
    with use_kernel(KernelName.TORCH):
        right, right_real = unite(lists, num_rows)
    assert torch.equal(rows, right)
    assert torch.equal(is_real, right_real)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_precisions_are_selected_with_torch(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0]], dtype=dtype)
    assert not native.can_select(scores, None)
    best, columns = select_best(scores, 2)
    assert best.dtype == dtype
    assert columns.tolist() == [[1, 2]]
