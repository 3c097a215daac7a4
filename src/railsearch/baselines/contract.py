"""The contract of a baseline: everything that ranking and recommending need to know about it."""

from typing import Protocol

from torch import Tensor

from railsearch.data import Split


class Baseline(Protocol):
    """A recommender without learned weights: it scores every item for a history.

    >>> from railsearch.baselines import ItemKNN, Popularity
    >>> baselines: list[type[Baseline]] = [ItemKNN, Popularity]
    """

    @property
    def split(self) -> Split:
        """The split whose training events the baseline was fitted on."""
        ...

    def score_rows(self, items: Tensor, lengths: Tensor) -> Tensor:
        """Return the score (B, N) of every item for each history, in fp64; the caller may overwrite it.

        Args:
            items: (E,) rows of the items of all histories, one history after the other.
            lengths: (B,) events of each history.
        """
        ...
