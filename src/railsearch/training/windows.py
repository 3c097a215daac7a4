"""Encode long passages for a training step: windows in small passes, with the gradient of the complete batch.

Memory is bounded whatever the length of a passage: it holds the activations of a few windows at a time, since
`CachedEncoding` runs each pass twice. A step uses at most `training_windows` windows of a passage, drawn at random.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from railsearch.encoders import Side, TextEncoder
from railsearch.encoders.text.windowed import WindowedTexts, join_windows, sample_windows
from railsearch.training.cached import CachedEncoding

WINDOWS_PER_PASS = 64
"""Windows whose activations are in memory at once, unless the settings say otherwise."""


class WindowedEncoding:
    """The components of passages that are cut into windows, and a backward pass for their gradient."""

    def __init__(
        self,
        encoder: TextEncoder,
        texts: Sequence[str],
        *,
        most_windows: int,
        rows_per_pass: int | None,
        generator: Generator,
    ) -> None:
        """Encode the passages.

        Args:
            encoder: cuts passages into windows.
            texts: passages of any length; at least one.
            most_windows: windows of a passage that are used; those of a longer passage are drawn at random.
            rows_per_pass: windows to encode at once.
            generator: source of the draws, and of the seeds of dropout.
        """
        windowed = WindowedTexts.of(
            [sample_windows(own, most_windows, generator) for own in encoder.tokenize_windows(texts)]
        )
        tokens = windowed.tokens
        self._passes = CachedEncoding(
            lambda rows: encoder([tokens[row] for row in rows], Side.PASSAGE),
            lengths=[len(ids) for ids in tokens],
            rows_per_pass=rows_per_pass or WINDOWS_PER_PASS,
            generator=generator,
        )
        self._vectors = self._passes.embeddings.requires_grad_()  # (W, c, D)
        with torch.enable_grad():
            self._components = join_windows(self._vectors, windowed, encoder.num_item_components).components

    @property
    def embeddings(self) -> Tensor:
        """Components (N, Px, D) of all passages, without a graph."""
        return self._components.detach()

    def backward(self, gradient: Tensor) -> None:
        """Add the gradient of the weights that follows from this gradient of the components."""
        torch.autograd.backward(self._components, gradient)
        assert self._vectors.grad is not None
        self._passes.backward(self._vectors.grad)


def encode_for_training(
    encoder: TextEncoder,
    texts: Sequence[str],
    side: Side,
    *,
    most_windows: int,
    rows_per_pass: int | None,
    generator: Generator,
) -> CachedEncoding | WindowedEncoding:
    """Encode texts of one side, at least one, in small passes; passages are cut into windows if the encoder does so."""
    if encoder.has_windows and side is Side.PASSAGE:
        return WindowedEncoding(
            encoder, texts, most_windows=most_windows, rows_per_pass=rows_per_pass, generator=generator
        )
    tokens = encoder.tokenize(texts, side)
    return CachedEncoding(
        lambda rows: encoder([tokens[row] for row in rows], side),
        lengths=[len(ids) for ids in tokens],
        rows_per_pass=rows_per_pass,
        generator=generator,
    )
