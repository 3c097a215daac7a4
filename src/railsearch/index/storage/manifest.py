"""What one version of an index is made of, as a small file that proves itself."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass

from railsearch.errors import IndexFolderError

FORMAT = "railsearch.index"
FORMAT_VERSION = 1
FILE_NAME = re.compile(r"(segments|tombstones|metadata|similarity)/[A-Za-z0-9][A-Za-z0-9._-]*")


class SealBrokenError(Exception):
    """The first line is not the checksum of the rest."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a file must be like."""

    size: int
    checksum: str
    """xxh3, 128 bits."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment, by its name and what its files do not say themselves."""

    name: str
    num_rows: int
    longest: float
    tombstones: str | None
    """File with the rows that are no longer live."""
    has_metadata: bool


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
    """The strategy that `tune` chose for each k, as text."""

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
            body["segments"] = tuple(SegmentEntry(**entry) for entry in body["segments"])
            body["files"] = {name: FileEntry(**entry) for name, entry in body["files"].items()}
            body["models"] = tuple(body["models"])
            manifest = cls(**body)
        except (TypeError, KeyError, AttributeError) as error:
            raise IndexFolderError(f"{path} lacks what a manifest needs ({error}); restore it from a copy.") from error
        for name in manifest.files:
            if not FILE_NAME.fullmatch(name):
                raise IndexFolderError(f"{path} names {name!r}, which is no file of an index; restore it from a copy.")
        return manifest


def seal(body: str) -> bytes:
    """Put the checksum of the text into a first line before it."""
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}".encode()


def unseal(content: bytes) -> str:
    """Give the text after the first line, if that is its checksum."""
    first, _, rest = content.partition(b"\n")
    if first != hashlib.sha256(rest).hexdigest().encode():
        raise SealBrokenError
    return rest.decode()
