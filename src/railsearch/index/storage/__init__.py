"""The index on disk: immutable segments under checksummed manifests; nothing lost, nothing silently wrong."""

from railsearch.index.storage.lock import WriterLock
from railsearch.index.storage.manifest import Manifest, SegmentEntry
from railsearch.index.storage.store import Snapshot, Store, Verification, Writer

__all__ = ["Manifest", "SegmentEntry", "Snapshot", "Store", "Verification", "Writer", "WriterLock"]
