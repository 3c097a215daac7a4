"""The rules of an answer, checked before any work: caps of categories, diversity, and the pool that is re-ranked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count

if TYPE_CHECKING:
    from polars import DataType, Schema

NUMBERS = (int, float, np.integer, np.floating)
SMALLEST_POOL = 100
POOL_PER_ITEM = 4
"""Without a pool, an answer of k items is chosen among 4 k items, and at least 100."""


@dataclass(frozen=True, slots=True)
class MaxPer:
    """The most items of one value of a column.

    >>> MaxPer(2, separator="|")
    MaxPer(limit=2, separator='|')
    """

    limit: int
    separator: str | None = None
    """Cuts a text into several values: "|" for "Action|Comedy"; None if the whole text is one value."""

    def __post_init__(self) -> None:
        check_count(self.limit, name="limit")
        separator: object = self.separator
        if separator is not None and not (isinstance(separator, str) and separator):
            raise InvalidInputError(f"separator is {separator!r:.80}; give a text such as '|', or None.")


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of the answer to each query."""

    max_per: tuple[tuple[str, MaxPer], ...] = ()
    diversity: float = 0.0
    pool: int | None = None

    @classmethod
    def of(
        cls, max_per: Mapping[str, int | MaxPer] | None = None, diversity: float = 0.0, pool: int | None = None
    ) -> "Rules":
        """Check the rules of a call.

        Args:
            max_per: the most items of one value of a column, by the name of the column.
            diversity: 0 for the best scores, up to 1 for items as different as possible.
            pool: the number of best items to choose from.

        >>> Rules.of({"genre": 2}, diversity=0.3)
        Rules(max_per=(('genre', MaxPer(limit=2, separator=None)),), diversity=0.3, pool=None)
        """
        if max_per is not None and not isinstance(max_per, Mapping):
            raise InvalidInputError(f"max_per is {max_per!r:.80}; give a mapping such as {{'genre': 2}}.")
        given: object = diversity
        if isinstance(given, bool) or not isinstance(given, NUMBERS) or not 0 <= given <= 1:
            raise InvalidInputError(f"diversity is {diversity!r:.80}; give a number from 0 to 1.")
        limits: list[tuple[str, MaxPer]] = []
        for column, limit in (max_per or {}).items():
            check_count(limit.limit if isinstance(limit, MaxPer) else limit, name=f"max_per[{column!r}]")
            limits.append((column, limit if isinstance(limit, MaxPer) else MaxPer(limit)))
        if pool is not None:
            check_count(pool, name="pool")
        return cls(tuple(limits), float(diversity), pool)

    def __bool__(self) -> bool:
        """Return whether there is a rule; without one, an answer is that of the search."""
        return bool(self.max_per) or self.diversity > 0

    def first_pool(self, k: int) -> int:
        """Return how many of the best items are looked at first."""
        return max(SMALLEST_POOL, POOL_PER_ITEM * k) if self.pool is None else self.pool

    def check(self, k: int, schema: "Schema") -> None:
        """Refuse rules that do not fit a k, or the columns of an index."""
        if self.pool is not None and not self:
            raise InvalidInputError(f"pool is {self.pool} but there is no rule to apply; give max_per or diversity.")
        if self and self.first_pool(k) < k:
            raise InvalidInputError(f"pool is {self.pool} but k is {k}; ask for pool >= {k}.")
        for column, limit in self.max_per:
            if column not in schema:
                known = ", ".join(schema) or "none"
                raise InvalidInputError(
                    f"max_per names {column!r:.80}, which is not a column of the items; choose from: {known}."
                )
            _check_type(column, schema[column], limit)


def _check_type(column: str, kind: "DataType", limit: MaxPer) -> None:
    """Refuse a column whose values are not categories."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    is_list = isinstance(kind, (pl.List, pl.Array))
    if limit.separator is not None and kind != pl.String:
        remedy = "a list has several values already; omit the separator" if is_list else "omit the separator"
        raise InvalidInputError(f"max_per[{column!r}] has a separator but the column holds {kind}, not text; {remedy}.")
    inner = kind.inner if isinstance(kind, (pl.List, pl.Array)) else kind
    if isinstance(inner, (pl.Struct, pl.List, pl.Array)) or inner == pl.Object:
        raise InvalidInputError(
            f"max_per[{column!r}] counts values of type {kind}; give a column of texts, numbers or dates, or of lists "
            "of these."
        )
