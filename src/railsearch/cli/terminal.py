"""Output of the commands: text whose values cannot control the terminal, and JSON."""

import base64
import json
import logging
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from polars import DataFrame

HIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, halves of surrogate pairs, and line and paragraph separators."""
TEXT_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of the text after them."""
RIGHT_ALIGNED = frozenset({"rank", "id", "score"})


def visible(value: object) -> str:
    r"""Return a value as text that cannot control a terminal: control characters become escapes.

    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) if _is_hidden(character) else character for character in text)


def lines_of(text: str) -> str:
    """Return a text of several lines with every line visible."""
    return "\n".join(visible(line) for line in text.split("\n"))


class WarningFormatter(logging.Formatter):
    """A formatter of log messages, with all values visible."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line that is printed."""
        return f"{record.levelname.lower()}: {lines_of(super().format(record))}"


def make_console(*, stderr: bool = False, wraps: bool = False) -> Console:
    """Return a console that takes text literally, without markup; long lines are not broken unless it wraps."""
    return Console(stderr=stderr, markup=False, highlight=False, soft_wrap=not wraps)


def print_json(value: Mapping[str, object]) -> None:
    """Print one JSON object."""
    print(json.dumps(value, indent=2))


def make_frame_table(frame: "DataFrame", *, title: str | None = None, has_box: bool = True) -> Table:
    """Return a table of the terminal with the rows of a frame."""
    table = Table(title=None if title is None else Text(visible(title)), title_justify="left")
    if not has_box:
        table.box = None
    for name in frame.columns:
        table.add_column(Text(visible(name)), justify="right" if name in RIGHT_ALIGNED else "left")
    for values in frame.iter_rows():
        table.add_row(*(Text(visible(value)) for value in values))
    return table


def make_summary_table(rows: Iterable[tuple[str, object]]) -> Table:
    """Return a table of names and values; a long value is folded, never cut."""
    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(visible(name)), Text(visible(value)))
    return table


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in HIDDEN_CATEGORIES or character in TEXT_DIRECTIONS


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", errors="backslashreplace").decode("ascii")
