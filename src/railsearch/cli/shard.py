"""`railsearch index shard`, and the part of `railsearch index build` that builds shards."""

import functools
from pathlib import Path
from typing import Annotated

import typer

from railsearch.cli.options import IndexFolder, Json
from railsearch.cli.summary import report
from railsearch.data import read_items
from railsearch.distributed import ShardedIndex, build_shards, shard_index
from railsearch.distributed.batch import LocalRunner, Runner, build_with
from railsearch.foundation.errors import InvalidInputError
from railsearch.index import Precision, ScanPrecision
from railsearch.similarity import Similarity


def shard(
    index: IndexFolder,
    target: Annotated[Path, typer.Argument(help="The new folder of the split index.", show_default=False)],
    *,
    shards: Annotated[int, typer.Option("--shards", help="Number of shards.", min=1, show_default=False)],
    by: Annotated[
        str | None,
        typer.Option(
            help="Column of the metadata: items with the same value are in the same shard. By default, a hash of the "
            "id decides, which balances the shards.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Split an index into shards, which `railsearch search` and Python search as one.

    The index is not changed. If the command is killed, run it again: shards that are complete are checked and kept.

    Example: railsearch index shard movies.index --shards 8 shards/
    """
    path = shard_index(index, target, shards, by=by, show_progress=False if as_json else None)
    report(ShardedIndex.open(path), as_json)


def build_split(
    target: Path,
    loaded: object,
    num_shards: int,
    *,
    items: Path | None,
    ids: Path | None,
    metadata: Path | None,
    id_column: str,
    embedding_column: str,
    precision: Precision,
    scan: ScanPrecision,
    runner: Runner | None,
    show_progress: bool | None,
) -> ShardedIndex:
    """Build shards from files of embeddings, which are read once for each shard."""
    if items is None or not isinstance(loaded, Similarity):
        raise InvalidInputError(
            "--shards needs --items and the model of a similarity; build one index from texts or a recommender, and "
            "split it with `railsearch index shard`."
        )
    items, ids, metadata = (None if path is None else path.resolve() for path in (items, ids, metadata))
    assert items is not None
    stream = functools.partial(
        read_items, items, ids=ids, metadata=metadata, id_column=id_column, embedding_column=embedding_column
    )
    files = [path for path in (items, ids, metadata) if path is not None]
    name = "; ".join([*(_state(path) for path in files), id_column, embedding_column])
    run = build_with(runner or LocalRunner(), files=files, show_progress=show_progress)
    return ShardedIndex.open(
        build_shards(loaded, stream, target, num_shards, precision=precision, scan=scan, name=name, run=run)
    )


def _state(path: Path) -> str:
    """Return the name of a file with its size and time, which tells its content from others."""
    if not path.is_file():
        return str(path)  # reading it reports what is wrong
    state = path.stat()
    return f"{path.resolve()}, {state.st_size} bytes, {state.st_mtime_ns} ns"
