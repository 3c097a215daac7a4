"""Compile a condition into a polars expression that fits the types of the columns."""

from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING

from railsearch.index.conditions.dates import as_day, as_moment
from railsearch.index.conditions.numbers import COMPARE, Integers, compare_float, find_float
from railsearch.index.conditions.syntax import (
    AllOf,
    AnyOf,
    Column,
    Compare,
    Condition,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Truth,
    parse_condition,
)
from railsearch.index.conditions.tokens import misread

if TYPE_CHECKING:
    from polars import DataType, Expr

REGEX_SIGNS = frozenset(r"\.+*?()|[]{}^$#&-~")


def compile_condition(text: str, columns: "Mapping[str, DataType]") -> "Expr":
    """Return the polars expression of a condition over columns of the given types; an error points at the place."""
    return _Compiler(text, columns).compile(parse_condition(text))


class _Compiler:
    def __init__(self, text: str, columns: "Mapping[str, DataType]") -> None:
        self._text = text
        self._columns = columns

    def compile(self, condition: Condition) -> "Expr":
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        match condition:
            case Compare(column, sign, Literal() as literal):
                found = self._compare_literal(column, sign, literal)
            case Compare(column, sign, Column() as other):
                found = self._compare_columns(column, sign, other)
            case In(column, literals):
                found = self._is_in(column, literals)
            case Like(column, pattern):
                found = self._is_like(column, pattern)
            case IsNull(column):
                self._type(column)
                found = pl.col(column.name).is_null()
            case Truth(of):
                found = self._is_true(of)
            case Not(part):
                found = ~self.compile(part)
            case AllOf(parts):
                found = reduce(and_, map(self.compile, parts))
            case AnyOf(parts):
                found = reduce(or_, map(self.compile, parts))
        return found

    def _is_true(self, of: Column | bool) -> "Expr":
        import polars as pl  # noqa: PLC0415

        if isinstance(of, bool):
            return pl.lit(of)
        if self._group(of) != "true or false":
            problem = f"{of.name} holds {self._group(of)}, which is not a condition; compare it"
            raise misread(self._text, of.place, problem)
        return pl.col(of.name)

    def _compare_literal(self, column: Column, sign: str, literal: Literal) -> "Expr":
        import polars as pl  # noqa: PLC0415

        kind, group = self._type(column), self._group(column)
        self._check_comparable(column, group, sign)
        self._check_literal(column, group, literal)
        value = literal.value
        if isinstance(value, bool):
            return COMPARE[sign](pl.col(column.name), pl.lit(value))
        integers = Integers.of(column.name, kind)
        if integers is not None:
            return integers.compare(sign, self._as_number(column, literal))
        if isinstance(value, str):
            return COMPARE[sign](pl.col(column.name).cast(pl.String), pl.lit(value))
        return compare_float(column.name, kind, sign, value)

    def _is_in(self, column: Column, literals: tuple[Literal, ...]) -> "Expr":
        import polars as pl  # noqa: PLC0415

        kind, group = self._type(column), self._group(column)
        self._check_comparable(column, group, "=")
        for literal in literals:
            self._check_literal(column, group, literal)
        integers = Integers.of(column.name, kind)
        if integers is not None:
            return integers.find([self._as_number(column, literal) for literal in literals])
        values = [literal.value for literal in literals]
        if kind.is_float():
            return find_float(column.name, kind, [value for value in values if not isinstance(value, (str, bool))])
        own = pl.col(column.name)
        own = own.cast(pl.String) if group == "text" else own
        return pl.when(own.is_not_null()).then(own.is_in(values))

    def _is_like(self, column: Column, pattern: str) -> "Expr":
        import polars as pl  # noqa: PLC0415

        if self._group(column) != "text":
            problem = f"{column.name} holds {self._group(column)}, but LIKE needs a column of text"
            raise misread(self._text, column.place, problem)
        own = pl.col(column.name).cast(pl.String)
        inner = pattern.strip("%")
        if "%" in inner or "_" in inner:
            return own.str.contains(_as_regex(pattern))  # Rust's regular expressions take linear time
        if not inner:
            return own.str.starts_with("") if pattern else own == ""
        starts_open, ends_open = pattern.startswith("%"), pattern.endswith("%")
        if starts_open and ends_open:
            return own.str.contains(inner, literal=True)
        if starts_open:
            return own.str.ends_with(inner)
        return own.str.starts_with(inner) if ends_open else own == inner

    def _compare_columns(self, column: Column, sign: str, other: Column) -> "Expr":
        import polars as pl  # noqa: PLC0415

        left, right = self._group(column), self._group(other)
        self._check_comparable(column, left, sign)
        self._check_comparable(other, right, sign)
        kinds = [self._type(column), self._type(other)]
        is_number = left == right == "numbers"
        if left != right or (kinds[0] != kinds[1] and not is_number and left != "text"):
            problem = f"{other.name} holds {kinds[1]} but {column.name} holds {kinds[0]}; compare columns of one type"
            raise misread(self._text, other.place, problem)
        common: DataType | None = None
        if left == "text":
            common = pl.String()
        elif is_number:
            common = pl.Int128() if all(kind.is_integer() for kind in kinds) else pl.Float64()
        sides = [pl.col(name) if common is None else pl.col(name).cast(common) for name in (column.name, other.name)]
        if common == pl.Float64:
            sides = [side.fill_nan(None) for side in sides]
        return COMPARE[sign](*sides)

    def _as_number(self, column: Column, literal: Literal) -> Fraction:
        """Return the number that a literal is in the units of a column of integers, days or moments."""
        import polars as pl  # noqa: PLC0415

        kind, value = self._type(column), literal.value
        try:
            if isinstance(kind, pl.Date):
                return as_day(str(value))
            if isinstance(kind, pl.Datetime):
                return as_moment(str(value), unit=kind.time_unit, zone=kind.time_zone)
        except ValueError as error:
            raise misread(self._text, literal.place, f"{column.name} holds {kind}, and {error}") from None
        assert isinstance(value, Fraction)
        return value

    def _check_comparable(self, column: Column, group: str, sign: str) -> None:
        if group == "other values":
            problem = f"{column.name} holds {self._type(column)}, which can only be tested with IS NULL"
            raise misread(self._text, column.place, problem)
        if group == "true or false" and sign not in ("=", "!="):
            problem = f"{column.name} holds true or false, which has no order; use = or !="
            raise misread(self._text, column.place, problem)

    def _check_literal(self, column: Column, group: str, literal: Literal) -> None:
        value = literal.value
        given = "true or false" if isinstance(value, bool) else "text" if isinstance(value, str) else "numbers"
        if given != ("text" if group == "dates" else group):
            needed = {"text": "'text'", "numbers": "a number", "true or false": "TRUE or FALSE", "dates": "'a date'"}
            raise misread(self._text, literal.place, f"{column.name} holds {group}; compare it with {needed[group]}")

    def _group(self, column: Column) -> str:
        import polars as pl  # noqa: PLC0415

        kind = self._type(column)
        if kind.is_numeric():  # decimals too
            return "numbers"
        if isinstance(kind, (pl.String, pl.Categorical, pl.Enum)):
            return "text"
        if isinstance(kind, pl.Boolean):
            return "true or false"
        return "dates" if isinstance(kind, (pl.Date, pl.Datetime)) else "other values"

    def _type(self, column: Column) -> "DataType":
        kind = self._columns.get(column.name)
        if kind is None:
            known = ", ".join(self._columns)
            raise misread(self._text, column.place, f"there is no column {column.name!r}; columns are: {known}")
        return kind


def _as_regex(pattern: str) -> str:
    signs = {"%": ".*", "_": "."} | {sign: f"\\{sign}" for sign in REGEX_SIGNS}
    return "(?s)^" + "".join(signs.get(character, character) for character in pattern) + "$"
