"""The application: routes of FastAPI around the functions of `routes`, behind the gate."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable
from typing import Annotated, Any

from fastapi import FastAPI, Path
from fastapi import Request as HttpRequest
from fastapi import Response as HttpResponse
from starlette.exceptions import HTTPException

import railsearch
from railsearch.server import changes, routes
from railsearch.server.docs_page import render_docs
from railsearch.server.exchange import Answer, Request
from railsearch.server.gate import INCOMING, Gate, Incoming
from railsearch.server.metrics import MEDIA_TYPE as METRICS_TYPE
from railsearch.server.problems import MEDIA_TYPE as PROBLEM_TYPE
from railsearch.server.problems import Problem, problem_of
from railsearch.server.queries import Body, ExplainBody, ItemsBody, RemoveBody, SearchBody, SimilarBody, TuneBody
from railsearch.server.service import Service
from railsearch.server.static_files import StaticFile, read_static_files
from railsearch.server.tables import ARROW_FILE, ARROW_STREAM
from railsearch.server.tensors import MEDIA_TYPE as SAFETENSORS

Name = Annotated[str, Path(description="Name of an index: its folder without .index.")]
Description = dict[str, Any]
logger = logging.getLogger(__name__)


def create_app(service: Service) -> Gate:
    """Build the ASGI application of a service; its lifespan opens and closes the indexes."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="railsearch",
        version=railsearch.__version__,
        description=(
            "Search certified indexes. Errors are problem details (RFC 9457). docs/reference/http.md is the contract."
        ),
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    respond = _Responder(service)
    _add_reading(app, service, respond)
    _add_pages(app, service, respond)
    _add_writing(app, service, respond)

    @app.exception_handler(HTTPException)
    async def refuse(request: HttpRequest, _: Exception) -> HttpResponse:
        """Refuse a path that the table of the gate has, and the application has not."""
        return respond.refuse(Problem("not-found", f"there is no route {request.url.path!r:.200}; see /docs."))

    return Gate(app, service)  # type: ignore[arg-type]  # Starlette's own types of messages


def _add_pages(app: FastAPI, service: Service, respond: "_Responder") -> None:
    """Add health, metrics, the explorer, and the description of the API."""
    files = read_static_files()

    @app.get("/healthz", tags=["server"])
    async def health() -> HttpResponse:
        """Report that the process lives."""
        return await respond(_plain({"status": "ok"}))

    @app.get("/readyz", tags=["server"])
    async def readiness() -> HttpResponse:
        """Report whether searches are answered: not while indexes are opened, and not while the server stops."""
        if service.is_draining or not service.is_ready:
            name, detail = ("draining", "stops") if service.is_draining else ("loading", "opens its indexes")
            return respond.refuse(Problem(name, f"the server {detail}.", headers={"Retry-After": "1"}))
        return await respond(_plain({"status": "ready"}))

    @app.get("/metrics", tags=["server"])
    async def metrics() -> HttpResponse:
        """Return metrics in the text format of Prometheus."""
        return HttpResponse(service.metrics.to_text(), media_type=None, headers={"content-type": METRICS_TYPE})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HttpResponse:
        return HttpResponse(render_docs(app.openapi()), media_type="text/html")

    @app.get("/", include_in_schema=False)
    async def explorer(request: HttpRequest) -> HttpResponse:
        return await respond(_file(files, "index.html", request))

    @app.get("/explorer/{file:path}", include_in_schema=False)
    async def explorer_file(file: str, request: HttpRequest) -> HttpResponse:
        return await respond(_file(files, file, request))


def _add_reading(app: FastAPI, service: Service, respond: "_Responder") -> None:
    """Add routes that change nothing; routes are tried in order, so searches come first."""

    @app.post("/v1/indexes/{name}/search", tags=["search"], openapi_extra=_body(SearchBody, SAFETENSORS))
    async def search(name: Name, request: HttpRequest) -> HttpResponse:
        """Find the k best items of each query, with certificates. Give exactly one kind of queries."""
        return await respond(routes.search(service, _incoming(request), name))

    @app.get("/v1/indexes", tags=["indexes"])
    async def list_indexes() -> HttpResponse:
        """Describe all indexes."""
        return await respond(routes.list_indexes(service))

    @app.get("/v1/indexes/{name}", tags=["indexes"])
    async def show_index(name: Name) -> HttpResponse:
        """Describe an index: its version, shapes, inputs, metadata, tuned strategies and limits."""
        return await respond(routes.show_index(service, name))

    @app.post("/v1/indexes/{name}/explain", tags=["search"], openapi_extra=_body(ExplainBody))
    async def explain(name: Name, request: HttpRequest) -> HttpResponse:
        """Return component scores and gate weights of some items for one query."""
        return await respond(routes.explain(service, _incoming(request), name))

    @app.post("/v1/indexes/{name}/similar", tags=["search"], openapi_extra=_body(SimilarBody))
    async def similar(name: Name, request: HttpRequest) -> HttpResponse:
        """Find the items that are most similar to each of some items, by the mean cosine of their components."""
        return await respond(routes.similar(service, _incoming(request), name))

    @app.get("/v1/indexes/{name}/items", tags=["items"], openapi_extra={"parameters": LOOKUP})
    async def find_items(name: Name, request: HttpRequest) -> HttpResponse:
        """Find items by a text in their metadata, in upper or lower case."""
        return await respond(routes.find_items(service, _incoming(request), name))

    @app.get("/v1/indexes/{name}/items/{item_id:path}", tags=["items"])
    async def show_item(name: Name, item_id: str, request: HttpRequest) -> HttpResponse:
        """Return one item with its metadata."""
        return await respond(routes.show_item(service, _incoming(request), name, item_id))

    @app.get("/v1/jobs", tags=["jobs"])
    async def list_jobs() -> HttpResponse:
        """List jobs, the newest first."""
        return await respond(_plain({"jobs": [job.to_dict() for job in service.jobs]}))

    @app.get("/v1/jobs/{job_id}", tags=["jobs"])
    async def show_job(job_id: str) -> HttpResponse:
        """Return a job and its result."""
        return await respond(routes.show_job(service, job_id))


