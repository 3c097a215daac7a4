"""The manifest: a small sealed file that lists everything one version of an index consists of."""

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field, fields
from types import GenericAlias
from typing import TypeVar

from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.files import FileEntry
from railsearch.index.engines import ScanPrecision

FORMAT = "railsearch.index"
FORMAT_VERSION = 3
READ_VERSIONS = (2, 3)
"""Version 2 has no heads of segments: its files can only be checked as a whole."""
SIMILARITY_FILES = ("similarity/config.json", "similarity/model.safetensors")
CHECKSUM = re.compile(r"[0-9a-f]{32}")
FINGERPRINT = re.compile(r"[0-9a-f]{64}")
IDENTIFIER = re.compile(r"[0-9a-f]{32}")
TOMBSTONES = re.compile(r"tombstones/([0-9a-f]{32})-[0-9]{8,18}\.safetensors")
LARGEST_COUNT = 2**62

Entry = TypeVar("Entry", "FileEntry", "SegmentEntry", "Manifest")


class SealBrokenError(Exception):
    """The first line is not the checksum of the rest."""


class _Refused(Exception):  # noqa: N818  (never leaves this module)
    """A manifest states something that cannot be true."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One segment: its name, and the values that its files do not hold themselves."""

    name: str
    num_rows: int
    longest: float
    tombstones: str | None
    """The file that lists the rows that are no longer live."""
    has_metadata: bool
    has_keys: bool = False
    """Whether a column of the metadata holds string ids."""
    head_size: int = 0
    """The bytes at the start of the tensor file that hold its header, the checksums of its blocks and the ids. Without
    such a head (0), the file can only be checked as a whole."""
    head_checksum: str = ""
    """xxh3, 128 bits, of the head."""
    block_bytes: int = 0
    """The most bytes of a block, but at least one row."""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that this segment is read from."""
        metadata = [metadata_file(self.name)] if self.has_metadata else []
        tombstones = [] if self.tombstones is None else [self.tombstones]
        return (segment_file(self.name), *metadata, *tombstones)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an index: its segments, and every file with its size and checksum."""

    birth: str
    """A random id that `build` draws: another index at the same path has another one."""
    version: int
    parent: int | None
    created_at: str
    fingerprint: str
    """The fingerprint of the similarity in this folder."""
    models: tuple[str, ...]
    """Fingerprints of the models whose parts are accepted: that one, and the one that `build` was given."""
    precision: str
    num_items: int
    segments: tuple[SegmentEntry, ...]
    files: dict[str, FileEntry]
    tuned: dict[str, str]
    """The strategy that `tune` chose for each k and engine, as text."""
    source: dict[str, str] = field(default_factory=dict)
    """Where the embeddings come from, if `build` was told."""
    scan: str = ScanPrecision.FULL
    """The scan of an index that is opened without an engine."""

    def encode(self) -> bytes:
        """Return the content of the manifest file."""
        body = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        return seal(json.dumps(body, indent=1) + "\n")

    @classmethod
    def decode(cls, content: bytes, path: object) -> "Manifest":
        """Read the content of a manifest file; refuse one that is damaged, foreign, newer or inconsistent."""
        try:
            body = json.loads(unseal(content))
        except (SealBrokenError, ValueError, RecursionError) as error:
            raise IndexFolderError(
                f"{path} is damaged: its checksum does not match; restore it from a copy, or open another version "
                "with Index.open(path, version=...)."
            ) from error
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise IndexFolderError(f"{path} is not a manifest of a railsearch index; give another folder.")
        found = body.pop("format_version", None)
        if found not in READ_VERSIONS or type(found) is not int:
            raise IndexFolderError(
                f"{path} has format version {found} but this railsearch reads {' and '.join(map(str, READ_VERSIONS))}; "
                "open it with the railsearch that wrote it, or build the index again."
            )
        try:
            body["segments"] = tuple(_as_entry(SegmentEntry, entry) for entry in body["segments"])
            body["files"] = {name: _as_entry(FileEntry, entry) for name, entry in body["files"].items()}
            body["models"] = tuple(body["models"])
            manifest = _as_entry(cls, body)
            _check_texts(manifest)
            _check_segments(manifest)
            _check_files(manifest)
        except (TypeError, KeyError, AttributeError, _Refused) as error:
            raise IndexFolderError(f"{path} is not a valid manifest ({error}); restore it from a copy.") from error
        return manifest


def segment_file(name: str) -> str:
    """Return the name of the file of a segment's tensors."""
    return f"segments/{name}.safetensors"


