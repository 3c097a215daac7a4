"""Arrow tables of requests: compressed ones are refused before anything is decompressed."""

import contextlib
import io
from pathlib import Path

import polars as pl
import pytest

from railsearch.errors import InvalidInputError
from railsearch.server.arrow_messages import check_uncompressed
from railsearch.server.limits import Limits
from railsearch.server.tables import ARROW_FILE, ARROW_STREAM, read_items
from railsearch.server.whole_index import WholeIndex
from tests.support.served import DIM, make_index

TABLE = pl.DataFrame(
    {
        "id": [1, 2],
        "embedding": [[0.5] * DIM, [1.5] * DIM],
        "title": ["a", "b"],
        "year": [1, 2],
    }
)
WAYS = {ARROW_FILE: pl.DataFrame.write_ipc, ARROW_STREAM: pl.DataFrame.write_ipc_stream}


def written(table: pl.DataFrame, media_type: str, compression: str = "uncompressed") -> bytes:
    file = io.BytesIO()
    WAYS[media_type](table, file, compression=compression)
    return file.getvalue()


@pytest.mark.parametrize("media_type", WAYS)
@pytest.mark.parametrize("kind", [pl.String, pl.Categorical])
def test_a_plain_table_is_accepted(media_type: str, kind: type[pl.DataType]) -> None:
    table = pl.concat([TABLE, TABLE], rechunk=False).with_columns(pl.col("title").cast(kind))
    check_uncompressed(written(table, media_type), is_file=media_type == ARROW_FILE)


@pytest.mark.parametrize("media_type", WAYS)
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_table_is_refused(tmp_path: Path, media_type: str, compression: str) -> None:
    index = WholeIndex(make_index(tmp_path / "movies.index", 5))
    content = written(TABLE.with_columns(title=pl.lit("a" * 1_000_000)), media_type, compression)
    assert len(content) < 100_000
    with pytest.raises(InvalidInputError, match="is compressed; send it without compression"):
        read_items(content, media_type, index=index, model=None, limits=Limits(), replaces=True)


@pytest.mark.parametrize("media_type", WAYS)
def test_rows_that_share_a_large_text_are_refused(tmp_path: Path, media_type: str) -> None:
    index = WholeIndex(make_index(tmp_path / "movies.index", 5))
    shared = pl.repeat("a" * 100_000, 100, eager=True)
    table = pl.DataFrame({"id": range(100), "embedding": [[0.5] * DIM] * 100, "title": shared, "year": [1] * 100})
    content, limits = written(table, media_type), Limits(max_body_bytes=2**20)
    assert len(content) < limits.max_body_bytes
    with pytest.raises(InvalidInputError, match="its rows share texts"):
        read_items(content, media_type, index=index, model=None, limits=limits, replaces=True)
    accepted = read_items(content, media_type, index=index, model=None, limits=Limits(), replaces=True)
    assert accepted.items.shape == (100, DIM)


@pytest.mark.parametrize("media_type", WAYS)
def test_embeddings_that_are_not_numbers(tmp_path: Path, media_type: str) -> None:
    index = WholeIndex(make_index(tmp_path / "movies.index", 5))
    content = written(TABLE.with_columns(embedding=pl.lit(["x" * 100, "y"])), media_type)
    with pytest.raises(InvalidInputError, match="embedding holds String values; give lists of numbers"):
        read_items(content, media_type, index=index, model=None, limits=Limits(), replaces=True)


@pytest.mark.parametrize("media_type", WAYS)
def test_damaged_tables(tmp_path: Path, media_type: str) -> None:
    index = WholeIndex(make_index(tmp_path / "movies.index", 5))
    content = written(TABLE, media_type)
    damaged = [content[:length] for length in range(0, len(content), 17)]
    damaged += [content[:place] + b"\xff" + content[place + 1 :] for place in range(0, len(content), 3)]
    for each in damaged:
        with contextlib.suppress(InvalidInputError):
            read_items(each, media_type, index=index, model=None, limits=Limits(), replaces=True)
