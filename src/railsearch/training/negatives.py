"""Which items a training example is told apart from."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Generator, Tensor


class Negatives(StrEnum):
    """Where negatives come from, and which examples of a batch share them."""

    UNIFORM = "uniform"
    """Drawn evenly from the whole corpus, with replacement, and shared by all examples of a batch."""
    PER_HISTORY = "per_history"
    """Drawn evenly, and shared by the positions of one history."""
    PER_EXAMPLE = "per_example"
    """Drawn evenly for each example by itself, as the paper does; costs more time and memory traffic."""
    IN_BATCH = "in_batch"
    """The positives of the other examples, so that popular items are drawn more often; each history draws its own
    among them."""


@dataclass(frozen=True, slots=True, eq=False)
class Contrast:
    """What each of E examples must tell apart: its right item, and the negatives of the group that it belongs to."""

    positives: Tensor  # (E,) item rows
    negatives: Tensor  # (G, n) item rows
    group_sizes: tuple[int, ...]  # (G,) examples that share each row of negatives, in order; they sum to E
    excluded: Tensor | None = None  # (E, n) negatives that an example is not told apart from: they are right as well

    def distinct_items(self) -> "tuple[Tensor, Contrast]":
        """The item rows that occur at all (U,), ascending, and the same contrast with places among them as rows."""
        rows, places = torch.unique(torch.cat([self.positives, self.negatives.flatten()]), return_inverse=True)
        positives, negatives = places.split([len(self.positives), self.negatives.numel()])
        return rows, Contrast(positives, negatives.view_as(self.negatives), self.group_sizes, self.excluded)


def draw_contrast(
    kind: Negatives,
    positives: Tensor,
    history_lengths: Tensor | None,
    *,
    pool: Tensor,
    num_items: int,
    num_negatives: int,
    generator: Generator,
) -> Contrast:
    """Draw the negatives of a batch whose positives are the item rows (E,).

    Args:
        kind: where they come from.
        positives: the right item of each example, history by history where there are any.
        history_lengths: (B,) examples of each history; None where examples belong to none.
        pool: positives of the whole batch, whichever process they fall to, for in-batch negatives.
        num_items: rows to draw from.
        num_negatives: n, how many each group gets; in-batch ones come by themselves.
        generator: of the draws, on the CPU.
    """
    if kind is Negatives.IN_BATCH and history_lengths is None:
        return Contrast(positives, pool[None], (len(positives),))
    if kind is Negatives.PER_EXAMPLE:
        group_sizes = [1] * len(positives)
    elif kind is Negatives.UNIFORM or history_lengths is None:
        group_sizes = [len(positives)]
    else:
        group_sizes = history_lengths.tolist()
    is_in_batch = kind is Negatives.IN_BATCH
    drawn = torch.randint(
        len(pool) if is_in_batch else num_items, (len(group_sizes), num_negatives), generator=generator
    ).to(positives.device)  # (G, n)
    return Contrast(positives, pool[drawn] if is_in_batch else drawn, tuple(group_sizes))
