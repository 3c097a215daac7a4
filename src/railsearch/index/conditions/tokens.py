"""Split the text of a condition into tokens, and point at the place of a mistake."""

import re
from dataclasses import dataclass
from enum import StrEnum

from railsearch.foundation.errors import InvalidInputError

MAX_BYTES = 4096
SHOWN_CHARACTERS = 60
"""Characters of the text that an error shows on each side of the place."""


class Kind(StrEnum):
    """Kinds of tokens."""

    NAME = "name"
    QUOTED_NAME = "quoted name"
    NUMBER = "number"
    TEXT = "text"
    KEYWORD = "keyword"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign of a condition."""

    kind: Kind
    text: str
    """The name, number or text itself without its quotes; a keyword in capitals."""
    place: int
    """Character of the condition at which the token starts."""

    def __str__(self) -> str:
        match self.kind:
            case Kind.END:
                return "the end"
            case Kind.TEXT:
                return f"the text '{self.text}'"
            case _:
                return self.text


KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE"})
_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<name>[^\W\d]\w*)
  | (?P<quoted>"(?:[^"]|"")*")
  | (?P<text>'(?:[^']|'')*')
  | (?P<sign><=|>=|<>|!=|==|[=<>(),])
    """,
    re.VERBOSE,
)


def split_tokens(text: str) -> list[Token]:
    """Split a condition into tokens; the last one is the end."""
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise InvalidInputError(
            f"allow is a condition of {size:,} bytes but at most {MAX_BYTES:,} are allowed; shorten it, or give a list "
            "of ids."
        )
    tokens, place = [], 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise misread(text, place, _why_unknown(text[place]))
        if found.lastgroup != "space":
            tokens.append(_token(found, place))
        place = found.end()
    tokens.append(Token(Kind.END, "", len(text)))
    return tokens


def misread(text: str, place: int, problem: str) -> InvalidInputError:
    """Return an error that shows the text, with a caret under the place of the problem."""
    first, last = max(0, place - SHOWN_CHARACTERS), place + SHOWN_CHARACTERS
    before = "..." if first else ""
    shown = "".join(character if character.isprintable() else " " for character in text[first:last])
    after = "..." if last < len(text) else ""
    caret = " " * (len(before) + place - first) + "^"
    return InvalidInputError(
        f"allow cannot be read at character {place + 1}: {problem}.\n  {before}{shown}{after}\n  {caret}"
    )


def _token(found: re.Match[str], place: int) -> Token:
    word = found.group()
    match found.lastgroup:
        case "number":
            return Token(Kind.NUMBER, word, place)
        case "name":
            is_keyword = word.upper() in KEYWORDS
            return Token(Kind.KEYWORD, word.upper(), place) if is_keyword else Token(Kind.NAME, word, place)
        case "quoted":
            return Token(Kind.QUOTED_NAME, word[1:-1].replace('""', '"'), place)
        case "text":
            return Token(Kind.TEXT, word[1:-1].replace("''", "'"), place)
        case _:
            return Token(Kind.SIGN, word, place)


def _why_unknown(character: str) -> str:
    if character == "'":
        return "the text that starts here has no closing '"
    if character == '"':
        return 'the column name that starts here has no closing "'
    return f"{character!r} has no meaning in a condition; write comparisons of columns, joined by AND, OR and NOT"
