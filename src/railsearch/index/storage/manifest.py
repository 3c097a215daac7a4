"""What one version of an index is made of, as a small file that proves itself."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from types import GenericAlias
from typing import TypeVar

from railsearch.foundation.errors import IndexFolderError
from railsearch.foundation.files import FileEntry

FORMAT = "railsearch.index"
FORMAT_VERSION = 1
FILE_NAME = re.compile(r"(segments|tombstones|metadata|similarity)/[A-Za-z0-9][A-Za-z0-9._-]*")


Entry = TypeVar("Entry", "FileEntry", "SegmentEntry", "Manifest")


class SealBrokenError(Exception):
    """The first line is not the checksum of the rest."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment, by its name and what its files do not say themselves."""

    name: str
    num_rows: int
    longest: float
    tombstones: str | None
    """File with the rows that are no longer live."""
    has_metadata: bool

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that this segment is read from."""
        metadata = [metadata_file(self.name)] if self.has_metadata else []
        tombstones = [] if self.tombstones is None else [self.tombstones]
        return (segment_file(self.name), *metadata, *tombstones)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of an index: its segments, and every file with its size and checksum."""

    version: int
    parent: int | None
    created_at: str
    fingerprint: str
    """Of the similarity in this folder."""
    models: tuple[str, ...]
    """Fingerprints of the models whose parts are taken: that one, and the one it was given as."""
    precision: str
    num_items: int
    segments: tuple[SegmentEntry, ...]
    files: dict[str, FileEntry]
    tuned: dict[str, str]
    """The strategy that `tune` chose for each k and engine, as text."""
    source: dict[str, str] = field(default_factory=dict)
    """What made the embeddings, where the builder said so."""

    def encode(self) -> bytes:
        """The manifest as the bytes of a file."""
        body = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        return seal(json.dumps(body, indent=1) + "\n")

    @classmethod
    def decode(cls, content: bytes, path: object) -> "Manifest":
        """Read what `encode` wrote; refuse what is damaged, foreign or newer."""
        try:
            body = json.loads(unseal(content))
        except (SealBrokenError, ValueError, RecursionError) as error:
            raise IndexFolderError(
                f"{path} is damaged: its checksum does not hold; restore it from a copy, or open another version "
                "with Index.open(path, version=...)."
            ) from error
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise IndexFolderError(f"{path} is not a manifest of a railsearch index; give another folder.")
        found = body.pop("format_version", None)
        if found != FORMAT_VERSION:
            raise IndexFolderError(
                f"{path} has format version {found} but this railsearch reads {FORMAT_VERSION}; "
                "install the railsearch that wrote it."
            )
        try:
            body["segments"] = tuple(_made(SegmentEntry, entry) for entry in body["segments"])
            body["files"] = {name: _made(FileEntry, entry) for name, entry in body["files"].items()}
            body["models"] = tuple(map(str, body["models"]))
            body["tuned"] = {k: str(strategy) for k, strategy in body["tuned"].items()}
            body["source"] = {key: str(value) for key, value in body.get("source", {}).items()}
            manifest = _made(cls, body)
        except (TypeError, KeyError, AttributeError) as error:
            raise IndexFolderError(f"{path} lacks what a manifest needs ({error}); restore it from a copy.") from error
        if not manifest.segments:
            raise IndexFolderError(f"{path} names no segment; restore it from a copy.")
        for name in (*manifest.files, *(file for segment in manifest.segments for file in segment.files)):
            if name not in manifest.files or not FILE_NAME.fullmatch(name):
                raise IndexFolderError(f"{path} names {name!r}, which is no file of an index; restore it from a copy.")
        return manifest


def segment_file(name: str) -> str:
    """Where a segment's tensors are."""
    return f"segments/{name}.safetensors"


def metadata_file(name: str) -> str:
    """Where a segment's metadata is."""
    return f"metadata/{name}.arrow"


def seal(body: str) -> bytes:
    """Put the checksum of the text into a first line before it."""
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}".encode()


def unseal(content: bytes) -> str:
    """Give the text after the first line, if that is its checksum."""
    first, _, rest = content.partition(b"\n")
    if first != hashlib.sha256(rest).hexdigest().encode():
        raise SealBrokenError
    return rest.decode()


def _made(kind: type[Entry], values: dict[str, object]) -> Entry:
    """What JSON gave as one of the classes above; a TypeError where a value is missing or of another type."""
    made = kind(**values)  # type: ignore[arg-type]
    for known in fields(made):
        wanted, value = known.type, getattr(made, known.name)
        if not isinstance(value, wanted.__origin__ if isinstance(wanted, GenericAlias) else wanted):  # type: ignore[arg-type]
            raise TypeError(f"{known.name} is {value!r}")
    return made
