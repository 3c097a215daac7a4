"""Batches of similar questions, whose passages are harder to tell apart than random ones (Hofstätter et al. 2021).

In a corpus with several passages about each subject, most mistakes are other passages about the same subject. A random
batch seldom holds two of them, so training on random batches hardly learns what tells them apart.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from railsearch.encoders import Side, TextEncoder
from railsearch.similarity import DotProduct
from railsearch.training.asking import find_best
from railsearch.training.processes import Processes

NEIGHBOURS_PER_PLACE = 8
"""Similar questions that are known for each place of a group, so that groups differ between epochs."""


class SimilarBatches:
    """An order of training pairs in which groups of similar questions come together.

    A group has at most one pair of each question. Groups are in random order, and differ between epochs. If all similar
    questions of a pair are in other groups already, its group is smaller.

    Args:
        owners: the question of each pair (M,).
        neighbours: the questions that are most similar to each question (Q, n), best first; they may include itself.
        size: pairs of a group.

    >>> batches = SimilarBatches(torch.arange(4), torch.tensor([[2], [3], [0], [1]]), size=2)
    >>> sorted(sorted(group.tolist()) for group in batches.order(Generator().manual_seed(0)).split(2))
    [[0, 2], [1, 3]]
    """

    def __init__(self, owners: Tensor, neighbours: Tensor, *, size: int) -> None:
        self._owners = owners.tolist()
        self._neighbours = neighbours.tolist()
        self._size = size

    def order(self, generator: Generator) -> Tensor:
        """Return the pairs (M,) in the order of an epoch."""
        groups = self.groups(generator)
        shuffled = torch.randperm(len(groups), generator=generator).tolist()
        return torch.tensor([pair for place in shuffled for pair in groups[place]])

    def groups(self, generator: Generator) -> list[list[int]]:
        """Divide the pairs of an epoch into groups; each pair that is drawn takes the free ones most similar to it."""
        drawn = torch.randperm(len(self._owners), generator=generator).tolist()
        free: list[list[int]] = [[] for _ in self._neighbours]  # pairs of each question, the one that comes first last
        for pair in reversed(drawn):
            free[self._owners[pair]].append(pair)
        is_placed = [False] * len(drawn)
        groups = []
        for pair in drawn:
            if is_placed[pair]:
                continue
            question = self._owners[pair]
            group = [free[question].pop()]
            for near in self._neighbours[question]:
                if len(group) == self._size:
                    break
                if near != question and free[near]:
                    group.append(free[near].pop())
            for placed in group:
                is_placed[placed] = True
            groups.append(group)
        return groups


def find_similar(encoder: TextEncoder, texts: Sequence[str], size: int, *, show_progress: bool | None) -> Tensor:
    """Return the questions (Q, n) that are most similar to each question, by the cosine of the encoder as it is."""
    embeddings = encoder.encode(texts, Side.QUERY, show_progress=show_progress).mean(dim=1)  # (Q, D)
    cosine = DotProduct(dim=encoder.dim, cosine=True).eval()
    count = min(NEIGHBOURS_PER_PLACE * size, len(texts))
    return find_best(cosine, cosine.query_parts(embeddings), cosine.item_parts(embeddings), count)[1]


def batch_similar(
    encoder: TextEncoder,
    texts: Sequence[str],
    owners: Tensor,
    *,
    size: int,
    processes: Processes,
    show_progress: bool | None,
) -> SimilarBatches:
    """Return batches of similar questions for pairs whose questions are `owners` (M,); equal texts are one question."""
    rows: dict[str, int] = {}
    places = torch.tensor([rows.setdefault(text, len(rows)) for text in texts])  # (Q,)
    found = find_similar(encoder, list(rows), size, show_progress=show_progress).cpu()  # (q, n)
    shared = processes.gather(processes.own(found), len(found))  # rounding may differ between machines
    return SimilarBatches(places[owners], shared, size=size)
