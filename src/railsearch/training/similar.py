"""Batches of similar questions, whose passages are harder to tell apart than random ones (Hofstätter et al. 2021).

In a corpus with several passages about each subject, most mistakes are other passages about the same subject. A random
batch seldom holds two of them, so training on random batches hardly learns what tells them apart.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch.encoders import Side, TextEncoder
from railsearch.encoders.text.tokens import chunks
from railsearch.foundation.progress import counting
from railsearch.similarity import DotProduct
from railsearch.training.asking import QUERIES_PER_SEARCH, find_best
from railsearch.training.processes import Processes

NEIGHBOURS_PER_PLACE = 8
"""Similar questions that are known for each place of a group, so that groups differ between epochs."""
MOST_COMPARED = 2**16
"""Questions among which similar ones are searched; more are divided into random blocks of as many."""


class SimilarBatches:
    """An order of training pairs in which groups of similar questions come together.

    A group has at most one pair of each question. Groups differ between epochs. If all similar questions of a pair are
    in other groups already, its group is short.

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
        self._neighbours = neighbours.to(torch.int32)  # (Q, n)
        self._size = size

    def order(self, generator: Generator) -> Tensor:
        """Return the pairs (M,) in the order of an epoch: random groups, one after the other.

        Short groups are joined, so that any batch of a multiple of `size` pairs has whole groups.
        """
        groups = self.groups(generator)
        whole = [group for group in groups if len(group) == self._size]
        rest = [pair for group in groups if len(group) < self._size for pair in group]
        joined = [rest[first : first + self._size] for first in range(0, len(rest), self._size)]
        last = joined.pop() if len(rest) % self._size else []
        groups = whole + joined
        shuffled = torch.randperm(len(groups), generator=generator).tolist()
        return torch.tensor([*(pair for place in shuffled for pair in groups[place]), *last])

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
            for near in self._neighbours[question].tolist():
                if len(group) == self._size:
                    break
                if near != question and free[near]:
                    group.append(free[near].pop())
            for placed in group:
                is_placed[placed] = True
            groups.append(group)
        return groups


def batch_similar(
    encoder: TextEncoder,
    texts: Sequence[str],
    owners: Tensor,
    *,
    size: int,
    generator: Generator,
    processes: Processes,
    show_progress: bool | None,
) -> SimilarBatches:
    """Return batches of similar questions, as the encoder sees them now.

    Args:
        encoder: encodes the questions.
        texts: the questions; equal texts count as one question.
        owners: the question of each pair (M,).
        size: pairs of a group.
        generator: divides very many questions into blocks; the same in all processes.
        processes: each searches for its share of the questions.
        show_progress: draw progress bars; by default only on a terminal.
    """
    rows: dict[str, int] = {}
    places = torch.tensor([rows.setdefault(text, len(rows)) for text in texts])  # (Q,)
    embeddings = _mean_embeddings(encoder, list(rows), show_progress)  # (q, D)
    neighbours = find_similar(
        embeddings, NEIGHBOURS_PER_PLACE * size, generator=generator, processes=processes, show_progress=show_progress
    )
    return SimilarBatches(places[owners], neighbours, size=size)


def find_similar(
    embeddings: Tensor, count: int, *, generator: Generator, processes: Processes, show_progress: bool | None
) -> Tensor:
    """Return the rows (Q, n) with the largest cosine for each row of embeddings (Q, D), best first, on the CPU.

    There are `count` of them, or as many as the smallest block has. All processes return the same.
    """
    cosine = DotProduct(dim=embeddings.shape[1], cosine=True).eval()
    drawn = torch.randperm(len(embeddings), generator=generator)  # (Q,)
    blocks = drawn.tensor_split(-(-len(drawn) // MOST_COMPARED))
    count = min(count, *(len(block) for block in blocks))
    own = processes.own(torch.arange(len(drawn)))  # (o,) places in `drawn`
    found, first = [torch.empty(0, count, dtype=torch.int64)], 0
    with counting("comparing questions", len(own), is_shown=show_progress) as advance:
        for block in blocks:
            items = cosine.item_parts(embeddings[block])
            mine = own[(own >= first) & (own < first + len(block))]
            for asked in torch.split(mine, QUERIES_PER_SEARCH):
                best = find_best(cosine, cosine.query_parts(embeddings[drawn[asked]]), items, count)[1]
                found.append(block[best.cpu()])
                advance(len(asked))
            first += len(block)
    rows = torch.empty(len(drawn), count, dtype=torch.int64)  # (Q, n)
    rows[drawn] = processes.gather(torch.cat(found), len(drawn))
    return rows


@torch.no_grad()
def _mean_embeddings(encoder: TextEncoder, texts: list[str], show_progress: bool | None) -> Tensor:
    """Return the mean component (Q, D) of each question, at length 1, on the device of the encoder."""
    found = torch.empty(len(texts), encoder.dim)  # (Q, D)
    with counting("encoding questions", len(texts), is_shown=show_progress) as advance:
        for first, last in chunks(texts):
            found[first:last] = encoder.encode(texts[first:last], Side.QUERY, on_texts=advance).mean(dim=1)
    return F.normalize(found, dim=-1).to(encoder.backbone.device)
