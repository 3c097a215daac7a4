"""Reader of passages to index: ids and texts, as JSON lines or a table."""

from pathlib import Path

from railsearch.data.passages.records import read_records
from railsearch.foundation.errors import InvalidInputError


def read_passage_texts(path: str | Path, *, show_progress: bool | None = None) -> dict[str, str]:
    """Read passages by id: one JSON object on each line, with a text, an id (`id` or `_id`) and optionally a title.

    A .csv, .tsv, Parquet or Arrow table with these columns is read as well. A passage without an id gets its number,
    from 0. Files may be packed as .jsonl.gz or .jsonl.xz.
    """
    passages: dict[str, str] = {}
    for number, record in enumerate(read_records(path, show_progress=show_progress)):
        passage_id = record.passage_id(number)
        if passage_id in passages:
            raise InvalidInputError(f"id {passage_id!r} in {record.place} is already taken; give each passage its own.")
        passages[passage_id] = record.titled_text()
    if not passages:
        raise InvalidInputError(f"{path} holds no passages; give at least one.")
    return passages
