"""Recommendations from requests: items to leave out, popular items for new users, the search, and the rules."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.index import Allow, BruteForce, Index, Strategy, serving
from railsearch.index.rules import Rules, apply_rules, widened
from railsearch.models import SequentialModel
from railsearch.recommender.answers import check_enough, index_ids, to_table
from railsearch.recommender.cold_start import ColdStart, PopularItems, find_popular
from railsearch.recommender.requests import Requests
from railsearch.recommender.similar import as_excluded, find_items

if TYPE_CHECKING:
    from polars import DataFrame

QUERIES_PER_SEARCH = 1024
ExcludedItems = TypeAliasType("ExcludedItems", Iterable[object] | Mapping[object, Iterable[object]] | None)
"""Items for everybody, or lists of items by user."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """How to answer requests for recommendations."""

    filter_viewed: bool
    cold_start: ColdStart
    strategy: Strategy | None
    allow: Allow
    exclude: ExcludedItems
    rules: Rules
    pad: bool


def recommend(
    requests: Requests,
    k: int,
    options: Options,
    *,
    model: SequentialModel,
    index: Index,
    items: "DataFrame",
    item_counts: Tensor | None,
) -> "DataFrame":
    """Return the k best items of each request, as a table; see `Recommender.recommend`.

    Args:
        requests: users or histories.
        k: the number of items for each.
        options: how to answer them.
        model: encodes histories.
        index: holds the items.
        items: the items of the model.
        item_counts: (N,) their training events, for popular items.
    """
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    ids = index_ids(items)
    options.rules.check(k, serving.metadata_schema(index))
    check_enough(requests, k, ids, index.ids, filter_viewed=options.filter_viewed and not options.pad)
    allow = _without_excluded(index, items, k, options)
    popular = find_popular(options.cold_start, index, allow, item_counts=item_counts, ids=ids, k=k, pad=options.pad)
    own_lists = _lists_by_user(index, items, requests, options.exclude)
    tables = []
    first = 0
    for batch in requests.batches(QUERIES_PER_SEARCH):
        excluded = own_lists[first : first + len(batch)]
        if options.filter_viewed:
            viewed = [ids[own] for own in batch.items]
            excluded = [torch.cat(both) for both in zip(viewed, excluded, strict=True)]
        ranking = _Ranking.of(model, index, batch, excluded, popular, k=k, allow=allow, options=options)
        found = _answer(ranking, len(batch), k, options)
        _check_all(found, batch, k, options)
        tables.append(to_table(found, batch.names, items["item"], ids))
        first += len(batch)
    return pl.concat(tables)


def encode_requests(model: SequentialModel, requests: Requests) -> Tensor:
    """Return the query embedding (B, D) of each request, from as many of its last events as the model takes."""
    return model.encode(requests.to_histories(max_length=model.encoder.max_length))  # (B, D)


def _answer(ranking: "_Ranking", num_queries: int, k: int, options: Options) -> SearchResult:
    if not options.rules:
        return ranking.best(torch.arange(num_queries), k)
    return apply_rules(options.rules, ranking, num_queries=num_queries, num_items=len(ranking.index), k=k)


@dataclass(frozen=True, slots=True, eq=False)
class _Ranking:
    """The rankings of a batch of requests: by search, or by popularity for those without a history."""

    index: Index
    queries: Tensor  # (W, D) of requests with a history
    users: Tensor | None  # (W,)
    places: Tensor  # (B,) row of each request in `queries`; -1 if it has no history
    excluded: list[Tensor]  # B times (n,) ids of the index
    popular: PopularItems | None
    strategy: Strategy | None
    """None for the strategy of a search that names none."""
    allow: Allow
    pad: bool
    is_ruled: bool
    """Whether more than k items are asked for: then a strategy is widened, and too few items are no error."""

    @classmethod
    def of(
        cls, model: SequentialModel, index: Index, requests: Requests, excluded: list[Tensor],
        popular: PopularItems | None, *, k: int, allow: Allow, options: Options,
    ) -> "_Ranking":  # fmt: skip
        """Encode the requests that have a history."""
        is_warm = ~requests.is_cold  # (B,)
        warm = requests if bool(is_warm.all()) else requests.where(is_warm)
        queries = torch.empty(0, *model.similarity.query_shape)  # (0, D)
        if len(warm):
            queries = encode_requests(model, warm)  # (W, D)
        strategy = options.strategy
        if strategy is None and options.rules:  # the pool is larger than the k that was tuned for
            tuned = serving.tuned_strategy(index, k)
            strategy = BruteForce() if tuned is None else tuned.strategy
        return cls(
            index=index,
            queries=queries,
            users=warm.users if model.similarity.takes_user_ids else None,
            places=torch.where(is_warm, is_warm.cumsum(dim=0) - 1, -1),
            excluded=excluded,
            popular=popular,
            strategy=strategy,
            allow=allow,
            pad=options.pad or bool(options.rules),
            is_ruled=bool(options.rules),
        )

    @property
    def vector_dim(self) -> int:
        """The dimension of `vectors`."""
        similarity = self.index.contents.corpus.similarity
        return similarity.num_item_components * similarity.component_dim

    def vectors(self, ids: Tensor) -> Tensor:
        """Return vectors (n, D) of items whose dot product is the similarity of two of them."""
        return serving.item_vectors(self.index, ids)

    def best(self, queries: Tensor, n: int) -> SearchResult:
        """Return the n best items of some requests (A,)."""
        places = self.places[queries]  # (A,)
        is_warm = places >= 0  # (A,)
        own = places[is_warm]  # (W,)
        found = None
        if len(own):
            strategy = self.strategy
            if strategy is not None and self.is_ruled:
                strategy = widened(strategy, n, self.index.contents.corpus.engine)
            found = self.index.search(
                self.queries[own],
                n,
                strategy,
                _lists([self.excluded[query] for query in queries[is_warm].tolist()]),
                self.allow,
                user_ids=None if self.users is None else self.users[own],
                pad=self.pad,
            )
        if bool(is_warm.all()) and found is not None:
            return found
        assert self.popular is not None
        cold = [self.excluded[query] for query in queries[~is_warm].tolist()]
        return self.popular.insert(found, ~is_warm, n, cold, self.index)


def _without_excluded(index: Index, items: "DataFrame", k: int, options: Options) -> Allow:
    """Return `allow` without the items that are excluded for everybody."""
    exclude, allow = options.exclude, options.allow
    if exclude is None or isinstance(exclude, Mapping):
        return allow
    gone = find_items(index, items, as_excluded(exclude, "exclude"))  # (n,)
    allowed = index.allowed_ids(allow)  # (A,)
    left = allowed[~torch.isin(allowed, gone)]  # (L,)
    if len(left) < k and not options.pad:
        remedy = f"ask for k <= {len(left)}, or pass pad=True" if len(left) else "exclude fewer, or pass pad=True"
        raise NotEnoughItemsError(
            f"k is {k} but exclude and allow leave only {len(left)} of the {len(index)} items; {remedy}."
        )
    return left


def _lists_by_user(index: Index, items: "DataFrame", requests: Requests, exclude: ExcludedItems) -> list[Tensor]:
    """Return the ids (n,) in the index that are excluded for each request by its user's name."""
    none = torch.empty(0, dtype=torch.int64)
    if not isinstance(exclude, Mapping):
        return [none] * len(requests)
    exclude = {name.item() if isinstance(name, np.generic) else name: own for name, own in exclude.items()}
    kinds = {type(name) for name in requests.names}
    if exclude and not kinds & {type(name) for name in exclude}:
        name = next(iter(exclude))
        raise InvalidInputError(
            f"exclude names the user {name!r:.80}, a {type(name).__name__}, but users are "
            f"{' or '.join(sorted(kind.__name__ for kind in kinds))}; give users of that type."
        )
    return [
        find_items(index, items, as_excluded(exclude[name], f"exclude[{name!r}]")) if name in exclude else none
        for name in requests.names
    ]


def _lists(excluded: list[Tensor]) -> list[Tensor] | None:
    return excluded if any(len(own) for own in excluded) else None


def _check_all(found: SearchResult, requests: Requests, k: int, options: Options) -> None:
    """Refuse an answer with fewer than k items, unless that was asked for."""
    num_found = (found.ids != NO_ITEM).sum(dim=1)  # (B,)
    if options.pad or not len(num_found) or int(num_found.min()) == k:
        return
    place = int(num_found.argmin())
    raise NotEnoughItemsError(
        f"k is {k} but the rules leave only {int(num_found[place])} items for {requests.title(place)}; ask for a "
        "smaller k, raise max_per, or pass pad=True."
    )
