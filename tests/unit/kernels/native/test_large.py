"""Item parts of more than 2^31 values, in a sparse memory map: their last rows are found, scored and compared."""

import pytest
import torch

from railsearch.kernels import RowFilter
from railsearch.kernels.native import NativeKernel, scan
from railsearch.similarity import ItemParts
from tests.support.native import bits, make_mixture, make_parts, needs_native

pytestmark = needs_native

VALUES_PER_ROW = 2 * 16
NUM_ROWS = 2**31 // VALUES_PER_ROW + 1000
NUM_REAL = 50


@pytest.fixture(scope="module")
def vast(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """Components (N, 2, 16) of which only the last rows are on disk; the others are zeros that take no room."""
    path = tmp_path_factory.mktemp("vast") / "components"
    values = torch.from_file(str(path), shared=True, size=NUM_ROWS * VALUES_PER_ROW, dtype=torch.bfloat16)
    path.unlink()  # the memory map keeps the file until it is closed
    return values.view(NUM_ROWS, 2, 16)


def test_rows_beyond_two_to_the_31_values(vast: torch.Tensor) -> None:
    mixture = make_mixture(3, 2, 16, 8, ["query", "pair"])
    queries, few = make_parts(mixture, 4, NUM_REAL, dtype=torch.bfloat16)
    vast[-NUM_REAL:] = few.components
    items, first = ItemParts(vast, None), NUM_ROWS - NUM_REAL
    kernel = NativeKernel(mixture)
    right = kernel.score(queries, few, 0, NUM_REAL)  # (B, real)
    assert torch.equal(bits(kernel.score(queries, items, first, NUM_ROWS)), bits(right))
    rows = torch.arange(first, NUM_ROWS).expand(4, NUM_REAL)  # (B, real)
    assert torch.equal(bits(kernel.score_candidates(queries, items, rows)), bits(right))

    is_allowed = torch.zeros(NUM_ROWS, dtype=torch.bool)
    is_allowed[first:] = True
    row_filter = RowFilter.from_lists([], device=torch.device("cpu"), is_allowed=is_allowed)
    scores, found = kernel.top_k(queries, items, 5, row_filter)  # (B, 5)
    few_scores, few_found = kernel.top_k(queries, few, 5)
    assert torch.equal(bits(scores), bits(few_scores))
    assert torch.equal(found, few_found + first)
    nearest = scan(queries.components, vast[:, 1], 5, row_filter)
    few_nearest = scan(queries.components, few.components[:, 1], 5, None)
    assert torch.equal(nearest.rows, few_nearest.rows + first)
    assert torch.equal(bits(nearest.scores), bits(few_nearest.scores))
