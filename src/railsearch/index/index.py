"""A corpus under a learned similarity, and the one call that searches it."""

import copy
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Self

import numpy as np
import torch
from torch import Tensor

from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.index.corpus import Corpus, Precision
from railsearch.index.engines import Engine
from railsearch.index.segment import Segment
from railsearch.index.strategies import BruteForce, Found, Strategy
from railsearch.index.tuning import TuningReport, tune
from railsearch.inputs import (
    ArrayLike,
    as_choice,
    as_embeddings,
    as_id_lists,
    as_ids,
    as_integers,
    as_tensor,
    as_user_ids,
    check_count,
    check_finite,
    check_positive,
    is_mask,
)
from railsearch.scoring import Hidden, compute_item_parts, compute_query_parts
from railsearch.similarity import ItemParts, QueryParts, Similarity, check_similarity, fingerprint
from railsearch.types import NO_ITEM, Explanation, SearchResult

QUERIES_PER_BATCH = 32
"""Queries searched at once, so that one value for each query and item is never too many."""


class Index:
    """Items ready to be searched: their side of the similarity is computed once, here.

    The index keeps copies of the similarity and of all it is given, so that nothing that happens to them later
    changes an answer.

    >>> from railsearch import DotProduct
    >>> index = Index.build(DotProduct(dim=2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ids=[10, 20])
    >>> scores, ids = index.search(torch.tensor([[0.2, 0.9]]), k=1)
    >>> ids.tolist()
    [[20]]
    """

    def __init__(self, *, corpus: Corpus) -> None:
        self._corpus = corpus
        self._similarity = corpus.similarity
        self._tuned: dict[int, Strategy] = {}

    @classmethod
    def build(
        cls,
        similarity: Similarity,
        items: ArrayLike | ItemParts,
        ids: ArrayLike | None = None,
        *,
        precision: Precision | str = Precision.FP32,
        engine: Engine | None = None,
    ) -> Self:
        """Compute the item side of every item and keep it.

        Args:
            similarity: how queries and items compare; copied.
            items: item embeddings (N, D), ready components (N, Px, d) where the similarity takes those, or
                the parts that `similarity.item_parts` gave.
            ids: one integer >= 0 for each item, all different; 0 to N - 1 if left out.
            precision: how item components and gates are kept: fp32, or fp16 or bf16 for half the memory. Answers and
                certificates are then those of the rounded items.
            engine: what finds the best items by dot product before scoring: Flat(), a plain scan, if left out, or
                Faiss(...), whose tables are built by the first search that needs them. Exact strategies stay exact
                with any; an engine that may miss items certifies nothing.
        """
        check_similarity(similarity)
        if engine is not None and (isinstance(engine, type) or not isinstance(engine, Engine)):
            raise InvalidInputError(f"engine is {engine!r}; give an engine such as Flat() or Faiss('hnsw').")
        if engine is not None:
            engine.build(torch.ones(1, similarity.component_dim))  # is it installed?
        kept = as_choice(Precision, precision, name="precision")
        similarity = copy.deepcopy(similarity).train(False)
        for parameter in similarity.parameters():
            parameter.requires_grad_(False)
            parameter.data = parameter.data.to(torch.promote_types(parameter.dtype, torch.float32))
        expected = similarity.item_parts(_one_row(similarity, similarity.item_shape))
        if isinstance(items, ItemParts):
            _check_parts(items, expected, name="item")
        else:
            items = as_embeddings(items, name="items", shape=similarity.item_shape)
        if len(items) == 0:
            raise InvalidInputError("items holds 0 rows; an index needs at least 1 item.")
        ids_tensor = torch.arange(len(items)) if ids is None else as_ids(ids, count=len(items))
        if isinstance(items, ItemParts):
            item_parts = _copied(items).to(expected.components.dtype)
        else:
            item_parts = compute_item_parts(similarity, items)
        if kept is not Precision.FP32:
            item_parts = item_parts.to(kept.dtype)
        for name, part in (("item components", item_parts.components), ("item gate", item_parts.gate)):
            if part is not None:
                check_finite(part, name=name)
        segment = Segment.build(ids_tensor.to(item_parts.components.device), item_parts)
        return cls(corpus=Corpus.build(similarity, [segment], engine=engine))

    @property
    def similarity(self) -> Similarity:
        """The copy of the similarity that this index was built with; not to be changed."""
        return self._similarity

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity that this index was built with."""
        return fingerprint(self._similarity)

    @property
    def ids(self) -> Tensor:
        """A copy of all item ids, ascending."""
        return self._corpus.ids.clone()  # (M,)

    def __len__(self) -> int:
        return len(self._corpus.ids)

    def __repr__(self) -> str:
        return f"Index({len(self)} items, {type(self._similarity).__name__})"

    @torch.no_grad()
    def search(
        self,
        queries: ArrayLike | QueryParts,
        k: int,
        strategy: Strategy | None = None,
        exclude: ArrayLike | Sequence[object] | None = None,
        allow: ArrayLike | AbstractSet[int] | None = None,
        *,
        user_ids: ArrayLike | None = None,
        pad: bool = False,
    ) -> SearchResult:
        """Find the k best items of each query, best first; of equal scores the smaller id.

        Args:
            queries: query embeddings (B, D), ready components (B, Pq, d) where the similarity takes those, or
                the parts that `index.similarity.query_parts` gave.
            k: how many items to return for each query; exactly that many are.
            strategy: how to search; if left out, what `tune` chose for this k, or brute force.
            exclude: one list, set or array of item ids a query (items already seen, say), or a (B, E) array; ids
                that are not in the index, and -1, are passed over.
            allow: search only these items, for all queries: a mask with one true or false for each of `index.ids`, or
                a list of ids.
            user_ids: one a query, where the similarity has a user table.
            pad: what to do where exclude and allow leave a query fewer than k items: raise an error, or with `True`
                fill up with id -1 and score minus infinity.
        """
        k = check_count(k, name="k")
        if k > len(self):
            raise NotEnoughItemsError(f"k is {k} but the index holds {len(self)} items; ask for k <= {len(self)}.")
        strategy = self._tuned.get(k, BruteForce()) if strategy is None else strategy
        if isinstance(strategy, type) or not isinstance(strategy, Strategy):
            raise InvalidInputError(f"strategy is {strategy!r}; give a strategy such as BruteForce().")
        if isinstance(queries, QueryParts):
            if user_ids is not None:
                raise InvalidInputError("user_ids was given with ready parts; give them to query_parts instead.")
            expected = self._similarity.query_parts(_one_row(self._similarity, self._similarity.query_shape))
            _check_parts(queries, expected, name="query")
        else:
            queries = as_embeddings(queries, name="queries", shape=self._similarity.query_shape)
        users = None if user_ids is None else as_user_ids(user_ids, count=len(queries))
        hidden = self._hidden(exclude, allow, len(queries), k, pad=pad)
        batches = []
        for first in range(0, max(1, len(queries)), QUERIES_PER_BATCH):
            last = first + QUERIES_PER_BATCH
            query_parts = self._query_parts(queries[first:last], None if users is None else users[first:last])
            own_hidden = None if hidden is None else hidden.of_queries(first, last)
            batches.append(strategy.find_rows(self._corpus, query_parts, k, own_hidden))
        return self._result(batches)

    def tune(
        self,
        sample_queries: ArrayLike,
        k: int,
        *,
        target_recall: float = 0.99,
        confidence: float = 0.95,
        user_ids: ArrayLike | None = None,
    ) -> TuningReport:
        """Find the cheapest strategy on this machine that reaches a recall, and search with it from now on for this k.

        Strategies are measured on the first half of the sample: latency of batches of 32, and recall against brute
        force. Those that reach the target and are cheaper than any exact strategy are then put to the test on the
        second half, cheapest first, three at the most. One is chosen only if a one-sided confidence bound on its
        mean recall is at least the target. So, for queries drawn like the sample, a chosen strategy misses the target
        with a probability of at most 1 - confidence. If none passes, the cheapest exact strategy is chosen, and the
        report says so. A target of 0.99 needs about 1,000 queries for the bound to be sharp enough.

        Args:
            sample_queries: query embeddings in random order, like those that will be searched.
            k: how many items searches will ask for.
            target_recall: share of the true top K that is to be found, on average over queries.
            confidence: how sure that is to be.
            user_ids: one a query, where the similarity has a user table.
        """
        k = check_count(k, name="k")
        queries = as_embeddings(sample_queries, name="sample_queries", shape=self._similarity.query_shape)
        users = None if user_ids is None else as_user_ids(user_ids, count=len(queries))
        report = tune(
            lambda part, strategy: self.search(part, k, strategy),
            compute_query_parts(self._similarity, queries.to(self._corpus.like), users),
            k=k,
            num_items=len(self),
            target_recall=check_positive(target_recall, name="target_recall"),
            confidence=check_positive(confidence, name="confidence"),
        )
        self._tuned[k] = report.chosen
        return report

    @torch.no_grad()
    def explain(self, query: ArrayLike, item_id: int, *, user_id: int | None = None) -> Explanation:
        """Show what the score of one query and one item is made of.

        Args:
            query: one query: an embedding (D,), or ready components (Pq, d) where the similarity takes those.
            item_id: an item of this index.
            user_id: where the similarity has a user table.
        """
        item_id = check_count(item_id, name="item_id", minimum=0)
        rows = self._corpus.rows_of(torch.tensor([min(item_id, 2**63 - 1)]))  # (1,) or none
        if not len(rows):
            raise InvalidInputError(f"item_id is {item_id}, which is not among the {len(self)} items of this index.")
        queries = as_embeddings(as_tensor(query, "query")[None], name="query", shape=self._similarity.query_shape)
        users = None if user_id is None else as_user_ids([user_id], count=1)
        item_parts = self._corpus[rows].to(self._corpus.like.dtype)
        found = self._similarity.compare(self._query_parts(queries, users), item_parts)
        shape = (self._similarity.num_query_components, self._similarity.num_item_components)
        return Explanation(
            item_id=item_id,
            score=float(found.scores[0, 0]),
            component_scores=found.component_scores[0, 0].view(shape),
            gate_weights=found.gate_weights[0, 0].view(shape),
        )

    def _query_parts(self, queries: Tensor | QueryParts, user_ids: Tensor | None) -> QueryParts:
        like = self._corpus.like
        if isinstance(queries, QueryParts):
            return QueryParts(queries.components.to(like), None if queries.gate is None else queries.gate.to(like))
        users = None if user_ids is None else user_ids.to(like.device)
        return self._similarity.query_parts(queries.to(like), user_ids=users)

    def _hidden(
        self,
        exclude: ArrayLike | Sequence[object] | None,
        allow: ArrayLike | AbstractSet[int] | None,
        num_queries: int,
        k: int,
        *,
        pad: bool,
    ) -> Hidden | None:
        corpus = self._corpus
        if exclude is None and allow is None:
            return (
                None
                if corpus.is_live is None
                else Hidden.from_lists([], device=corpus.like.device, is_allowed=corpus.is_live)
            )
        is_allowed = (
            torch.ones(len(corpus), dtype=torch.bool) if corpus.is_live is None else corpus.is_live.cpu()
        )  # (N,)
        if allow is not None:
            allowed_rows = corpus.rows.cpu()[_as_mask(allow, corpus.ids.cpu())]
            is_allowed = torch.zeros(len(corpus), dtype=torch.bool)  # (N,)
            is_allowed[allowed_rows] = True
        num_allowed = int(is_allowed.sum())
        lists = [] if exclude is None else as_id_lists(exclude, name="exclude", count=num_queries)
        rows = [corpus.rows_of(ids).cpu() for ids in lists]
        for query, own_rows in enumerate(rows):
            num_left = num_allowed - int(is_allowed[own_rows].sum())
            if num_left < k and not pad:
                raise _too_few(k, f"exclude leaves query {query} only {num_left} of {len(self)} items")
        if num_allowed < k and not pad:
            raise _too_few(k, f"allow leaves only {num_allowed} of {len(self)} items")
        is_filtered = allow is not None or corpus.is_live is not None
        return Hidden.from_lists(rows, device=corpus.like.device, is_allowed=is_allowed if is_filtered else None)

    def _result(self, batches: list[Found]) -> SearchResult:
        scores = torch.cat([found.scores for found in batches])  # (B, K)
        rows = torch.cat([found.rows for found in batches])  # (B, K)
        # Scores are finite, so that minus infinity only stands where exclude and allow left nothing to give.
        return SearchResult(
            ids=self._corpus.row_ids[rows].masked_fill(scores == -torch.inf, NO_ITEM),
            scores=scores.to(torch.float32),
            ceiling=torch.cat([found.ceiling for found in batches]).to(torch.float32),
            num_scored=torch.cat([found.num_scored for found in batches]),
        )


def _as_mask(allow: ArrayLike | AbstractSet[int], known_ids: Tensor) -> Tensor:
    """Whether each item may be given (N,), from such a mask or from a list of ids."""
    given: ArrayLike = list(allow) if isinstance(allow, AbstractSet) else allow
    if is_mask(given):
        mask = torch.as_tensor(np.asarray(given) if not isinstance(given, Tensor) else given).cpu()
        if tuple(mask.shape) != tuple(known_ids.shape):
            raise InvalidInputError(
                f"allow is a mask of shape {tuple(mask.shape)} but the index holds {len(known_ids)} items; "
                "give one true or false for each of index.ids."
            )
        return mask
    ids = as_integers(given, name="allow").cpu()
    if ids.ndim != 1:
        raise InvalidInputError(f"allow has shape {tuple(ids.shape)}; give a mask or a flat list of ids.")
    return torch.isin(known_ids, ids)


def _too_few(k: int, cause: str) -> NotEnoughItemsError:
    return NotEnoughItemsError(
        f"k is {k} but {cause}; ask for a smaller k, or pass pad=True to have id -1 in the empty places."
    )


def _one_row(similarity: Similarity, shape: tuple[int, ...]) -> Tensor:
    """One input row of zeros, to see what parts the similarity makes of it."""
    like = next(iter(similarity.parameters()), torch.empty(0))
    return like.new_zeros(1, *shape)


def _check_parts(parts: QueryParts | ItemParts, expected: QueryParts | ItemParts, *, name: str) -> None:
    """Check that ready parts have the form that this similarity makes, and hold nothing that poisons a score."""
    for kind, part, wanted in (
        ("components", parts.components, expected.components),
        ("gate", parts.gate, expected.gate),
    ):
        if (part is None) != (wanted is None):
            found, needed = ("none", "a") if part is None else ("one", "no")
            raise InvalidInputError(
                f"this similarity has {needed} {name} gate but the {name} parts have {found}; "
                "make the parts with this similarity."
            )
        if part is not None and wanted is not None:
            as_embeddings(part, name=f"{name} {kind}", shape=tuple(wanted.shape[1:]))
            if len(part) != len(parts):
                raise InvalidInputError(
                    f"{name} gate has {len(part)} rows but its components have {len(parts)}; take both from one call."
                )


def _copied(parts: ItemParts) -> ItemParts:
    return ItemParts(parts.components.detach().clone(), None if parts.gate is None else parts.gate.detach().clone())
