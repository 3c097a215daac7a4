"""The teacher of `fit_similarity`: its scores for rows of embeddings, and the task that follows them."""

import torch

from railsearch.kernels import compute_item_parts, compute_query_parts
from railsearch.similarity import ItemParts, QueryParts, Similarity
from railsearch.training.asking import CANDIDATES_PER_ITEM, Candidates, ask_teacher
from railsearch.training.config import LoopConfig
from railsearch.training.tasks.pairs import PairData
from railsearch.training.teacher import TeacherLike, TeacherScores
from railsearch.training.teacher_tables import ITEM, QUERY, Names


def ask_about_rows(
    teacher: TeacherLike, similarity: Similarity, data: PairData, config: LoopConfig, *, show_progress: bool | None
) -> TeacherScores:
    """Return the scores of a teacher that names queries and items by their rows; a function scores all queries."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    def parts() -> tuple[QueryParts, ItemParts]:
        similarity.train(False)
        return compute_query_parts(similarity, data.queries, data.user_ids), compute_item_parts(similarity, data.items)

    num_queries, num_items = len(data.queries), len(data.items)
    candidates = Candidates(
        queries=torch.arange(num_queries),
        right=data.pairs.cpu(),
        num_items=num_items,
        count=CANDIDATES_PER_ITEM * config.teacher_items,
        seed=config.seed,
        similarity=similarity,
        parts=parts,
    )
    sides = (
        Names(QUERY, pl.int_range(num_queries, eager=True)),
        Names(ITEM, pl.int_range(num_items, eager=True)),
    )
    return ask_teacher(teacher, *sides, candidates, show_progress=show_progress)
