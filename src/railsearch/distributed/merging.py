"""Merge the answers of shards: the top K by score and id, the greatest ceiling, and all counts added."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.distributed.shard import ShardAnswer
from railsearch.foundation.results import NO_ITEM
from railsearch.kernels import select_best


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """The best items of several shards for each query."""

    ids: Tensor  # (B, K) int64, -1 in a place that has no item
    scores: Tensor  # (B, K), minus infinity in such a place
    shards: Tensor  # (B, K) int64, the shard of each item
    ceiling: Tensor  # (B,)
    num_scored: Tensor  # (B,) int64

    @property
    def floor(self) -> Tensor:
        """The score (B,) that K items reach; minus infinity if there are fewer."""
        return self.scores[:, -1]  # (B,)

    def is_closed(self, max_gap: float) -> bool:
        """Return whether no item that was not scored can change the answer to a query by more than a gap.

        With a gap of 0, no such item may tie with the k-th score either, because it could have the smaller id.
        """
        gap = self.ceiling - self.floor  # (B,)
        is_done = gap < 0 if max_gap == 0 else gap <= max_gap  # (B,)
        return bool((is_done | (self.ceiling == -torch.inf)).all())


def merge(answers: Sequence[tuple[int, ShardAnswer]], k: int) -> Merged:
    """Return the k best items of shards, given by number; of equal scores the smaller id, as in one index."""
    scores = torch.cat([answer.scores for _, answer in answers], dim=1)  # (B, C)
    ids = torch.cat([answer.ids for _, answer in answers], dim=1)  # (B, C)
    shards = torch.cat([torch.full_like(answer.ids, number) for number, answer in answers], dim=1)  # (B, C)
    missing = k - scores.shape[1]
    if missing > 0:
        scores = F.pad(scores, (0, missing), value=-torch.inf)
        ids, shards = F.pad(ids, (0, missing)), F.pad(shards, (0, missing))
    ids, order = ids.sort(dim=1)  # (B, C): of equal scores, `select_best` takes the smaller column
    best, columns = select_best(scores.gather(1, order), k)  # (B, K)
    return Merged(
        ids=ids.gather(1, columns).masked_fill(best == -torch.inf, NO_ITEM),
        scores=best,
        shards=shards.gather(1, order).gather(1, columns),
        ceiling=torch.stack([answer.ceiling for _, answer in answers]).amax(dim=0),
        num_scored=torch.stack([answer.num_scored for _, answer in answers]).sum(dim=0),
    )
