"""Parts of long texts in tables of results: where the part that matched is, and a snippet of it.

An index of long texts stores the text of an item, and where each of its components begins and ends in it.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from polars import DataFrame

TEXT = "passage"
"""Column of the text of an item."""
STARTS, ENDS = "passage_starts", "passage_ends"
"""Columns of the index: the first character of each component, and the character after its last."""
START, END, SNIPPET = "passage_start", "passage_end", "snippet"
"""Columns of results: the same of the component that matched, and a piece of its text."""
SNIPPET_LENGTH = 240
"""Characters of a snippet, about."""
WORD = re.compile(r"\w{2,}")


def has_parts(names: Sequence[str]) -> bool:
    """Return whether a table has the places of components."""
    return {TEXT, STARTS, ENDS} <= set(names)


def result_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of results for the columns of an index.

    >>> result_columns(["passage", "passage_starts", "passage_ends"])
    ['passage', 'passage_start', 'passage_end', 'snippet']
    """
    if not has_parts(names):
        return list(names)
    return [*(name for name in names if name not in (STARTS, ENDS)), START, END, SNIPPET]


def show_matched(frame: "DataFrame", components: Tensor, questions: Sequence[str | None]) -> "DataFrame":
    """Replace the places of all components by that of the one that matched, and add a snippet.

    Args:
        frame: n rows of metadata.
        components: (n,) the component of each row that matched.
        questions: the question of each row, if it is known: the snippet is then where its words are.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    parts = [
        _part(*row, component=component, question=question)
        for row, component, question in zip(
            frame.select(TEXT, STARTS, ENDS).rows(), components.tolist(), questions, strict=True
        )
    ]
    shown = pl.DataFrame(parts, schema={START: pl.Int64, END: pl.Int64, SNIPPET: pl.String}, orient="row")
    return frame.drop(STARTS, ENDS).with_columns(shown.get_columns())


def _part(
    text: object, starts: object, ends: object, *, component: int, question: str | None
) -> tuple[int | None, int | None, str | None]:
    """Return start, end and snippet of a component; None if the metadata, which anyone can write, do not say it."""
    if isinstance(text, str) and isinstance(starts, list) and isinstance(ends, list):
        start, end = (places[component] if component < len(places) else None for places in (starts, ends))
        if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end:
            return start, end, make_snippet(text[start:end], question)
    return None, None, None


def make_snippet(text: str, question: str | None = None, *, length: int = SNIPPET_LENGTH) -> str:
    """Return a short piece of a text: where rare words of the question are closest together, or else its beginning.

    >>> make_snippet("Cats sleep. " * 9 + "Owls hunt at night.", "when do owls hunt?", length=20)
    '…Owls hunt at night.'
    """
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    first = _best_start(text, question or "", length)
    last = first + length
    if last < len(text):
        last = max(text.rfind(" ", first, last), first + length // 2)
    return f"{'…' if first else ''}{text[first:last].strip()}{'…' if last < len(text) else ''}"


def _best_start(text: str, question: str, length: int) -> int:
    wanted = {word.lower() for word in WORD.findall(question)}
    found = [(match.start(), word) for match in WORD.finditer(text) if (word := match[0].lower()) in wanted]
    counts: dict[str, int] = {}
    for _, word in found:
        counts[word] = counts.get(word, 0) + 1
    best, start, last = 0.0, 0, 0
    inside: dict[str, int] = {}
    for position, word in found:
        while last < len(found) and found[last][0] < position + length - length // 4:
            inside[found[last][1]] = inside.get(found[last][1], 0) + 1
            last += 1
        value = sum(1 / counts[own] for own in inside)
        if value > best:
            best, start = value, position
        inside[word] -= 1
        if not inside[word]:
            del inside[word]  # at most the words of one snippet, however long the question is
    before = max(text.rfind(mark, 0, start) for mark in (". ", "? ", "! "))  # the sentence of the first word
    if before >= 0 and start - before <= length // 4:
        start = before + 2
    return min(start, max(0, len(text) - length))
