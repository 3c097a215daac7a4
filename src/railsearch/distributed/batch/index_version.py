"""One version of an index folder, plain or split, by its content, so that every process of a job opens the same."""

from dataclasses import dataclass
from pathlib import Path

from railsearch.distributed.opening import is_split, open_index
from railsearch.distributed.sharded_index import ShardedIndex
from railsearch.distributed.snapshots import SNAPSHOTS
from railsearch.foundation.errors import FingerprintError, IndexFolderError
from railsearch.foundation.files import describe
from railsearch.index import Engine, Index
from railsearch.index.storage.places import manifest_file


@dataclass(frozen=True, slots=True)
class IndexVersion:
    """A version of an index folder, and the checksum of the file that names all its content.

    For an index this is its manifest, for a split index its snapshot.
    """

    path: Path
    version: int
    checksum: str
    engine: Engine | None = None
    verify: str = "full"
    """As in `Index.open`."""

    @classmethod
    def of(cls, index: Index | ShardedIndex, engine: Engine | None = None, *, verify: str = "full") -> "IndexVersion":
        """Return the version that is open."""
        assert index.path is not None
        return cls(index.path, index.version, _checksum(index.path, index.version), engine, verify)

    def open(self) -> Index | ShardedIndex:
        """Open and verify this version; refuse another index at the same path."""
        index = open_index(self.path, version=self.version, engine=self.engine, verify=self.verify)
        self.check()
        return index

    def check(self) -> None:
        """Refuse another index that was built at the same path since."""
        found = _checksum(self.path, self.version)
        if found != self.checksum:
            raise FingerprintError(
                f"version {self.version} of {self.path} has manifest {found} but the job started with {self.checksum}; "
                "put the index back, or start the job again with another output."
            )

    def stated(self) -> dict[str, str | int | None]:
        """Return the version for `Job.stated`."""
        return {
            "index_version": self.version,
            "index_manifest": self.checksum,
            "engine": None if self.engine is None else repr(self.engine),
        }


def _checksum(path: Path, version: int) -> str:
    name = f"{SNAPSHOTS}/{version:08d}.json" if is_split(path) else manifest_file(version)
    try:
        return describe(path / name).checksum
    except OSError as error:
        raise IndexFolderError(
            f"version {version} of {path} cannot be read ({error.strerror}); restore it from a copy."
        ) from error
