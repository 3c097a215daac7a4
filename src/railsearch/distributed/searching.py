"""One search over shards: query parts once, the filter of every shard, one or two rounds, and one merged result."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from railsearch.distributed.matched import locator
from railsearch.distributed.merging import Merged, merge
from railsearch.distributed.rounds import early_rounds
from railsearch.distributed.shard import ShardAnswer
from railsearch.distributed.snapshots import Snapshot
from railsearch.distributed.workers import Call, Lost, Workers
from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError, ShardLostError
from railsearch.foundation.inputs import is_mask
from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.index import Allow, Exclude, Strategy
from railsearch.index.certificate import as_float32
from railsearch.index.metadata import evaluate_filter, is_expression
from railsearch.similarity import QueryParts

if TYPE_CHECKING:
    from polars import DataFrame


class Partial(StrEnum):
    """The answer to a search if a shard stays away."""

    REFUSE = "refuse"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, eq=False)
class ShardedSearch:
    """The shards of one snapshot, ready to be searched."""

    workers: Workers
    snapshot: Snapshot
    is_certifiable: bool
    has_metadata: bool
    has_keys: bool

    def run(
        self,
        parts: QueryParts,
        k: int,
        strategy: Strategy,
        *,
        exclude: Exclude,
        allow: Allow,
        pad: bool,
        partial: Partial,
    ) -> SearchResult:
        """Search all shards, and merge their answers."""
        request = {"components": parts.components, "gate": parts.gate, "exclude": exclude}
        allowed = self.allowed(allow)
        numbers = [number for number, count in enumerate(self.snapshot.num_items) if count]
        lost: list[Lost] = []
        while numbers:
            merged, newly_lost = self._rounds(
                numbers, request, k=k, strategy=strategy, allowed=allowed, partial=partial
            )
            lost += newly_lost
            if merged is not None:
                result = self.result(merged, lost, pad=pad, k=k)
                locate = locator(self.snapshot, parts, merged, lambda calls: answers_of(self.workers, calls))
                return dataclasses.replace(result, locate=locate) if self.has_metadata else result
            numbers = [number for number in numbers if number not in {own.shard for own in lost}]
        raise _lost_error(lost, "no shard answered; try again later")

    def _rounds(
        self,
        numbers: Sequence[int],
        request: Mapping[str, object],
        *,
        k: int,
        strategy: Strategy,
        allowed: Sequence[Allow],
        partial: Partial,
    ) -> tuple[Merged | None, list[Lost]]:
        """Search shards in rounds; return None if some are lost on the way: the floor may rest on their items."""
        components = request["components"]
        is_in_rounds = self.is_certifiable and isinstance(components, Tensor) and len(components) > 0
        rounds = early_rounds(strategy, k, len(numbers), self.snapshot.count) if is_in_rounds else ()
        seeds: list[tuple[int, ShardAnswer]] = []
        for early in rounds:
            own_request = {**request, "k": early.n, "strategy": early.strategy}
            found, lost = self._ask(numbers, own_request, allowed, partial, _progress(seeds, k))
            if lost:
                return None, lost
            merged = merge([*seeds, *found], k)
            if early.max_gap is not None and merged.is_closed(early.max_gap):
                return merged, []
            seeds += [(number, answer.without_ceiling()) for number, answer in found]
        own_request = {**request, "k": k, "strategy": strategy}
        found, lost = self._ask(numbers, own_request, allowed, partial, _progress(seeds, k))
        if not found or (lost and seeds):
            return None, lost
        return merge([*seeds, *found], k), lost

    def _ask(
        self,
        numbers: Sequence[int],
        request: Mapping[str, object],
        allowed: Sequence[Allow],
        partial: Partial,
        progress: Mapping[int, Mapping[str, object]],
    ) -> tuple[list[tuple[int, ShardAnswer]], list[Lost]]:
        """Return the answers of shards by their number, and those that stayed away; refuse these unless allowed.

        All shards have the request in common; `allowed` and `progress` hold what is different for each.
        """
        calls = [
            Call(
                number,
                "search",
                {
                    **request,
                    **progress.get(number, {}),
                    "version": self.snapshot.versions[number],
                    "allow": allowed[number],
                },
            )
            for number in numbers
        ]
        answers = self.workers.ask(calls)
        lost = [answer for answer in answers if isinstance(answer, Lost)]
        if lost and partial is Partial.REFUSE:
            raise _lost_error(lost, "try again later, or pass partial='allow' to search the other shards only")
        pairs = zip(numbers, answers, strict=True)
        return [(number, answer) for number, answer in pairs if isinstance(answer, ShardAnswer)], lost

    def allowed(self, allow: Allow) -> list[Allow]:
        """Return the filter of every shard: a mask is cut up, everything else is the same for all."""
        num_shards = len(self.snapshot.versions)
        if allow is None or isinstance(allow, str):
            return [allow] * num_shards
        is_text = isinstance(allow, (list, tuple)) and bool(allow) and isinstance(allow[0], str)
        if is_text or isinstance(allow, (set, frozenset)) or not (is_expression(allow) or is_mask(allow)):  # type: ignore[arg-type]
            return [allow] * num_shards
        return self._split_mask(self._mask(allow))

    def _mask(self, allow: Allow) -> Tensor:
        """Return the mask (M,) that a filter states, one value for each of all ids.

        A polars expression may compare items with each other, so that only all rows together can evaluate it.
        """
        if is_expression(allow):
            frame = self._columns(allow.meta.root_names())  # type: ignore[union-attr]
            return evaluate_filter(allow, frame, torch.arange(self.snapshot.count))  # type: ignore[arg-type]
        mask = torch.as_tensor(allow if isinstance(allow, Tensor) else np.asarray(allow)).cpu()
        if tuple(mask.shape) != (self.snapshot.count,):
            raise InvalidInputError(
                f"allow is a mask of shape {tuple(mask.shape)} but the index holds {self.snapshot.count} items; "
                "give one true or false for each of index.ids."
            )
        return mask

    def _columns(self, names: Sequence[str]) -> "DataFrame | None":
        """Return columns of the metadata of all items, in the order of their ids; None if there is no metadata."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        if not self.has_metadata:
            return None
        versions = enumerate(self.snapshot.versions)
        calls = [Call(number, "columns", {"version": version, "names": list(names)}) for number, version in versions]
        frames = [frame for frame in answers_of(self.workers, calls) if isinstance(frame, pl.DataFrame)]
        order = torch.cat(ids_of_shards(self.workers, self.snapshot)).argsort()  # (M,)
        return pl.concat([frame.select(frames[0].columns) for frame in frames])[order.numpy()]

    def _split_mask(self, mask: Tensor) -> list[Allow]:
        """Return the part of a mask (M,) over all ids that concerns each shard."""
        own = ids_of_shards(self.workers, self.snapshot)
        everything = torch.cat(own).sort().values  # (M,)
        return [mask[torch.searchsorted(everything, ids)] for ids in own]

    def result(self, merged: Merged, lost: Sequence[Lost], *, pad: bool, k: int) -> SearchResult:
        """Return the result of merged answers, in which some shards may be missing."""
        ceiling, count = merged.ceiling, self.snapshot.count
        num_lost = sum(self.snapshot.num_items[own.shard] for own in lost)
        if num_lost:
            ceiling = torch.full_like(ceiling, torch.inf)  # nothing is known of the items that were not searched
        num_found = (merged.scores > -torch.inf).sum(dim=1)  # (B,)
        if not pad and len(num_found) and int(num_found.min()) < k:
            query = int(num_found.argmin())
            without = f", {num_lost} of which are in shards that stayed away" if num_lost else ""
            raise NotEnoughItemsError(
                f"k is {k} but exclude and allow leave query {query} only {int(num_found[query])} of {count} "
                f"items{without}; ask for a smaller k, or pass pad=True to accept fewer."
            )
        is_item = merged.ids != NO_ITEM  # (B, K)
        shards = dict(zip(merged.ids[is_item].tolist(), merged.shards[is_item].tolist(), strict=True))

        def lookup(ids: Tensor) -> "DataFrame":
            return items_of(self.workers, self.snapshot, ids, [shards[item] for item in ids.tolist()])

        return SearchResult(
            ids=merged.ids,
            scores=merged.scores.to(torch.float32),
            ceiling=as_float32(ceiling, merged.scores[:, -1]),
            num_scored=merged.num_scored,
            lookup=lookup if self.has_metadata else None,
            has_keys=self.has_keys,
            coverage=(count - num_lost) / count,
        )


