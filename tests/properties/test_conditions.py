"""Random conditions over random tables, against a naive evaluator with the three truth values of SQL."""

import contextlib
import datetime as dt
import itertools
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import polars as pl
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.metadata import evaluate_filter
from tests.support.trials import trials

Row: TypeAlias = Mapping[str, object]
Test: TypeAlias = tuple[str, Callable[[Row], bool | None]]

SCHEMA = {
    "year": pl.Int64(),
    "tiny": pl.UInt8(),
    "big": pl.UInt64(),
    "price": pl.Float64(),
    "weight": pl.Float32(),
    "cost": pl.Decimal(10, 2),
    "title": pl.String(),
    "a 'genre\"": pl.Categorical(),
    "is_new": pl.Boolean(),
    "day": pl.Date(),
    "moment": pl.Datetime("ms"),
}
TEXTS = st.text(alphabet="aAé%_'.*\\( \n", max_size=4)
MIDNIGHT = dt.datetime.fromisoformat("1999-12-30")
DAYS = st.dates(dt.date(1999, 12, 28), dt.date(2000, 1, 5))
VALUES: Mapping[str, st.SearchStrategy[object]] = {
    "year": st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**53 + 1]),
    "tiny": st.integers(0, 3) | st.just(255),
    "big": st.integers(0, 3) | st.just(2**64 - 1),
    "price": st.sampled_from([0.0, -0.0, 0.1, 1.5, -2.0, math.nan, math.inf, -math.inf, 1e300]),
    "weight": st.sampled_from([0.0, 0.1, 1.5, -2.0, math.nan, math.inf, 3e38]),
    "cost": st.decimals(-2, 2, places=2),
    "title": TEXTS,
    "a 'genre\"": st.sampled_from(["a", "b_", "a%", ""]),
    "is_new": st.booleans(),
    "day": DAYS,
    "moment": st.integers(0, 3 * 86_400_000).map(lambda count: MIDNIGHT + dt.timedelta(milliseconds=count)),
}
NUMBER_TEXTS = (
    "0.1 1.5 -2.0 +.5 2. 1e-2 255 256 1.005 1e39 -1e39 1e300 9223372036854775807 9223372036854775808 "
    "-9223372036854775809 18446744073709551615 18446744073709551616 9007199254740993"
)
NUMBERS = st.integers(-3, 3).map(str) | st.sampled_from(NUMBER_TEXTS.split())
SIGNS: Mapping[str, Callable[[object, object], bool]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,  # type: ignore[operator]
    "<=": lambda a, b: a <= b,  # type: ignore[operator]
    ">": lambda a, b: a > b,  # type: ignore[operator]
    ">=": lambda a, b: a >= b,  # type: ignore[operator]
}
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def named(column: str) -> str:
    return column if column.isidentifier() else '"' + column.replace('"', '""') + '"'


def number_for(column: str, text: str) -> object:
    if column == "price":
        return float(text)
    if column == "weight":
        number = float(text)
        return float(np.float32(number)) if abs(number) < 3.4e38 else number
    return Fraction(text)


def literals(column: str) -> st.SearchStrategy[tuple[str, object]]:
    if column in ("year", "tiny", "big", "price", "weight", "cost"):
        return NUMBERS.map(lambda text: (text, number_for(column, text)))
    if column == "is_new":
        return st.booleans().map(lambda value: (str(value), value))
    if column == "day":
        return DAYS.map(lambda day: (quoted(day.isoformat()), day))
    if column == "moment":
        return VALUES["moment"].map(lambda value: (quoted(value.isoformat(sep=" ")), value)) | DAYS.map(
            lambda day: (quoted(day.isoformat()), dt.datetime.fromisoformat(day.isoformat()))
        )
    return TEXTS.map(lambda text: (quoted(text), text))


def known(row: Row, column: str) -> object:
    """Return the value of a column, exactly; None if it is missing or NaN."""
    value = row[column]
    if isinstance(value, float) and math.isnan(value):
        return None
    return Fraction(value) if isinstance(value, Decimal) else value


@st.composite
def comparisons(draw: st.DrawFn) -> Test:
    column = draw(st.sampled_from(list(SCHEMA)))
    sign = draw(st.sampled_from(["=", "==", "!=", "<>"] if column == "is_new" else list(SIGNS)))
    text, literal = draw(literals(column))

    def test(row: Row) -> bool | None:
        value = known(row, column)
        return None if value is None else SIGNS[sign](value, literal)

    if draw(st.booleans()):
        return f"{text} {MIRROR.get(sign, sign)} {named(column)}", test
    return f"{named(column)}{sign}{text}", test


@st.composite
def memberships(draw: st.DrawFn) -> Test:
    column = draw(st.sampled_from(list(SCHEMA)))
    chosen = draw(st.lists(literals(column), min_size=1, max_size=4))
    is_negated = draw(st.booleans())

    def test(row: Row) -> bool | None:
        value = known(row, column)
        return None if value is None else any(value == literal for _, literal in chosen) != is_negated

    return f"{named(column)} {'not ' * is_negated}IN ({', '.join(text for text, _ in chosen)})", test


