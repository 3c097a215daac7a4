"""Ranking metrics: each is one function of the rank of the relevant item, averaged over queries."""

from collections.abc import Sequence

from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_integers


def hit_rate(ranks: ArrayLike, k: int) -> float:
    """Return HR@k: the share of queries whose relevant item is among the first k.

    >>> hit_rate([1, 3, 20], k=10)  # doctest: +ELLIPSIS
    0.666...
    """
    return float(_hits(_checked(ranks), k).mean())


def ndcg(ranks: ArrayLike, k: int) -> float:
    """Return NDCG@k with one relevant item: the mean of 1 / log2(1 + rank) if rank <= k, else 0.

    >>> ndcg([1, 3, 20], k=10)
    0.5
    """
    return float(_gains(_checked(ranks), k).mean())


def mean_reciprocal_rank(ranks: ArrayLike) -> float:
    """Return MRR: the mean of 1 / rank.

    >>> mean_reciprocal_rank([1, 2, 4])  # doctest: +ELLIPSIS
    0.583...
    """
    return float(_checked(ranks).double().reciprocal().mean())


def values_per_query(ranks: ArrayLike, ks: Sequence[int]) -> dict[str, Tensor]:
    """Return the value (Q,) of each metric for each query: HR at every k, MRR, and NDCG at every k above 1.

    The mean of the values is the metric. NDCG@1 is HR@1.

    >>> {name: values.tolist() for name, values in values_per_query([1, 3], ks=[1, 10]).items()}
    {'HR@1': [1.0, 0.0], 'HR@10': [1.0, 1.0], 'MRR': [1.0, 0.3333333333333333], 'NDCG@10': [1.0, 0.5]}
    """
    checked = _checked(ranks)
    return {
        **{f"HR@{k}": _hits(checked, k) for k in ks},
        "MRR": checked.double().reciprocal(),
        **{f"NDCG@{k}": _gains(checked, k) for k in ks if k > 1},
    }


def summarize(ranks: ArrayLike, ks: Sequence[int] = (1, 10, 50)) -> dict[str, float]:
    """Return HR at every k, and MRR, under the names that tables use."""
    return {**{f"HR@{k}": hit_rate(ranks, k) for k in ks}, "MRR": mean_reciprocal_rank(ranks)}


def _hits(ranks: Tensor, k: int) -> Tensor:
    return (ranks <= k).double()


def _gains(ranks: Tensor, k: int) -> Tensor:
    return (1 + ranks.double()).log2().reciprocal() * (ranks <= k)


def _checked(ranks: ArrayLike) -> Tensor:
    checked = as_integers(ranks, name="ranks")
    if checked.numel() == 0 or int(checked.min()) < 1:
        raise InvalidInputError("ranks must hold at least one rank, each 1 or greater.")
    return checked
