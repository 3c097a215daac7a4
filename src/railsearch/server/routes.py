"""The routes as functions from a request to an answer; they know nothing of the web framework."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from railsearch import __version__
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Index, parse_strategy
from railsearch.index.serving import describe_items, find_text
from railsearch.server.answers import (
    answer_json,
    answer_tensors,
    checked_columns,
    describe_version,
    explanation_json,
    item_json,
)
from railsearch.server.batching import Outcome, Pending, Question
from railsearch.server.describing import describe_index
from railsearch.server.encoding import encode
from railsearch.server.json_text import read_object, write_json
from railsearch.server.problems import Problem
from railsearch.server.queries import ExplainBody, RemoveBody, SearchBody, TuneBody
from railsearch.server.served_index import ServedIndex
from railsearch.server.service import Service
from railsearch.server.tables import ARROW_FILE, ARROW_STREAM, read_items
from railsearch.server.tensors import MEDIA_TYPE as SAFETENSORS
from railsearch.server.tensors import read_search

JSON = "application/json"
LARGE_BODY = 2**16
"""Bodies beyond this are read beside the event loop."""
LARGE_ANSWER = 2000
"""Hits beyond this are written beside the event loop."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request whose body has arrived."""

    body: bytes
    headers: Mapping[str, str]
    query: Mapping[str, str]
    wait_for_disconnect: Callable[[], Awaitable[None]]

    @property
    def media_type(self) -> str:
        """The type of the body."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def check_media_type(self, *known: str) -> str:
        """Return the type of the body; raises Problem if it is none of these."""
        if self.media_type not in known:
            raise Problem(
                "unsupported-media-type", f"Content-Type is {self.media_type!r:.80}; send {' or '.join(known)}."
            )
        return self.media_type

    def accepts(self, *offered: str) -> str:
        """Return the first offered type that Accept names, by the weights that it gives; raises Problem if none is."""
        weights: dict[str, float] = {}
        for part in self.headers.get("accept", "*/*").split(","):
            name, *parameters = [piece.strip() for piece in part.lower().split(";")]
            weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
            with contextlib.suppress(ValueError):
                weights[name] = float(weight)
        found = {
            media: next(
                (weights[each] for each in (media, f"{media.partition('/')[0]}/*", "*/*") if each in weights), 0.0
            )
            for media in offered
        }
        best = max(offered, key=lambda media: found[media])
        if not found[best] > 0:
            raise Problem("not-acceptable", f"Accept excludes every type of this answer: {', '.join(offered)}.")
        return best


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """An answer with its status, type and headers."""

    body: bytes
    status: int = 200
    media_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, status: int = 200, headers: dict[str, str] | None = None) -> "Answer":
        """Return an answer of JSON values."""
        return cls(write_json(value), status, headers=headers or {})


async def search(service: Service, request: Request, name: str) -> Answer:
    """Find the best items of each query."""
    served = service.index(name)
    media = request.check_media_type(JSON, SAFETENSORS)
    wanted = request.accepts(JSON, SAFETENSORS)

    def read() -> tuple[SearchBody, str, object, int]:
        members = read_object(request.body) if media == JSON else read_search(request.body)
        body = SearchBody(**members)
        kind, values = body.chosen(service.limits)
        body.check(service.limits, len(values))
        known = [column for column in served.columns if column != "id"]
        checked_columns(body.fields, known)
        checked: object = encode(served.current, None, kind, values).queries if kind == "embeddings" else values
        return body, kind, checked, len(values)

    is_large = len(request.body) > LARGE_BODY
    body, kind, values, num_queries = await service.in_thread(read) if is_large else read()
    question = Question(
        k=body.k,
        strategy=None if body.strategy is None else parse_strategy(body.strategy),
        allow=tuple(body.allow) if isinstance(body.allow, list) else body.allow,  # type: ignore[arg-type]
        pad=body.pad,
    )
    outcome = await _wait_for(service, request, body, Pending(
        served=served,
        kind=kind,
        values=values,
        num_queries=num_queries,
        question=question,
        exclude=body.exclude,
        filter_viewed=body.filter_viewed,
        deadline=time.monotonic() + body.timeout_ms / 1000,
        finish=lambda _: None,
    ))  # fmt: skip

    def write() -> Answer:
        if wanted == SAFETENSORS:
            return Answer(answer_tensors(name, body, outcome), media_type=SAFETENSORS)
        return Answer.of(answer_json(name, body, outcome))

    if body.explain or body.k * num_queries > LARGE_ANSWER:
        return await service.in_thread(write)  # type: ignore[no-any-return]
    return write()


async def _wait_for(service: Service, request: Request, body: SearchBody, pending: Pending) -> Outcome:
    """Queue a search and wait for its outcome; tell the queue if the client goes away."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome | Exception) -> None:
        if done.done():
            return
        if isinstance(outcome, Exception):
            done.set_exception(outcome)
        else:
            done.set_result(outcome)

    def finish(outcome: Outcome | Exception) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, outcome)

    pending.finish = finish
    service.queue.put(pending)
    leaving = asyncio.ensure_future(request.wait_for_disconnect())

    def left(task: asyncio.Future[None]) -> None:
        pending.is_gone = not task.cancelled()

    leaving.add_done_callback(left)
    try:
        return await done
    finally:
        leaving.cancel()


