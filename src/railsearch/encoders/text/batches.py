"""Encode many texts batch by batch: eval mode, progress, and batches of similar length."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from railsearch.encoders.text.backbone import eval_mode
from railsearch.encoders.text.settings import Side
from railsearch.encoders.text.tokens import batches_by_length, chunks
from railsearch.encoders.text.windowed import WindowedTexts, WindowEncoding, join_windows
from railsearch.encoders.text.windows import Window
from railsearch.foundation.progress import counting

logger = logging.getLogger("railsearch.encoders.text.encoder")

OnTexts = Callable[[float], None]
"""A function that is told how many more texts are encoded; parts of a long text count as well."""
LONG_ENCODE = 1.0
"""Seconds; a longer encode is logged as information."""


class RowEncoder(Protocol):
    """An encoder of rows of token ids."""

    num_item_components: int
    dim: int

    def __call__(self, tokens: Sequence[Sequence[int]], side: Side) -> Tensor:
        """Return the components (B, P, D) of rows of token ids."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """Return all modules, this one included."""
        ...

    def tokenize_windows(self, texts: Sequence[str]) -> list[list[Window]]:
        """Return the windows of each passage."""
        ...


def run_batches(
    encoder: RowEncoder,
    tokens: Sequence[Sequence[int]],
    side: Side,
    tokens_per_batch: int,
    count: OnTexts,
) -> Tensor:
    """Return the components (N, P, D) of rows of token ids, in fp32 on the CPU; `count` is told how many are done."""
    outputs: Tensor | None = None
    for rows in batches_by_length([len(ids) for ids in tokens], tokens_per_batch=tokens_per_batch):
        found = encoder([tokens[row] for row in rows], side).float().cpu()  # (b, P, D)
        if outputs is None:
            outputs = found.new_empty(len(tokens), *found.shape[1:])  # (N, P, D)
        outputs[torch.tensor(rows)] = found
        count(len(rows))
    assert outputs is not None
    return outputs


@torch.no_grad()
def encode_windows(
    encoder: RowEncoder,
    texts: Sequence[str],
    *,
    tokens_per_batch: int,
    show_progress: bool | None,
    on_texts: OnTexts | None,
) -> WindowEncoding:
    """Return the components of passages that are cut into windows, and where each one is."""
    num_components = encoder.num_item_components
    parts = []
    with encoding(encoder, texts, Side.PASSAGE, show_progress=show_progress, on_texts=on_texts) as count:
        for first, last in chunks(texts):
            windowed = WindowedTexts.of(encoder.tokenize_windows(texts[first:last]))
            per_window = (last - first) / len(windowed.windows)  # a book counts while it is encoded

            def count_windows(number: float, per_window: float = per_window) -> None:
                count(number * per_window)

            vectors = run_batches(encoder, windowed.tokens, Side.PASSAGE, tokens_per_batch, count_windows)
            parts.append(join_windows(vectors, windowed, num_components))
    return WindowEncoding.stack(parts, num_components=num_components, dim=encoder.dim)


@contextlib.contextmanager
def encoding(
    encoder: RowEncoder,
    texts: Sequence[str],
    side: Side,
    *,
    show_progress: bool | None,
    on_texts: OnTexts | None,
) -> Iterator[OnTexts]:
    """Switch to eval mode, show progress, and log the time that it took; `on_texts` shows the progress itself."""
    start = time.perf_counter()
    is_shown = show_progress if on_texts is None else False
    with eval_mode(encoder.modules()), counting(f"encoding {side} texts", len(texts), is_shown=is_shown) as count:
        yield count if on_texts is None else on_texts
    seconds = time.perf_counter() - start
    level = logging.INFO if seconds >= LONG_ENCODE else logging.DEBUG  # a search with one query is not worth a line
    logger.log(level, "encoded %d %s texts in %.1f s, %.0f/s", len(texts), side, seconds, len(texts) / seconds)
