"""Token ids of texts: special tokens, aggregation tokens, truncation, and batches of similar length."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from railsearch.encoders.text.aggregation import aggregation_names
from railsearch.encoders.text.settings import Pooling, Side, TextEncoderConfig, TokenPlace
from railsearch.encoders.text.windows import TokenSpan, Window, count_context, cut, pieces
from railsearch.foundation.errors import InvalidInputError, ModelFolderError

if TYPE_CHECKING:
    from railsearch.encoders.text.pretrained import PreTrainedTokenizerFast

TEXTS_PER_CHUNK = 8192
"""Texts that are tokenized at once, so that the token ids of many texts are never all in memory."""
CHARACTERS_PER_CHUNK = 2**22
"""The same in characters: the tokens of a long text take some twenty times its size before they are cut."""


class TextTokens:
    """A tokenizer whose ids a model takes; no part of a text is ever read as a special token.

    Args:
        tokenizer: tokenizer of the pretrained model, with the aggregation tokens.
        settings: number of components and longest text of each side.
        place: place of the aggregation tokens.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", *, settings: TextEncoderConfig, place: TokenPlace) -> None:
        self.tokenizer = tokenizer
        self.settings = settings
        self.place = place
        self._backend = tokenizer.backend_tokenizer
        # We truncate and pad ourselves: the tokenizer keeps no state that another thread could change.
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = True  # "[CLS]" in a text is letters and brackets
        self.aggregation_ids = self._find_aggregation_ids()
        self._prefix, self._suffix = self._find_own_tokens()
        self._reserved = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        for side in Side:
            self._check_length(side)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy by building it again: a copied tokenizer would read special tokens inside a text."""
        return _make_tokens, (self.tokenizer, self.settings, self.place)

    @property
    def first_aggregation_id(self) -> int:
        """First id of an aggregation token; lower ids belong to the pretrained model."""
        return min(min(ids) for ids in self.aggregation_ids.values())

    @property
    def summary_id(self) -> int | None:
        """Id of the model's own token that summarises or starts a text, if it has one."""
        found = [self.tokenizer.cls_token_id, self.tokenizer.bos_token_id]
        return next((token for token in found if isinstance(token, int)), None)

    def tokenize(self, texts: Sequence[str], side: Side) -> list[list[int]]:
        """Return the ids of each text, at most as many as the side's length."""
        check_texts(texts)
        aggregation = self.aggregation_ids[side]
        front, end = (aggregation, []) if self.place is TokenPlace.FRONT else ([], aggregation)
        room = self._room(side)
        rows = []
        for row, encoding in enumerate(self._backend.encode_batch_fast(list(texts), add_special_tokens=False)):
            ids = encoding.ids
            if not self._reserved.isdisjoint(ids):  # some vocabularies spell out their special tokens
                ids = [token for token in ids if token not in self._reserved]
            tokens = [*front, *self._prefix, *ids[:room], *self._suffix, *end]
            if not tokens:
                raise InvalidInputError(f"texts[{row}] is {texts[row][:40]!r}, which yields no token; remove it.")
            rows.append(tokens)
        return rows

    def tokenize_windows(self, text: str, prompt: str = "") -> list[Window]:
        """Cut a passage of any length into overlapping windows, each with the prompt and the ids of a complete input.

        A passage that fits has one window, with the ids that `tokenize` returns. Every later window begins
        with the tokens of the context that are not its own.
        """
        check_texts([text])
        spans = []
        for first, last in pieces(text):
            encoding = self._backend.encode(text[first:last], add_special_tokens=False)
            spans += [
                TokenSpan(token, first + start, first + end)
                for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
                if token not in self._reserved
            ]
        prompt_ids = self._backend.encode(prompt, add_special_tokens=False).ids if prompt else []
        room = self._room(Side.PASSAGE) - len(prompt_ids)
        if room < 1:
            raise InvalidInputError(
                f"max_passage_length is {self.settings.max_passage_length} but the prompt takes {len(prompt_ids)} "
                "tokens of every window; ask for longer windows."
            )
        if len(spans) <= room:
            return [Window(0, len(text), self.tokenize([prompt + text], Side.PASSAGE)[0])]
        num_context = count_context(text, spans, most=min(self.settings.window_context, room // 2))
        context_ids = [token.id for token in spans[:num_context]]
        overlap = min(self.settings.overlap, (room - num_context) // 2)
        found = cut(text, spans, room=room - num_context, first_room=room, overlap=overlap)
        windows = []
        for first, last in found:
            own = spans[first:last]
            context = context_ids[:first]  # nothing is repeated twice
            ids = [*self._prefix, *prompt_ids, *context, *(token.id for token in own), *self._suffix]
            windows.append(Window(own[0].start, own[-1].end, ids))
        return windows

    def count_cut(self, texts: Sequence[str], side: Side) -> int:
        """Return the number of texts that are too long for the side."""
        check_texts(texts)
        if self.settings.pooling is Pooling.WINDOWS and side is Side.PASSAGE:
            return 0
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return sum(len(encoding.ids) > self._room(side) for encoding in encodings)

    def check(self, tokens: Sequence[Sequence[int]], side: Side) -> None:
        """Check that token ids come from `tokenize` for this side."""
        if not len(tokens):
            raise InvalidInputError("tokens is empty; give at least one row.")
        aggregation, longest = self.aggregation_ids[side], self.settings.max_length(side)
        for row, ids in enumerate(tokens):
            if not 0 < len(ids) <= longest:
                raise InvalidInputError(
                    f"tokens[{row}] has {len(ids)} tokens but a {side} has 1 to {longest}; use tokenize."
                )
            found = ids[: len(aggregation)] if self.place is TokenPlace.FRONT else ids[len(ids) - len(aggregation) :]
            if list(found) != aggregation:
                raise InvalidInputError(
                    f"tokens[{row}] lacks the aggregation tokens of the {side} side at its {self.place}; "
                    f"use tokenize(texts, {side!r})."
                )

    def _room(self, side: Side) -> int:
        """Return how many tokens of the text itself fit."""
        own = len(self.aggregation_ids[side]) + len(self._prefix) + len(self._suffix)
        return self.settings.max_length(side) - own

    def _find_aggregation_ids(self) -> dict[Side, list[int]]:
        vocabulary, names = self.tokenizer.get_vocab(), aggregation_names(self.settings)
        lacking = [name for name in names if name not in vocabulary]
        if lacking:
            raise ModelFolderError(
                f"the vocabulary lacks {len(lacking)} of {len(names)} aggregation tokens, such as {lacking[0]}; "
                "restore the folder from a copy, or start again with TextEncoder.from_pretrained."
            )
        ids = [vocabulary[name] for name in names]
        if ids and (ids != list(range(ids[0], ids[0] + len(ids))) or ids[-1] != max(vocabulary.values())):
            raise ModelFolderError(
                f"the aggregation tokens have ids {ids} but should be the last of the vocabulary, in order; "
                "restore the folder from a copy."
            )
        split = self.settings.num_query_components
        return {Side.QUERY: ids[:split], Side.PASSAGE: ids[split:]}

    def _find_own_tokens(self) -> tuple[list[int], list[int]]:
        """Return the special tokens that the model puts before and after a text."""
        encoding = self._backend.encode("a", add_special_tokens=True)
        is_special = encoding.special_tokens_mask
        if 0 not in is_special:
            raise ModelFolderError('the tokenizer has no token for "a"; give a folder with another tokenizer.')
        start, stop = is_special.index(0), len(is_special) - is_special[::-1].index(0)
        return encoding.ids[:start], encoding.ids[stop:]

    def _check_length(self, side: Side) -> None:
        least = len(self.aggregation_ids[side]) + len(self._prefix) + len(self._suffix) + 1
        length = self.settings.max_length(side)
        if length < least:
            raise InvalidInputError(
                f"max_{side}_length is {length} but special and aggregation tokens take {least - 1}; "
                f"ask for at least {least}."
            )


def _make_tokens(tokenizer: "PreTrainedTokenizerFast", settings: TextEncoderConfig, place: TokenPlace) -> TextTokens:
    return TextTokens(tokenizer, settings=settings, place=place)


def check_texts(texts: Sequence[str], *, ids: Sequence[str] | Sequence[int] | None = None) -> None:
    """Check that every text is a string with a visible character; errors name its id, if texts have ids."""
    if isinstance(texts, str):
        raise InvalidInputError("texts is one string; give a list of texts, [text] for a single one.")
    for row, text in enumerate(texts):
        fault = _find_fault(text)
        if fault is not None:
            name = f"texts[{row}]" if ids is None else f"passage {ids[row]!r:.80}"
            raise InvalidInputError(f"{name} {fault}.")


def _find_fault(text: object) -> str | None:
    """Return what is wrong with a text and how to repair it; None if it is fine."""
    if not isinstance(text, str):
        return f"is {text!r:.80}, of type {type(text).__name__}; give strings"
    if not text.strip():
        return "is empty; remove it, or give it a text"
    return None if _is_unicode(text) else "has half of a surrogate pair, which is not a character; repair it"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def batches_by_length(lengths: Sequence[int], *, tokens_per_batch: int) -> Iterator[list[int]]:
    """Yield rows in batches of similar length, longest first, each of at most `tokens_per_batch` with padding.

    A single longer text is a batch by itself.

    >>> list(batches_by_length([3, 9, 4, 1], tokens_per_batch=9))
    [[1], [2, 0], [3]]
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and lengths[batch[0]] * (len(batch) + 1) > tokens_per_batch:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def chunks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first row and the row after the last of each chunk; a chunk has at least one text."""
    first = size = 0
    for row, text in enumerate(texts):
        if row > first and (row - first == TEXTS_PER_CHUNK or size + len(text) > CHARACTERS_PER_CHUNK):
            yield first, row
            first, size = row, 0
        size += len(text)
    if first < len(texts):
        yield first, len(texts)
