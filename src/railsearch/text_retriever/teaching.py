"""The teacher of a text retriever: its scores of questions and passages, and the task that follows them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from railsearch.data import QuestionPassages
from railsearch.models import TextModel
from railsearch.similarity import ItemParts, QueryParts
from railsearch.training import TextTrainingConfig
from railsearch.training.asking import CANDIDATES_PER_ITEM, Candidates, ask_teacher
from railsearch.training.teacher import TeacherLike, TeacherScores
from railsearch.training.teacher_tables import Names

if TYPE_CHECKING:
    from polars import DataFrame


def ask_about_texts(
    teacher: TeacherLike,
    model: TextModel,
    data: QuestionPassages,
    config: TextTrainingConfig,
    *,
    show_progress: bool | None,
) -> TeacherScores:
    """Return the scores of a teacher: a function takes texts, and a table has ids or texts.

    The scores of held-out questions in a table are not used; a function scores all training questions.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    def parts() -> tuple[QueryParts, ItemParts]:
        model.train(False)
        return model.query_parts(data.train.texts), model.item_parts(data.passages, show_progress=show_progress)

    candidates = Candidates(
        queries=torch.arange(len(data.train)),
        right=data.train.pairs,
        num_items=len(data.passages),
        count=CANDIDATES_PER_ITEM * config.teacher_items,
        seed=config.seed,
        similarity=model.similarity,
        parts=parts,
    )
    passage_rows = {name: row for row, name in enumerate(data.passage_ids)} | dict(data.other_ids)
    held_out = [own for own in (data.validation, data.test) if own is not None]
    questions = Names(
        "question",
        pl.Series(data.train.texts),
        _aliases(data.train.ids, range(len(data.train))),
        frozenset(name for own in held_out for name in (*own.ids, *own.texts)),
    )
    passages = Names("passage", pl.Series(data.passages), _aliases(passage_rows, passage_rows.values()))
    return ask_teacher(teacher, questions, passages, candidates, show_progress=show_progress)


def _aliases(ids: Iterable[str], rows: Iterable[int]) -> "DataFrame":
    import polars as pl  # noqa: PLC0415

    return pl.DataFrame({"id": list(ids), "row": list(rows)}, schema={"id": pl.String, "row": pl.Int64})