def metadata_file(name: str) -> str:
    """Return the name of the file of a segment's metadata."""
    return f"metadata/{name}.arrow"


def tombstones_file(name: str, version: int) -> str:
    """Return the name of the file that lists a segment's removed rows as of a version."""
    return f"tombstones/{name}-{version:08d}.safetensors"


def seal(body: str) -> bytes:
    """Put the checksum of the text into a first line before it."""
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}".encode()


def unseal(content: bytes) -> str:
    """Return the text after the first line; raises SealBrokenError unless that line is its checksum."""
    first, _, rest = content.partition(b"\n")
    if first != hashlib.sha256(rest).hexdigest().encode():
        raise SealBrokenError
    return rest.decode()


def _as_entry(kind: type[Entry], values: dict[str, object]) -> Entry:
    """Build one of the classes above from JSON; raises TypeError if a value is missing or of another type."""
    made = kind(**values)  # type: ignore[arg-type]
    for known in fields(made):
        wanted, value = known.type, getattr(made, known.name)
        if not isinstance(value, wanted.__origin__ if isinstance(wanted, GenericAlias) else wanted):  # type: ignore[arg-type]
            raise TypeError(f"{known.name} is {value!r:.80}")
        if isinstance(value, bool) != (wanted is bool):
            raise TypeError(f"{known.name} is {value!r}")
        if isinstance(value, int) and not 0 <= value <= LARGEST_COUNT:
            raise TypeError(f"{known.name} is {value!r:.80}")
    return made


def _check_texts(manifest: Manifest) -> None:
    if not IDENTIFIER.fullmatch(manifest.birth):
        raise _Refused(f"birth is {manifest.birth!r:.80}")
    for name in (manifest.fingerprint, *manifest.models):
        if not FINGERPRINT.fullmatch(name):  # a TypeError if it is not text
            raise _Refused(f"{name!r:.80} is not a fingerprint")
    if manifest.fingerprint not in manifest.models:
        raise _Refused("models does not name the fingerprint of the similarity")
    if manifest.scan not in set(ScanPrecision):
        raise _Refused(f"scan is {manifest.scan!r:.80}")
    for texts in (manifest.tuned, manifest.source):
        if not all(isinstance(value, str) for value in texts.values()):
            raise _Refused("tuned or source holds a value that is not text")


def _check_segments(manifest: Manifest) -> None:
    if not manifest.segments:
        raise _Refused("it names no segment")
    if len({segment.name for segment in manifest.segments}) < len(manifest.segments):
        raise _Refused("it names a segment twice")
    if len({segment.has_metadata for segment in manifest.segments}) > 1:
        raise _Refused("some segments have metadata and some do not")
    if len({segment.has_keys for segment in manifest.segments}) > 1:
        raise _Refused("some segments have string ids and some do not")
    if manifest.segments[0].has_keys and not manifest.segments[0].has_metadata:
        raise _Refused("it has string ids but no metadata")
    for segment in manifest.segments:
        if not IDENTIFIER.fullmatch(segment.name):
            raise _Refused(f"it names {segment.name!r:.80}, which is not the name of a segment")
        if not (math.isfinite(segment.longest) and segment.longest >= 0):
            raise _Refused(f"longest of segment {segment.name} is {segment.longest}")
        if segment.head_size and not (CHECKSUM.fullmatch(segment.head_checksum) and segment.block_bytes):
            raise _Refused(f"the head of segment {segment.name} has checksum {segment.head_checksum!r:.80}")
        if segment.tombstones is not None:
            found = TOMBSTONES.fullmatch(segment.tombstones)
            if found is None or found[1] != segment.name:
                raise _Refused(f"it names {segment.tombstones!r:.80}, which is not a file of segment {segment.name}")


def _check_files(manifest: Manifest) -> None:
    """Check that the files are exactly those that the segments and the similarity consist of."""
    needed = {*SIMILARITY_FILES, *(file for segment in manifest.segments for file in segment.files)}
    differing = sorted(needed ^ set(manifest.files))
    if differing:
        state = "does not list" if differing[0] in needed else "lists"
        remark = "which it needs" if differing[0] in needed else "which is not a file of this version"
        raise _Refused(f"it {state} {differing[0]!r:.80}, {remark}")
    for name, entry in manifest.files.items():
        if not CHECKSUM.fullmatch(entry.checksum):
            raise _Refused(f"the checksum of {name} is {entry.checksum!r:.80}")
