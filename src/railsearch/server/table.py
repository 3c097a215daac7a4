"""The table of routes: their names for metrics, and the role that each needs. A route that is not here needs a key."""

import re
from dataclasses import dataclass

from railsearch.server.keys import Role

NAME = r"[^/]+"


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request."""

    method: str
    template: str
    """The path, with the names of its variable parts."""
    role: Role
    is_queued: bool = False
    """Whether it waits in the queue of searches."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The paths that belong to the route."""
        text = re.escape(self.template).replace(r"\{", "{").replace(r"\}", "}")
        for name, own in (("{id}", ".+"), ("{file}", ".+"), ("{name}", NAME), ("{job}", NAME)):
            text = text.replace(name, own)
        return re.compile(text, re.DOTALL)


INDEX = "/v1/indexes/{name}"
ROUTES = (
    Route("GET", "/healthz", Role.NONE),
    Route("GET", "/readyz", Role.NONE),
    Route("GET", "/metrics", Role.READ),
    Route("GET", "/openapi.json", Role.READ),
    Route("GET", "/docs", Role.READ),
    Route("GET", "/", Role.READ),
    Route("GET", "/explorer/{file}", Role.READ),
    Route("GET", "/v1/indexes", Role.READ),
    Route("GET", INDEX, Role.READ),
    Route("POST", f"{INDEX}/search", Role.READ, is_queued=True),
    Route("POST", f"{INDEX}/explain", Role.READ),
    Route("POST", f"{INDEX}/similar", Role.READ),
    Route("GET", f"{INDEX}/items", Role.READ),
    Route("GET", f"{INDEX}/items/{{id}}", Role.READ),
    Route("POST", f"{INDEX}/items", Role.WRITE),
    Route("PUT", f"{INDEX}/items", Role.WRITE),
    Route("POST", f"{INDEX}/items/remove", Role.WRITE),
    Route("POST", f"{INDEX}/refresh", Role.WRITE),
    Route("POST", f"{INDEX}/compact", Role.WRITE),
    Route("POST", f"{INDEX}/tune", Role.WRITE),
    Route("GET", "/v1/jobs", Role.READ),
    Route("GET", "/v1/jobs/{job}", Role.READ),
)
_PATTERNS = [(route, route.pattern) for route in ROUTES]
OTHER = Route("", "other", Role.READ)
"""Requests that no route has; those who may read are told so, and the application never sees them."""


def find_route(method: str, path: str) -> Route:
    """Return the route of a request.

    >>> find_route("POST", "/v1/indexes/movies/search").template
    '/v1/indexes/{name}/search'
    """
    method = "GET" if method == "HEAD" else method
    return next((route for route, own in _PATTERNS if route.method == method and own.fullmatch(path)), OTHER)


def methods_of(path: str) -> list[str]:
    """Return the methods of a path; none if no route has it.

    >>> methods_of("/v1/indexes/movies/items")
    ['GET', 'POST', 'PUT']
    """
    return sorted({route.method for route, own in _PATTERNS if own.fullmatch(path)})
