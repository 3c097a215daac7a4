"""A file of passages in parts that can be read on their own, for work that does not read all texts into memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from railsearch.data.passages.json_lines import Record, decode_line, parse_record
from railsearch.data.table_files import TABLES
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_file, check_count
from railsearch.foundation.progress import counting

PACKED = (".gz", ".xz")
LINES_PER_COUNT = 10_000


@dataclass(frozen=True, slots=True)
class PassageParts:
    """A file of JSON lines, cut into parts of the same number of passages."""

    path: Path
    num_passages: int
    passages_per_part: int
    starts: tuple[tuple[int, int], ...]  # (parts,) byte and line number of each part's first passage

    @classmethod
    def cut(cls, path: str | Path, *, passages_per_part: int, show_progress: bool | None = None) -> "PassageParts":
        """Read a file of passages once, check every text and id, and note where the parts begin.

        The lines are those of `read_passage_texts`. Memory holds the ids, but not the texts.

        Args:
            path: a file of JSON lines; a packed one is refused, because its parts cannot be read on their own.
            passages_per_part: number of passages in a part; the last one may have fewer.
            show_progress: draw a progress bar; by default only on a terminal.
        """
        check_count(passages_per_part, name="passages_per_part")
        file = as_file(path)
        if file.suffix in PACKED:
            raise InvalidInputError(
                f"{file} is packed, and parts of a packed file cannot be read on their own; unpack it first."
            )
        if file.suffix in TABLES:
            raise InvalidInputError(f"{file} is a table, whose parts cannot be read on their own; write JSON lines.")
        starts, ids = [], set()
        with file.open("rb") as lines, counting(f"checking {file.name}", None, is_shown=show_progress) as count:
            for number, (offset, record) in enumerate(_records(lines, file, line=1)):
                if number % passages_per_part == 0:
                    starts.append((offset, record.line))
                if number % LINES_PER_COUNT == LINES_PER_COUNT - 1:
                    count(LINES_PER_COUNT)
                passage_id = record.passage_id(number)
                if passage_id in ids:
                    raise InvalidInputError(
                        f"id {passage_id!r} in {record.place} is already taken; give each passage its own."
                    )
                ids.add(passage_id)
                record.titled_text()
        if not ids:
            raise InvalidInputError(f"{file} holds no passages; give at least one.")
        return cls(file, len(ids), passages_per_part, tuple(starts))

    @property
    def num_parts(self) -> int:
        """The number of parts."""
        return len(self.starts)

    def read(self, part: int) -> dict[str, str]:
        """Return the texts of a part by id."""
        offset, line = self.starts[part]
        first = part * self.passages_per_part
        count = min(self.passages_per_part, self.num_passages - first)
        passages = {}
        with self.path.open("rb") as lines:
            lines.seek(offset)
            for number, (_, record) in zip(range(first, first + count), _records(lines, self.path, line), strict=False):
                passages[record.passage_id(number)] = record.titled_text()
        return passages


def _records(lines: IO[bytes], file: Path, line: int) -> Iterator[tuple[int, Record]]:
    """Yield the objects of a file from its current place on, with the byte at which each line begins."""
    offset = lines.tell()
    for number, raw in enumerate(lines, start=line):
        text = decode_line(raw, file, number)
        if text:
            yield offset, parse_record(text, file, number)
        offset += len(raw)
