"""The index on disk: immutable segments under checksummed manifests."""

from railsearch.index.storage.lazy_segments import Verify
from railsearch.index.storage.lock import WriterLock
from railsearch.index.storage.manifest import Manifest, SegmentEntry
from railsearch.index.storage.reading import Snapshot
from railsearch.index.storage.store import Store
from railsearch.index.storage.table_listing import StoredTable, TableState
from railsearch.index.storage.verification import Problem, Verification
from railsearch.index.storage.writer import Writer

__all__ = [
    "Manifest",
    "Problem",
    "SegmentEntry",
    "Snapshot",
    "Store",
    "StoredTable",
    "TableState",
    "Verification",
    "Verify",
    "Writer",
    "WriterLock",
]
