"""Parse the tokens of a condition into a tree, within fixed limits of size and depth."""

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.conditions.tokens import Kind, Token, misread, split_tokens

MAX_TESTS = 64
MAX_DEPTH = 16
MAX_WILDCARDS = 24
"""Wildcards within the patterns of a condition; those at the start and at the end of a pattern are free."""
LARGEST_NUMBER = 10**308
"""fp64 reaches a little further."""
COMPARISONS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name."""

    name: str
    place: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text, or true or false."""

    value: Fraction | str | bool
    place: int


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of a column with a literal or with another column."""

    column: Column
    sign: str
    """One of = != < <= > >=."""
    other: Column | Literal


@dataclass(frozen=True, slots=True)
class In:
    """A column whose value is one of several."""

    column: Column
    literals: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A column of text that follows a pattern."""

    column: Column
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column whose value is missing."""

    column: Column


@dataclass(frozen=True, slots=True)
class Truth:
    """A column of true and false, or one of the two words."""

    of: Column | bool


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    part: "Condition"


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conditions that all hold."""

    parts: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Conditions of which one holds."""

    parts: "tuple[Condition, ...]"


Condition: TypeAlias = Compare | In | Like | IsNull | Truth | Not | AllOf | AnyOf


def parse_condition(text: str) -> Condition:
    """Parse a condition; an error points at the place."""
    return _Parser(text).parse()


class _Parser:
    """A recursive descent over the tokens, no deeper than `MAX_DEPTH`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = split_tokens(text)
        self._next = 0
        self._num_tests = 0
        self._num_wildcards = 0

    def parse(self) -> Condition:
        condition = self._any(0)
        if self._token.kind is not Kind.END:
            raise self._error(f"{self._token} is not expected here; write AND, OR or the end")
        return condition

    def _any(self, depth: int) -> Condition:
        parts = [self._all(depth)]
        while self._takes("OR"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _all(self, depth: int) -> Condition:
        parts = [self._factor(depth)]
        while self._takes("AND"):
            parts.append(self._factor(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _factor(self, depth: int) -> Condition:
        if self._is("NOT", "(") and depth == MAX_DEPTH:
            raise self._error(f"NOT and parentheses are nested deeper than {MAX_DEPTH} levels; simplify the condition")
        if self._takes("NOT"):
            return Not(self._factor(depth + 1))
        if self._takes("("):
            condition = self._any(depth + 1)
            self._expect(")")
            return condition
        return self._test()

    def _test(self) -> Condition:
        self._num_tests += 1
        if self._num_tests > MAX_TESTS:
            raise self._error(f"there are more than {MAX_TESTS} tests; use IN (...), or give a list of ids")
        left = self._value()
        if self._token.kind is Kind.SIGN and self._token.text in COMPARISONS:
            return self._comparison(left)
        if isinstance(left, Literal):
            if isinstance(left.value, bool):
                return Truth(left.value)
            raise self._error("expected one of = != < <= > >= after a value")
        if self._takes("IS"):
            is_negated = self._takes("NOT")
            self._expect("NULL")
            return Not(IsNull(left)) if is_negated else IsNull(left)
        is_negated = self._takes("NOT")
        if not is_negated and not self._is("IN", "BETWEEN", "LIKE"):
            return Truth(left)
        test = self._set_test(left)
        return Not(test) if is_negated else test

    def _comparison(self, left: Column | Literal) -> Condition:
        place = self._token.place
        sign = {"==": "=", "<>": "!="}.get(self._token.text, self._token.text)
        self._next += 1
        right = self._value()
        if isinstance(left, Column):
            return Compare(left, sign, right)
        if isinstance(right, Literal):
            raise misread(self._text, place, "two values are compared; compare a column with a value")
        return Compare(right, MIRRORED[sign], left)

    def _set_test(self, column: Column) -> Condition:
        if self._takes("IN"):
            self._expect("(")
            literals = [self._literal()]
            while self._takes(","):
                literals.append(self._literal())
            self._expect(")")
            return In(column, tuple(literals))
        if self._takes("BETWEEN"):
            low = self._literal()
            self._expect("AND")
            return AllOf((Compare(column, ">=", low), Compare(column, "<=", self._literal())))
        self._expect("LIKE")
        token = self._token
        if token.kind is not Kind.TEXT:
            raise self._error("expected a pattern in single quotes after LIKE, such as 'The %'")
        self._next += 1
        inner = token.text.strip("%")  # a search for plain text, such as '%plain%', is fast
        self._num_wildcards += inner.count("%") + inner.count("_")
        if self._num_wildcards > MAX_WILDCARDS:
            raise misread(
                self._text,
                token.place,
                f"the patterns have more than {MAX_WILDCARDS} wildcards within text; shorten them",
            )
        return Like(column, self._encodable(token))

    def _value(self) -> Column | Literal:
        token = self._token
        if token.kind in (Kind.NAME, Kind.QUOTED_NAME):
            self._next += 1
            if self._is("("):
                raise misread(self._text, token.place, f"{token.text} is called, but a condition cannot call functions")
            return Column(token.text, token.place)
        return self._literal("a column or a value")

    def _literal(self, expected: str = "a value: a number, 'text', TRUE or FALSE") -> Literal:
        token = self._token
        if token.kind is Kind.NUMBER:
            value: Fraction | str | bool = self._number(token)
        elif token.kind is Kind.TEXT:
            value = self._encodable(token)
        elif self._is("TRUE", "FALSE"):
            value = token.text == "TRUE"
        elif self._is("NULL"):
            raise self._error("NULL is compared with IS NULL or IS NOT NULL")
        elif token.kind is Kind.QUOTED_NAME:
            raise self._error(f"expected {expected}, but double quotes mark a column; text goes into single quotes")
        else:
            raise self._error(f"expected {expected}, but found {token}")
        self._next += 1
        return Literal(value, token.place)

    def _number(self, token: Token) -> Fraction:
        _, _, exponent = token.text.lower().partition("e")
        number = Fraction(token.text) if len(exponent) <= len("+308") else None
        if number is None or abs(number) > LARGEST_NUMBER:
            raise self._error("the number is too large; numbers go up to 1e308, and exponents have three digits")
        return number

    def _encodable(self, token: Token) -> str:
        try:
            token.text.encode()
        except UnicodeEncodeError:
            raise misread(self._text, token.place, "the text is not valid Unicode; write it as UTF-8") from None
        return token.text

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _is(self, *words: str) -> bool:
        return self._token.kind in (Kind.KEYWORD, Kind.SIGN) and self._token.text in words

    def _takes(self, word: str) -> bool:
        is_next = self._is(word)
        self._next += is_next
        return is_next

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            raise self._error(f"expected {word}, but found {self._token}")

    def _error(self, problem: str) -> InvalidInputError:
        return misread(self._text, self._token.place, problem)
