"""Requests for recommendations as queries of any index of the model's items, for servers that search themselves."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from railsearch.recommender.answers import index_ids
from railsearch.recommender.cold_start import ColdStart
from railsearch.recommender.recommender import Recommender
from railsearch.recommender.requests import HistoriesLike, Requests, UnknownItems


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRequests:
    """Queries for `Index.search`, and the items that a recommendation leaves out."""

    queries: Tensor  # (B, D)
    user_ids: Tensor | None  # (B,)
    """The users, if the similarity has a user table."""
    viewed: list[Tensor]
    """B times (n,) ids of the index: the items of each history."""


def encode_requests(
    recommender: Recommender, users: Iterable[object] | None = None, histories: HistoriesLike | None = None
) -> EncodedRequests:
    """Encode users or histories as `Recommender.recommend` does; exactly one of the two is given."""
    requests = Requests.gather(
        users,
        histories,
        item_ids=recommender.items["item"],
        user_ids=recommender.user_ids,
        interactions=recommender.interactions,
        unknown_items=UnknownItems.REFUSE,
        at=None,
        remedy=ColdStart.REFUSE.remedy,
    )
    model, ids = recommender.model, index_ids(recommender.items)
    return EncodedRequests(
        queries=model.encode(requests.to_histories(max_length=model.encoder.max_length)),
        user_ids=requests.users if model.similarity.takes_user_ids else None,
        viewed=[ids[items] for items in requests.items],
    )
