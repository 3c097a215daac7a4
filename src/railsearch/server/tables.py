"""Items of a request as a batch for the index: from JSON, or from an Arrow table."""

import io
from typing import TYPE_CHECKING

import numpy as np

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import rows_from_json
from railsearch.foundation.results import ItemBatch, ItemBatches
from railsearch.server.arrow_messages import check_uncompressed
from railsearch.server.encoding import QueryModel, as_floats
from railsearch.server.json_text import MalformedError, read_object
from railsearch.server.limits import Limits
from railsearch.server.queries import ItemsBody
from railsearch.server.searched import Searched
from railsearch.text_retriever.passages import Passages, as_passages, check_new

if TYPE_CHECKING:
    from polars import DataFrame

ARROW_FILE = "application/vnd.apache.arrow.file"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
EMBEDDING, ID = "embedding", "id"
MOST_UNPACKED = 8
"""How many times the largest body an Arrow table may take: texts of its rows may share their bytes."""


def read_items(
    content: bytes, media_type: str, *, index: Searched, model: QueryModel | None, limits: Limits, replaces: bool
) -> ItemBatch | ItemBatches:
    """Read the items of a body; the index checks their shapes, ids and columns."""
    if media_type in (ARROW_FILE, ARROW_STREAM):
        return _of_table(_read_table(content, media_type), index, limits)
    body = ItemsBody.of(read_object(content))
    if body.texts is not None:
        return _of_texts(body, index, model, limits, replaces=replaces)
    given = body.embeddings
    if not isinstance(given, list) or not given:
        raise InvalidInputError("embeddings is missing or empty; give one embedding for each item.")
    limits.check("max_items", len(given), "the number of items")
    metadata = None
    if body.metadata is not None:
        schema = index.metadata_schema()
        if not schema:
            raise InvalidInputError("metadata was given but the index has none; omit it.")
        metadata = rows_from_json(body.metadata, schema)
    return ItemBatch(as_floats(given), body.ids, metadata)


def _of_texts(
    body: ItemsBody, index: Searched, model: QueryModel | None, limits: Limits, *, replaces: bool
) -> ItemBatches:
    retriever = None if model is None else model.retriever
    if retriever is None:
        raise InvalidInputError("texts were given but this index is served without a text model; give embeddings.")
    if body.embeddings is not None or body.metadata is not None:
        raise InvalidInputError("texts were given with embeddings or metadata; give texts alone, with ids.")
    texts = body.texts or []
    limits.check("max_items", len(texts), "the number of items")
    limits.check("max_text_length", max(map(len, texts), default=0), "the length of a text")
    given: Passages = as_passages(texts)
    if body.ids is not None:
        if len(body.ids) != len(texts):
            raise InvalidInputError(f"ids has {len(body.ids)} ids but there are {len(texts)} texts; give one for each.")
        given = Passages(body.ids, texts)
    if replaces:
        index.find(given.ids or [])
    else:
        check_new(given, index)
    return given.encode(retriever.model, lambda _: None)


def _read_table(content: bytes, media_type: str) -> "DataFrame":
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    check_uncompressed(content, is_file=media_type == ARROW_FILE)
    read = pl.read_ipc if media_type == ARROW_FILE else pl.read_ipc_stream
    try:
        return read(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, OverflowError) as error:
        cause = " ".join(str(error).split())
        raise MalformedError(f"the body is not an Arrow table ({cause:.200}); send {media_type}.") from None


def _of_table(table: "DataFrame", index: Searched, limits: Limits) -> ItemBatch:
    limits.check("max_items", len(table), "the number of items")
    size, largest = table.estimated_size(), MOST_UNPACKED * limits.max_body_bytes
    if size > largest:
        raise InvalidInputError(
            f"the table takes {size} bytes, since its rows share texts, but at most {largest} are allowed; send fewer "
            "items at once."
        )
    if EMBEDDING not in table.columns:
        raise InvalidInputError(f"the table has no column {EMBEDDING!r}; its columns are: {', '.join(table.columns)}.")
    kind = table.schema[EMBEDDING]
    while (inner := getattr(kind, "inner", None)) is not None:
        kind = inner
    if not kind.is_numeric():
        raise InvalidInputError(f"{EMBEDDING} holds {kind} values; give lists of numbers.")
    try:
        embeddings = np.asarray(table[EMBEDDING].to_list())
    except ValueError as error:
        raise InvalidInputError(f"{EMBEDDING} has lists of different lengths ({error}); give equal ones.") from None
    ids = None if ID not in table.columns else table[ID].to_list()
    if ids is not None and any(value is None for value in ids):
        raise InvalidInputError(f"{ID} has an empty value; give every item an id.")
    columns = [name for name in table.columns if name not in (EMBEDDING, ID)]
    has_metadata = bool(index.metadata_schema()) or bool(columns)
    return ItemBatch(embeddings, ids, table.select(columns) if has_metadata else None)