async def explain(service: Service, request: Request, name: str) -> Answer:
    """Return why items have their scores for one query."""
    served = service.index(name)
    request.check_media_type(JSON)
    body = ExplainBody(**read_object(request.body))
    kind, values = body.chosen(service.limits)
    if len(values) != 1:
        raise InvalidInputError(f"{kind} has {len(values)} queries; give one.")
    service.limits.check("max_explained_items", len(body.item_ids), "the number of item_ids")

    def work() -> Answer:
        index = served.current
        encoded = encode(index, served.model, kind, values)
        user = None if encoded.user_ids is None else int(encoded.user_ids[0])
        explained = [index.explain(encoded.queries[0], item, user_id=user) for item in body.item_ids]
        columns = checked_columns(body.fields, served.columns)
        frame = describe_items(index, body.item_ids)
        rows = item_json(frame, is_text=body.ids == "string", columns=columns)
        entries = [
            {**explanation_json(own), "id": row["id"], **({} if columns is None else {"fields": row["fields"]})}
            for own, row in zip(explained, rows, strict=True)
        ]
        return Answer.of({"explanations": entries, "index": describe_version(name, index)})

    return await service.in_thread(work)  # type: ignore[no-any-return]


async def list_indexes(service: Service) -> Answer:
    """Describe all indexes."""
    described = [describe_index(service.index(name), service.settings) for name in service.indexes]
    return Answer.of({"indexes": described, "server": {"name": "railsearch", "version": __version__}})


async def show_index(service: Service, name: str) -> Answer:
    """Describe one index."""
    return Answer.of(describe_index(service.index(name), service.settings))


async def show_item(service: Service, request: Request, name: str, item_id: str) -> Answer:
    """Return one item."""
    index = service.index(name).current
    missing = Problem("not-found", f"there is no item {item_id!r:.80} in index {name}.")
    item: int | str = item_id
    if not index.has_keys:
        if not (item_id.isascii() and item_id.isdigit() and len(item_id) < 20):
            raise missing
        item = int(item_id)
    if item_id == "" or (isinstance(item, int) and item >= 2**63) or int(index.find([item])[0]) < 0:
        raise missing
    (row,) = item_json(describe_items(index, [item]), is_text=_wants_text(request))
    return Answer.of({**row, "index": describe_version(name, index)})