def _progress(seeds: Sequence[tuple[int, ShardAnswer]], k: int) -> dict[int, dict[str, object]]:
    """Return what earlier rounds tell each shard: the score that k items reach, and its items that were scored."""
    if not seeds:
        return {}
    floor = merge(seeds, k).floor  # (B,)
    return {
        number: {"floor": floor, "seen": torch.cat([answer.ids for own, answer in seeds if own == number], dim=1)}
        for number in {number for number, _ in seeds}
    }


def answers_of(workers: Workers, calls: Sequence[Call]) -> list[object]:
    """Return the answers of shards; raises ShardLostError if one stays away."""
    answers = workers.ask(calls)
    lost = [answer for answer in answers if isinstance(answer, Lost)]
    if lost:
        raise _lost_error(lost, "try again later")
    return answers


def ids_of_shards(workers: Workers, snapshot: Snapshot) -> list[Tensor]:
    """Return the integer ids of every shard, ascending."""
    calls = [Call(number, "ids", {"version": version}) for number, version in enumerate(snapshot.versions)]
    return [ids for ids in answers_of(workers, calls) if isinstance(ids, Tensor)]


def items_of(workers: Workers, snapshot: Snapshot, ids: Tensor, shards: Sequence[int]) -> "DataFrame":
    """Return the metadata of integer ids (n,), each in its own shard, one row for each."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    owners = torch.tensor(shards, dtype=torch.int64)  # (n,)
    numbers = torch.unique(owners).tolist() or [0]
    places = [(owners == number).nonzero().flatten() for number in numbers]
    calls = [
        Call(number, "items", {"version": snapshot.versions[number], "ids": ids[own]})
        for number, own in zip(numbers, places, strict=True)
    ]
    frames = [frame for frame in answers_of(workers, calls) if isinstance(frame, pl.DataFrame)]
    joined = pl.concat([frame.select(frames[0].columns) for frame in frames])
    return joined[torch.cat(places).argsort().numpy()]


def _lost_error(lost: Sequence[Lost], remedy: str) -> ShardLostError:
    first = lost[0]
    return ShardLostError(
        f"{len(lost)} of the shards did not answer, first shard {first.shard} ({first.reason:.400}); {remedy}."
    )
