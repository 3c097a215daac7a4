"""The routes that change an index: items, refresh, and jobs."""

from railsearch.server.encoding import encode
from railsearch.server.exchange import JSON, Answer, Request
from railsearch.server.json_text import read_object
from railsearch.server.problems import Problem
from railsearch.server.queries import RemoveBody, TuneBody
from railsearch.server.searched import Searched
from railsearch.server.served_index import ServedIndex
from railsearch.server.service import Service
from railsearch.server.tables import ARROW_FILE, ARROW_STREAM, read_items


async def put_items(service: Service, request: Request, name: str, *, replaces: bool) -> Answer:
    """Add items, or replace those with the same ids."""
    served = _writable(service, name)
    media = request.check_media_type(JSON, ARROW_FILE, ARROW_STREAM)

    def work() -> Answer:
        items = read_items(
            request.body, media, index=served.current, model=served.model, limits=service.limits, replaces=replaces
        )
        return _changed(served.change(lambda index: index.put(items, replaces=replaces)))

    return await service.in_thread(work, changes=True)


async def remove_items(service: Service, request: Request, name: str) -> Answer:
    """Remove items."""
    served = _writable(service, name)
    request.check_media_type(JSON)

    def work() -> Answer:
        body = RemoveBody.of(read_object(request.body))
        service.limits.check("max_items", len(body.ids), "the number of ids")
        return _changed(served.change(lambda index: index.remove(body.ids, missing_ok=body.missing_ok)))

    return await service.in_thread(work, changes=True)


async def refresh(service: Service, name: str) -> Answer:
    """Serve the newest version of the folder."""
    served = service.index(name)

    def work() -> Answer:
        has_changed = served.refresh()
        return Answer.of({"version": served.current.version, "changed": has_changed})

    return await service.in_thread(work, changes=True)


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

    def read() -> tuple[TuneBody, str, list[object]]:
        body = TuneBody.of(read_object(request.body))
        service.limits.check("max_k", body.k, "k")
        return body, *body.chosen(service.limits.for_samples)

    body, kind, values = await service.in_thread(read)

    def work() -> dict[str, object]:
        index = served.current
        encoded = encode(index, served.model, kind, values)
        report = index.measure_strategies(
            encoded.queries,
            body.k,
            target_recall=body.target_recall,
            confidence=body.confidence,
            user_ids=encoded.user_ids,
        )
        changed = served.change(lambda newest: newest.remember_choice(report, version=index.version))
        return {"version": changed.version, **report.to_dict()}

    return _job(service.jobs.start("tune", name, work).to_dict())


def _writable(service: Service, name: str) -> ServedIndex:
    served = service.index(name)
    if not service.settings.is_writable:
        raise Problem("forbidden", "this server is read-only; start it with --writable to change indexes.")
    return served


def _changed(index: Searched) -> Answer:
    return Answer.of({"version": index.version, "items": len(index)})


def _job(job: dict[str, object]) -> Answer:
    return Answer.of(job, 202, {"Location": f"/v1/jobs/{job['id']}"})
