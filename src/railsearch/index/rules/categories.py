"""The categories of items: values of their columns as numbers, each with the most items that it may have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from railsearch.index.rules.rules import MaxPer

if TYPE_CHECKING:
    from polars import DataFrame, Series


@dataclass(frozen=True, slots=True, eq=False)
class Categories:
    """The categories of some items."""

    of_item: dict[int, list[int]]
    """The numbers of the categories of each item, by its id; none for an item without a value."""
    limits: list[int]
    """The most items of each category, by its number."""

    @classmethod
    def read(cls, ids: Sequence[int], frame: "DataFrame", max_per: Sequence[tuple[str, MaxPer]]) -> "Categories":
        """Read the categories of items from their metadata, one row for each id.

        >>> import polars as pl
        >>> frame = pl.DataFrame({"genres": ["Action|Comedy", "Comedy", None]})
        >>> found = Categories.read([7, 8, 9], frame, [("genres", MaxPer(1, separator="|"))])
        >>> [len(found.of_item[item]) for item in (7, 8, 9)], found.limits
        ([2, 1, 0], [1, 1])
        """
        of_item: dict[int, list[int]] = {item: [] for item in ids}
        limits: list[int] = []
        for column, limit in max_per:
            numbers: dict[object, int] = {}
            for item, values in zip(ids, _as_lists(frame[column], limit.separator), strict=True):
                for value in dict.fromkeys(values):
                    if value is not None:
                        of_item[item].append(numbers.setdefault(value, len(limits) + len(numbers)))
            limits += [limit.limit] * len(numbers)
        return cls(of_item, limits)


def _as_lists(values: "Series", separator: str | None) -> Iterator[Sequence[object]]:
    """Yield the values of each row; a text with a separator has several, of which empty ones are dropped."""
    is_nested = values.dtype.is_nested()
    for value in values.to_list():
        if value is None:
            yield ()
        elif separator is not None:
            yield [part.strip() for part in value.split(separator) if part.strip()]
        else:
            yield value if is_nested else (value,)
