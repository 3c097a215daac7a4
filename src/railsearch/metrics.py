"""What ranks say: each metric is one function of the rank of the one right item, averaged over queries."""

from collections.abc import Sequence

from torch import Tensor

from railsearch.errors import InvalidInputError


def hit_rate(ranks: Tensor, k: int) -> float:
    """HR@k = share of queries whose right item is among the first k.

    >>> import torch
    >>> hit_rate(torch.tensor([1, 3, 20]), k=10)  # doctest: +ELLIPSIS
    0.666...
    """
    return float((_checked(ranks) <= k).double().mean())


def ndcg(ranks: Tensor, k: int) -> float:
    """NDCG@k with one right item = mean of 1 / log2(1 + rank) where rank <= k, else 0.

    >>> import torch
    >>> ndcg(torch.tensor([1, 3, 20]), k=10)
    0.5
    """
    ranks = _checked(ranks)
    return float(((1 + ranks.double()).log2().reciprocal() * (ranks <= k)).mean())


def mean_reciprocal_rank(ranks: Tensor) -> float:
    """MRR = mean of 1 / rank.

    >>> import torch
    >>> mean_reciprocal_rank(torch.tensor([1, 2, 4]))  # doctest: +ELLIPSIS
    0.583...
    """
    return float(_checked(ranks).double().reciprocal().mean())


def summarize(ranks: Tensor, ks: Sequence[int] = (1, 10, 50)) -> dict[str, float]:
    """HR at every k, and MRR, by the names that tables use."""
    return {**{f"HR@{k}": hit_rate(ranks, k) for k in ks}, "MRR": mean_reciprocal_rank(ranks)}


def _checked(ranks: Tensor) -> Tensor:
    if ranks.numel() == 0 or int(ranks.min()) < 1:
        raise InvalidInputError("ranks must hold at least one rank, each 1 or greater.")
    return ranks
