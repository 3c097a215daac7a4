"""The contents of an index, in memory or in a folder, and the changes that can be made to them."""

import copy
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from railsearch.foundation.errors import IndexFolderError, InvalidInputError, StorageError
from railsearch.foundation.inputs import ArrayLike, ArrowTable, check_count
from railsearch.foundation.progress import counting
from railsearch.index.building import Items, SegmentBuilder, count_items, one_query, prepare_similarity
from railsearch.index.changes import Keep, compacted, with_added, without_ids, without_items
from railsearch.index.corpus import Corpus, Precision, vector_dim
from railsearch.index.engines import Engine, Flat, ScanPrecision, ensure_available, ensure_builds
from railsearch.index.keys import to_integers
from railsearch.index.metadata import fit_columns
from railsearch.index.numbering import Numbering, SeenIds
from railsearch.index.segment import Segment
from railsearch.index.storage import Snapshot, Store, Verify
from railsearch.index.storage.creating import creating, new_index
from railsearch.index.tuned import TunedStrategy, tuned_for
from railsearch.kernels import KernelName
from railsearch.similarity import QueryParts, Similarity, check_similarity, fingerprint


class Contents:
    """A corpus that changes from version to version; a search keeps the corpus that it began with."""

    def __init__(
        self,
        *,
        corpus: Corpus,
        models: tuple[str, ...],
        source: Mapping[str, str],
        store: Store | None = None,
        snapshot: Snapshot | None = None,
        is_pinned: bool = False,
    ) -> None:
        self.corpus = corpus
        self.models = models
        """Fingerprints of the models whose parts are accepted."""
        self.source = source
        """Where the embeddings come from, if `build` was told."""
        self.version = 1 if snapshot is None else snapshot.manifest.version
        self.tuned: Mapping[str, str] = {} if snapshot is None else snapshot.manifest.tuned
        """The strategy that was chosen for each k and engine, both as text."""
        self._store = store
        self._snapshot = snapshot
        self._is_pinned = is_pinned
        self._check_base: Callable[[], None] | None = None
        self._changing = threading.RLock()
        self._copying = threading.Lock()
        self._public_similarity: Similarity | None = None
        self._query_form: tuple[Similarity, QueryParts] | None = None

    @classmethod
    def build(
        cls,
        similarity: Similarity,
        items: Items,
        ids: ArrayLike | None,
        *,
        path: Path | None,
        metadata: ArrowTable | None,
        precision: Precision,
        scan: ScanPrecision,
        engine: Engine | None,
        source: Mapping[str, str] | None,
        show_progress: bool | None,
    ) -> "Contents":
        """Build in memory, or in a folder that is complete or missing."""
        check_similarity(similarity)
        chosen = ensure_builds(Flat(scan) if engine is None else engine, similarity.component_dim)
        source = _checked_source(source)
        if path is not None:
            fingerprint(similarity)  # raises if it cannot be saved
            with creating(path):
                is_there = path.exists()
            if is_there:
                raise InvalidInputError(f"{path} already exists; open it with Index.open, or choose another path.")
        given, similarity = similarity, prepare_similarity(similarity)
        models = tuple(dict.fromkeys([*_models(similarity), *_models(given)]))
        dtype = None if precision is Precision.FP32 else precision.dtype
        with counting("indexing", count_items(items), is_shown=show_progress) as on_rows:
            builder = SegmentBuilder(similarity, dtype=dtype, models=models, on_rows=on_rows)
            builder.check_memory(count_items(items), is_in_memory=path is None)
            if path is None:
                (segment,) = builder.build(items, ids, metadata, rows_per_segment=None, numbering=Numbering())
                return cls(corpus=Corpus.build(similarity, [segment], chosen), models=models, source=source)
            size = builder.rows_per_segment
            new = builder.build(items, ids, metadata, rows_per_segment=size, numbering=Numbering())
            seen = SeenIds([], "give every item its own id")
            with (
                new_index(path) as folder,
                Store.creating(
                    folder, similarity, models=models, precision=str(precision), source=source, scan=str(scan)
                ) as writer,
            ):
                writer.commit(writer.keep(seen.add(segment)) for segment in new)
        return cls.open(path, engine=engine)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        version: int | None = None,
        engine: Engine | None = None,
        kernel: KernelName | None = None,
        verify: Verify = Verify.FULL,
    ) -> "Contents":
        """Open a version of a folder, the newest if none is named."""
        if version is not None:
            check_count(version, name="version")
        if engine is not None:
            ensure_available(engine)
        store = Store(path, verify)
        snapshot = store.read(version)
        wanted = Flat(snapshot.manifest.scan) if engine is None else engine
        chosen = ensure_available(wanted, vector_dim(wanted, snapshot.similarity))
        corpus = Corpus.build(snapshot.similarity, snapshot.segments, chosen, kernel, snapshot.origin)
        corpus.check_collection()
        return cls._of_version(store, snapshot, corpus, is_pinned=version is not None)

    @classmethod
    def _of_version(cls, store: Store, snapshot: Snapshot, corpus: Corpus, *, is_pinned: bool) -> "Contents":
        models, source = snapshot.manifest.models, snapshot.manifest.source
        return cls(corpus=corpus, models=models, source=source, store=store, snapshot=snapshot, is_pinned=is_pinned)

    @property
    def path(self) -> Path | None:
        """The folder, or None in memory."""
        return None if self._store is None else self._store.path

    @property
    def manifest(self) -> object:
        """The manifest of the version that is open, which tells it from all others; None in memory."""
        return None if self._snapshot is None else self._snapshot.manifest

    @property
    def birth(self) -> str | None:
        """The random id of the index in the folder: another index at the same path has another one."""
        return None if self._snapshot is None else self._snapshot.manifest.birth

    @property
    def similarity(self) -> Similarity:
        """A copy for others: changes to it do not reach the one that searches, and its parts carry a fingerprint."""
        with self._copying:
            if self._public_similarity is None:
                self._public_similarity = copy.deepcopy(self.corpus.similarity)
            return self._public_similarity

    @property
    def query_form(self) -> QueryParts:
        """Parts of one query, which show the shapes and types of query parts; computed once."""
        similarity = self.corpus.similarity
        if self._query_form is None or self._query_form[0] is not similarity:
            self._query_form = (similarity, one_query(similarity))
        return self._query_form[1]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the similarity; raises InvalidInputError if its class is not registered."""
        return self.models[0] if self.models else fingerprint(self.corpus.similarity)

    def tuned_strategy(self, k: int) -> TunedStrategy | None:
        """Return the strategy that was chosen for a k with this engine."""
        text = self.tuned.get(tuned_for(k, self.corpus.engine))
        return None if text is None else TunedStrategy.parse(text)

    def reopen(self, version: int | None = None, *, check_base: Callable[[], None] | None = None) -> "Contents":
        """Open a version beside this one, which stays as it is; both share the segments that both have.

        Args:
            version: the version to open; the newest if omitted.
            check_base: changes start from this version, even if there are later ones: these are abandoned. The function
                is called with the lock held, and raises if this must not happen any more.
        """
        if self._store is None:
            raise InvalidInputError("this index is in memory only; it has no folder to open again.")
        snapshot = self._store.read(version, known=self._snapshot)
        corpus = self.corpus.with_segments(snapshot.segments, snapshot.similarity, snapshot.origin)
        contents = self._of_version(self._store, snapshot, corpus, is_pinned=version is not None)
        contents._check_base = check_base
        return contents

    def put(
        self,
        items: Items,
        ids: ArrayLike | None,
        *,
        metadata: ArrowTable | None,
        replaces: bool,
        show_progress: bool | None,
        numbers: Mapping[str, int] | None = None,
        source: Mapping[str, str] | None = None,
    ) -> None:
        """Add items; with `replaces`, those that have the same ids are replaced. For `numbers` see `Numbering`.

        With `source`, the new version states this source, such as the model after items were added to it.
        """
        purpose = "upsert" if replaces else "add"
        with counting(purpose, count_items(items), is_shown=show_progress) as on_rows:
            builder = self._builder(on_rows)

            def change(segments: Sequence[Segment], keep: Keep) -> Sequence[Segment]:
                known = segments[0].metadata
                seen = (
                    SeenIds([], "give every item its own id")
                    if replaces
                    else SeenIds(segments, "use upsert to replace items")
                )
                size = builder.rows_per_segment
                numbering = Numbering(segments, replaces=replaces, numbers=numbers)
                new = builder.build(items, ids, metadata, rows_per_segment=size, numbering=numbering)
                for segment in new:
                    seen.add(segment)
                    fitted = dataclasses.replace(segment, metadata=fit_columns(segment.metadata, known))
                    segments = without_ids(segments, fitted.ids, missing_ok=True) if replaces else segments
                    segments = with_added(segments, fitted, keep, largest=size)
                return segments

            self._commit(purpose, change, source=source)

    def remove(self, ids: ArrayLike, *, missing_ok: bool) -> None:
        """Make items no longer live."""
        gone = to_integers(ids, self.corpus.segments, name="ids")
        if gone.ndim != 1:
            raise InvalidInputError(f"ids has shape {tuple(gone.shape)}; give a flat list of ids.")
        if len(gone):
            self._commit("remove", lambda segments, keep: without_items(segments, ids, missing_ok=missing_ok))

    def compact(self) -> None:
        """Write all live items again, in the order of their ids."""

        def change(segments: Sequence[Segment], keep: Keep) -> list[Segment]:
            corpus = Corpus.build(self.corpus.similarity, segments)
            rows_per_segment = self._builder(lambda _: None).rows_per_segment
            return [keep(segment) for segment in compacted(corpus, rows_per_segment)]

        self._commit("compact", change)

    def remember(self, k: int, chosen: TunedStrategy) -> None:
        """Store the strategy that was chosen for a k with this engine."""
        self._commit("tune", lambda segments, keep: segments, tuned={tuned_for(k, self.corpus.engine): str(chosen)})

    def refresh(self) -> bool:
        """Open the newest version; return True if it differs from the one that was open."""
        if self._store is None:
            return False
        with self._changing:
            snapshot = self._store.read(known=self._snapshot)
            self._is_pinned = False
            return self._take(snapshot)

    def close(self) -> None:
        """Release the version that is open, so that cleanup may remove it."""
        self.corpus.close_tables()
        if self._snapshot is not None:
            self._snapshot.lock.release()

    def _commit(
        self,
        purpose: str,
        change: Callable[[Sequence[Segment], Keep], Sequence[Segment]],
        tuned: Mapping[str, str] | None = None,
        source: Mapping[str, str] | None = None,
    ) -> None:
        """Apply a change to the segments and commit the result as a new version, one thread after the other."""
        with self._changing:
            self._commit_now(purpose, change, {} if tuned is None else tuned, source)

    def _commit_now(
        self,
        purpose: str,
        change: Callable[[Sequence[Segment], Keep], Sequence[Segment]],
        tuned: Mapping[str, str],
        source: Mapping[str, str] | None,
    ) -> None:
        if self._store is None or self._snapshot is None:
            segments = change(self.corpus.segments, lambda segment: segment)
            self.corpus = self.corpus.with_segments(segments)
            self.tuned = {**self.tuned, **tuned}
            self.source = self.source if source is None else source
            self.version += 1
            return
        with self._store.writing(purpose, self._snapshot, check_base=self._check_base) as writer:
            if self._is_pinned and writer.base.version != self.version:
                raise IndexFolderError(
                    f"version {self.version} was opened but the newest is {writer.base.version}; only that can be "
                    "changed: call refresh() first."
                )
            manifest = writer.commit(change(writer.segments, writer.keep), {**writer.base.tuned, **tuned}, source)
        try:
            self._take(self._store.read(known=self._snapshot))
        except (OSError, IndexFolderError) as error:
            if not isinstance(error, OSError) and not isinstance(error.__cause__, OSError):
                raise
            raise StorageError(
                f"version {manifest.version} of {self._store.path} is in place, but cannot be read now ({error}); "
                "check the disk, and call refresh() to continue."
            ) from error

    def _take(self, snapshot: Snapshot) -> bool:
        """Search a snapshot from now on; return True if it differs from the one before.

        Versions of equal number can differ, if the folder was restored from a copy and changed again.
        """
        before = self._snapshot
        if before is not None and snapshot.manifest == before.manifest:
            snapshot.lock.release()
            return False
        self.corpus = self.corpus.with_segments(snapshot.segments, snapshot.similarity, snapshot.origin)
        self.tuned, self.source = snapshot.manifest.tuned, snapshot.manifest.source
        self.version = snapshot.manifest.version
        self._snapshot = snapshot
        if before is not None:
            before.lock.release()
        return True

    def _builder(self, on_rows: Callable[[int], None]) -> SegmentBuilder:
        dtype = self.corpus.segments[0].dtype
        return SegmentBuilder(self.corpus.similarity, dtype=dtype, models=self.models, on_rows=on_rows)


def _checked_source(source: object) -> dict[str, str]:
    if source is None:
        return {}
    if not isinstance(source, Mapping) or not all(isinstance(text, str) for pair in source.items() for text in pair):
        raise InvalidInputError(f"source is {source!r}; give a mapping of text to text.")
    return dict(source)


def _models(similarity: Similarity) -> list[str]:
    """Return the fingerprint that parts of this similarity carry; empty if its class is not registered."""
    try:
        return [fingerprint(similarity)]
    except InvalidInputError:
        return []
