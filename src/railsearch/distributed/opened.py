"""A snapshot of a split index that is open: the version of every shard, and what their manifests state."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from railsearch.distributed.layout import Layout, read_manifest, shard_name
from railsearch.distributed.snapshots import Snapshot
from railsearch.distributed.workers import Call, Workers
from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.inputs import check_count
from railsearch.index import Engine, Strategy
from railsearch.index.storage.manifest import Manifest
from railsearch.index.tuned import TunedStrategy, tuned_for


@dataclass(frozen=True, slots=True)
class OpenSnapshot:
    """One version of every shard; the workers have them open, so that cleanup keeps them."""

    snapshot: Snapshot
    manifests: tuple[Manifest, ...]

    @classmethod
    def read(cls, folder: Path, layout: Layout, number: int | None = None) -> "OpenSnapshot":
        """Read a snapshot, the newest if none is named, and check that its shards are there; opens none of them."""
        return cls._newest(folder, layout, number, lambda found: None)

    @classmethod
    def open(cls, folder: Path, layout: Layout, workers: Workers, number: int | None = None) -> "OpenSnapshot":
        """Let the workers open a snapshot; a shard that stays away is left to searches."""

        def open_shards(found: OpenSnapshot) -> None:
            versions = enumerate(found.snapshot.versions)
            workers.ask([Call(shard, "open", {"version": version}) for shard, version in versions])

        return cls._newest(folder, layout, number, open_shards)

    @classmethod
    def _newest(
        cls, folder: Path, layout: Layout, number: int | None, use: Callable[["OpenSnapshot"], None]
    ) -> "OpenSnapshot":
        """Read a snapshot and use it; start again if a writer has moved on before somebody had its versions open."""
        wanted = None if number is None else check_count(number, name="version")
        split, num_shards = layout.split, layout.num_shards
        for _ in range(100):
            if wanted is None:
                snapshot = Snapshot.current(folder, split=split, num_shards=num_shards)
            else:
                snapshot = Snapshot.read(folder, wanted, split=split, num_shards=num_shards)
            try:
                layout.check_shards(folder, snapshot.versions)
                versions = enumerate(snapshot.versions)
                manifests = [read_manifest(folder / shard_name(shard), version) for shard, version in versions]
                found = cls(snapshot, tuple(manifests))
                use(found)
            except IndexFolderError:
                newest = Snapshot.current(folder, split=split, num_shards=num_shards)
                if wanted is not None or newest == snapshot:
                    raise
            else:
                return found
        raise IndexFolderError(f"{folder} changes faster than it can be opened; try again.")

    @property
    def has_metadata(self) -> bool:
        """Whether items have metadata or string ids."""
        return any(segment.has_metadata for manifest in self.manifests for segment in manifest.segments)

    def tuned_strategy(self, k: int, engine: Engine) -> Strategy | None:
        """Return the strategy that was tuned before the split."""
        text = self.manifests[0].tuned.get(tuned_for(k, engine))
        return None if text is None else TunedStrategy.parse(text).strategy

    def describe(self) -> dict[str, int | str | list[str] | None]:
        """Return a summary of the shards by name."""
        entries = [segment for manifest in self.manifests for segment in manifest.segments]
        files = [entry for manifest in self.manifests for entry in manifest.files.values()]
        first, counts = self.manifests[0], self.snapshot.num_items
        return {
            "version": self.snapshot.number,
            "items": self.snapshot.count,
            "removed": sum(entry.num_rows for entry in entries) - self.snapshot.count,
            "shards": [f"{shard_name(number)}: {count:,} items" for number, count in enumerate(counts)],
            "segments": len(entries),
            "precision": first.precision,
            "bytes": sum(entry.size for entry in files),
            "fingerprint": first.fingerprint,
            "source": [f"{name}: {value}" for name, value in first.source.items()],
            "tuned": [f"{wanted}: {strategy}" for wanted, strategy in first.tuned.items()],
        }
