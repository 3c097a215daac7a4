"""Items that were indexed together: never changed, so that readers and memory maps never see a change under them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from railsearch.index.engines import Engine, Table
from railsearch.similarity import ItemParts

ROWS_PER_BATCH = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The item side of some items, ready to be scanned."""

    ids: Tensor  # (n,) int64, ascending
    parts: ItemParts
    sums: Tensor  # (n, d) the sum of each item's components, for searches by average; in the precision of scores
    longest: float
    """The greatest length of a component: 1 where components are normalised."""
    _tables: dict[tuple[Engine, int | None], Table] = field(default_factory=dict, repr=False)

    @classmethod
    def build(cls, ids: Tensor, parts: ItemParts) -> "Segment":
        """Order items by id, and materialise what searches need besides the parts themselves."""
        if bool((ids[1:] < ids[:-1]).any()):
            ids, order = ids.sort()
            parts = parts[order]
        dtype = torch.promote_types(parts.components.dtype, torch.float32)
        sums = torch.empty_like(parts.components[:, 0], dtype=dtype)  # (n, d)
        longest = 0.0
        for first in range(0, len(parts), ROWS_PER_BATCH):
            block = parts.components[first : first + ROWS_PER_BATCH].to(dtype)  # (n, Px, d)
            sums[first : first + len(block)] = block.sum(dim=1)
            longest = max(longest, float(lengths(block).max()))
        return cls(ids, parts, sums, longest)

    def __len__(self) -> int:
        return len(self.ids)

    def component_table(self, engine: Engine, component: int) -> Table:
        """One component of every item, made ready to be searched the first time that it is asked for."""
        return self._table(engine, component, self.parts.components[:, component])

    def sum_table(self, engine: Engine) -> Table:
        """The sum of every item's components, likewise."""
        return self._table(engine, None, self.sums)

    def _table(self, engine: Engine, component: int | None, vectors: Tensor) -> Table:
        if (engine, component) not in self._tables:
            self._tables[engine, component] = engine.build(vectors)
        return self._tables[engine, component]


def join(segments: Sequence[Segment], are_live: Sequence[Tensor | None]) -> Segment:
    """Copy the live rows of several segments into one."""
    kept = [
        torch.arange(len(segment), device=segment.ids.device) if is_live is None else is_live.nonzero().flatten()
        for segment, is_live in zip(segments, are_live, strict=True)
    ]  # (m,) each
    chosen = [segment.parts[rows] for segment, rows in zip(segments, kept, strict=True)]
    gates = [parts.gate for parts in chosen if parts.gate is not None]
    parts = ItemParts(torch.cat([parts.components for parts in chosen]), torch.cat(gates) if gates else None)
    return Segment.build(torch.cat([segment.ids[rows] for segment, rows in zip(segments, kept, strict=True)]), parts)


def lengths(components: Tensor) -> Tensor:
    """Lengths (rows, components), in fp64 so that the square of a small number is not lost."""
    found: Tensor = torch.linalg.vector_norm(components.double(), dim=-1)
    return found
