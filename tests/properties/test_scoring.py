"""Blocked scoring returns the scores of plain scoring, for every block and batch size."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from railsearch import DotProduct
from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.metrics import mean_reciprocal_rank
from railsearch.kernels import (
    RowFilter,
    RunningBest,
    TorchKernel,
    compute_item_parts,
    compute_query_parts,
    select_best,
    target_ranks,
)
from railsearch.kernels.blocks import ROWS_PER_SELECTION
from tests.support.similarities import KINDS, make_similarity

SEEDS = st.integers(0, 2**31 - 1)


def expected_order(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda column: (-scores[column], column))


@given(
    rows=st.lists(
        st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, float("-inf")]), min_size=7, max_size=7),
        min_size=1,
        max_size=4,
    ),
    k=st.integers(1, 7),
)
def test_selection_is_by_score_then_smaller_column(rows: list[list[float]], k: int) -> None:
    scores, columns = select_best(torch.tensor(rows), k)
    assert columns.tolist() == [expected_order(row)[:k] for row in rows]
    assert scores.tolist() == [[row[column] for column in expected_order(row)[:k]] for row in rows]


@given(seed=SEEDS, num_rows=st.integers(1, 40), chunk=st.integers(1, 12), k=st.integers(1, 40))
def test_chunks_do_not_change_the_selection(seed: int, num_rows: int, chunk: int, k: int) -> None:
    k = min(k, num_rows)
    scores = torch.randint(0, 6, (3, num_rows), generator=torch.Generator().manual_seed(seed)).float()
    best = RunningBest(k)
    for first in range(0, num_rows, chunk):
        best.update(scores[:, first : first + chunk], torch.arange(first, min(first + chunk, num_rows)))
    whole = select_best(scores, k)
    assert torch.equal(best.result()[0], whole[0])
    assert torch.equal(best.result()[1], whole[1])


@given(seed=SEEDS, kind=st.sampled_from(KINDS), pairs_per_block=st.integers(1, 200), num_queries=st.integers(1, 70))
def test_blocks_do_not_change_scores(seed: int, kind: str, pairs_per_block: int, num_queries: int) -> None:
    similarity = make_similarity(kind)
    generator = torch.Generator().manual_seed(seed)
    query_parts = similarity.query_parts(torch.randn(num_queries, 6, generator=generator))
    item_parts = similarity.item_parts(torch.randn(23, 6, generator=generator))
    whole = similarity.score(query_parts, item_parts)
    kernel = TorchKernel(similarity, pairs_per_block=pairs_per_block)
    scores, rows = kernel.top_k(query_parts, item_parts, k=23)
    torch.testing.assert_close(scores, whole.gather(1, rows), rtol=1e-5, atol=1e-4)
    assert bool((scores[:, 1:] <= scores[:, :-1]).all())
    assert torch.equal(rows.sort(dim=1).values, torch.arange(23).expand(num_queries, 23))
    own = TorchKernel(similarity, pairs_per_block=pairs_per_block).score_candidates(
        query_parts, item_parts, rows[:, :5]
    )
    torch.testing.assert_close(own, scores[:, :5], rtol=1e-5, atol=1e-4)


@given(seed=SEEDS, kind=st.sampled_from(KINDS))
def test_batch_equals_single(seed: int, kind: str) -> None:
    similarity = make_similarity(kind)
    generator = torch.Generator().manual_seed(seed)
    query_parts = similarity.query_parts(torch.randn(5, 6, generator=generator))
    item_parts = similarity.item_parts(torch.randn(17, 6, generator=generator))
    together, _ = TorchKernel(similarity).top_k(query_parts, item_parts, k=4)
    for row in range(5):
        alone, _ = TorchKernel(similarity).top_k(query_parts[row : row + 1], item_parts, k=4)
        torch.testing.assert_close(alone[0], together[row], rtol=1e-5, atol=1e-4)


@given(seed=SEEDS, num_items=st.integers(1, 30), num_excluded=st.integers(0, 30))
def test_ranks_and_exclusions_against_a_plain_sort(seed: int, num_items: int, num_excluded: int) -> None:
    similarity = make_similarity("dot")
    generator = torch.Generator().manual_seed(seed)
    # Small whole numbers are summed without rounding, so that ties are common and exact.
    query_parts = similarity.query_parts(torch.randint(-1, 2, (3, 6), generator=generator).float())
    item_parts = similarity.item_parts(torch.randint(-1, 2, (num_items, 6), generator=generator).float())
    lists = [torch.randperm(num_items, generator=generator)[:num_excluded] for _ in range(3)]
    row_filter = RowFilter.from_lists(lists, device=torch.device("cpu"))
    targets = torch.randint(num_items, (3,), generator=generator)
    ranks = target_ranks(
        similarity,
        query_parts,
        item_parts,
        targets,
        row_filter=row_filter,
        kernel=TorchKernel(similarity, pairs_per_block=7),
    )
    scores, rows = TorchKernel(similarity).top_k(query_parts, item_parts, num_items, row_filter=row_filter)
    whole = TorchKernel(similarity).score_candidates(
        query_parts, item_parts, torch.arange(num_items).expand(3, num_items)
    )
    for query in range(3):
        gone = set(lists[query].tolist())
        allowed = [row for row in range(num_items) if row not in gone]
        best = sorted(allowed, key=lambda row: (-float(whole[query, row]), row))
        count = len(allowed)
        assert rows[query, :count].tolist() == best
        assert bool((scores[query, count:] == -torch.inf).all())
        target = int(targets[query])
        rivals = [row for row in allowed if row != target]
        key = (-float(whole[query, target]), target)
        assert int(ranks[query]) == 1 + sum((-float(whole[query, row]), row) < key for row in rivals)


def test_a_collapsed_model_is_not_a_perfect_one() -> None:
    similarity = make_similarity("mixture")
    one = similarity.item_parts(torch.randn(1, 6, generator=torch.Generator().manual_seed(0)))
    item_parts = one[torch.zeros(2000, dtype=torch.int64)]  # equal to the last bit
    query_parts = similarity.query_parts(torch.randn(256, 6, generator=torch.Generator().manual_seed(1)))
    targets = torch.arange(256) * 7
    ranks = target_ranks(similarity, query_parts, item_parts, targets)
    # All items are alike, so that rank 1 is no likelier than any other: rounding must not favour the target.
    assert mean_reciprocal_rank(ranks) < 0.1


def test_ranks_are_places_in_the_search_order() -> None:
    similarity = make_similarity("mixture")
    generator = torch.Generator().manual_seed(0)
    items = torch.randn(300, 6, generator=generator).repeat(2, 1)  # every item twice
    query_parts = similarity.query_parts(torch.randn(50, 6, generator=generator))
    item_parts = similarity.item_parts(items)
    targets = torch.randint(600, (50,), generator=generator)
    _, rows = TorchKernel(similarity).top_k(query_parts, item_parts, k=600)
    places = (rows == targets[:, None]).int().argmax(dim=1) + 1
    assert torch.equal(target_ranks(similarity, query_parts, item_parts, targets), places)


def test_training_mode_is_refused() -> None:
    similarity = make_similarity("mixture").train(True)
    query_parts, item_parts = similarity.query_parts(torch.zeros(1, 6)), similarity.item_parts(torch.zeros(2, 6))
    with pytest.raises(InvalidInputError, match=r"training mode.*call \.eval\(\)"):
        TorchKernel(similarity).top_k(query_parts, item_parts, k=1)
    dot = DotProduct(dim=2)  # has nothing that training mode could change
    TorchKernel(dot).top_k(dot.query_parts(torch.zeros(1, 2)), dot.item_parts(torch.zeros(2, 2)), k=1)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (torch.tensor([[0, 5]]), "candidates holds rows from 0 to 5 but there are 5 items"),
        (torch.tensor([[-1]]), "rows from -1"),
        (torch.tensor([0, 1]), "give one row of int64 candidates"),
        (torch.tensor([[0.0]]), "give one row of int64 candidates"),
        (torch.tensor([[0], [1]]), "there are 1 queries"),
    ],
)
def test_bad_candidates(candidates: torch.Tensor, message: str) -> None:
    dot = DotProduct(dim=2)
    with pytest.raises(InvalidInputError, match=message):
        TorchKernel(dot).score_candidates(
            dot.query_parts(torch.zeros(1, 2)), dot.item_parts(torch.zeros(5, 2)), candidates
        )


def test_k_out_of_range() -> None:
    dot = DotProduct(dim=2)
    with pytest.raises(NotEnoughItemsError, match="k is 6 but there are 5 items; ask for k <= 5"):
        TorchKernel(dot).top_k(dot.query_parts(torch.zeros(1, 2)), dot.item_parts(torch.zeros(5, 2)), k=6)


@pytest.mark.parametrize("num_rows", [0, 1, 8192, 8193])
def test_sides_in_batches(num_rows: int) -> None:
    similarity = make_similarity("mixture-user")
    rows = torch.randn(num_rows, 6, generator=torch.Generator().manual_seed(0))
    users = torch.arange(num_rows)
    with torch.no_grad():
        queries, items = similarity.query_parts(rows, user_ids=users), similarity.item_parts(rows)
    for found, expected in (
        (compute_query_parts(similarity, rows, users), queries),
        (compute_item_parts(similarity, rows), items),
    ):
        torch.testing.assert_close(found.components, expected.components)
        torch.testing.assert_close(found.gate, expected.gate)


def test_selection_spans_many_chunks() -> None:
    similarity = make_similarity("cosine")
    generator = torch.Generator().manual_seed(0)
    query_parts = similarity.query_parts(torch.randn(2, 6, generator=generator))
    item_parts = similarity.item_parts(torch.randn(2 * ROWS_PER_SELECTION + 3, 6, generator=generator))
    scores, rows = TorchKernel(similarity).top_k(query_parts, item_parts, k=50)
    expected = similarity.score(query_parts, item_parts)
    torch.testing.assert_close(scores, expected.sort(dim=1, descending=True).values[:, :50])
    assert int(rows.max()) > ROWS_PER_SELECTION
