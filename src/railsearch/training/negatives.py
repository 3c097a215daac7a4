"""Which items a training example is told apart from."""

from enum import StrEnum

import torch
from torch import Generator, Tensor


class Negatives(StrEnum):
    """Where a batch's negatives come from; all examples of the batch share them."""

    UNIFORM = "uniform"
    """Drawn evenly from the whole corpus, with replacement."""
    IN_BATCH = "in_batch"
    """The positives of the other examples, so that popular items are drawn more often."""


def draw_negatives(
    kind: Negatives, positives: Tensor, *, num_items: int, num_negatives: int, generator: Generator
) -> Tensor:
    """Rows (n,) of the negatives for a batch whose positives are the rows (B,)."""
    if kind is Negatives.IN_BATCH:
        return positives
    drawn = torch.randint(num_items, (num_negatives,), generator=generator)  # (n,)
    return drawn.to(positives.device)
