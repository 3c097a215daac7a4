"""Changes to a split index: every shard commits its part, then one snapshot acknowledges all of them.

A change starts from the versions that the current snapshot names. If the process is killed before the new snapshot is
written, readers stay at the old one, and the next change starts from there again: versions that no snapshot names are
abandoned. So a second call of the same change finishes it, whether it adds or replaces.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from railsearch.distributed.batches import Rows, as_batches
from railsearch.distributed.layout import Layout
from railsearch.distributed.locating import Located, check_ids, locate, take
from railsearch.distributed.searching import answers_of
from railsearch.distributed.shard import ShardState
from railsearch.distributed.snapshots import Snapshot
from railsearch.distributed.workers import Call, Workers
from railsearch.foundation.errors import IdExistsError, IndexFolderError, InvalidInputError
from railsearch.foundation.inputs import LARGEST_INTEGER, ArrayLike, ArrowTable
from railsearch.foundation.progress import counting
from railsearch.index.building import Items
from railsearch.index.keys import NOT_FOUND
from railsearch.index.storage.lock import WriterLock
from railsearch.similarity import Similarity


class ShardedWriter:
    """One change of a split index, which holds its lock."""

    def __init__(self, workers: Workers, layout: Layout, base: Snapshot) -> None:
        self._workers = workers
        self._layout = layout
        self._base = base
        self._versions = list(base.versions)
        self._num_items = list(base.num_items)
        self._next_id = base.next_id
        self._given: set[int | str] = set()

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot after the change."""
        return dataclasses.replace(
            self._base,
            number=self._base.number + 1,
            versions=tuple(self._versions),
            num_items=tuple(self._num_items),
            next_id=self._next_id,
        )

    def put(self, rows: Rows, *, replaces: bool) -> None:
        """Add items, or replace those with the same ids."""
        layout = self._layout
        ids = self._ids(rows, replaces=replaces)
        self._check_given(ids)
        shards = rows.shards(ids, layout.num_shards, layout.by)  # (n,)
        numbers = None
        if layout.has_keys or layout.by is not None:
            known = locate(self._workers, layout, self._versions, ids)
            is_known = known.integers != NOT_FOUND  # (n,)
            if not replaces and bool(is_known.any()):
                first = _first(ids, is_known)
                raise IdExistsError(
                    f"id {first!r:.80} is already in the index ({int(is_known.sum())} of the given ids are); use "
                    "upsert to replace items."
                )
            numbers = self._numbers(ids, known) if isinstance(ids, list) else None
            has_moved = is_known & (known.shards != shards)  # (n,): a column decides, and it has changed
            self._change("remove", known.shards, has_moved, lambda own: {"ids": take(ids, own)})

        def part(own: Tensor) -> dict[str, object]:
            batch = rows.batch(ids, own)
            keys = None if numbers is None else {str(key): numbers[str(key)] for key in take(ids, own)}
            return {"batch": batch, "replaces": replaces, "numbers": keys}

        self._change("put", shards, torch.ones_like(shards, dtype=torch.bool), part)

    def remove(self, ids: Tensor | list[str], *, missing_ok: bool) -> None:
        """Remove items."""
        known = locate(self._workers, self._layout, self._versions, ids)
        is_known = known.integers != NOT_FOUND  # (n,)
        if not missing_ok and not bool(is_known.all()):
            first = _first(ids, ~is_known)
            raise InvalidInputError(
                f"id {first!r:.80} is not in the index ({int((~is_known).sum())} of the given ids are not); omit "
                "it, or pass missing_ok=True."
            )
        self._change("remove", known.shards, is_known, lambda own: {"ids": take(ids, own)})

    def compact(self) -> None:
        """Compact every shard."""
        self._ask([Call(number, "compact", self._versions_of(number)) for number in range(self._layout.num_shards)])

    def _ids(self, rows: Rows, *, replaces: bool) -> Tensor | list[str]:
        """Return the ids of items; omitted integers continue after the greatest id that was ever given."""
        ids, has_keys = rows.ids, self._layout.has_keys
        if ids is None and not has_keys:
            if replaces:
                raise InvalidInputError("ids is missing; give the ids of the items to replace, or use add.")
            return self._take(len(rows))
        if isinstance(ids, list) != has_keys or ids is None:
            found = "is missing" if ids is None else f"holds {'strings' if isinstance(ids, list) else 'integers'}"
            wanted = "strings" if has_keys else "integers"
            raise InvalidInputError(f"ids {found} but the ids of this index are {wanted}; give {wanted}.")
        return ids

    def _check_given(self, ids: Tensor | list[str]) -> None:
        """Refuse an id that is given twice in one change; a shard sees only one batch at a time."""
        for item in ids if isinstance(ids, list) else ids.tolist():
            if item in self._given:
                raise InvalidInputError(f"ids holds {item!r:.80} more than once; give every item its own id.")
            self._given.add(item)

    def _numbers(self, keys: Sequence[str], known: Located) -> dict[str, int]:
        """Return the integer of each string id: its own, or the next one in the order of addition."""
        is_new = known.integers == NOT_FOUND  # (n,)
        integers = known.integers.clone()  # (n,)
        integers[is_new] = self._take(int(is_new.sum()))
        return dict(zip(keys, integers.tolist(), strict=True))

    def _take(self, count: int) -> Tensor:
        first, self._next_id = self._next_id, self._next_id + count
        if self._next_id > LARGEST_INTEGER:
            raise InvalidInputError(f"{count} ids after {first - 1} do not fit into int64; give ids.")
        return torch.arange(first, self._next_id)  # (n,)

    def _change(
        self, method: str, shards: Tensor, is_chosen: Tensor, arguments: Callable[[Tensor], Mapping[str, object]]
    ) -> None:
        """Let every shard of the chosen rows (n,) change its own."""
        calls = []
        for number in torch.unique(shards[is_chosen]).tolist():
            own = (is_chosen & (shards == number)).nonzero().flatten()  # (m,)
            calls.append(Call(number, method, {**self._versions_of(number), **arguments(own)}))
        self._ask(calls)

    def _versions_of(self, number: int) -> dict[str, object]:
        """Return the version that a change of a shard starts from, the one that readers need, and their snapshot."""
        return {
            "version": self._versions[number],
            "kept": self._base.versions[number],
            "snapshot": self._base.number,
        }

    def _ask(self, calls: Sequence[Call]) -> None:
        for call, state in zip(calls, answers_of(self._workers, calls), strict=True):
            assert isinstance(state, ShardState)
            self._versions[call.shard] = state.version
            self._num_items[call.shard] = state.num_items
            self._next_id = max(self._next_id, state.largest_id + 1)


