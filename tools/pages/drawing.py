"""Steps that all figures share: tables of the results are read, and axes are made."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
MIXTURE = "#2563eb"
Rows = list[dict[str, str]]


def read_table(file: str, heading: str, *, first: str) -> Rows:
    """Return the rows of the table under a heading of a result whose first column has the given name.

    Raises:
        ValueError: There is no such heading, or no such table under it.
    """
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


def axes_of(count: int, *, width: float, height: float) -> "tuple[Figure, list[Axes]]":
    """Return a figure with axes side by side."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (only these functions need it)

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    axes = [figure.add_subplot(1, count, place + 1) for place in range(count)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes
