"""From any teacher to its scores: a file is read, and a function scores candidates of each query once, before training.

The candidates of a query are its right items, the items that the student finds best before training, and random ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_tensor
from railsearch.foundation.progress import counting
from railsearch.kernels import choose_kernel
from railsearch.similarity import ItemParts, QueryParts, Similarity
from railsearch.training.teacher import TeacherLike, TeacherScores
from railsearch.training.teacher_tables import Names, read_teacher_table

CANDIDATES_PER_ITEM = 4
"""Candidates that a function scores for each item of a list, so that the lists of a query differ between epochs."""
PAIRS_PER_CALL = 2**12
"""Query-item pairs that a function scores at once: a cross-encoder may take minutes for this many."""
QUERIES_PER_SEARCH = 256


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Everything that chooses the query-item pairs which a function scores."""

    queries: Tensor  # (Q,) query rows to score, ascending
    right: Tensor  # (M, 2) query row, row of a right item
    num_items: int
    count: int
    """Candidates of each query, besides its right items."""
    seed: int
    similarity: Similarity
    parts: Callable[[], tuple[QueryParts, ItemParts]]
    """Computes the parts of these queries and of all items with the student as it is."""


def ask_teacher(
    teacher: TeacherLike, queries: Names, items: Names, candidates: Candidates, *, show_progress: bool | None
) -> TeacherScores:
    """Return the scores of a teacher.

    Args:
        teacher: a function, a table or a file.
        queries: names of the queries.
        items: names of the items.
        candidates: what a function scores; a table or a file says this itself.
        show_progress: draw a progress bar; by default only on a terminal.
    """
    if not callable(teacher):
        return read_teacher_table(teacher, queries, items)
    query_rows, item_rows = choose_candidates(candidates)  # (M,)
    query_values, item_values = queries.values.to_numpy(), items.values.to_numpy()
    scores = []
    with counting("asking the teacher", len(query_rows), is_shown=show_progress) as count:
        for first in range(0, len(query_rows), PAIRS_PER_CALL):
            block = slice(first, first + PAIRS_PER_CALL)
            asked = query_values[query_rows[block].numpy()], item_values[item_rows[block].numpy()]
            scores.append(_checked(teacher(*asked), len(asked[0])))
            count(len(asked[0]))
    return TeacherScores.from_triples(query_rows, item_rows, torch.cat(scores), source="the teacher")


def choose_candidates(candidates: Candidates) -> tuple[Tensor, Tensor]:
    """Return the query rows (M,) and item rows (M,) that a function scores, by query and then by item."""
    asked, num_items = candidates.queries, candidates.num_items
    if candidates.count >= num_items:
        return asked.repeat_interleave(num_items), torch.arange(num_items).repeat(len(asked))
    num_best = candidates.count // 2
    generator = Generator().manual_seed(candidates.seed)
    drawn = torch.randint(num_items, (len(asked), candidates.count - num_best), generator=generator)
    rows = drawn
    if num_best:
        _, best = find_best(candidates.similarity, *candidates.parts(), num_best)
        rows = torch.cat([drawn, best.cpu()], dim=1)  # (Q, C)
    right = candidates.right[torch.isin(candidates.right[:, 0], asked)]  # (m, 2)
    keys = torch.unique(
        torch.cat([(asked[:, None] * num_items + rows).flatten(), right[:, 0] * num_items + right[:, 1]])
    )
    return keys // num_items, keys % num_items


@torch.no_grad()
def find_best(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts, k: int) -> tuple[Tensor, Tensor]:
    """Return scores (Q, k) and rows (Q, k) of the best items of each query, best first, by brute force."""
    kernel = choose_kernel(similarity, query_parts.components.device)
    found = [
        kernel.top_k(query_parts[first : first + QUERIES_PER_SEARCH], item_parts, k)
        for first in range(0, len(query_parts), QUERIES_PER_SEARCH)
    ]
    return torch.cat([scores for scores, _ in found]), torch.cat([rows for _, rows in found])


def _checked(values: ArrayLike, count: int) -> Tensor:
    if values is None:
        raise InvalidInputError(
            f"the teacher returned None for {count} query-item pairs; return one number for each: ({count},)."
        )
    scores = as_tensor(values, "the teacher's result").cpu()
    if tuple(scores.shape) != (count,):
        raise InvalidInputError(
            f"the teacher returned scores of shape {tuple(scores.shape)} for {count} query-item pairs; return one "
            f"number for each: ({count},)."
        )
    return scores.double()
