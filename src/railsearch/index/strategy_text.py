"""Strategies as text, for files, commands and tables: Average(500), Combined(5, 200), TwoPass."""

import dataclasses
import re

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.strategies import (
    Adaptive,
    Average,
    BruteForce,
    Combined,
    PerComponent,
    Strategy,
    TwoPass,
    Weighted,
)

KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (BruteForce, TwoPass, Adaptive, PerComponent, Average, Weighted, Combined)
}
ONE_STRATEGY = re.compile(r"[\s,;]*(?P<whole>(?P<name>[A-Za-z]+)(?:\s*\((?P<arguments>[^()]*)\))?)[\s,;]*")
WHOLE_NUMBER = re.compile(r"\d{1,18}")
DECIMAL_NUMBER = re.compile(r"\d{1,18}(?:\.\d{0,18})?(?:[eE][-+]?\d{1,3})?")


def format_strategy(strategy: Strategy) -> str:
    """Return a strategy as text, without the arguments that have their default.

    >>> from railsearch import Adaptive, Combined
    >>> format_strategy(Combined(5, 200)), format_strategy(Adaptive(max_gap=1.0)), format_strategy(Adaptive())
    ('Combined(5, 200)', 'Adaptive(1.0)', 'Adaptive')
    """
    kind: type = type(strategy)
    if not dataclasses.is_dataclass(kind):
        return str(strategy)
    arguments = [(getattr(strategy, field.name), field.default) for field in dataclasses.fields(kind)]
    while arguments and arguments[-1][0] == arguments[-1][1]:
        arguments.pop()
    values = ", ".join(str(value) for value, _ in arguments)
    return f"{kind.__name__}({values})" if values else kind.__name__


def parse_strategies(text: str) -> tuple[Strategy, ...]:
    """Read strategies from text, with commas or spaces between them.

    >>> parse_strategies("Average(500), Combined(5,200) TwoPass")
    (Average(n=500), Combined(per_component=5, by_average=200), TwoPass())
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"a strategy is {text!r}; give text. {_usage()}")
    matches: list[re.Match[str]] = []
    position = 0
    while position < len(text):
        match = ONE_STRATEGY.match(text, position)
        if match is None:
            raise InvalidInputError(f"{text[position:]!r} is not a strategy; {_usage()}")
        matches.append(match)
        position = match.end()
    if not matches:
        raise InvalidInputError(f"no strategy was given; {_usage()}")
    return tuple(_build(match["name"], match["arguments"] or "", match["whole"]) for match in matches)


def parse_strategy(text: str) -> Strategy:
    """Read one strategy from text.

    >>> parse_strategy("average(500)")
    Average(n=500)
    """
    strategies = parse_strategies(text)
    if len(strategies) > 1:
        raise InvalidInputError(f"{text!r} names {len(strategies)} strategies; give one.")
    return strategies[0]


def _build(name: str, arguments: str, text: str) -> Strategy:
    kind = next((kind for known, kind in KINDS.items() if known.lower() == name.lower()), None)
    if kind is None:
        raise InvalidInputError(f"there is no strategy {name!r}; {_usage()}")
    fields = dataclasses.fields(kind)
    given = [argument.strip() for argument in arguments.split(",")] if arguments.strip() else []
    num_needed = sum(field.default is dataclasses.MISSING for field in fields)
    if not num_needed <= len(given) <= len(fields):
        raise InvalidInputError(f"{text} has {len(given)} numbers; {_usage()}")
    strategy: Strategy = kind(*(_number(argument, text) for argument in given))
    return strategy


def _number(argument: str, text: str) -> int | float:
    if WHOLE_NUMBER.fullmatch(argument):
        return int(argument)
    if DECIMAL_NUMBER.fullmatch(argument):
        return float(argument)
    raise InvalidInputError(f"{argument!r} in {text} is not a number; {_usage()}")


def usages() -> list[str]:
    """Return every strategy with the names of its arguments."""
    names = {name: ", ".join(field.name for field in dataclasses.fields(kind)) for name, kind in KINDS.items()}
    return [f"{name}({arguments})" if arguments else name for name, arguments in names.items()]


def _usage() -> str:
    return f"choose from: {', '.join(usages())}."
