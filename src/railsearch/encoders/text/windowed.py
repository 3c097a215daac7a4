"""Texts that were cut into windows: all windows in a row, and the way back from their vectors to components."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Generator, Tensor

from railsearch.encoders.text.merging import merge_windows
from railsearch.encoders.text.windows import Window


@dataclass(frozen=True, slots=True, eq=False)
class WindowedTexts:
    """The windows of some texts, one after the other, and how many each text has."""

    windows: list[Window]
    counts: list[int]

    @classmethod
    def of(cls, texts: Sequence[Sequence[Window]]) -> Self:
        """Put the windows of texts in a row."""
        return cls([window for text in texts for window in text], [len(text) for text in texts])

    @property
    def tokens(self) -> list[list[int]]:
        """The token ids of each window."""
        return [window.ids for window in self.windows]


@dataclass(frozen=True, slots=True, eq=False)
class WindowEncoding:
    """Components of passages, and where each component is: characters from start to before end."""

    components: Tensor  # (N, P, D)
    spans: Tensor  # (N, P, 2) int64

    @classmethod
    def stack(cls, parts: "Sequence[WindowEncoding]", *, num_components: int, dim: int) -> "WindowEncoding":
        """Put encodings one after the other; there may be none."""
        return cls(
            torch.cat([torch.empty(0, num_components, dim), *(part.components for part in parts)]),
            torch.cat([torch.empty(0, num_components, 2, dtype=torch.int64), *(part.spans for part in parts)]),
        )


def join_windows(vectors: Tensor, texts: WindowedTexts, num_components: int) -> WindowEncoding:
    """Return the components of texts from the vectors (W, c, D) of all their windows, with a gradient if they have one.

    A text keeps num_components / c windows, or groups of windows, with c components each.
    """
    per_window = vectors.shape[1]
    components, spans, first = [], [], 0
    for count in texts.counts:
        own, groups = merge_windows(vectors[first : first + count], num_components // per_window)  # (P / c, c, D)
        windows = texts.windows[first : first + count]
        components.append(own.flatten(0, 1))  # (P, D)
        places = [(windows[start].start, max(window.end for window in windows[start:end])) for start, end in groups]
        spans.append([place for place in places for _ in range(per_window)])
        first += count
    return WindowEncoding(torch.stack(components), torch.tensor(spans, dtype=torch.int64))


def sample_windows(windows: Sequence[Window], most: int, generator: Generator) -> list[Window]:
    """Return the windows of a text, or `most` of them that are drawn at random, in their order."""
    if len(windows) <= most:
        return list(windows)
    drawn = torch.randperm(len(windows), generator=generator)[:most].sort().values
    return [windows[place] for place in drawn.tolist()]
