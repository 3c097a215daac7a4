"""The index: items under a learned similarity, one call that searches them, and a few that change them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, ArrowTable, as_choice, as_path
from railsearch.foundation.results import Explanation, SearchResult
from railsearch.index import searching, similar
from railsearch.index.building import Items
from railsearch.index.contents import Contents
from railsearch.index.corpus import Corpus, Precision
from railsearch.index.engines import Engine, ScanPrecision
from railsearch.index.filters import Allow, Exclude
from railsearch.index.storage import Store, Verification, Verify
from railsearch.index.strategies import Strategy
from railsearch.index.summary import summarise
from railsearch.index.tuning import TuningReport
from railsearch.kernels import KernelName, plain_arithmetic
from railsearch.similarity import QueryParts, Similarity

if TYPE_CHECKING:
    from polars import DataFrame


class Index:
    """Items ready to be searched: their side of the similarity is computed once, here.

    The index keeps copies of the similarity and of everything it is given, so later changes to them do not change an
    answer. With a path it is a folder on disk, and every change is a commit: it is durable once the call returns, and
    if the process is killed before that, the previous version remains.

    >>> import torch
    >>> from railsearch import DotProduct
    >>> index = Index.build(DotProduct(dim=2), torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ids=[10, 20])
    >>> index.search(torch.tensor([[0.2, 0.9]]), k=1).ids.tolist()
    [[20]]
    >>> shop = Index.build(DotProduct(dim=2), torch.eye(2), ids=["sku-1", "sku-2"])
    >>> shop.search(torch.tensor([[0.2, 0.9]]), k=2, exclude=[["sku-1"]], pad=True).keys
    [['sku-2', None]]
    """

    def __init__(self, *, contents: Contents) -> None:
        self.contents = contents
        """The corpus and its versions, for other modules of this package."""

    @classmethod
    @plain_arithmetic()
    def build(
        cls, similarity: Similarity, items: Items, ids: ArrayLike | None = None, *, path: str | Path | None = None,
        metadata: ArrowTable | None = None, precision: Precision | str = Precision.FP32,
        scan: ScanPrecision | str = ScanPrecision.FULL, engine: Engine | None = None,
        source: Mapping[str, str] | None = None, show_progress: bool | None = None,
    ) -> Self:  # fmt: skip
        """Compute the item side of every item and keep it.

        Args:
            similarity: compares queries and items; it is copied.
            items: item embeddings (N, D), ready components (N, Px, d) if the similarity takes those, the result of
                `similarity.item_parts`, or an iterator of `ItemBatch` for more items than memory holds.
            ids: one integer >= 0 or one string for each item, all different; 0 to N - 1 if omitted. If they are
                strings, all calls take strings and tables show strings. Inside, the index numbers the items from 0 in
                the order of addition, and ties go to the item that was added first.
            path: a folder that does not exist yet; without a path the index is in memory only. A build that fails
                leaves no folder.
            metadata: a table with one row for each item (a polars DataFrame, or any table with an Arrow interface).
                Results include its columns, and `allow` filters by them.
            precision: precision of the stored item components and gates: fp32, or fp16 or bf16 for half the memory.
                Answers and certificates are then those of the rounded items.
            scan: "int8" scans an int8 copy of the rows first: faster, with exactly the same results. The index keeps
                this setting; it applies while no engine is given.
            engine: finds the best items by dot product before scoring: Flat(), a plain scan, if omitted, or
                Faiss(...). The first search that needs a table builds it, or `prepare_engine` builds all of them; in a
                folder they are kept. Exact strategies stay exact; an engine that may miss items certifies nothing.
            source: describes where the embeddings come from, such as an encoder and its fingerprint, as text by name.
            show_progress: a progress bar; by default on a terminal only.
        """
        return cls(
            contents=Contents.build(
                similarity, items, ids, path=None if path is None else as_path(path), metadata=metadata,
                precision=as_choice(Precision, precision, name="precision"),
                scan=as_choice(ScanPrecision, scan, name="scan"),
                engine=engine, source=source, show_progress=show_progress,
            )
        )  # fmt: skip

    @classmethod
    def open(
        cls, path: str | Path, *, version: int | None = None, engine: Engine | None = None, kernel: str | None = None,
        verify: str = "full",
    ) -> Self:  # fmt: skip
        """Open an index folder for reading and writing, and check every byte of it, now or before its first use.

        Items are mapped into memory, so processes that open the same index share it. The version that was opened
        does not change when others commit; `refresh` moves on to the newest. Never truncate or overwrite a file of an
        open index, for example with rsync --inplace: the operating system kills a process that reads a mapped file
        beyond its end (SIGBUS). Removing or replacing files does no harm.

        Args:
            path: a folder that `build` wrote.
            version: an older version that is still kept; the newest if omitted.
            engine: as in `build`.
            kernel: "native" or "torch" computes the scores; by default the fastest one that runs the similarity.
            verify: "full" checks all bytes now, "lazy" each block before its first use, which then raises the error;
                "background" is lazy while a thread checks the rest. Average certifies nothing before all is checked.
        """
        wanted = None if kernel is None else as_choice(KernelName, kernel, name="kernel")
        chosen = as_choice(Verify, verify, name="verify")
        return cls(contents=Contents.open(as_path(path), version=version, engine=engine, kernel=wanted, verify=chosen))

    @property
    def similarity(self) -> Similarity:
        """A copy of the similarity that this index was built with; changes to it do not reach the index."""
        return self.contents.similarity

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity that this index was built with."""
        return self.contents.fingerprint

    @property
    def ids(self) -> Tensor:
        """A copy of all item ids, ascending; the integers inside if ids are strings (see `keys`)."""
        return self._corpus.ids.clone()  # (M,)

    @property
    def has_keys(self) -> bool:
        """Whether the ids of this index are strings."""
        return self._corpus.has_keys

    @property
    def keys(self) -> list[str]:
        """All string ids, one for each of `ids`; raises InvalidInputError if the ids are integers."""
        return self._corpus.keys

    def find(self, ids: ArrayLike) -> Tensor:
        """Return the integer id of each given id (n,), which may be strings; -1 for those that are not in the index."""
        return self._corpus.find(ids)  # (n,)

    @property
    def version(self) -> int:
        """The number of the version: 1 after `build`, and one more after each change."""
        return self.contents.version

    @property
    def path(self) -> Path | None:
        """The folder, or None for an index in memory."""
        return self.contents.path

    @property
    def source(self) -> dict[str, str]:
        """The `source` that `build` was given."""
        return dict(self.contents.source)

    @property
    def num_segments(self) -> int:
        """The number of segments that hold the items; `compact` reduces it."""
        return len(self._corpus.segments)

    @property
    def num_removed(self) -> int:
        """The number of removed items that still take space; `compact` frees it."""
        return len(self._corpus) - len(self)

    @property
    def metadata(self) -> "DataFrame | None":
        """The metadata of the items, without string ids, one row for each of `ids`; None if the index has none."""
        return self._corpus.live_metadata

    def describe(self) -> dict[str, int | str | list[str] | None]:
        """Return a summary of this index by name: its path, version, counts, similarity, metadata and settings."""
        return summarise(self.contents)

    def __len__(self) -> int:
        return len(self._corpus.ids)

    def __repr__(self) -> str:
        where = "" if self.path is None else f", version {self.version} of {self.path}"
        return f"Index({len(self):,} items, {type(self._corpus.similarity).__name__}{where})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        where = "build it with a path" if self.path is None else f"pass its path {str(self.path)!r}"
        raise InvalidInputError(
            f"an Index can be neither pickled nor copied; {where}, and open it there with Index.open(path)."
        )

    def close(self) -> None:
        """Release the version that is open, so that cleanup may remove it; deleting the index does so too."""
        self.contents.close()

    @plain_arithmetic()
    def search(
        self, queries: ArrayLike | QueryParts, k: int, strategy: Strategy | None = None, exclude: Exclude = None,
        allow: Allow = None, *, user_ids: ArrayLike | None = None, pad: bool = False,
    ) -> SearchResult:  # fmt: skip
        """Find the k best items for each query, best first; ties go to the smaller id.

        Args:
            queries: query embeddings (B, D), ready components (B, Pq, d) if the similarity takes those, or the result
                of `index.similarity.query_parts`.
            k: the number of items to return for each query.
            strategy: how to search; by default the strategy that `tune` chose for this k, or brute force.
            exclude: one list, set or array of item ids for each query, such as items already seen, or a (B, E) array.
                Ids that are not in the index are ignored, such as -1.
            allow: search only these items, for all queries: a mask with one true or false for each of `index.ids`, a
                list of ids, or a condition over the metadata (and string ids, as `id`): a polars expression, or one
                as text, such as "year >= 2000 AND genre = 'jazz'".
            user_ids: one user id for each query, if the similarity has a user table.
            pad: if exclude and allow leave a query fewer than k items, fill up with id -1 and a score of minus
                infinity; by default, this raises an error.
        """
        return searching.search(
            self.contents, queries, k, strategy=strategy, exclude=exclude, allow=allow, user_ids=user_ids, pad=pad
        )

    @plain_arithmetic()
    def similar_items(
        self, ids: ArrayLike | int | str, k: int = 10, *, exclude: ArrayLike | None = None, allow: Allow = None,
        pad: bool = False,
    ) -> SearchResult:  # fmt: skip
        """Find the k items that are most similar to each of some items, never itself; ties go to the smaller id.

        The score is the mean cosine of the items' components, each with its counterpart (docs/how-to/recommending.md).
        One scan of all components finds the exact top K, whatever the engine and the strategy are.

        Args:
            ids: an item of this index, or a list of them: each is one query of the result.
            k: the number of similar items for each.
            exclude: ids that no answer may hold; unknown ids are ignored.
            allow: as in `search`.
            pad: as in `search`.
        """
        return similar.similar_items(self.contents, ids, k, exclude=exclude, allow=allow, pad=pad)

    def allowed_ids(self, allow: Allow) -> Tensor:
        """Return the ids, as in `ids`, of the items that `search` with this `allow` can find, ascending."""
        return searching.find_allowed(self._corpus, allow)  # (A,)

    @plain_arithmetic()
    def add(
        self, items: Items, ids: ArrayLike | None = None, *, metadata: ArrowTable | None = None,
        show_progress: bool | None = None,
    ) -> None:  # fmt: skip
        """Add items whose ids are not in the index; durable once this returns.

        Args:
            items: as in `build`.
            ids: one for each item, as in `build`; omitted integers continue after the greatest id in the index.
            metadata: a table with the columns of the index.
            show_progress: a progress bar; by default on a terminal only.
        """
        self.contents.put(items, ids, metadata=metadata, replaces=False, show_progress=show_progress)

    @plain_arithmetic()
    def upsert(
        self, items: Items, ids: ArrayLike | None = None, *, metadata: ArrowTable | None = None,
        show_progress: bool | None = None,
    ) -> None:  # fmt: skip
        """Add items, or replace those with the same ids, as `add` does; durable once this returns."""
        self.contents.put(items, ids, metadata=metadata, replaces=True, show_progress=show_progress)

    def remove(self, ids: ArrayLike, *, missing_ok: bool = False) -> None:
        """Remove items; durable once this returns. `compact` frees their space on disk.

        Args:
            ids: the ids of items in the index.
            missing_ok: ignore ids that are not in the index; by default, they raise an error.
        """
        self.contents.remove(ids, missing_ok=missing_ok)

    def compact(self) -> None:
        """Write all items again in the order of their ids, without the removed ones; then searches are faster."""
        self.contents.compact()

    def prepare_engine(self) -> None:
        """Open or build all tables of the engine now, so that no search waits; the folder keeps persistent ones."""
        self._corpus.prepare_engine()

    def refresh(self) -> bool:
        """Open the newest version; return True if it differs. Raises IndexFolderError if another index was built."""
        return self.contents.refresh()

    def verify(self) -> Verification:
        """Read every file of every version that is kept, and list all problems with the versions that they affect."""
        if self.path is None:
            raise InvalidInputError("this index is in memory only; there are no files to verify.")
        return self.check(self.path)

    @staticmethod
    def check(path: str | Path) -> Verification:
        """Verify an index folder as `verify` does, even if it cannot be opened."""
        return Store(as_path(path)).verify()

    def tune(
        self,
        sample_queries: ArrayLike,
        k: int,
        *,
        target_recall: float = 0.99,
        confidence: float = 0.95,
        user_ids: ArrayLike | None = None,
        show_progress: bool | None = None,
    ) -> TuningReport:
        """Find the cheapest strategy on this machine that reaches a recall, and use it from now on for this k.

        The choice is stored with the index; on disk it is a commit. The first half of the sample measures all
        strategies: latency of batches of 32, and recall against brute force. The second half tests at most three that
        reach the target and are cheaper than any exact strategy. One is chosen only if a confidence bound on its mean
        recall is at least the target: for queries like the sample, it misses the target with a probability of at most
        1 - confidence. Otherwise the cheapest exact one is chosen. A target of 0.99 needs about 1,000 queries.

        Args:
            sample_queries: query embeddings in random order, like those that will be searched.
            k: the number of items that searches will ask for.
            target_recall: the share of the true top K that must be found, on average over queries.
            confidence: the probability that the chosen strategy reaches the target.
            user_ids: one user id for each query, if the similarity has a user table.
            show_progress: a progress bar; by default on a terminal only.
        """
        return searching.tune_strategy(
            self.contents, sample_queries, k, target_recall, confidence, user_ids=user_ids, show_progress=show_progress
        )

    @plain_arithmetic()
    def explain(self, query: ArrayLike, item_id: int | str, *, user_id: int | None = None) -> Explanation:
        """Return the component scores and gate weights that the score of one query and one item consists of.

        Args:
            query: one embedding (D,), or ready components (Pq, d) if the similarity takes those.
            item_id: an item of this index.
            user_id: the user, if the similarity has a user table.
        """
        return searching.explain(self._corpus, query, item_id, user_id=user_id)

    @property
    def _corpus(self) -> Corpus:
        return self.contents.corpus
