"""Encode a large batch in small passes, with the gradient of the complete batch (GradCache, Gao et al. 2021).

A loss that compares each example with all others of its batch needs every embedding at once, but not every activation.
So the passes first run without a graph. The loss then yields the gradient of the embeddings, and each pass runs again
to propagate its share into the weights.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from railsearch.training.seeds import seed_torch


class CachedEncoding:
    """The embeddings of `count` rows, and a backward pass for their gradient.

    >>> weight = torch.tensor([2.0], requires_grad=True)
    >>> inputs = torch.tensor([1.0, 3.0, 5.0])
    >>> encoding = CachedEncoding(lambda rows: inputs[rows] * weight, 3, rows_per_pass=2, generator=Generator())
    >>> encoding.embeddings.tolist()
    [2.0, 6.0, 10.0]
    >>> encoding.backward(torch.ones(3))
    >>> weight.grad.tolist()
    [9.0]
    """

    def __init__(
        self, encode: Callable[[slice], Tensor], count: int, *, rows_per_pass: int | None, generator: Generator
    ) -> None:
        """Encode all rows; a single pass keeps its graph.

        Args:
            encode: returns the embeddings of some rows; may use dropout.
            count: number of rows; at least one.
            rows_per_pass: rows to encode at once; None encodes all.
            generator: source of the seeds with which both runs of a pass draw the same dropout.
        """
        size = count if rows_per_pass is None else rows_per_pass
        self._encode = encode
        self._passes = [slice(first, min(first + size, count)) for first in range(0, count, size)]
        self._seeds = torch.randint(2**62, (len(self._passes),), generator=generator).tolist()
        self._outputs = [self._run(place, has_graph=len(self._passes) == 1) for place in range(len(self._passes))]

    @property
    def embeddings(self) -> Tensor:
        """Embeddings of all rows, without a graph."""
        return torch.cat([output.detach() for output in self._outputs])

    def backward(self, gradient: Tensor) -> None:
        """Add the gradient of the weights that follows from this gradient of the embeddings."""
        for place, rows in enumerate(self._passes):
            output = self._outputs[0] if len(self._passes) == 1 else self._run(place, has_graph=True)
            if output.requires_grad:  # not if all weights are frozen
                torch.autograd.backward(output, gradient[rows])

    def _run(self, place: int, *, has_graph: bool) -> Tensor:
        seed_torch(self._seeds[place])  # dropout takes no generator
        with torch.set_grad_enabled(has_graph):
            return self._encode(self._passes[place])
