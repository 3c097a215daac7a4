"""A corpus under a learned similarity: the one call that searches it, and the few that change it."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from railsearch.folders.similarity_folder import fingerprint
from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import (
    ArrayLike,
    as_choice,
    as_embeddings,
    as_integers,
    as_path,
    as_tensor,
    as_user_ids,
    check_count,
    check_positive,
)
from railsearch.foundation.results import NO_ITEM, Explanation, SearchResult
from railsearch.index.building import (
    Items,
    check_parts,
    one_query,
)
from railsearch.index.contents import Collection, tuned_for
from railsearch.index.corpus import Corpus, Precision
from railsearch.index.engines import Engine, check_choice
from railsearch.index.filters import Allow, Exclude, make_filter
from railsearch.index.storage import Store, Verification
from railsearch.index.strategies import BruteForce, Found, Strategy
from railsearch.index.strategy_text import format_strategy, parse_strategy
from railsearch.index.tuning import TuningReport, tune
from railsearch.kernels import compute_query_parts, plain_arithmetic
from railsearch.similarity import QueryParts, Similarity, check_similarity

if TYPE_CHECKING:
    from polars import DataFrame

QUERIES_PER_BATCH = 32
"""Queries searched at once, so that one value for each query and item is never too many."""


class Index:
    """Items ready to be searched: their side of the similarity is computed once, here.

    The index keeps copies of the similarity and of all it is given, so that nothing that happens to them later
    changes an answer. With a path it is a folder on disk, and every change is a commit: once the call returns, it is
    durable; if it is cut short at any moment, the version before is there.

    >>> from railsearch import DotProduct
    >>> index = Index.build(DotProduct(dim=2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ids=[10, 20])
    >>> scores, ids = index.search(torch.tensor([[0.2, 0.9]]), k=1)
    >>> ids.tolist()
    [[20]]
    >>> index.add(torch.tensor([[0.3, 1.0]]), ids=[30])
    >>> index.search(torch.tensor([[0.2, 0.9]]), k=1).ids.tolist()
    [[30]]
    """

    def __init__(self, *, collection: Collection) -> None:
        self._collection = collection

    @classmethod
    @plain_arithmetic()
    def build(
        cls,
        similarity: Similarity,
        items: Items,
        ids: ArrayLike | None = None,
        *,
        path: str | Path | None = None,
        metadata: object = None,
        precision: Precision | str = Precision.FP32,
        engine: Engine | None = None,
        source: Mapping[str, str] | None = None,
        show_progress: bool | None = None,
    ) -> Self:
        """Compute the item side of every item and keep it.

        Args:
            similarity: how queries and items compare; copied.
            items: item embeddings (N, D), ready components (N, Px, d) where the similarity takes those, the parts
                that `similarity.item_parts` gave, or an iterator of `ItemBatch` that brings more than memory holds.
            ids: one integer >= 0 for each item, all different; 0 to N - 1 if left out.
            path: a folder to make, which must not exist yet; without one the index lives in memory only. A build that
                is cut short leaves no folder.
            metadata: a table with one row for each item (a polars DataFrame, or anything that speaks Arrow), returned
                with results and filtered by.
            precision: how item components and gates are kept: fp32, or fp16 or bf16 for half the memory. Answers and
                certificates are then those of the rounded items.
            engine: finds the best items by dot product before scoring: Flat(), a plain scan, if omitted, or
                Faiss(...). The first search that needs a table builds it, or `prepare_engine` builds all of them. In
                a folder, tables that take long to build are kept on disk and opened by the next process. Exact
                strategies stay exact with any engine; an engine that may miss items certifies nothing.
            source: what made the embeddings, in a few words by name, such as an encoder and its fingerprint; kept with
                the index for those who make queries.
            show_progress: a progress bar; by default on a terminal only.
        """
        check_similarity(similarity)
        if engine is not None:
            check_choice(engine).check_available(similarity.component_dim)
        return cls(
            collection=Collection.build(
                similarity,
                items,
                ids,
                path=None if path is None else as_path(path),
                metadata=metadata,
                precision=as_choice(Precision, precision, name="precision"),
                engine=engine,
                source=_checked_source(source),
                show_progress=show_progress,
            )
        )

    @classmethod
    def open(cls, path: str | Path, *, version: int | None = None, engine: Engine | None = None) -> Self:
        """Open an index folder for reading and writing, and check every byte of it.

        Items are mapped into memory: processes that open the same index share it. The version that was opened stays
        as it is, whatever others commit; `refresh` moves on.

        Args:
            path: a folder that `build` made.
            version: an older version that is still kept; the newest if left out.
            engine: as in `build`.
        """
        if version is not None:
            check_count(version, name="version")
        if engine is not None:
            check_choice(engine).check_available()
        return cls(collection=Collection.open(as_path(path), version=version, engine=engine))

    @property
    def similarity(self) -> Similarity:
        """The copy of the similarity that this index was built with; not to be changed."""
        return self._corpus.similarity

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity that this index was built with."""
        return fingerprint(self.similarity)

    @property
    def ids(self) -> Tensor:
        """A copy of all item ids, ascending."""
        return self._corpus.ids.clone()  # (M,)

    @property
    def version(self) -> int:
        """Counts changes: the first version is 1."""
        return self._collection.version

    @property
    def path(self) -> Path | None:
        """The folder, or None for an index in memory."""
        return self._collection.path

    @property
    def source(self) -> dict[str, str]:
        """What made the embeddings, as `build` was told."""
        return dict(self._collection.source)

    @property
    def num_segments(self) -> int:
        """How many pieces the items lie in; `compact` makes it few."""
        return len(self._corpus.segments)

    @property
    def num_removed(self) -> int:
        """Removed items whose room `compact` would free."""
        return len(self._corpus) - len(self)

    @property
    def metadata(self) -> "DataFrame | None":
        """The columns that go with the items, one row for each of `ids`."""
        frame = self._corpus.frame
        return None if frame is None else frame[self._corpus.rows.cpu().numpy()]

    def describe(self) -> dict[str, int | str | list[str] | None]:
        """What there is to know about this index, in words and numbers."""
        corpus = self._corpus
        frame = corpus.frame
        similarity = corpus.similarity
        pairs = f"{similarity.num_query_components} x {similarity.num_item_components} x {similarity.component_dim}"
        return {
            "path": None if self.path is None else str(self.path),
            "version": self.version,
            "items": len(self),
            "removed": self.num_removed,
            "segments": self.num_segments,
            "precision": str(corpus.segments[0].parts.components.dtype).removeprefix("torch."),
            "bytes": sum(segment.num_bytes for segment in corpus.segments),
            "similarity": f"{type(similarity).__name__} {pairs}",
            "fingerprint": self._collection.models[0] if self._collection.models else None,
            "metadata": [] if frame is None else frame.columns,
            "source": [f"{name}: {value}" for name, value in self._collection.source.items()],
            "tuned": [f"{wanted}: {strategy}" for wanted, strategy in self._collection.tuned.items()],
        }

    def __len__(self) -> int:
        return len(self._corpus.ids)

    def __repr__(self) -> str:
        where = "" if self.path is None else f", version {self.version} of {self.path}"
        return f"Index({len(self)} items, {type(self.similarity).__name__}{where})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the version that is open, so that it may be collected; forgetting the index does so too."""
        self._collection.close()

    @plain_arithmetic()
    def search(
        self,
        queries: ArrayLike | QueryParts,
        k: int,
        strategy: Strategy | None = None,
        exclude: Exclude = None,
        allow: Allow = None,
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
            allow: search only these items, for all queries: a mask with one true or false for each of `index.ids`, a
                list of ids, or a condition over the metadata: a polars expression, or one as text, such as
                "year >= 2000 AND genre = 'jazz'".
            user_ids: one a query, where the similarity has a user table.
            pad: what to do where exclude and allow leave a query fewer than k items: raise an error, or with `True`
                fill up with id -1 and score minus infinity.
        """
        k = check_count(k, name="k")
        corpus = self._corpus  # a commit during this search does not change what it sees
        num_items = len(corpus.ids)
        if k > num_items:
            raise NotEnoughItemsError(f"k is {k} but the index holds {num_items} items; ask for k <= {num_items}.")
        if strategy is None:
            tuned = self._collection.tuned.get(tuned_for(k, corpus.engine))
            strategy = BruteForce() if tuned is None else parse_strategy(tuned)
        if isinstance(strategy, type) or not isinstance(strategy, Strategy):
            raise InvalidInputError(f"strategy is {strategy!r}; give a strategy such as BruteForce().")
        if isinstance(queries, QueryParts):
            if user_ids is not None:
                raise InvalidInputError("user_ids was given with ready parts; give them to query_parts instead.")
            check_parts(queries, one_query(corpus.similarity), name="query", models=self._collection.models)
        else:
            queries = as_embeddings(queries, name="queries", shape=corpus.similarity.query_shape)
        users = None if user_ids is None else as_user_ids(user_ids, count=len(queries))
        row_filter = make_filter(corpus, exclude, allow, num_queries=len(queries), k=k, pad=pad)
        batches = []
        for first in range(0, max(1, len(queries)), QUERIES_PER_BATCH):
            last = first + QUERIES_PER_BATCH
            query_parts = _query_parts(corpus, queries[first:last], None if users is None else users[first:last])
            own_filter = None if row_filter is None else row_filter.of_queries(first, last)
            batches.append(strategy.find_rows(corpus, query_parts, k, own_filter))
        return _result(corpus, batches)

    @plain_arithmetic()
    def add(
        self,
        items: Items,
        ids: ArrayLike | None = None,
        *,
        metadata: object = None,
        show_progress: bool | None = None,
    ) -> None:
        """Add items whose ids are not in the index; durable once this returns.

        Args:
            items: as in `build`.
            ids: one integer >= 0 for each item; if left out, they go on after the greatest id there is.
            metadata: a table with the columns that the index has.
            show_progress: a progress bar; by default on a terminal only.
        """
        self._collection.put(items, ids, metadata=metadata, replaces=False, show_progress=show_progress)

    @plain_arithmetic()
    def upsert(
        self,
        items: Items,
        ids: ArrayLike | None = None,
        *,
        metadata: object = None,
        show_progress: bool | None = None,
    ) -> None:
        """Add items, in the place of those that have their ids; durable once this returns.

        Args:
            items: as in `build`.
            ids: one integer >= 0 for each item.
            metadata: a table with the columns that the index has.
            show_progress: a progress bar; by default on a terminal only.
        """
        self._collection.put(items, ids, metadata=metadata, replaces=True, show_progress=show_progress)

    def remove(self, ids: ArrayLike, *, missing_ok: bool = False) -> None:
        """Remove items; durable once this returns. Their room on disk is freed by `compact`.

        Args:
            ids: of items in the index.
            missing_ok: whether ids that are not in the index are passed over instead of refused.
        """
        gone = as_integers(ids, name="ids").cpu()
        if gone.ndim != 1:
            raise InvalidInputError(f"ids has shape {tuple(gone.shape)}; give a flat list of ids.")
        if not len(gone):
            return
        self._collection.remove(torch.unique(gone), missing_ok=missing_ok)

    def compact(self) -> None:
        """Write all items anew, in the order of their ids, without those that were removed.

        Searches get faster where there were many additions or removals. The versions before stay for a while: disk
        space is freed as they are collected, with the next changes.
        """
        self._collection.compact()

    def prepare_engine(self) -> None:
        """Open or build all tables of the engine now, so that no search has to wait for one.

        In a folder that can be written, tables of a persistent engine are kept on disk. A change of the index makes
        new segments, whose tables are built by the next search or the next call of this.
        """
        for segment in self._corpus.segments:
            segment.prepare(self._corpus.engine)

    def refresh(self) -> bool:
        """Move on to the newest version; says whether there was a newer one."""
        return self._collection.refresh()

    def verify(self) -> Verification:
        """Read every file of every version that is kept, and list what is wrong."""
        if self.path is None:
            raise InvalidInputError("this index lives in memory only, which leaves nothing to verify.")
        return self.check(self.path)

    @staticmethod
    def check(path: str | Path) -> Verification:
        """Do what `verify` does, of an index folder that cannot be opened perhaps."""
        return Store(as_path(path)).verify()

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

        The choice is stored with the index; on disk as a commit.

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
        queries = as_embeddings(sample_queries, name="sample_queries", shape=self.similarity.query_shape)
        users = None if user_ids is None else as_user_ids(user_ids, count=len(queries))
        report = tune(
            lambda part, strategy: self.search(part, k, strategy),
            compute_query_parts(self.similarity, queries.to(self._corpus.like), users),
            k=k,
            num_items=len(self),
            max_n=self._corpus.engine.max_n,
            target_recall=check_positive(target_recall, name="target_recall"),
            confidence=check_positive(confidence, name="confidence"),
        )
        self._collection.remember(k, format_strategy(report.chosen))
        return report

    @plain_arithmetic()
    def explain(self, query: ArrayLike, item_id: int, *, user_id: int | None = None) -> Explanation:
        """Show what the score of one query and one item is made of.

        Args:
            query: one query: an embedding (D,), or ready components (Pq, d) where the similarity takes those.
            item_id: an item of this index.
            user_id: where the similarity has a user table.
        """
        item_id = check_count(item_id, name="item_id", minimum=0)
        corpus = self._corpus
        rows = corpus.rows_of(torch.tensor([min(item_id, 2**63 - 1)]))  # (1,) or none
        if not len(rows):
            raise InvalidInputError(f"item_id is {item_id}, which is not among the {len(self)} items of this index.")
        similarity = corpus.similarity
        queries = as_embeddings(as_tensor(query, "query")[None], name="query", shape=similarity.query_shape)
        users = None if user_id is None else as_user_ids([user_id], count=1)
        found = similarity.compare(_query_parts(corpus, queries, users), corpus[rows].to(corpus.like.dtype))
        shape = (similarity.num_query_components, similarity.num_item_components)
        return Explanation(
            item_id=item_id,
            score=float(found.scores[0, 0]),
            component_scores=found.component_scores[0, 0].view(shape),
            gate_weights=found.gate_weights[0, 0].view(shape),
        )

    @property
    def _corpus(self) -> Corpus:
        return self._collection.corpus


def _query_parts(corpus: Corpus, queries: Tensor | QueryParts, user_ids: Tensor | None) -> QueryParts:
    like = corpus.like
    if isinstance(queries, QueryParts):
        return QueryParts(queries.components.to(like), None if queries.gate is None else queries.gate.to(like))
    users = None if user_ids is None else user_ids.to(like.device)
    return corpus.similarity.query_parts(queries.to(like), user_ids=users)


def _result(corpus: Corpus, batches: list[Found]) -> SearchResult:
    scores = torch.cat([found.scores for found in batches])  # (B, K)
    rows = torch.cat([found.rows for found in batches])  # (B, K)

    def lookup(ids: Tensor) -> "DataFrame":
        frame = corpus.frame  # read from disk now, if nobody has asked for it before
        assert frame is not None
        return frame[corpus.rows[torch.searchsorted(corpus.ids, ids)].cpu().numpy()]

    # Scores are finite, so that minus infinity only stands where exclude and allow left nothing to give.
    return SearchResult(
        ids=corpus.row_ids[rows].masked_fill(scores == -torch.inf, NO_ITEM),
        scores=scores.to(torch.float32),
        ceiling=torch.cat([found.ceiling for found in batches]).to(torch.float32),
        num_scored=torch.cat([found.num_scored for found in batches]),
        lookup=lookup if corpus.has_metadata else None,
    )


def _checked_source(source: object) -> dict[str, str]:
    if source is None:
        return {}
    if not isinstance(source, Mapping) or not all(isinstance(text, str) for pair in source.items() for text in pair):
        raise InvalidInputError(f"source is {source!r}; give a mapping of text to text.")
    return dict(source)
