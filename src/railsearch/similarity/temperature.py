"""The temperature of a similarity: a number, or a number that training learns."""

import math

import torch
from torch import Tensor, nn

from railsearch.foundation.inputs import check_positive


class Temperature(nn.Module):
    """start * exp(change), where change is a weight that starts at zero if the temperature is learned, else 0.

    Kernels, bounds and certificates read `value`, a plain number. Weight decay pulls a learned temperature back to its
    start.

    >>> Temperature(0.05, is_learned=True).value
    0.05
    """

    def __init__(self, start: float, *, is_learned: bool) -> None:
        super().__init__()
        self.start = check_positive(start, name="temperature")
        self.change = nn.Parameter(torch.zeros(())) if is_learned else None

    @property
    def is_learned(self) -> bool:
        """Whether training changes it."""
        return self.change is not None

    @property
    def value(self) -> float:
        """The present temperature."""
        return self.start * self._factor

    @value.setter
    def value(self, value: float) -> None:
        self.start = value / self._factor

    @property
    def _factor(self) -> float:
        if self.change is None or self.change.is_meta:  # a model without memory has no weights to read yet
            return 1.0
        return math.exp(float(self.change.detach()))

    def reset(self) -> None:
        """Go back to the start."""
        if self.change is not None:
            nn.init.zeros_(self.change)

    def with_gradient(self, query_components: Tensor) -> Tensor:
        """Return the same query components (B, Pq, d), through which the temperature receives its gradient.

        A score is divided by the temperature as a plain number. The factor here is exactly 1, and its derivative is
        that of 1 / temperature relative to its value, so every kernel trains a temperature without knowing it.
        """
        if self.change is None:
            return query_components
        return query_components * torch.exp(self.change.detach() - self.change)
