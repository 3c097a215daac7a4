"""The code blocks of a Markdown page: fenced ones with their language, and indented ones."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r" *```(\w*)$")
INDENT = " " * 4
SERVER = re.compile(r"(?:http://)?(?:127\.0\.0\.1|localhost):8\d{3}\b")
"""The address of a server on the pages."""


@dataclass(frozen=True)
class Block:
    """A block of code."""

    file: Path
    line: int
    """Number of its first line."""
    language: str | None
    """None for an indented block."""
    text: str

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"

    @property
    def asks_a_server(self) -> bool:
        """Whether the block is for a server that another block of the page started."""
        return SERVER.search(self.text) is not None

    @property
    def asks_a_database(self) -> bool:
        """Whether the block reads from Milvus or PostgreSQL through their own clients."""
        return re.search(r"^(?:import|from) (?:pymilvus|psycopg)\b", self.text, flags=re.MULTILINE) is not None

    @property
    def commands(self) -> list[str]:
        """Lines of a shell, with continued lines joined."""
        return [line for line in re.sub(r"\\\n\s*", "", self.text).splitlines() if line.strip()]


def blocks_of(file: Path) -> list[Block]:
    """Return all code blocks of a page."""
    return list(_blocks(file, file.read_text().splitlines()))


def _blocks(file: Path, lines: list[str]) -> Iterator[Block]:
    row = 0
    while row < len(lines):
        fence = FENCE.match(lines[row])
        if fence:
            last = next(end for end in range(row + 1, len(lines)) if FENCE.match(lines[end]))
            depth = len(lines[row]) - len(lines[row].lstrip())
            yield Block(file, row + 2, fence[1], "".join(f"{line[depth:]}\n" for line in lines[row + 1 : last]))
            row = last + 1
        elif lines[row].startswith(INDENT) and not (row and lines[row - 1].strip()):
            last = row
            while last < len(lines) and (not lines[last].strip() or lines[last].startswith(INDENT)):
                last += 1
            text = "".join(f"{line[len(INDENT) :]}\n" for line in lines[row:last]).rstrip("\n")
            yield Block(file, row + 1, None, f"{text}\n")
            row = last
        else:
            row += 1
