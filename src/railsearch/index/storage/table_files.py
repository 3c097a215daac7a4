"""Tables of engines as files beside the segments: a cache that any process may fill, remove or ignore at any time.

    tables/<segment>.<table>.<engine>.table

The first line of a file is the checksum of the rest, the second describes the table, and the bytes of the engine
follow. A file is used only if it is a regular file in this folder, its checksum matches, and its second line is exactly
what the reader expects. No manifest names these files. A file that is missing, damaged or foreign costs the time to
build the table again, and nothing else. So writers need no lock and no fsync, and a reader need not be able to write.
"""

import hashlib
import json
import logging
import os
import re
import uuid
from contextlib import suppress
from pathlib import Path

import xxhash
from torch import Tensor

from railsearch.foundation.files import TEMPORARY
from railsearch.foundation.safe_files import NotRegularError, files_inside, folder_inside, open_inside, remove_inside

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
        self._folder = index_folder

    def read(self, name: str, key: str, vectors: Tensor, *, max_bytes: int) -> bytes | None:
        """Return the bytes of a table, or None if there is no file that can be trusted."""
        file_name = _file_name(name, key)
        header = _header(name, key, vectors)
        begin = CHECKSUM_BYTES + len(header)
        try:
            with os.fdopen(open_inside(self._folder, file_name), "rb") as file:
                is_small = os.fstat(file.fileno()).st_size <= max_bytes + MOST_HEADER_BYTES
                content = file.read() if is_small else b""
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("%s cannot be read (%s); the table is built again", self._folder / file_name, error.strerror)
            return None
        if (
            content[:CHECKSUM_BYTES] != _checksum(memoryview(content)[CHECKSUM_BYTES:])
            or content[CHECKSUM_BYTES:begin] != header
        ):
            logger.warning("%s is damaged or foreign; the table is built again", self._folder / file_name)
            return None
        return content[begin:]

    def write(self, name: str, key: str, vectors: Tensor, stored: bytes) -> None:
        """Write a table file, complete or not at all; raise an OSError if that is impossible."""
        with suppress(FileExistsError):
            (self._folder / FOLDER).mkdir()
        target = _file_name(name, key)
        written = f"{target}.{uuid.uuid4().hex}{TEMPORARY}"
        header = _header(name, key, vectors)
        descriptor = open_inside(self._folder, written, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_checksum(header, stored))
                file.write(header)
                file.write(stored)
            with folder_inside(self._folder, FOLDER) as inside:
                os.replace(Path(written).name, Path(target).name, src_dir_fd=inside, dst_dir_fd=inside)
        except BaseException:
            with suppress(OSError):
                remove_inside(self._folder, written)
            raise


def remove_tables(index_folder: Path, kept_segments: set[str]) -> None:
    """Remove the tables of segments that no version names, and temporary files of writers that were killed."""
    try:
        files = files_inside(index_folder, FOLDER)
    except (FileNotFoundError, NotRegularError):
        return  # there are no tables, or something else has that name
    for name in files:
        is_unnamed = name.endswith(SUFFIX) and name.split(".")[0] not in kept_segments
        if is_unnamed or name.endswith(TEMPORARY):
            remove_inside(index_folder, f"{FOLDER}/{name}")


def _file_name(name: str, key: str) -> str:
    """Return a file name that shows the key, and tells apart keys that look alike in it."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-")[:40]
    return f"{FOLDER}/{name}.{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}{SUFFIX}"


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
