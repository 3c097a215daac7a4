"""Similar items of a split index: their components come from the shards that hold them, and all shards are searched."""

import dataclasses

import torch
from torch import Tensor

from railsearch.distributed.layout import Layout
from railsearch.distributed.locating import Located, check_ids, locate
from railsearch.distributed.merging import merge
from railsearch.distributed.searching import ShardedSearch, answers_of
from railsearch.distributed.shard import ShardAnswer
from railsearch.distributed.workers import Call, Workers
from railsearch.foundation.inputs import ArrayLike, check_count
from railsearch.foundation.results import SearchResult
from railsearch.index import Allow
from railsearch.index.keys import NOT_FOUND
from railsearch.index.similar import as_cosines, as_list, as_present, check_others, excluded_from


def similar_items(
    search: ShardedSearch,
    layout: Layout,
    ids: ArrayLike | int | str,
    k: int,
    *,
    exclude: ArrayLike | None,
    allow: Allow,
    pad: bool,
) -> SearchResult:
    """Find the k most similar items of each item, in all shards; see `Index.similar_items`."""
    k = check_count(k, name="k")
    workers, snapshot = search.workers, search.snapshot
    located = locate(workers, layout, snapshot.versions, check_ids(as_list(ids), layout))
    as_present(located.integers, ids, snapshot.count)
    check_others(k, snapshot.count)
    others = None
    if exclude is not None:
        others = locate(workers, layout, snapshot.versions, check_ids(exclude, layout)).integers  # (n,)
        others = others[others != NOT_FOUND]  # (n,)
    request = {
        "vectors": vectors_of(workers, snapshot.versions, located),
        "k": k,
        "exclude": excluded_from(located.integers, others),
    }
    allowed = search.allowed(allow)
    numbers = [number for number, count in enumerate(snapshot.num_items) if count]
    calls = [
        Call(number, "similar", {**request, "version": snapshot.versions[number], "allow": allowed[number]})
        for number in numbers
    ]
    answers = [answer for answer in answers_of(workers, calls) if isinstance(answer, ShardAnswer)]
    found = search.result(merge(list(zip(numbers, answers, strict=True)), k), [], pad=pad, k=k)
    return dataclasses.replace(found, scores=as_cosines(found.scores))


def vectors_of(workers: Workers, versions: tuple[int, ...], located: Located) -> Tensor:
    """Return the components (n, Px * d) of items, each from its own shard, scaled to length 1."""
    numbers = torch.unique(located.shards).tolist()
    places = [(located.shards == number).nonzero().flatten() for number in numbers]
    calls = [
        Call(number, "vectors", {"version": versions[number], "ids": located.integers[own]})
        for number, own in zip(numbers, places, strict=True)
    ]
    found = [vectors for vectors in answers_of(workers, calls) if isinstance(vectors, Tensor)]
    return torch.cat(found)[torch.cat(places).argsort()]
