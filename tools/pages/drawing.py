"""Steps that all figures share: tables of the results are read, and axes are made."""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MIXTURE = "#2563eb"
Rows = list[dict[str, str]]
_reading: list[list[Rows]] = []


@contextmanager
def reading() -> Iterator[list[Rows]]:
    """Yield a list to which every table that is read within the block is added."""
    _reading.append([])
    try:
        yield _reading[-1]
    finally:
        _reading.pop()


def name_of(tables: list[Rows]) -> str:
    """Return a short name of the content of tables, which changes if one value of them does.

    >>> name_of([[{"run": "hstu", "HR@10": ".31"}]]) == name_of([[{"run": "hstu", "HR@10": ".32"}]])
    False
    """
    return hashlib.sha256(json.dumps(tables).encode()).hexdigest()[:16]


def read_table(file: str, heading: str, *, first: str) -> Rows:
    """Return the rows of the table under a heading of a result whose first column has the given name.

    Raises:
        ValueError: There is no such heading, or no such table under it.
    """
    found = _find_table(file, heading, first)
    for tables in _reading:
        tables.append(found)
    return found


def _find_table(file: str, heading: str, first: str) -> Rows:
    lines = (RESULTS / file).read_text().splitlines()
    starts = [row for row, line in enumerate(lines) if re.match(rf"#+ {re.escape(heading)}", line)]
    for start in starts:
        for row in range(start + 1, len(lines)):
            if lines[row].startswith("#"):
                break
            cells = _cells(lines[row])
            if cells and cells[0] == first:
                found = []
                for line in lines[row + 2 :]:
                    if not line.startswith("|"):
                        return found
                    found.append(dict(zip(cells, _cells(line), strict=False)))
                return found
    raise ValueError(f"{file} has no table under {heading!r} whose first column is {first!r}.")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


def number(text: str) -> float:
    """Return the first number of a cell.

    >>> number("**+.0436 ± .0136**"), number("54,542"), number("95.8%")
    (0.0436, 54542.0, 95.8)
    """
    found = re.search(r"-?\d*\.?\d+", text.replace(",", ""))
    if not found:
        raise ValueError(f"{text!r} has no number.")
    return float(found[0])


def axes_of(count: int, *, width: float, height: float, rows: int = 1) -> "tuple[Figure, list[Axes]]":
    """Return a figure with axes side by side, in one or more rows."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (only these functions need it)

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = [figure.add_subplot(rows, -(-count // rows), place + 1) for place in range(count)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes
