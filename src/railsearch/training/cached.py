"""Encode a large batch in small passes, with the gradient of the complete batch (GradCache, Gao et al. 2021).

A loss that compares each example with all others of its batch needs every embedding at once, but not every activation.
So the passes first run without a graph. The loss then yields the gradient of the embeddings, and each pass runs again
to propagate its share into the weights. A pass has rows of similar length, so that little of it is padding.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from railsearch.encoders.text.tokens import batches_by_length
from railsearch.training.seeds import seed_torch

TOKENS_PER_PASS = 4096
"""Most tokens of a pass, with padding, if all passes keep their graphs: small enough for rows of similar length."""


class CachedEncoding:
    """The embeddings of rows of tokens, and a backward pass for their gradient.

    >>> weight = torch.tensor([2.0], requires_grad=True)
    >>> inputs = torch.tensor([1.0, 3.0, 5.0])
    >>> encoding = CachedEncoding(
    ...     lambda rows: inputs[rows] * weight, lengths=[7, 9, 8], rows_per_pass=2, generator=Generator()
    ... )
    >>> encoding.embeddings.tolist()
    [2.0, 6.0, 10.0]
    >>> encoding.backward(torch.ones(3))
    >>> weight.grad.tolist()
    [9.0]
    """

    def __init__(
        self,
        encode: Callable[[list[int]], Tensor],
        *,
        lengths: Sequence[int],
        rows_per_pass: int | None,
        generator: Generator,
    ) -> None:
        """Encode all rows, longest first.

        Args:
            encode: returns the embeddings of some rows; may use dropout.
            lengths: tokens of each row; at least one row.
            rows_per_pass: rows whose activations are in memory at once; None, or as many as there are, keeps the
                graphs of all passes, so that none runs twice.
            generator: source of the seeds with which both runs of a pass draw the same dropout.
        """
        self._encode = encode
        self._keeps_graphs = rows_per_pass is None or rows_per_pass >= len(lengths)
        if rows_per_pass is None or self._keeps_graphs:
            self._passes = list(batches_by_length(lengths, tokens_per_batch=TOKENS_PER_PASS))
        else:
            order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
            self._passes = [order[first : first + rows_per_pass] for first in range(0, len(order), rows_per_pass)]
        self._places = torch.tensor([row for rows in self._passes for row in rows]).argsort()  # (n,) of each row
        self._seeds = torch.randint(2**62, (len(self._passes),), generator=generator).tolist()
        self._outputs = [self._run(place, has_graph=self._keeps_graphs) for place in range(len(self._passes))]

    @property
    def embeddings(self) -> Tensor:
        """Embeddings of all rows, without a graph."""
        outputs = torch.cat([output.detach() for output in self._outputs])
        return outputs[self._places.to(outputs.device)]

    def backward(self, gradient: Tensor) -> None:
        """Add the gradient of the weights that follows from this gradient of the embeddings."""
        for place, rows in enumerate(self._passes):
            output = self._outputs[place] if self._keeps_graphs else self._run(place, has_graph=True)
            if output.requires_grad:  # not if all weights are frozen
                torch.autograd.backward(output, gradient[rows])

    def _run(self, place: int, *, has_graph: bool) -> Tensor:
        seed_torch(self._seeds[place])  # dropout takes no generator
        with torch.set_grad_enabled(has_graph):
            return self._encode(self._passes[place])
