"""Passages to index: ids and texts from several forms, encoded batch by batch."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from typing_extensions import TypeAliasType

from railsearch.data import QuestionPassages
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.results import ItemBatch
from railsearch.models import TextModel

PASSAGES_PER_BATCH = 2048
"""Passages whose components are in memory at once while an index is built."""

PassagesLike = TypeAliasType("PassagesLike", Sequence[str] | Mapping[str, str] | QuestionPassages)


def ids_and_texts(passages: PassagesLike) -> tuple[Sequence[str], Sequence[str]]:
    """Return ids and texts of passages; texts without ids are numbered from 0."""
    given: object = passages
    if isinstance(given, QuestionPassages):
        return given.passage_ids, given.passages
    if isinstance(given, Mapping):
        return [str(key) for key in given], list(given.values())
    if isinstance(given, Sequence) and not isinstance(given, str):
        return [str(row) for row in range(len(given))], given
    raise InvalidInputError(
        f"passages is a {type(passages).__name__}; give a list of texts, a mapping from ids to texts, or "
        "QuestionPassages."
    )


def encoded_batches(
    model: TextModel, ids: Sequence[str], texts: Sequence[str], on_rows: Callable[[int], None]
) -> Iterator[ItemBatch]:
    """Encode passages, and yield them in batches with their metadata; `on_rows` is called with the number done."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    for first in range(0, len(texts), PASSAGES_PER_BATCH):
        rows = slice(first, first + PASSAGES_PER_BATCH)
        components = model.encode_passages(texts[rows])
        table = pl.DataFrame({"passage_id": list(ids[rows]), "passage": list(texts[rows])})
        on_rows(len(components))
        yield ItemBatch(components, None, table)
