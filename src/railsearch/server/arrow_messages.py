"""Messages of an Arrow table, looked at before it is read: a compressed one of kilobytes could fill the memory."""

import struct
from collections.abc import Iterator

from railsearch.foundation.errors import InvalidInputError
from railsearch.server.json_text import MalformedError

MAGIC = b"ARROW1"
CONTINUED = 0xFFFFFFFF
BLOCK_BYTES = 24
"""Bytes of the footer for each message."""
DICTIONARY, BATCH = 2, 3
"""Kinds of messages that have data."""


def check_uncompressed(content: bytes, *, is_file: bool) -> None:
    """Refuse a file or a stream with compressed data, whatever size it claims to have."""
    for message in _file_messages(content) if is_file else _stream_messages(content):
        kind = _field(content, message, 1)
        number = 0 if kind is None else _read(content, "<B", kind)
        if number not in (DICTIONARY, BATCH):
            continue
        header = _table(content, message, 2)
        batch = header if number == BATCH else _table(content, header, 1)
        if _field(content, batch, 3) is not None:
            raise InvalidInputError("the Arrow table is compressed; send it without compression.")


def _stream_messages(content: bytes) -> Iterator[int]:
    """Yield the place of each message, one after the other."""
    place = 0
    while place + 4 <= len(content):
        size, start = _message(content, place)
        if size == 0:
            return
        message = start + _read(content, "<I", start)
        yield message
        length = _field(content, message, 3)
        num_bytes = 0 if length is None else _read(content, "<q", length)
        if num_bytes < 0:
            raise _malformed()
        place = start + size + num_bytes


def _file_messages(content: bytes) -> Iterator[int]:
    """Yield the place of each message that the footer names; readers look nowhere else."""
    end = len(content) - len(MAGIC) - 4
    footer = end - _read(content, "<i", end)
    root = footer + _read(content, "<I", footer)
    for number in (2, 3):  # dictionaries, batches
        if _field(content, root, number) is None:
            continue
        blocks = _table(content, root, number)
        for block in range(_read(content, "<I", blocks)):
            _, start = _message(content, _read(content, "<q", blocks + 4 + block * BLOCK_BYTES))
            yield start + _read(content, "<I", start)


def _message(content: bytes, place: int) -> tuple[int, int]:
    """Return the size of the description of a message, and where it starts."""
    size = _read(content, "<I", place)
    return (_read(content, "<I", place + 4), place + 8) if size == CONTINUED else (size, place + 4)


def _field(content: bytes, table: int, number: int) -> int | None:
    """Return the place of a field of a FlatBuffers table; None if the table does not have it."""
    names = table - _read(content, "<i", table)
    if 4 + 2 * number >= _read(content, "<H", names):
        return None
    offset = _read(content, "<H", names + 4 + 2 * number)
    return table + offset if offset else None


def _table(content: bytes, table: int, number: int) -> int:
    """Return the place of the table that a field names."""
    field = _field(content, table, number)
    if field is None:
        raise _malformed()
    return field + _read(content, "<I", field)


def _read(content: bytes, kind: str, place: int) -> int:
    if not 0 <= place <= len(content) - struct.calcsize(kind):
        raise _malformed()
    value: int = struct.unpack_from(kind, content, place)[0]
    return value


def _malformed() -> MalformedError:
    return MalformedError("the body is not an Arrow table: a message is damaged or truncated; send it again.")
