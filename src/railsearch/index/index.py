"""A corpus under a learned similarity, and the one call that searches it."""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.index.strategies import BruteForce, Strategy
from railsearch.inputs import (
    ArrayLike,
    as_embeddings,
    as_id_lists,
    as_ids,
    as_user_ids,
    check_count,
    check_finite,
    check_rows,
)
from railsearch.scoring import Exclusions
from railsearch.similarity import ItemParts, QueryParts, Similarity, fingerprint
from railsearch.types import NO_ITEM, SearchResult

ITEMS_PER_BATCH = 8192


class Index:
    """Items ready to be searched: their side of the similarity is computed once, here.

    The index keeps a copy of the similarity, so that training it further never leaves queries and items
    on two different sides of a change.

    >>> from railsearch import DotProduct
    >>> index = Index.build(DotProduct(dim=2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ids=[10, 20])
    >>> scores, ids = index.search(torch.tensor([[0.2, 0.9]]), k=1)
    >>> ids.tolist()
    [[20]]
    """

    def __init__(self, *, similarity: Similarity, item_parts: ItemParts, ids: Tensor) -> None:
        self._similarity = similarity
        self._item_parts = item_parts
        self._ids = ids  # (N,) ascending, so that the smaller row is the smaller id

    @classmethod
    def build(cls, similarity: Similarity, items: ArrayLike | ItemParts, ids: ArrayLike | None = None) -> Self:
        """Compute the item side of every item and keep it.

        Args:
            similarity: how queries and items compare; copied.
            items: item embeddings (N, D), ready components (N, Px, d) where the similarity takes those, or
                the parts that `similarity.item_parts` gave.
            ids: one integer >= 0 for each item, all different; 0 to N - 1 if left out.
        """
        similarity = copy.deepcopy(similarity).train(False)
        for parameter in similarity.parameters():
            parameter.requires_grad_(False)
        if not isinstance(items, ItemParts):
            items = as_embeddings(items, name="items", shape=similarity.item_shape)
        if len(items) == 0:
            raise InvalidInputError("items holds 0 rows; an index needs at least 1 item.")
        ids_tensor = torch.arange(len(items)) if ids is None else as_ids(ids, count=len(items))
        item_parts = items if isinstance(items, ItemParts) else _compute_parts(similarity, items)
        _check_parts(item_parts, similarity, name="item", num_components=similarity.num_item_components)
        ids_tensor = ids_tensor.to(item_parts.components.device)
        if bool((ids_tensor[1:] < ids_tensor[:-1]).any()):
            ids_tensor, order = ids_tensor.sort()
            item_parts = item_parts[order]
        return cls(similarity=similarity, item_parts=item_parts, ids=ids_tensor)

    @property
    def similarity(self) -> Similarity:
        """The copy of the similarity that this index was built with."""
        return self._similarity

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity that this index was built with."""
        return fingerprint(self._similarity)

    @property
    def ids(self) -> Tensor:
        """All item ids, ascending."""
        return self._ids  # (N,)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"Index({len(self)} items, {type(self._similarity).__name__})"

    def search(
        self,
        queries: ArrayLike | QueryParts,
        k: int,
        strategy: Strategy | None = None,
        exclude: ArrayLike | Sequence[ArrayLike] | None = None,
        *,
        user_ids: ArrayLike | None = None,
        pad: bool = False,
    ) -> SearchResult:
        """Find the k best items of each query, best first; of equal scores the smaller id.

        Args:
            queries: query embeddings (B, D), ready components (B, Pq, d) where the similarity takes those, or
                the parts that `index.similarity.query_parts` gave.
            k: how many items to return for each query; exactly that many are.
            strategy: how to search; brute force if left out.
            exclude: one list of item ids a query (items already seen, say), or a (B, E) array; ids that are
                not in the index, and -1, are passed over.
            user_ids: one a query, where the similarity has a user table.
            pad: what to do where exclusions leave a query fewer than k items: raise an error, or with `True`
                fill up with id -1 and score minus infinity.
        """
        k = check_count(k, name="k")
        if k > len(self):
            raise NotEnoughItemsError(f"k is {k} but the index holds {len(self)} items; ask for k <= {len(self)}.")
        strategy = BruteForce() if strategy is None else strategy
        if isinstance(strategy, type) or not isinstance(strategy, Strategy):
            raise InvalidInputError(f"strategy is {strategy!r}; give a strategy such as BruteForce().")
        query_parts = self._query_parts(queries, user_ids)
        excluded = None if exclude is None else self._exclusions(exclude, len(query_parts), k, pad=pad)
        found = strategy.find_rows(self._similarity, query_parts, self._item_parts, k, excluded=excluded)
        if bool(found.scores.isnan().any()):
            raise InvalidInputError("scores overflow: some embeddings are too large; scale them down.")
        is_missing = found.scores == -torch.inf  # (B, K)
        return SearchResult(
            ids=self._ids[found.rows].masked_fill(is_missing, NO_ITEM),
            scores=found.scores.to(torch.float32),
            ceiling=found.ceiling.to(torch.float32),
            num_scored=found.num_scored,
        )

    def _query_parts(self, queries: ArrayLike | QueryParts, user_ids: ArrayLike | None) -> QueryParts:
        if isinstance(queries, QueryParts):
            if user_ids is not None:
                raise InvalidInputError("user_ids was given with ready parts; give them to query_parts instead.")
            parts = queries
        else:
            like = self._item_parts.components
            tensor = as_embeddings(queries, name="queries", shape=self._similarity.query_shape).to(like)
            users = None if user_ids is None else as_user_ids(user_ids, count=len(tensor)).to(like.device)
            with torch.no_grad():
                parts = self._similarity.query_parts(tensor, user_ids=users)
        _check_parts(parts, self._similarity, name="query", num_components=self._similarity.num_query_components)
        return parts

    def _exclusions(
        self, exclude: ArrayLike | Sequence[ArrayLike], num_queries: int, k: int, *, pad: bool
    ) -> Exclusions:
        lists = as_id_lists(exclude, name="exclude", count=num_queries)
        known_ids = self._ids.cpu()
        rows = []
        for query, ids in enumerate(lists):
            distinct = torch.unique(ids)
            places = torch.searchsorted(known_ids, distinct).clamp_max(len(known_ids) - 1)
            rows.append(places[known_ids[places] == distinct])
            num_left = len(self) - len(rows[-1])
            if num_left < k and not pad:
                raise NotEnoughItemsError(
                    f"k is {k} but exclude leaves query {query} only {num_left} of {len(self)} items; "
                    f"ask for k <= {num_left}, or pass pad=True to have id -1 in the empty places."
                )
        return Exclusions.from_lists(rows, device=self._ids.device)


def _compute_parts(similarity: Similarity, items: Tensor) -> ItemParts:
    """The item side of all items, batch by batch, written in place so that no second copy is ever made."""
    dtype = torch.promote_types(items.dtype, torch.float32)
    like = next(iter(similarity.parameters()), items.new_empty(0, dtype=dtype))
    components = gate = None
    with torch.no_grad():
        for first in range(0, len(items), ITEMS_PER_BATCH):
            parts = similarity.item_parts(items[first : first + ITEMS_PER_BATCH].to(like))
            if components is None:
                components = parts.components.new_empty(len(items), *parts.components.shape[1:])  # (N, Px, d)
                gate = None if parts.gate is None else parts.gate.new_empty(len(items), parts.gate.shape[1])  # (N, P)
            components[first : first + len(parts)] = parts.components
            if gate is not None and parts.gate is not None:
                gate[first : first + len(parts)] = parts.gate
    assert components is not None
    return ItemParts(components, gate)


def _check_parts(parts: QueryParts | ItemParts, similarity: Similarity, *, name: str, num_components: int) -> None:
    """Check that ready or computed parts fit the similarity and hold nothing that would poison a score."""
    check_rows(parts.components, name=f"{name} components", shape=(num_components, similarity.component_dim))
    check_finite(parts.components, name=f"{name} components")
    if parts.gate is not None:
        num_pairs = similarity.num_query_components * similarity.num_item_components
        check_rows(parts.gate, name=f"{name} gate", shape=(num_pairs,))
        check_finite(parts.gate, name=f"{name} gate")
        if len(parts.gate) != len(parts.components):
            raise InvalidInputError(
                f"{name} gate has {len(parts.gate)} rows but its components have {len(parts.components)}; "
                "take both from one call."
            )
