"""The running average of the weights (EMA): smoother than the weights of any one step, and often better."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

START = 10
"""After n steps the decay is at most (1 + n) / (START + n): the initial weights are soon forgotten."""


class WeightAverage:
    """An exponential moving average of the trained weights of a model.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(model, decay=0.5)
    >>> _ = nn.init.constant_(model.weight, 3.0)
    >>> average.reset()
    >>> _ = nn.init.constant_(model.weight, 5.0)
    >>> average.update(100)
    >>> average.weights["weight"].item(), model.weight.item()
    (4.0, 5.0)
    """

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self._decay = decay
        self._present = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.weights: dict[str, Tensor] = {name: weight.detach().clone() for name, weight in self._present.items()}

    @torch.no_grad()
    def update(self, num_steps: int) -> None:
        """Add the present weights to the average, after `num_steps` steps."""
        decay = min(self._decay, (1 + num_steps) / (START + num_steps))
        for name, average in self.weights.items():
            average.lerp_(self._present[name], 1 - decay)

    @torch.no_grad()
    def reset(self) -> None:
        """Start again from the present weights."""
        for name, average in self.weights.items():
            average.copy_(self._present[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the model the averages as its weights; after the block it has its own again."""
        own = {name: weight.detach().clone() for name, weight in self._present.items()}
        try:
            self._load(self.weights)
            yield
        finally:
            self._load(own)

    @torch.no_grad()
    def _load(self, weights: dict[str, Tensor]) -> None:
        for name, weight in weights.items():
            self._present[name].copy_(weight)
