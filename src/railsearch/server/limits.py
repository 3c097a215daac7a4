"""Limits of requests: an error names the limit that was passed, so that a client can read it and stay below."""

from dataclasses import asdict, dataclass, replace

from railsearch.foundation.errors import InvalidInputError


class LimitError(InvalidInputError):
    """A request passed a limit of the server; nothing was computed."""

    def __init__(self, name: str, value: int, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.value = value


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one request may ask for, and the most that waits at one time."""

    max_k: int = 1000
    max_queries: int = 256
    max_hits: int = 65_536
    """Hits of all queries of a search: their number times k."""
    max_explained_hits: int = 256
    """Explanations of all queries of a search."""
    max_sample_queries: int = 100_000
    """Queries that a tuning measures."""
    max_explained: int = 10
    max_excluded: int = 10_000
    """Ids in the exclude list of one query."""
    max_pool: int = 10_000
    """Best items that rules choose from, for each query."""
    max_compared: int = 10_000_000
    """Items that diversity compares in a search: the number of queries times k times the pool."""
    max_allowed: int = 100_000
    """Ids in an allow list."""
    max_text_length: int = 20_000
    """Characters of one text."""
    max_history_length: int = 10_000
    max_items: int = 100_000
    """Items that one request adds, replaces or removes."""
    max_explained_items: int = 100
    max_similar_items: int = 32
    """Items whose similar ones one request asks for."""
    max_found_items: int = 100
    """Items that a lookup by text returns."""
    max_body_bytes: int = 16 * 2**20
    max_buffered_bytes: int = 128 * 2**20
    """Bodies of all requests that are being received and answered; those of at most 64 KB are always received."""
    max_header_bytes: int = 32 * 2**10
    max_timeout_ms: int = 60_000
    max_working: int = 64
    """Requests besides searches that are worked on, or wait for that."""
    queue_queries: int = 256
    max_wait_ms: int = 100
    """Time in which what waits must be answered, at the rate of the last batches; 64 queries may always wait."""
    batch_queries: int = 32

    def check(self, name: str, found: int, what: str) -> None:
        """Raise LimitError if a number passes the limit of this name.

        >>> Limits(max_k=5).check("max_k", 6, "k")
        Traceback (most recent call last):
        ...
        railsearch.server.limits.LimitError: k is 6 but this server allows at most 5 (max_k); ask for less.
        """
        largest: int = getattr(self, name)
        if found > largest:
            raise LimitError(
                name, largest, f"{what} is {found} but this server allows at most {largest} ({name}); ask for less."
            )

    @property
    def for_samples(self) -> "Limits":
        """The limits of a tuning, which takes more queries than a search."""
        return replace(self, max_queries=self.max_sample_queries)

    def to_dict(self) -> dict[str, int]:
        """Return all limits by name."""
        return asdict(self)
