"""The routes that only read, as functions from a request to an answer; they know nothing of the web framework."""

import asyncio
import contextlib
import time

import railsearch
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.matched_parts import result_columns
from railsearch.index import parse_strategy
from railsearch.server.answers import (
    answer_json,
    answer_tensors,
    checked_columns,
    describe_version,
    explanation_json,
    item_json,
    similar_json,
)
from railsearch.server.batching import Outcome, Pending, Question
from railsearch.server.describing import describe_index
from railsearch.server.encoding import encode
from railsearch.server.exchange import JSON, Answer, Request
from railsearch.server.json_text import read_object
from railsearch.server.problems import Problem
from railsearch.server.queries import ExplainBody, SearchBody, SimilarBody
from railsearch.server.service import Service
from railsearch.server.tensors import MEDIA_TYPE as SAFETENSORS
from railsearch.server.tensors import read_search

LARGE_BODY = 2**16
"""Bodies beyond this are read beside the event loop."""
LARGE_ANSWER = 2000
"""Hits beyond this are written beside the event loop."""


async def search(service: Service, request: Request, name: str) -> Answer:
    """Find the best items of each query."""
    served = service.index(name)
    media = request.check_media_type(JSON, SAFETENSORS)
    wanted = request.accepts(JSON, SAFETENSORS)

    def read() -> tuple[SearchBody, str, object, int]:
        members = read_object(request.body) if media == JSON else read_search(request.body)
        body = SearchBody.of(members)
        kind, values = body.chosen(service.limits)
        body.check(service.limits, len(values))
        body.rules.check(body.k, served.current.metadata_schema())
        if body.fields is not None:
            checked_columns(body.fields, result_columns(list(served.current.metadata_schema())))
        checked: object = encode(served.current, None, kind, values).queries if kind == "embeddings" else values
        return body, kind, checked, len(values)

    is_large = len(request.body) > LARGE_BODY
    body, kind, values, num_queries = await service.in_thread(read) if is_large else read()
    question = Question(
        k=body.k,
        strategy=None if body.strategy is None else parse_strategy(body.strategy),
        allow=tuple(body.allow) if isinstance(body.allow, list) else body.allow,
        pad=body.pad,
        partial=body.partial,
        rules=body.rules,
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
        return await service.in_thread(write)
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

    def work() -> Answer:
        body = ExplainBody.of(read_object(request.body))
        kind, values = body.chosen(service.limits)
        if len(values) != 1:
            raise InvalidInputError(f"{kind} has {len(values)} queries; give one.")
        service.limits.check("max_explained_items", len(body.item_ids), "the number of item_ids")
        index = served.current
        encoded = encode(index, served.model, kind, values)
        user = None if encoded.user_ids is None else int(encoded.user_ids[0])
        explained = [index.explain(encoded.queries[0], item, user_id=user) for item in body.item_ids]
        columns = checked_columns(body.fields, list(index.metadata_schema()))
        frame = index.describe_items(body.item_ids)
        rows = item_json(frame, is_text=body.ids == "string", columns=columns)
        entries = [
            {**explanation_json(own), "id": row["id"], **({} if columns is None else {"fields": row["fields"]})}
            for own, row in zip(explained, rows, strict=True)
        ]
        return Answer.of({"explanations": entries, "index": describe_version(name, index)})

    return await service.in_thread(work)


async def similar(service: Service, request: Request, name: str) -> Answer:
    """Return the items that are most similar to each of some items."""
    index = service.index(name).current
    request.check_media_type(JSON)

    def work() -> Answer:
        body = SimilarBody.of(read_object(request.body))
        body.check(service.limits)
        columns = checked_columns(body.fields, list(index.metadata_schema()))
        found = index.similar_items(body.item_ids, body.k, exclude=body.exclude, allow=body.allow, pad=body.pad)
        is_text = body.ids == "string"
        given = [str(item) if is_text else item for item in body.item_ids]
        hits = similar_json(found, is_text=is_text, columns=columns)
        results = [{"id": item, "hits": own} for item, own in zip(given, hits, strict=True)]
        return Answer.of({"results": results, "index": describe_version(name, index)})

    return await service.in_thread(work)


async def list_indexes(service: Service) -> Answer:
    """Describe all indexes."""
    served = [service.index(name) for name in service.indexes]

    def work() -> Answer:
        described = [describe_index(own, service.settings) for own in served]
        return Answer.of({"indexes": described, "server": {"name": "railsearch", "version": railsearch.__version__}})

    return await service.in_thread(work)


async def show_index(service: Service, name: str) -> Answer:
    """Describe one index."""
    served = service.index(name)
    return await service.in_thread(lambda: Answer.of(describe_index(served, service.settings)))


async def show_item(service: Service, request: Request, name: str, item_id: str) -> Answer:
    """Return one item."""
    index = service.index(name).current
    is_text = _wants_text(request)
    missing = Problem("not-found", f"there is no item {item_id!r:.80} in index {name}.")
    item: int | str = item_id
    if not index.has_keys:
        if not (item_id.isascii() and item_id.isdigit() and len(item_id) < 20):
            raise missing
        item = int(item_id)
    if item_id == "" or (isinstance(item, int) and item >= 2**63):
        raise missing

    def work() -> Answer:  # the first one reads all string ids, and the metadata
        if int(index.find([item])[0]) < 0:
            raise missing
        (row,) = item_json(index.describe_items([item]), is_text=is_text)
        return Answer.of({**row, "index": describe_version(name, index)})

    return await service.in_thread(work)


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
        rows = item_json(index.find_text(text, limit=int(limit), column=column), is_text=is_text)
        return Answer.of({"items": rows, "index": describe_version(name, index)})

    return await service.in_thread(work)


async def show_job(service: Service, job_id: str) -> Answer:
    """Return a job and its result."""
    return Answer.of(service.jobs.get(job_id).to_dict())


def _wants_text(request: Request) -> bool:
    wanted = request.query.get("ids", "number")
    if wanted not in ("number", "string"):
        raise InvalidInputError(f"ids is {wanted!r:.80}; choose from: number, string.")
    return wanted == "string"
