"""Files of the explorer, held in memory: a request is looked up by name, and never reaches the disk."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

EXPLORER = Path(__file__).parent / "explorer"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""Types of files that are served; others are not."""


@dataclass(frozen=True, slots=True, eq=False)
class StaticFile:
    """One file, ready to be sent."""

    content: bytes
    media_type: str
    etag: str


def read_static_files(folder: Path = EXPLORER) -> dict[str, StaticFile]:
    """Read all files below a folder, by their paths in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        media_type = MEDIA_TYPES.get(path.suffix)
        if media_type is None or not path.is_file() or path.is_symlink():
            continue
        content = path.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[path.relative_to(folder).as_posix()] = StaticFile(content, media_type, etag)
    return found
