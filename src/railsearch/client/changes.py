"""The calls of a server that change an index: add, upsert, remove, refresh, compact, tune, and waiting for a job."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from railsearch.client import reading
from railsearch.client.answers import Change, Job, Refreshed
from railsearch.client.arrays import ItemIds, Values, as_floats, as_ids, size_of
from railsearch.client.calls import JSON, as_whole, job, json_body, path_of, query_values
from railsearch.client.conversation import HEAVY_BYTES, Call, Exchange, Link, Pause, Request, Steps, checked_timeout
from railsearch.client.problems import error_of_problem, timed_out
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import JsonValue

ARROW = "application/vnd.apache.arrow.file"
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class ArrowTable(Protocol):
    """A table of any library that supports the Arrow interface, such as a polars or pandas DataFrame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of record batches."""
        ...


def add(
    index: str,
    embeddings: Values | None = None,
    ids: ItemIds | None = None,
    *,
    texts: Sequence[str] | None = None,
    metadata: ArrowTable | None = None,
) -> Call[Change]:
    """Add items whose ids are not in the index; durable and searched once this returns.

    Args:
        index: the name of an index.
        embeddings: item embeddings (n, D), or ready components (n, Px, d), as an array, a tensor or lists.
        ids: one for each item; omitted integers continue after the greatest id in the index.
        texts: passages, in place of embeddings and metadata, if the index is served with a text model.
        metadata: a table with the columns of the index.
    """
    return _write("POST", index, embeddings, ids, texts=texts, metadata=metadata)


def upsert(
    index: str,
    embeddings: Values | None = None,
    ids: ItemIds | None = None,
    *,
    texts: Sequence[str] | None = None,
    metadata: ArrowTable | None = None,
) -> Call[Change]:
    """Add items, or replace those with the same ids, as `add` does; durable and searched once this returns."""
    return _write("PUT", index, embeddings, ids, texts=texts, metadata=metadata)


def remove(index: str, ids: ItemIds, *, missing_ok: bool = False) -> Call[Change]:
    """Remove items; durable once this returns.

    Args:
        index: the name of an index.
        ids: the ids of items in the index.
        missing_ok: ignore ids that are not in the index; by default, they raise an error.
    """

    def encode(_: float) -> Request:
        values: dict[str, JsonValue] = {"ids": list(as_ids(ids, name="ids")), "missing_ok": missing_ok}
        return Request("POST", path_of(index, "items", "remove"), json_body(values), JSON)

    return Call(encode, reading.change, size_of(ids))


def refresh(index: str) -> Call[Refreshed]:
    """Serve the newest version of the index folder."""
    return Call(lambda _: Request("POST", path_of(index, "refresh")), reading.refreshed)


def compact(index: str) -> Call[Job]:
    """Start a job that writes all items again, without the removed ones; `wait` waits for its end."""
    return Call(lambda _: Request("POST", path_of(index, "compact")), reading.job)


def tune(
    index: str,
    embeddings: Values | None = None,
    *,
    texts: Sequence[str] | None = None,
    histories: Sequence[ItemIds] | None = None,
    k: int = 10,
    target_recall: float = 0.99,
    confidence: float = 0.95,
) -> Call[Job]:
    """Start a job that finds the cheapest strategy which reaches a recall, and uses it from then on for this k.

    Args:
        index: the name of an index.
        embeddings: sample queries in random order, like those that will be searched.
        texts: sample questions, in place of embeddings.
        histories: sample histories, in place of embeddings.
        k: the number of items that searches will ask for.
        target_recall: the share of the true top K that must be found, on average over queries.
        confidence: the probability that the chosen strategy reaches the target.
    """
    if sum(given is not None for given in (embeddings, texts, histories)) != 1:
        raise InvalidInputError("sample queries are needed; give exactly one of embeddings, texts, histories.")

    def encode(_: float) -> Request:
        values: dict[str, JsonValue] = {
            "embeddings": None if embeddings is None else as_floats(embeddings, name="embeddings").tolist(),
            **query_values(texts, histories, None),
            "k": as_whole(k, name="k"),
            "target_recall": float(target_recall),
            "confidence": float(confidence),
        }
        return Request("POST", path_of(index, "tune"), json_body(values), JSON)

    return Call(encode, reading.job, sum(map(size_of, (embeddings, texts, histories))))


@dataclass(frozen=True, slots=True)
class _Wait:
    job_id: str
    timeout: float

    def steps(self, link: Link) -> Steps[Job]:
        deadline, pause = link.clock() + self.timeout, FIRST_PAUSE
        while True:
            found = yield from job(self.job_id).steps(link)
            if found.problem is not None:
                raise error_of_problem(found.problem)
            if not found.is_running:
                return found
            if link.clock() + pause > deadline:
                raise timed_out(f"the job {self.job_id} at {link.url}", self.timeout)
            yield Pause(pause)
            pause = min(LONGEST_PAUSE, 1.5 * pause)


def wait(job_id: str | Job, *, timeout: float = 600.0) -> Exchange[Job]:
    """Wait until a job has ended, and return it; a failed one raises its error.

    Args:
        job_id: a job, or its id.
        timeout: seconds to wait at most.
    """
    return _Wait(job_id.id if isinstance(job_id, Job) else job_id, checked_timeout(timeout))


def _write(
    method: str,
    index: str,
    embeddings: Values | None,
    ids: ItemIds | None,
    *,
    texts: Sequence[str] | None,
    metadata: ArrowTable | None,
) -> Call[Change]:
    if (embeddings is None) == (texts is None):
        raise InvalidInputError("items are needed; give either embeddings or texts.")
    if texts is not None and metadata is not None:
        raise InvalidInputError("metadata were given with texts; an index of passages has no other metadata.")

    def encode(_: float) -> Request:
        path = path_of(index, "items")
        if embeddings is not None:
            return Request(method, path, _as_arrow(embeddings, ids, metadata), ARROW)
        listed: JsonValue = None if ids is None else list(as_ids(ids, name="ids"))
        return Request(method, path, json_body({"ids": listed, **query_values(texts, None, None)}), JSON)

    weight = HEAVY_BYTES + 1 if embeddings is not None else size_of(texts)  # Arrow imports polars
    return Call(encode, reading.change, weight)


def _as_arrow(embeddings: Values, ids: ItemIds | None, metadata: ArrowTable | None) -> bytes:
    """Return items as an Arrow file: the metadata, and the columns id and embedding."""
    import polars as pl  # noqa: PLC0415  (importing railsearch.client stays cheap)

    array = as_floats(embeddings, name="embeddings")
    if array.ndim not in {2, 3}:
        raise InvalidInputError(f"embeddings has shape {array.shape}; give (items, D), or (items, Px, d).")
    listed = None if ids is None else as_ids(ids, name="ids")
    table = pl.DataFrame() if metadata is None else pl.DataFrame(metadata)
    for name, given in (("ids", listed), ("rows of metadata", None if metadata is None else table)):
        if given is not None and len(given) != len(array):
            raise InvalidInputError(
                f"there are {len(given)} {name} but {len(array)} embeddings; give one for each item."
            )
    inner = pl.Float64 if array.dtype.itemsize == 8 else pl.Float32
    kind = pl.List(inner) if array.ndim == 2 else pl.List(pl.List(inner))
    columns = [pl.Series("embedding", array.astype("f8" if inner == pl.Float64 else "f4")).cast(kind)]
    if listed is not None:
        columns.append(pl.Series("id", listed))
    file = io.BytesIO()
    table.with_columns(columns).write_ipc(file)
    return file.getvalue()
