"""Compare columns of numbers with numbers: integers exactly, floats at the precision of the column."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from polars import DataType, Expr

COMPARE: "Mapping[str, Callable[[Expr, Expr], Expr]]" = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
LARGEST_FLOAT32 = Fraction(2**128 - 2**104)


@dataclass(frozen=True, slots=True)
class Integers:
    """A column whose values are integers underneath: integers, decimals, days and moments."""

    name: str
    scale: int
    """Integers for each unit; a decimal with two places has 100."""
    kind: "DataType"
    """Type of the integers."""

    @classmethod
    def of(cls, name: str, kind: "DataType") -> Self | None:
        """Return such a column, or None for another type."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        if isinstance(kind, pl.Decimal):
            return cls(name, 10**kind.scale, pl.Int128())
        if isinstance(kind, pl.Date):
            return cls(name, 1, pl.Int32())
        if isinstance(kind, pl.Datetime):
            return cls(name, 1, pl.Int64())
        return cls(name, 1, kind) if kind.is_integer() else None

    def compare(self, sign: str, number: Fraction) -> "Expr":
        """Return whether `value sign number`, without rounding either."""
        bound = number * self.scale
        lower, upper = math.floor(bound), math.ceil(bound)
        if not (self._holds(lower) and self._holds(upper)):
            return self._always(sign in (("<", "<=", "!=") if bound > 0 else (">", ">=", "!=")))
        if lower != upper and sign in ("=", "!="):
            return self._always(sign == "!=")
        # Between two integers, `value < number` is `value < upper`, and `value <= number` is `value <= lower`.
        return COMPARE[sign](self._values, self._literal(upper if sign in ("<", ">=") else lower))

    def find(self, numbers: Sequence[Fraction]) -> "Expr":
        """Return whether a value is one of the numbers."""
        import polars as pl  # noqa: PLC0415

        bounds = [number * self.scale for number in numbers]
        whole = [bound.numerator for bound in bounds if bound.denominator == 1 and self._holds(bound.numerator)]
        found = self._values.is_in(pl.Series(whole, dtype=self.kind).implode())
        return pl.when(pl.col(self.name).is_not_null()).then(found)

    @property
    def _values(self) -> "Expr":
        import polars as pl  # noqa: PLC0415

        return pl.col(self.name).to_physical()

    def _literal(self, number: int) -> "Expr":
        import polars as pl  # noqa: PLC0415

        return pl.lit(number, dtype=self.kind)

    def _holds(self, number: int) -> bool:
        """Return whether the type of the integers can hold a number."""
        num_bits = int(str(self.kind).removeprefix("U").removeprefix("Int"))
        if self.kind.is_unsigned_integer():
            return number >= 0 and number.bit_length() <= num_bits
        return (number if number >= 0 else ~number).bit_length() < num_bits

    def _always(self, is_true: bool) -> "Expr":
        """Return the same for every value that is not missing."""
        import polars as pl  # noqa: PLC0415

        return pl.when(pl.col(self.name).is_not_null()).then(pl.lit(is_true))


def compare_float(name: str, kind: "DataType", sign: str, number: Fraction) -> "Expr":
    """Return how a column of floats compares with a number; NaN counts as missing."""
    import polars as pl  # noqa: PLC0415

    own, common = _wide_enough(name, kind, [number])
    return COMPARE[sign](own, pl.lit(float(number), dtype=common))


def find_float(name: str, kind: "DataType", numbers: Sequence[Fraction]) -> "Expr":
    """Return whether a value of a column of floats is one of the numbers; NaN counts as missing."""
    import polars as pl  # noqa: PLC0415

    own, common = _wide_enough(name, kind, numbers)
    values = pl.Series([float(number) for number in numbers], dtype=pl.Float64).cast(common)
    return pl.when(own.is_not_null()).then(own.is_in(values.implode()))


def _wide_enough(name: str, kind: "DataType", numbers: Sequence[Fraction]) -> "tuple[Expr, DataType]":
    """Return a column without NaN in a type whose range includes the numbers: its own, or fp64."""
    import polars as pl  # noqa: PLC0415

    own = pl.col(name).fill_nan(None)
    if isinstance(kind, pl.Float64):
        return own, kind
    is_reached = isinstance(kind, pl.Float32) and all(abs(number) <= LARGEST_FLOAT32 for number in numbers)
    return (own, kind) if is_reached else (own.cast(pl.Float64), pl.Float64())
