"""Split an index folder into shards, in bounded memory."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from railsearch.distributed.assignment import check_column, shards_of_ids, shards_of_values
from railsearch.distributed.split_folder import (
    IndexSettings,
    check_target,
    finish,
    finished_shard,
    splitting,
    write_shard,
)
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_path
from railsearch.foundation.progress import counting
from railsearch.index import Index
from railsearch.index.building import Piece, SegmentBuilder, regroup
from railsearch.index.metadata import Metadata
from railsearch.index.segment import Segment
from railsearch.index.storage.manifest import Manifest


def shard_index(
    index: Index | str | Path,
    path: str | Path,
    num_shards: int,
    *,
    by: str | None = None,
    show_progress: bool | None = None,
) -> Path:
    """Split an index folder into shards: ordinary index folders, listed in a sealed shards.json.

    Items keep their components, gates, metadata and ids, and their order among equal scores. Removed items are
    omitted. The index itself is not changed. If the process is killed, the same call continues: shards that are
    complete are checked and kept.

    Args:
        index: an index folder, or an index that was opened from one.
        path: the new folder of the split index.
        num_shards: the number of shards.
        by: a column of the metadata: items with the same value are in the same shard. By default, a hash of the id
            decides, which balances the shards.
        show_progress: a progress bar; by default on a terminal only.

    >>> import tempfile, torch
    >>> from railsearch import DotProduct, Index
    >>> from railsearch.distributed import ShardedIndex
    >>> folder = tempfile.mkdtemp()
    >>> movies = Index.build(DotProduct(dim=2), torch.eye(2), path=f"{folder}/movies.index")
    >>> shards = ShardedIndex.open(shard_index(movies, f"{folder}/shards", 2))
    >>> shards.search(torch.tensor([[0.2, 0.9]]), k=1).ids.tolist()
    [[1]]
    """
    target = as_path(path)
    num_shards = check_target(target, num_shards)
    opened = index if isinstance(index, Index) else Index.open(index)
    contents, corpus = opened.contents, opened.contents.corpus
    manifest = contents.manifest
    if not isinstance(manifest, Manifest):
        raise InvalidInputError("the index is in memory only; build it with a path to split it.")
    if by is not None:
        check_column(corpus.segments[0].metadata.frame if corpus.has_metadata else None, by)  # type: ignore[union-attr]
    settings = IndexSettings(
        models=contents.models,
        precision=manifest.precision,
        scan=manifest.scan,
        source=dict(contents.source),
        tuned=dict(contents.tuned),
    )
    plan = {"index": manifest.birth, "version": manifest.version, "num_shards": num_shards, "by": by}
    size = SegmentBuilder(
        corpus.similarity, dtype=None, models=contents.models, on_rows=lambda _: None
    ).rows_per_segment
    with (
        splitting(target, corpus.similarity, plan),
        counting("splitting", len(corpus.ids), is_shown=show_progress) as on_rows,
    ):
        owners = [_owners(segment, num_shards, by) for segment in corpus.segments]
        counts = torch.stack([torch.bincount(own, minlength=num_shards) for own in owners]).sum(dim=0).tolist()
        for number, count in enumerate(counts):
            if not finished_shard(target, number, count):
                nothing = [_piece(corpus.segments[0], torch.empty(0, dtype=torch.int64))]
                pieces = regroup(_pieces(corpus.segments, owners, number, size), size) if count else nothing
                segments = (Segment.build(piece.ids, piece.parts, piece.metadata) for piece in pieces)
                write_shard(target, number, corpus.similarity, settings, segments)
            on_rows(count)
        largest = max((int(segment.ids[-1]) for segment in corpus.segments if len(segment)), default=-1)
        finish(target, num_shards, settings, by=by, next_id=largest + 1)
    return target


def _owners(segment: Segment, num_shards: int, by: str | None) -> Tensor:
    """Return the shard (m,) of each live row of a segment."""
    rows, metadata = segment.live_rows, segment.metadata
    if by is not None:
        assert metadata is not None
        return shards_of_values(metadata.frame[by].gather(rows.cpu().numpy()), num_shards)
    has_keys = metadata is not None and metadata.has_keys
    ids = metadata.keys_of(rows) if metadata is not None and has_keys else segment.ids[rows]
    return shards_of_ids(ids, num_shards)


def _pieces(segments: tuple[Segment, ...], owners: list[Tensor], number: int, size: int) -> Iterator[Piece]:
    """Yield the items of one shard, at most `size` at once."""
    for segment, own in zip(segments, owners, strict=True):
        rows = segment.live_rows[own == number]  # (m,)
        for first in range(0, len(rows), size):
            yield _piece(segment, rows[first : first + size])


def _piece(segment: Segment, rows: Tensor) -> Piece:
    metadata = None if segment.metadata is None else Metadata(segment.metadata.of_rows(rows))
    return Piece(segment.ids[rows], segment.parts[rows], metadata)
