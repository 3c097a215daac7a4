"""Requests and answers as the routes see them, without a web framework."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from railsearch.server.json_text import write_json
from railsearch.server.problems import Problem

JSON = "application/json"


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