@st.composite
def ranges(draw: st.DrawFn) -> Test:
    column = draw(st.sampled_from([name for name in SCHEMA if name != "is_new"]))
    (low_text, low), (high_text, high) = draw(literals(column)), draw(literals(column))
    is_negated = draw(st.booleans())

    def test(row: Row) -> bool | None:
        value = known(row, column)
        return None if value is None else (low <= value <= high) != is_negated  # type: ignore[operator]

    return f"{named(column)} {'NOT ' * is_negated}between {low_text} AND {high_text}", test


@st.composite
def patterns(draw: st.DrawFn) -> Test:
    column = draw(st.sampled_from(["title", "a 'genre\""]))
    pattern = draw(TEXTS)
    expected = re.compile("".join({"%": ".*", "_": "."}.get(sign, re.escape(sign)) for sign in pattern), re.DOTALL)
    is_negated = draw(st.booleans())

    def test(row: Row) -> bool | None:
        value = row[column]
        return None if value is None else bool(expected.fullmatch(str(value))) != is_negated

    return f"{named(column)} {'NOT ' * is_negated}LIKE {quoted(pattern)}", test


@st.composite
def presences(draw: st.DrawFn) -> Test:
    column = draw(st.sampled_from(list(SCHEMA)))
    is_negated = draw(st.booleans())
    return f"{named(column)} is {'NOT ' * is_negated}null", lambda row: (row[column] is None) != is_negated


def truths() -> st.SearchStrategy[Test]:
    def bare(row: Row) -> bool | None:
        return row["is_new"]  # type: ignore[return-value]

    return st.sampled_from([("TRUE", lambda row: True), ("false", lambda row: False), ("is_new", bare)])


def joined(children: st.SearchStrategy[Test]) -> st.SearchStrategy[Test]:
    def negated(child: Test) -> Test:
        def test(row: Row) -> bool | None:
            value = child[1](row)
            return None if value is None else not value

        return f"NOT ({child[0]})", test

    def both(pair: tuple[Test, Test]) -> Test:
        def test(row: Row) -> bool | None:
            values = [child[1](row) for child in pair]
            return False if False in values else None if None in values else True

        return f"({pair[0][0]}) AND ({pair[1][0]})", test

    def either(pair: tuple[Test, Test]) -> Test:
        def test(row: Row) -> bool | None:
            values = [child[1](row) for child in pair]
            return True if True in values else None if None in values else False

        return f"({pair[0][0]}) or ({pair[1][0]})", test

    pairs = st.tuples(children, children)
    return children.map(negated) | pairs.map(both) | pairs.map(either)


LEAVES = comparisons() | memberships() | ranges() | patterns() | presences() | truths()
CONDITIONS = st.recursive(LEAVES, joined, max_leaves=6)
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=5)


def evaluated(text: str, frame: pl.DataFrame) -> list[bool]:
    return evaluate_filter(text, frame, torch.arange(len(frame))).tolist()


@settings(max_examples=trials(30, 100), deadline=None)
@given(condition=CONDITIONS, rows=ROWS)
def test_conditions_are_evaluated_as_sql_says(condition: Test, rows: list[dict[str, object]]) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    text, test = condition
    assert evaluated(text, frame) == [test(row) is True for row in frame.iter_rows(named=True)]


def test_and_binds_closer_than_or_and_not_closest() -> None:
    rows = list(itertools.product([True, False, None], repeat=3))
    frame = pl.DataFrame(rows, schema=dict.fromkeys("abc", pl.Boolean), orient="row")
    for text, spelled_out in (
        ("a OR b AND c", "a OR (b AND c)"),
        ("a AND b OR c", "(a AND b) OR c"),
        ("NOT a OR b", "(NOT a) OR b"),
        ("NOT a AND b OR NOT c", "((NOT a) AND b) OR (NOT c)"),
        ("NOT a = b", "NOT (a = b)"),
    ):
        assert evaluated(text, frame) == evaluated(spelled_out, frame)
    assert evaluated("a OR b AND c", frame) != evaluated("(a OR b) AND c", frame)


WORDS = (
    "year title NOT OR IN ( ) , ' '' \" LIKE BETWEEN IS NULL 1 - 1e999 = <> ; -- /* SELECT read_csv('/etc/passwd') \\ "
    "\x00 \ud800 💥 TRUE *"
)


@settings(max_examples=trials(60, 300), deadline=None)
@given(text=st.lists(st.sampled_from(WORDS.split(" ")), max_size=30).map(" ".join) | st.text(max_size=50))
def test_garbage_is_refused_by_name(text: str) -> None:
    frame = pl.DataFrame({"year": [1, None], "title": ["a", None]})
    with contextlib.suppress(InvalidInputError):  # anything else fails the test
        evaluated(text, frame)
