"""Tables of engines as files beside the segments: a cache that a process may fill, lose or distrust at any time.

    tables/<segment>.<table>.<engine>.table

The first line of a file is the checksum of the rest, the second says what the table is, and the bytes of the engine
follow. A file is used only if it is a regular file in this folder, its checksum holds, and its second line is exactly
what the reader expects. No manifest names these files. A file that is missing, damaged or foreign costs the time to
build the table again, and nothing else. So writers need no lock and no fsync, and a reader need not be able to write.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import xxhash
from torch import Tensor

from railsearch.foundation.files import TEMPORARY

logger = logging.getLogger(__name__)

FOLDER = "tables"
FORMAT = "railsearch.table"
FORMAT_VERSION = 1
SUFFIX = ".table"
MOST_HEADER_BYTES = 2**16
CHECKSUM_BYTES = 33  # 32 hexadecimal digits and the end of the line


class TableFiles:
    """The table files of one index folder."""

    def __init__(self, index_folder: Path) -> None:
        self._path = index_folder / FOLDER

    def read(self, name: str, key: str, vectors: Tensor, *, max_bytes: int) -> bytes | None:
        """Return the bytes of a table, or None if there is no file that can be trusted."""
        path = self._path / _file_name(name, key)
        try:
            content = _read_regular_file(path, max_bytes + MOST_HEADER_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("%s is ignored (%s); the table is built again", path, error.strerror)
            return None
        header = _header(name, key, vectors)
        begin = CHECKSUM_BYTES + len(header)
        is_right = (
            content is not None
            and content[:CHECKSUM_BYTES] == _checksum(memoryview(content)[CHECKSUM_BYTES:])
            and content[CHECKSUM_BYTES:begin] == header
        )
        if content is None or not is_right:
            logger.warning("%s is damaged or foreign and is ignored; the table is built again", path)
            return None
        return content[begin:]

    def write(self, name: str, key: str, vectors: Tensor, stored: bytes) -> None:
        """Put a table into the folder under its name; an OSError if that is impossible."""
        with contextlib.suppress(FileExistsError):
            self._path.mkdir()
        header = _header(name, key, vectors)
        with _open_folder(self._path) as folder:
            target = _file_name(name, key)
            written = f"{target}.{uuid.uuid4().hex}{TEMPORARY}"
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(_checksum(header, stored))
                    file.write(header)
                    file.write(stored)
                os.replace(written, target, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(written, dir_fd=folder)
                raise


def remove_tables(index_folder: Path, kept_segments: set[str]) -> None:
    """Remove the tables of segments that no version names, and what writers that were killed have left."""
    try:
        with _open_folder(index_folder / FOLDER) as folder:
            for name in os.listdir(folder):  # noqa: PTH208  (a Path has no way to list an open folder)
                is_unnamed = name.endswith(SUFFIX) and name.split(".")[0] not in kept_segments
                if is_unnamed or name.endswith(TEMPORARY):
                    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                        os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return  # there are no tables, or something else has that name


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    """Open a folder itself, never one that a symbolic link points to."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_regular_file(path: Path, max_bytes: int) -> bytes | None:
    """Return what a regular file holds; None if it is something else or too large."""
    with _open_folder(path.parent) as folder:
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode) or state.st_size > max_bytes:
                return None
            return file.read(state.st_size)


def _file_name(name: str, key: str) -> str:
    """Return a file name that shows the key, and tells apart keys that look alike in it."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-")[:40]
    return f"{name}.{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}{SUFFIX}"


def _header(name: str, key: str, vectors: Tensor) -> bytes:
    described = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "table": name,
        "engine": key,
        "shape": list(vectors.shape),
        "dtype": str(vectors.dtype),
    }
    return json.dumps(described).encode() + b"\n"


def _checksum(*pieces: bytes | memoryview) -> bytes:
    digest = xxhash.xxh3_128()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest().encode() + b"\n"
