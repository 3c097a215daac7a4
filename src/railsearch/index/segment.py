"""Segments: items that were indexed together and never change, so that readers and memory maps stay valid."""

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.engines import Engine, Table, Tables
from railsearch.index.metadata import Metadata, stack
from railsearch.similarity import ItemParts

ROWS_PER_BATCH = 65_536


class Checks(Protocol):
    """Checks of a segment that was opened without reading it. What was checked once is not read again.

    Every method raises IndexFolderError if the file is damaged.
    """

    @property
    def has_checked_parts(self) -> bool:
        """Whether the parts of every row were checked."""
        ...

    def check_parts(self, first: int, last: int) -> None:
        """Check the parts of the rows from first to last - 1."""
        ...

    def check_rows(self, rows: Tensor) -> None:
        """Check the parts of some rows (n,)."""
        ...

    def check_sums(self) -> None:
        """Check the sums of all rows."""
        ...

    def check_all(self) -> None:
        """Check everything, also that the sums are those of the components."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The item side of some items, ready to be searched. A removed item keeps its row, and is no longer live."""

    name: str
    ids: Tensor  # (n,) int64, ascending
    stored_parts: ItemParts
    """The item side as it is stored; `parts` checks it first, if it was opened unchecked."""
    stored_sums: Tensor  # (n, d)
    longest: float
    """The greatest length of a component: 1 if components are normalised."""
    metadata: Metadata | None = None
    """One row for each item, such as titles; None if the index has no metadata."""
    is_live: Tensor | None = None  # (n,) bool; None if all are
    tables: Tables = field(default_factory=Tables, repr=False)
    """Tables that engines have built of this segment; they hold all rows, live or not."""
    checks: Checks | None = field(default=None, repr=False)
    """Checks the tensors before they are used for the first time; None if they were checked before."""
    facts: dict[str, bool] = field(default_factory=dict, repr=False)
    """Facts about the components that were found out once, by name: rows never change."""

    @classmethod
    def build(cls, ids: Tensor, parts: ItemParts, metadata: Metadata | None = None) -> "Segment":
        """Order items by id, and compute what searches need besides the parts themselves."""
        if bool((ids[1:] <= ids[:-1]).any()):
            ids, order = ids.sort()
            is_repeated = ids[1:] == ids[:-1]  # (n - 1,)
            if bool(is_repeated.any()):
                raise InvalidInputError(
                    f"id {int(ids[1:][is_repeated][0])} is given more than once ({int(is_repeated.sum())} repeats in "
                    "all); give every item its own id."
                )
            parts = parts[order]
            metadata = None if metadata is None else Metadata(metadata.of_rows(order))
        dtype = torch.promote_types(parts.components.dtype, torch.float32)
        sums = torch.empty_like(parts.components[:, 0], dtype=dtype)  # (n, d)
        longest = 0.0
        for first in range(0, len(parts), ROWS_PER_BATCH):
            block = parts.components[first : first + ROWS_PER_BATCH].to(dtype)  # (n, Px, d)
            sums[first : first + len(block)] = block.sum(dim=1)
            longest = max(longest, float(lengths(block).max()))
        return cls(uuid.uuid4().hex, ids, parts, sums, longest, metadata)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def parts(self) -> ItemParts:
        """The item side of all rows, checked."""
        return self.parts_between(0, len(self))

    def parts_between(self, first: int, last: int) -> ItemParts:
        """Return the item side of the rows from first to last - 1, checked."""
        if self.checks is not None:
            self.checks.check_parts(first, last)
        return self.stored_parts if last - first == len(self) else self.stored_parts[first:last]

    def parts_of(self, rows: Tensor) -> ItemParts:
        """Return the item side of some rows, checked: components (..., Px, d) and gate (..., P)."""
        if self.checks is not None:
            self.checks.check_rows(rows.flatten())
        return self.stored_parts[rows]

    @property
    def sums(self) -> Tensor:
        """The sum of each item's components (n, d), for searches by average; in the precision of scores; checked."""
        if self.checks is not None:
            self.checks.check_sums()
        return self.stored_sums

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the stored components."""
        return self.stored_parts.components.dtype

    @property
    def live_rows(self) -> Tensor:
        """The rows (m,) of items that were not removed."""
        if self.is_live is None:
            return torch.arange(len(self), device=self.ids.device)
        return self.is_live.nonzero().flatten()

    @property
    def num_live(self) -> int:
        """The number of items that were not removed."""
        return len(self) if self.is_live is None else int(self.is_live.sum())

    def rows_of(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the row of each of the ids (m,), live or not, and whether it is there (m,); otherwise row 0."""
        if not len(self):
            return torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        rows = torch.searchsorted(self.ids, ids).clamp_max_(len(self) - 1)  # (m,)
        is_there = self.ids[rows] == ids  # (m,)
        return rows.masked_fill_(~is_there, 0), is_there

    def has_live(self, ids: Tensor) -> Tensor:
        """Return whether each of the ids (m,) is that of a live item (m,)."""
        rows, is_there = self.rows_of(ids)
        return is_there if self.is_live is None else is_there & self.is_live[rows]

    @property
    def num_bytes(self) -> int:
        """The size of the tensors in memory, even if only a part has been read from disk yet."""
        parts = self.stored_parts
        gate = 0 if parts.gate is None else parts.gate.nbytes
        return self.ids.nbytes + parts.components.nbytes + gate + self.stored_sums.nbytes

    def without(self, ids: Tensor) -> "Segment":
        """Return the same segment, in which these items are no longer live."""
        rows, is_there = self.rows_of(ids.to(self.ids.device))
        if not bool(is_there.any()):
            return self
        is_live = torch.ones_like(self.ids, dtype=torch.bool) if self.is_live is None else self.is_live.clone()  # (n,)
        is_live[rows[is_there]] = False
        return dataclasses.replace(self, is_live=is_live)

    def with_checks(self, checks: Checks) -> "Segment":
        """Return the same segment, whose tensors are checked before they are used."""
        return dataclasses.replace(self, checks=checks)

    def component_table(self, engine: Engine, component: int) -> Table:
        """Return the table of one component of every item; the first call opens or builds it."""
        return self.tables.get(engine, f"{self.name}.component-{component}", self.parts.components[:, component])

    def sum_table(self, engine: Engine) -> Table:
        """Return the table of the sum of each item's components; the first call opens or builds it."""
        return self.tables.get(engine, f"{self.name}.sum", self.sums)

    def table_bytes(self, engine: Engine, *, by_component: bool = False) -> int:
        """Return the least memory of tables that are not open yet: that of the sums, or those of all components.

        An engine that does not say what its tables take counts as 0.
        """
        bytes_of = getattr(engine, "table_bytes", None)  # optional, for engines of users
        if bytes_of is None:
            return 0
        components = self.stored_parts.components
        waiting = {"sum": self.stored_sums}
        if by_component:
            waiting = {f"component-{place}": components[:, place] for place in range(components.shape[1])}
        return sum(
            int(bytes_of(vectors))
            for name, vectors in waiting.items()
            if not self.tables.has(engine, f"{self.name}.{name}")
        )

    def prepare(self, engine: Engine) -> None:
        """Open or build all tables that searches use."""
        self.sum_table(engine)
        if engine.sees_every_row and not engine.supports_threshold:
            return  # the kernel reads the components itself
        for component in range(self.stored_parts.components.shape[1]):
            self.component_table(engine, component)


def join(segments: Sequence[Segment]) -> Segment:
    """Copy the live rows of several segments into one."""
    chosen = [segment.parts_of(segment.live_rows) for segment in segments]
    gates = [parts.gate for parts in chosen if parts.gate is not None]
    parts = ItemParts(torch.cat([parts.components for parts in chosen]), torch.cat(gates) if gates else None)
    ids = torch.cat([segment.ids[segment.live_rows] for segment in segments])
    frame = stack([segment.metadata.of_rows(segment.live_rows) for segment in segments if segment.metadata is not None])
    return Segment.build(ids, parts, None if frame is None else Metadata(frame))


def sort_runs(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return integers (n,) in ascending order, and their former places (n,).

    Ids of several segments are a few ascending runs. On a CPU they are merged, in less than half the time of a sort.
    """
    if values.device.type != "cpu":
        return values.sort(stable=True)
    order = torch.from_numpy(np.argsort(values.numpy(), kind="stable"))  # (n,)
    return values[order], order


def lengths(components: Tensor) -> Tensor:
    """Return lengths (rows, components), in fp64 so that the square of a small number is not lost."""
    found: Tensor = torch.linalg.vector_norm(components.double(), dim=-1)
    return found
