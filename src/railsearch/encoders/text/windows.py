"""Windows of a long text: overlapping stretches of tokens that begin and end at sentences or paragraphs."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# Only the end of a match counts. A pattern that began with \s* would take quadratic time in a long run of spaces.
PARAGRAPH_END = re.compile(r"\n\s*\n\s*")
SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s+|[。！？][”’」』）]*\s*|\n\s*")  # noqa: RUF001
CHARACTERS_PER_PIECE = 2**18
"""Characters of a text that are tokenized at once: the tokens of a text take some fifty times its size."""


class TokenSpan(NamedTuple):
    """One token of a text: its id, and its characters, from `start` to before `end`."""

    id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a text: its characters, from `start` to before `end`, and the token ids of a model's input."""

    start: int
    end: int
    ids: list[int]


def cut(
    text: str, tokens: Sequence[TokenSpan], *, room: int, overlap: int, first_room: int | None = None
) -> list[tuple[int, int]]:
    """Return the first token, and the token after the last, of each window of at most `room` tokens.

    The first window may have `first_room` tokens, by default as many as the others.

    A window ends at the last paragraph of its second half, else at the last sentence, else between two words. The next
    one repeats whole sentences, about `overlap` tokens; nothing is repeated if a sentence is much longer than that. No
    token is left out. The last window is extended to the front if it would be short.

    >>> text = "One two. Three four. Five six."
    >>> tokens = [TokenSpan(0, word.start(), word.end()) for word in re.finditer(r"\\w+", text)]
    >>> [text[tokens[first].start : tokens[last - 1].end] for first, last in cut(text, tokens, room=4, overlap=2)]
    ['One two. Three four', 'Three four. Five six']
    """
    count, size = len(tokens), room if first_room is None else first_room
    if count <= size:
        return [(0, count)]
    ends = [token.end for token in tokens]
    paragraphs, sentences = (_borders(pattern, text, ends) for pattern in (PARAGRAPH_END, SENTENCE_END))
    found, first, last = [], 0, None
    while first + size < count:
        # The end lies behind the end of the window before it.
        middle, limit = max(first + (size + 1) // 2, (last or 0) + 1), first + size
        last = _last_within(paragraphs, middle, limit) or _last_within(sentences, middle, limit)
        is_border = last is not None
        if last is None:
            last = _word_start(text, tokens, limit, lowest=middle)
        found.append((first, last))
        first, size = _next_start(text, tokens, sentences, first, last, overlap=overlap, is_border=is_border), room
    if count - first < room // 2:
        place = bisect_left(sentences, count - room)
        border = sentences[place] if place < len(sentences) else first
        first = border if border < first else _word_start(text, tokens, count - room // 2, lowest=count - room)
    return [*found, (first, count)]


def count_context(text: str, tokens: Sequence[TokenSpan], *, most: int) -> int:
    """Return how many tokens, at most `most`, the beginning of a text has that says what the text is about.

    It ends at the last paragraph or sentence within the limit, else between two words.

    >>> text = "The pump. It starts when the tank is full."
    >>> tokens = [TokenSpan(0, word.start(), word.end()) for word in re.finditer(r"\\w+", text)]
    >>> count_context(text, tokens, most=5), count_context(text, tokens, most=1), count_context(text, tokens, most=0)
    (2, 1, 0)
    """
    if not most:
        return 0
    ends = [token.end for token in tokens]
    borders = sorted({*_borders(PARAGRAPH_END, text, ends), *_borders(SENTENCE_END, text, ends)})
    return _last_within(borders, 1, most) or _word_start(text, tokens, most, lowest=1)


def pieces(text: str) -> Iterator[tuple[int, int]]:
    """Yield stretches of characters that are tokenized one by one; a long text is divided between sentences or words.

    >>> list(pieces("short"))
    [(0, 5)]
    """
    first = 0
    while len(text) - first > CHARACTERS_PER_PIECE:
        middle, limit = first + CHARACTERS_PER_PIECE // 2, first + CHARACTERS_PER_PIECE
        last = limit
        for pattern in (SENTENCE_END, re.compile(r"\s+")):
            ends = [match.end() for match in pattern.finditer(text, middle, limit)]
            if ends:
                last = ends[-1]
                break
        yield first, last
        first = last
    yield first, len(text)


def _borders(pattern: re.Pattern[str], text: str, ends: Sequence[int]) -> list[int]:
    """Return the tokens before which the text may be divided, ascending; a token may begin with a space."""
    found = {bisect_right(ends, match.end()) for match in pattern.finditer(text)}
    return sorted(found - {0, len(ends)})


def _last_within(borders: Sequence[int], lowest: int, highest: int) -> int | None:
    place = bisect_right(borders, highest) - 1
    return borders[place] if place >= 0 and borders[place] >= lowest else None


def _word_start(text: str, tokens: Sequence[TokenSpan], place: int, *, lowest: int) -> int:
    """Return the last token from `lowest` to `place` that begins a word; `place` if none does."""
    for token in range(place, lowest - 1, -1):
        start = tokens[token].start
        if any(character.isspace() for character in text[max(0, start - 1) : start + 1]):
            return token
    return place


def _next_start(
    text: str, tokens: Sequence[TokenSpan], sentences: Sequence[int], first: int, last: int, *, overlap: int,
    is_border: bool,
) -> int:  # fmt: skip
    """Return the first token of the window after the one from `first` to `last`."""
    if not overlap:
        return last
    lowest = max(first + 1, last - 2 * overlap)
    near = sentences[bisect_left(sentences, lowest) : bisect_left(sentences, last)]
    if near:
        return min(near, key=lambda border: abs(last - overlap - border))
    return last if is_border else _word_start(text, tokens, max(first + 1, last - overlap), lowest=lowest)