async def find_items(service: Service, request: Request, name: str) -> Answer:
    """Return items that contain a text."""
    index = service.index(name).current
    limit = request.query.get("limit", "20")
    if not (limit.isascii() and limit.isdigit() and 0 < len(limit) < 10):
        raise InvalidInputError(f"limit is {limit!r:.80}; give a whole number >= 1.")
    service.limits.check("max_found_items", int(limit), "limit")
    text, column = request.query.get("text", ""), request.query.get("column")
    is_text = _wants_text(request)

    def work() -> Answer:
        rows = item_json(find_text(index, text, limit=int(limit), column=column), is_text=is_text)
        return Answer.of({"items": rows, "index": describe_version(name, index)})

    return await service.in_thread(work)  # type: ignore[no-any-return]


async def put_items(service: Service, request: Request, name: str, *, replaces: bool) -> Answer:
    """Add items, or replace those with the same ids."""
    served = _writable(service, name)
    media = request.check_media_type(JSON, ARROW_FILE, ARROW_STREAM)

    def work() -> Answer:
        items = read_items(
            request.body, media, index=served.current, model=served.model, limits=service.limits, replaces=replaces
        )
        return _changed(
            served.change(lambda index: (index.upsert if replaces else index.add)(items, show_progress=False))
        )

    return await service.in_thread(work)  # type: ignore[no-any-return]


async def remove_items(service: Service, request: Request, name: str) -> Answer:
    """Remove items."""
    served = _writable(service, name)
    request.check_media_type(JSON)
    body = RemoveBody(**read_object(request.body))
    service.limits.check("max_items", len(body.ids), "the number of ids")

    def work() -> Answer:
        return _changed(served.change(lambda index: index.remove(body.ids, missing_ok=body.missing_ok)))

    return await service.in_thread(work)  # type: ignore[no-any-return]


async def refresh(service: Service, name: str) -> Answer:
    """Serve the newest version of the folder."""
    served = service.index(name)

    def work() -> Answer:
        has_changed = served.refresh()
        return Answer.of({"version": served.current.version, "changed": has_changed})

    return await service.in_thread(work)  # type: ignore[no-any-return]


async def compact(service: Service, name: str) -> Answer:
    """Start to write all items again, without the removed ones."""
    served = _writable(service, name)

    def work() -> dict[str, object]:
        return {"version": served.change_beside(lambda index: index.compact()).version}

    return _job(service.jobs.start("compact", name, work).to_dict())


async def tune(service: Service, request: Request, name: str) -> Answer:
    """Start to look for the cheapest strategy that reaches a recall."""
    served = _writable(service, name)
    request.check_media_type(JSON)
    body = TuneBody(**read_object(request.body))
    kind, values = body.chosen(service.limits.for_samples)
    service.limits.check("max_k", body.k, "k")

    def work() -> dict[str, object]:
        report: dict[str, object] = {}

        def measure(index: Index) -> None:
            encoded = encode(index, served.model, kind, values)
            report.update(
                index.tune(
                    encoded.queries,
                    body.k,
                    target_recall=body.target_recall,
                    confidence=body.confidence,
                    user_ids=encoded.user_ids,
                    show_progress=False,
                ).to_dict()
            )

        return {"version": served.change_beside(measure).version, **report}

    return _job(service.jobs.start("tune", name, work).to_dict())


async def show_job(service: Service, job_id: str) -> Answer:
    """Return a job and its result."""
    return Answer.of(service.jobs.get(job_id).to_dict())


def _writable(service: Service, name: str) -> ServedIndex:
    served = service.index(name)
    if not service.settings.is_writable:
        raise Problem("forbidden", "this server is read-only; start it with --writable to change indexes.")
    return served


def _changed(index: Index) -> Answer:
    return Answer.of({"version": index.version, "items": len(index)})


def _job(job: dict[str, object]) -> Answer:
    return Answer.of(job, 202, {"Location": f"/v1/jobs/{job['id']}"})


def _wants_text(request: Request) -> bool:
    wanted = request.query.get("ids", "number")
    if wanted not in ("number", "string"):
        raise InvalidInputError(f"ids is {wanted!r:.80}; choose from: number, string.")
    return wanted == "string"