def _add_writing(app: FastAPI, service: Service, respond: "_Responder") -> None:
    """Add routes that need a write key."""

    @app.post("/v1/indexes/{name}/items", tags=["items"], openapi_extra=_body(ItemsBody, ARROW_FILE, ARROW_STREAM))
    async def add_items(name: Name, request: HttpRequest) -> HttpResponse:
        """Add items whose ids are not in the index; durable and searched when answered."""
        return await respond(changes.put_items(service, _incoming(request), name, replaces=False))

    @app.put("/v1/indexes/{name}/items", tags=["items"], openapi_extra=_body(ItemsBody, ARROW_FILE, ARROW_STREAM))
    async def upsert_items(name: Name, request: HttpRequest) -> HttpResponse:
        """Add items, or replace those with the same ids; durable and searched when answered."""
        return await respond(changes.put_items(service, _incoming(request), name, replaces=True))

    @app.post("/v1/indexes/{name}/items/remove", tags=["items"], openapi_extra=_body(RemoveBody))
    async def remove_items(name: Name, request: HttpRequest) -> HttpResponse:
        """Remove items; durable and searched when answered."""
        return await respond(changes.remove_items(service, _incoming(request), name))

    @app.post("/v1/indexes/{name}/refresh", tags=["indexes"])
    async def refresh(name: Name) -> HttpResponse:
        """Serve the newest version of the folder."""
        return await respond(changes.refresh(service, name))

    @app.post("/v1/indexes/{name}/compact", tags=["jobs"], status_code=202)
    async def compact(name: Name) -> HttpResponse:
        """Start a job that writes all items again, without the removed ones."""
        return await respond(changes.compact(service, name))

    @app.post("/v1/indexes/{name}/tune", tags=["jobs"], status_code=202, openapi_extra=_body(TuneBody))
    async def tune(name: Name, request: HttpRequest) -> HttpResponse:
        """Start a job that finds the cheapest strategy that reaches a recall, on sample queries."""
        return await respond(changes.tune(service, _incoming(request), name))


LOOKUP: list[Description] = [
    {"name": name, "in": "query", "required": False, "schema": {"type": kind}, "description": text}
    for name, kind, text in (
        ("text", "string", "Text to find; the first items if it is empty."),
        ("limit", "integer", "The largest number of items, at most 100; 20 by default."),
        ("column", "string", "The only column to look at."),
        ("ids", "string", "number, or string to write integer ids as strings."),
    )
]


class _Responder:
    """Turns answers of routes, and what they raise, into responses."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, answer: Awaitable[Answer]) -> HttpResponse:
        try:
            found = await answer
        except Exception as error:
            return self.refuse(problem_of(error, self._service.names), error)
        return HttpResponse(found.body, found.status, found.headers, found.media_type)

    def refuse(self, problem: Problem, error: Exception | None = None) -> HttpResponse:
        """Return the response for a problem; log one that is a fault of the server."""
        if problem.name in ("internal", "storage"):
            logger.error("a request failed", exc_info=error)
        self._service.metrics.rejected.labels(problem.name).inc()
        headers = {**problem.headers, **({"connection": "close"} if problem.closes else {})}
        return HttpResponse(problem.to_json(), problem.status, headers, PROBLEM_TYPE)


async def _plain(value: object) -> Answer:
    return Answer.of(value)


def _incoming(request: HttpRequest) -> Request:
    incoming: Incoming = request.scope[INCOMING]

    async def wait_for_disconnect() -> None:
        while (await incoming.receive())["type"] != "http.disconnect":
            pass

    return Request(incoming.body, request.headers, request.query_params, wait_for_disconnect)


async def _file(files: dict[str, StaticFile], name: str, request: HttpRequest) -> Answer:
    found = files.get(name)
    if found is None:
        raise Problem("not-found", f"there is no file {name!r:.200}.")
    headers = {"etag": found.etag, "cache-control": "no-cache"}
    if found.etag in request.headers.get("if-none-match", ""):
        return Answer(b"", 304, found.media_type, headers)
    return Answer(found.content, 200, found.media_type, headers)


def _body(kind: type[Body], *others: str) -> Description:
    """Return the description of a request body."""
    schema = kind.model_json_schema()
    content: Description = {"application/json": {"schema": schema}}
    content |= {media: {"schema": {"type": "string", "format": "binary"}} for media in others}
    return {"requestBody": {"required": True, "content": content}}
