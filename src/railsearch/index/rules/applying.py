"""Apply rules to the rankings of queries: a pool of the best items, doubled until each answer is complete."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.index.engines import Engine
from railsearch.index.rules.categories import Categories
from railsearch.index.rules.greedy import choose_capped, choose_diverse
from railsearch.index.rules.rules import Rules
from railsearch.index.strategies import Adaptive, Average, BruteForce, Combined, PerComponent, Strategy, Weighted

if TYPE_CHECKING:
    from polars import DataFrame

    Lookup = Callable[[Tensor], DataFrame]
    Locate = Callable[[Tensor, Tensor], Tensor]

POOL_VALUES = 2**22
"""Items of all pools that are searched for at one time; a single pool may have more."""
VECTOR_VALUES = 2**22
"""Values of item components in memory at one time; a single pool may have more."""


class Ranking(Protocol):
    """The rankings of B queries, of which any stretch from the top can be asked for."""

    def best(self, queries: Tensor, n: int) -> SearchResult:
        """Return the n best items of some queries (A,); padded places if a query has fewer."""
        ...

    @property
    def vector_dim(self) -> int:
        """The dimension D of `vectors`."""
        ...

    def vectors(self, ids: Tensor) -> Tensor:
        """Return vectors (n, D) of items whose dot product is the similarity of two of them."""
        ...


def apply_rules(rules: Rules, ranking: Ranking, *, num_queries: int, num_items: int, k: int) -> SearchResult:
    """Return k items for each query by the rules; fewer, and padded places, if a whole ranking has no more.

    Every query starts with a pool of its best items. If the rules leave it fewer than k of them, the choice starts
    again with twice the pool, until it has k items or the pool is the whole ranking.

    Without diversity, the answer is that of a walk down the whole ranking, and its certificate says how much of that is
    proven. With diversity it is the choice from the pool; its ceiling is infinite if the pool itself is not certain.

    Args:
        rules: at least one rule.
        ranking: the rankings of the queries.
        num_queries: B.
        num_items: the number of items in the index.
        k: the number of items for each query.
    """
    ids = torch.full((num_queries, k), NO_ITEM)  # (B, K)
    scores = torch.full((num_queries, k), -torch.inf)  # (B, K)
    ceiling = torch.full((num_queries,), -torch.inf)  # (B,)
    num_scored = torch.zeros(num_queries, dtype=torch.int64)  # (B,)
    work = [(torch.arange(num_queries), min(rules.first_pool(k), num_items))]
    lookups: list[tuple[Lookup | None, Tensor]] = []
    locates: list[tuple[Locate | None, Tensor]] = []
    has_keys, coverage = False, 1.0
    while work:
        waiting, n = work.pop()  # (A,)
        size = max(1, POOL_VALUES // n)
        if len(waiting) > size:
            work += [(waiting[size:], n), (waiting[:size], n)]
            continue
        found = ranking.best(waiting, n)
        choices = _choose(rules, ranking, found, k)
        num_real = (found.ids != NO_ITEM).sum(dim=1).tolist()
        is_done = torch.tensor(
            [len(own) == k or real < n or n >= num_items for own, real in zip(choices, num_real, strict=True)],
            dtype=torch.bool,
        )  # (A,)
        certain = found.ceiling.cpu()  # (A,)
        if rules.diversity:
            certain = torch.where(found.is_exact.cpu(), certain, torch.inf)
        for place in is_done.nonzero().flatten().tolist():
            query, own = int(waiting[place]), torch.tensor(choices[place], dtype=torch.int64)
            ids[query, : len(own)] = found.ids[place].cpu()[own]
            scores[query, : len(own)] = found.scores[place].cpu()[own]
            ceiling[query], num_scored[query] = certain[place], found.num_scored[place]
        lookups.append((found.lookup, torch.unique(ids[waiting[is_done]])))
        locates.append((found.locate, waiting))
        has_keys, coverage = found.has_keys, min(coverage, found.coverage)
        if not bool(is_done.all()):
            work.append((waiting[~is_done], min(2 * n, num_items)))
    return SearchResult(
        ids=ids, scores=scores, ceiling=ceiling, num_scored=num_scored, lookup=_lookup(lookups), has_keys=has_keys,
        coverage=coverage, locate=_locate(locates, num_queries),
    )  # fmt: skip


def widened(strategy: Strategy, n: int, engine: Engine) -> Strategy:
    """Return a strategy that returns n items: the given one, with as many candidates as that needs.

    Beyond what an engine can return, it is brute force.
    """
    is_by_engine = isinstance(strategy, (Average, Weighted, PerComponent, Combined))
    if is_by_engine and engine.max_n is not None and n > engine.max_n:
        return BruteForce()
    if isinstance(strategy, (Average, Weighted)):
        return dataclasses.replace(strategy, n=max(n, strategy.n))
    if isinstance(strategy, Adaptive) and strategy.max_scored is not None:
        return dataclasses.replace(strategy, max_scored=max(n, strategy.max_scored))
    return strategy


def _choose(rules: Rules, ranking: Ranking, found: SearchResult, k: int) -> list[list[int]]:
    """Return the places that the rules choose from the pool of each query."""
    pools = [row[row != NO_ITEM] for row in found.ids.cpu()]  # A times (n,)
    categories = _categories(rules, found)

    def of_pool(pool: Tensor) -> list[list[int]] | None:
        return None if categories is None else [categories.of_item[item] for item in pool.tolist()]

    limits = [] if categories is None else categories.limits
    if not rules.diversity:
        return [choose_capped(of_pool(pool) or [[] for _ in pool], limits, k) for pool in pools]
    chosen: list[list[int]] = []
    for batch in _batches(pools, ranking.vector_dim):
        distinct = torch.unique(torch.cat(batch))  # (m,)
        vectors = ranking.vectors(distinct).cpu() if len(distinct) else torch.empty(0, 0)  # (m, D)
        for pool in batch:
            own_scores = found.scores[len(chosen)].cpu()[: len(pool)].double().numpy()  # (n,)
            own = vectors[torch.searchsorted(distinct, pool)].double().numpy()  # (n, D)
            chosen.append(
                choose_diverse(own_scores, own, k, diversity=rules.diversity, categories=of_pool(pool), limits=limits)
            )
    return chosen


def _batches(pools: Sequence[Tensor], dim: int) -> list[list[Tensor]]:
    """Cut pools into batches whose vectors fit the memory for them."""
    batches: list[list[Tensor]] = []
    room = 0
    for pool in pools:
        if not batches or len(pool) * dim > room:
            batches.append([])
            room = VECTOR_VALUES
        batches[-1].append(pool)
        room -= len(pool) * dim
    return batches


def _categories(rules: Rules, found: SearchResult) -> Categories | None:
    if not rules.max_per:
        return None
    ids = torch.unique(found.ids[found.ids != NO_ITEM]).cpu()  # (m,)
    assert found.lookup is not None
    return Categories.read(ids.tolist(), found.lookup(ids), rules.max_per)


def _lookup(lookups: "Sequence[tuple[Lookup | None, Tensor]]") -> "Lookup | None":
    """Return a lookup of the items of all searches; that of a split index knows only those of its own result."""
    asked = [(ask, own) for ask, own in lookups if ask is not None]
    if len(asked) < 2:
        return asked[0][0] if asked else None

    def lookup(ids: Tensor) -> "DataFrame":
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        given = ids.cpu()
        owners = torch.stack([torch.isin(given, own) for _, own in asked]).int().argmax(dim=0)  # (n,) the first one
        places = [(owners == number).nonzero().flatten() for number in range(len(asked))]
        parts = zip(asked, places, strict=True)
        frames = [ask(given[own]) for (ask, _), own in parts if len(own) or not len(given)]
        return pl.concat(frames)[torch.cat(places).argsort().numpy()]

    return lookup


def _locate(locates: "Sequence[tuple[Locate | None, Tensor]]", num_queries: int) -> "Locate | None":
    """Return a function that asks, for each query, the last search that had it; each search has rows of its own."""
    searches = torch.zeros(num_queries, dtype=torch.int64)  # (B,) the search of each query
    places = torch.zeros(num_queries, dtype=torch.int64)  # (B,) its row there
    for number, (_, waiting) in enumerate(locates):
        searches[waiting], places[waiting] = number, torch.arange(len(waiting))
    if any(own is None for own, _ in locates):
        return None

    def locate(queries: Tensor, ids: Tensor) -> Tensor:
        found = torch.zeros(len(ids), dtype=torch.int64)  # (n,)
        for number, (own, _) in enumerate(locates):
            is_own = searches[queries] == number  # (n,)
            if own is not None and bool(is_own.any()):
                found[is_own] = own(places[queries[is_own]], ids[is_own])
        return found

    return locate