@contextlib.contextmanager
def changing(
    folder: Path, workers: Workers, layout: Layout, purpose: str, *, pinned: int | None
) -> Iterator[ShardedWriter]:
    """Hold the lock, and yield a writer; when the block ends, its snapshot becomes the current one.

    Args:
        folder: the folder of the split index.
        workers: hold its shards.
        layout: its shards.
        purpose: the name of the change, for others who find the lock held.
        pinned: the only snapshot that may be changed, if one was opened by its number.
    """
    with WriterLock(folder).held(purpose) as check_place:
        base = Snapshot.current(folder, split=layout.split, num_shards=layout.num_shards)
        if pinned is not None and base.number != pinned:
            raise IndexFolderError(
                f"version {pinned} was opened but the newest is {base.number}; only that can be changed: call "
                "refresh() first."
            )
        writer = ShardedWriter(workers, layout, base)
        yield writer
        check_place()
        if writer.snapshot.versions != base.versions:
            writer.snapshot.write(folder)


def put_items(
    writer: ShardedWriter,
    similarity: Similarity,
    items: Items,
    ids: ArrayLike | None,
    metadata: ArrowTable | None,
    *,
    replaces: bool,
    show_progress: bool | None,
) -> None:
    """Add or replace items, batch by batch."""
    with counting("upsert" if replaces else "add", None, is_shown=show_progress) as on_rows:
        for batch in as_batches(items, ids, metadata):
            rows = Rows.check(batch, similarity)
            writer.put(rows, replaces=replaces)
            on_rows(len(rows))


def remove_items(writer: ShardedWriter, layout: Layout, ids: ArrayLike, *, missing_ok: bool) -> None:
    """Remove items."""
    writer.remove(check_ids(ids, layout), missing_ok=missing_ok)


def _first(ids: Tensor | list[str], is_chosen: Tensor) -> int | str:
    """Return the first of the ids that are chosen (n,)."""
    row = int(is_chosen.nonzero()[0])
    return int(ids[row]) if isinstance(ids, Tensor) else ids[row]
