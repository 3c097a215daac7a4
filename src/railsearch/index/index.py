"""A corpus under a learned similarity: the one call that searches it, and the few that change it."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import (
    ArrayLike,
    as_choice,
    as_embeddings,
    as_integers,
    as_path,
    as_user_ids,
    check_count,
    check_positive,
)
from railsearch.foundation.results import Explanation, SearchResult
from railsearch.index import searching
from railsearch.index.building import Items
from railsearch.index.contents import Contents
from railsearch.index.corpus import Corpus, Precision
from railsearch.index.engines import Engine
from railsearch.index.filters import Allow, Exclude
from railsearch.index.storage import Store, Verification
from railsearch.index.strategies import Strategy
from railsearch.index.strategy_text import format_strategy
from railsearch.index.tuning import TuningReport, tune
from railsearch.kernels import compute_query_parts, plain_arithmetic
from railsearch.similarity import QueryParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame


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

    def __init__(self, *, contents: Contents) -> None:
        self._contents = contents

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
        return cls(
            contents=Contents.build(
                similarity,
                items,
                ids,
                path=None if path is None else as_path(path),
                metadata=metadata,
                precision=as_choice(Precision, precision, name="precision"),
                engine=engine,
                source=source,
                show_progress=show_progress,
            )
        )

    @classmethod
    def open(cls, path: str | Path, *, version: int | None = None, engine: Engine | None = None) -> Self:
        """Open an index folder for reading and writing, and check every byte of it.

        Items are mapped into memory, so processes that open the same index share it. The version that was opened
        does not change when others commit; `refresh` moves on to the newest.

        Never truncate or overwrite a file of an index that is open, for example with rsync --inplace: the operating
        system kills a process that reads a mapped file beyond its end (SIGBUS). `refresh`, `verify` and all changes
        check the sizes of the files first, but a search cannot. Removing or replacing files does no harm.

        Args:
            path: a folder that `build` made.
            version: an older version that is still kept; the newest if left out.
            engine: as in `build`.
        """
        if version is not None:
            check_count(version, name="version")
        return cls(contents=Contents.open(as_path(path), version=version, engine=engine))

    @property
    def similarity(self) -> Similarity:
        """A copy of the similarity that this index was built with; changes to it do not reach the index."""
        return self._contents.similarity

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity that this index was built with."""
        return self._contents.fingerprint

    @property
    def ids(self) -> Tensor:
        """A copy of all item ids, ascending."""
        return self._corpus.ids.clone()  # (M,)

    @property
    def version(self) -> int:
        """Counts changes: the first version is 1."""
        return self._contents.version

    @property
    def path(self) -> Path | None:
        """The folder, or None for an index in memory."""
        return self._contents.path

    @property
    def source(self) -> dict[str, str]:
        """What made the embeddings, as `build` was told."""
        return dict(self._contents.source)

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
        """Return a summary of this index by name: its path, version, counts, similarity, metadata and settings."""
        return self._contents.describe()

    def __len__(self) -> int:
        return len(self._corpus.ids)

    def __repr__(self) -> str:
        where = "" if self.path is None else f", version {self.version} of {self.path}"
        return f"Index({len(self)} items, {type(self._corpus.similarity).__name__}{where})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        where = "build it with a path" if self.path is None else f"pass its path {str(self.path)!r}"
        raise InvalidInputError(
            f"an Index can be neither pickled nor copied; {where}, and open it there with Index.open(path)."
        )

    def close(self) -> None:
        """Release the version that is open, so that cleanup may remove it; deleting the index does so too."""
        self._contents.close()

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
        return searching.search(
            self._contents, queries, k, strategy=strategy, exclude=exclude, allow=allow, user_ids=user_ids, pad=pad
        )

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
        self._contents.put(items, ids, metadata=metadata, replaces=False, show_progress=show_progress)

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
        self._contents.put(items, ids, metadata=metadata, replaces=True, show_progress=show_progress)

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
        self._contents.remove(torch.unique(gone), missing_ok=missing_ok)

    def compact(self) -> None:
        """Write all items anew, in the order of their ids, without those that were removed.

        Searches get faster where there were many additions or removals. The versions before stay for a while: disk
        space is freed as they are collected, with the next changes.
        """
        self._contents.compact()

    def prepare_engine(self) -> None:
        """Open or build all tables of the engine now, so that no search has to wait for one.

        In a folder that can be written, tables of a persistent engine are kept on disk. A change of the index makes
        new segments, whose tables are built by the next search or the next call of this.
        """
        for segment in self._corpus.segments:
            segment.prepare(self._corpus.engine)

    def refresh(self) -> bool:
        """Move on to the newest version; says whether there was a newer one."""
        return self._contents.refresh()

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
        corpus = self._corpus
        queries = as_embeddings(sample_queries, name="sample_queries", shape=corpus.similarity.query_shape)
        users = None if user_ids is None else as_user_ids(user_ids, count=len(queries))
        report = tune(
            lambda part, strategy: self.search(part, k, strategy),
            compute_query_parts(corpus.similarity, queries.to(corpus.like), users),
            k=k,
            num_items=len(self),
            max_n=corpus.engine.max_n,
            target_recall=check_positive(target_recall, name="target_recall"),
            confidence=check_positive(confidence, name="confidence"),
        )
        self._contents.remember(k, format_strategy(report.chosen))
        return report

    @plain_arithmetic()
    def explain(self, query: ArrayLike, item_id: int, *, user_id: int | None = None) -> Explanation:
        """Show what the score of one query and one item is made of.

        Args:
            query: one query: an embedding (D,), or ready components (Pq, d) where the similarity takes those.
            item_id: an item of this index.
            user_id: where the similarity has a user table.
        """
        return searching.explain(self._corpus, query, item_id, user_id=user_id)

    @property
    def _corpus(self) -> Corpus:
        return self._contents.corpus
