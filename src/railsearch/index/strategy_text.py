"""Strategies as text, for files and the command line: Average(500), Combined(5, 200), TwoPass."""

import dataclasses
import re

from railsearch.errors import InvalidInputError
from railsearch.index.strategies import Adaptive, Average, BruteForce, Combined, PerComponent, Strategy, TwoPass

KNOWN: dict[str, type[Strategy]] = {
    known.__name__: known for known in (BruteForce, TwoPass, PerComponent, Average, Combined, Adaptive)
}
CALL = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*")
NUMBER = re.compile(r"[0-9]+")


def parse_strategy(text: str) -> Strategy:
    """Give the strategy that a text names.

    >>> parse_strategy("Combined(5, by_average=200)")
    Combined(per_component=5, by_average=200)
    >>> parse_strategy("twopass")
    TwoPass()
    """
    match = CALL.fullmatch(text)
    known = {name.lower(): strategy for name, strategy in KNOWN.items()}
    kind = None if match is None else known.get(match[1].lower())
    if match is None or kind is None:
        raise InvalidInputError(f"strategy is {text!r}; write one of {', '.join(KNOWN)}, such as Average(500).")
    names = [each.name for each in dataclasses.fields(kind)]  # type: ignore[arg-type]
    values: dict[str, object] = {}
    given = [part.strip() for part in (match[2] or "").split(",") if part.strip()]
    for place, part in enumerate(given):
        name, is_named, value = part.rpartition("=")
        name = name.strip() if is_named else (names[place] if place < len(names) else "")
        if name not in names or name in values:
            wanted = ", ".join(names) or "nothing"
            raise InvalidInputError(f"strategy is {text!r} but {kind.__name__} takes {wanted}.")
        values[name] = _as_number(value.strip(), text)
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidInputError(f"strategy is {text!r} but {kind.__name__} takes {', '.join(names)}.") from error


def format_strategy(strategy: Strategy) -> str:
    """The shortest text that `parse_strategy` understands.

    >>> format_strategy(Adaptive(max_gap=0.5)), format_strategy(Average(500))
    ('Adaptive(0.5)', 'Average(500)')
    """
    fields = dataclasses.fields(strategy)  # type: ignore[arg-type]
    values = [getattr(strategy, each.name) for each in fields]
    while values and values[-1] == fields[len(values) - 1].default:
        values.pop()
    return f"{type(strategy).__name__}({', '.join(map(str, values))})"


def _as_number(text: str, whole: str) -> float | int | None:
    if text == "None":
        return None
    try:
        return int(text) if NUMBER.fullmatch(text) else float(text)
    except ValueError as error:
        raise InvalidInputError(f"strategy is {whole!r}, and {text!r} is no number.") from error
