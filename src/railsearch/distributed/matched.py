"""Which component of an item matched a query, in an index that is split: each shard is asked about its own items."""

from collections.abc import Callable

import torch
from torch import Tensor

from railsearch.distributed.merging import Merged
from railsearch.distributed.snapshots import Snapshot
from railsearch.distributed.workers import Call
from railsearch.similarity import QueryParts


def locator(
    snapshot: Snapshot, parts: QueryParts, merged: Merged, ask: Callable[[list[Call]], list[object]]
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of rows of queries (n,) and ids (n,) that returns the item components (n,) that matched.

    Args:
        snapshot: the versions that were searched.
        parts: the query side of all queries.
        merged: the answer, which knows the shard of each item.
        ask: returns the answers of shards to calls.
    """
    shards = dict(zip(merged.ids.flatten().tolist(), merged.shards.flatten().tolist(), strict=True))

    def locate(queries: Tensor, ids: Tensor) -> Tensor:
        owners = torch.tensor([shards[item] for item in ids.tolist()], dtype=torch.int64)  # (n,)
        numbers = torch.unique(owners).tolist()
        places = [(owners == number).nonzero().flatten() for number in numbers]
        calls = [
            Call(
                number,
                "matched",
                {
                    "version": snapshot.versions[number],
                    "components": parts.components,
                    "gate": parts.gate,
                    "queries": queries[own],
                    "ids": ids[own],
                },
            )
            for number, own in zip(numbers, places, strict=True)
        ]
        found = torch.zeros(len(ids), dtype=torch.int64)  # (n,)
        for own, answer in zip(places, ask(calls), strict=True):
            assert isinstance(answer, Tensor)
            found[own] = answer
        return found

    return locate
