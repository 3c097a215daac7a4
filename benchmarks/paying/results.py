"""The file of results: one JSON object for each model that was fitted, so that an interrupted comparison resumes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

Value: TypeAlias = "int | float | str | list[Value] | dict[str, Value] | None"
Line: TypeAlias = "dict[str, Value]"


class ResultsFile:
    """Lines of JSON that are only ever appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        """Return all complete lines; the last one may be cut off."""
        if not self.path.is_file():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def has(self, about: Mapping[str, Value]) -> bool:
        """Return True if a line has all of these values."""
        wanted = json.loads(json.dumps(about))
        return any(all(line.get(name) == value for name, value in wanted.items()) for line in self.lines())

    def append(self, line: Mapping[str, Value]) -> None:
        """Append one line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        is_cut_off = self.path.is_file() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size
        with self.path.open("a") as file:
            file.write("\n" * bool(is_cut_off) + json.dumps(line) + "\n")
