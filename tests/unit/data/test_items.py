"""Items from files: arrays and tables, in batches, and what is wrong with them."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from railsearch import ItemBatch
from railsearch.data import read_array, read_items, read_queries
from railsearch.errors import InvalidInputError


@pytest.fixture
def embeddings() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


def joined(batches: list[ItemBatch]) -> np.ndarray:
    return np.concatenate([np.asarray(batch.items) for batch in batches])


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_tables(tmp_path: Path, embeddings: np.ndarray, suffix: str) -> None:
    table = pl.DataFrame({"id": np.arange(10) * 3, "title": list("abcdefghij"), "embedding": embeddings.tolist()})
    path = tmp_path / f"items.{suffix}"
    table.write_parquet(path) if suffix == "parquet" else table.write_ipc(path)
    batches = list(read_items(path, batch_size=4))
    assert [len(batch.items) for batch in batches] == [4, 4, 2]
    np.testing.assert_array_equal(joined(batches), embeddings.astype(np.float64))
    assert [int(item) for batch in batches for item in batch.ids] == list(range(0, 30, 3))
    assert pl.concat([batch.metadata for batch in batches]).equals(table.select("title"))
    np.testing.assert_array_equal(read_queries(path), embeddings.astype(np.float64))


def test_tables_with_other_names_and_nothing_else(tmp_path: Path, embeddings: np.ndarray) -> None:
    pl.DataFrame({"vector": embeddings}).write_parquet(tmp_path / "items.parquet")
    (batch,) = read_items(tmp_path / "items.parquet", embedding_column="vector")
    assert batch.ids is None
    assert batch.metadata is None
    np.testing.assert_array_equal(batch.items, embeddings)


def test_ready_components_in_a_table(tmp_path: Path) -> None:
    components = np.random.default_rng(0).normal(size=(6, 3, 2)).astype(np.float32)
    pl.DataFrame({"embedding": components.tolist()}).write_parquet(tmp_path / "items.parquet")
    (batch,) = read_items(tmp_path / "items.parquet")
    np.testing.assert_allclose(batch.items, components)


def test_arrays(tmp_path: Path, embeddings: np.ndarray) -> None:
    np.save(tmp_path / "items.npy", embeddings)
    np.save(tmp_path / "ids.npy", np.arange(10) + 5)
    pl.DataFrame({"title": list("abcdefghij")}).write_parquet(tmp_path / "table.parquet")
    batches = list(
        read_items(tmp_path / "items.npy", ids=tmp_path / "ids.npy", metadata=tmp_path / "table.parquet", batch_size=7)
    )
    assert [list(batch.ids) for batch in batches] == [list(range(5, 12)), list(range(12, 15))]
    assert batches[1].metadata["title"].to_list() == ["h", "i", "j"]
    np.testing.assert_array_equal(joined(batches), embeddings)


def test_wrong_files(tmp_path: Path, embeddings: np.ndarray) -> None:
    def saved(name: str, table: pl.DataFrame) -> Path:
        table.write_parquet(tmp_path / name)
        return tmp_path / name

    np.save(tmp_path / "items.npy", embeddings)
    np.save(tmp_path / "three.npy", np.arange(3))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "torn.npy").write_bytes((tmp_path / "items.npy").read_bytes()[:60])
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "items.csv").write_text("id,embedding")
    ragged = saved("ragged.parquet", pl.DataFrame({"embedding": [[1.0, 2.0], [3.0]]}))
    empty = saved("null.parquet", pl.DataFrame({"embedding": [[1.0, 2.0], None]}))
    text = saved("text.parquet", pl.DataFrame({"embedding": ["1 2", "3 4"]}))
    words = saved("words.parquet", pl.DataFrame({"embedding": [["a"], ["b"]]}))
    other = saved("other.parquet", pl.DataFrame({"vector": [[1.0]], "id": [3]}))
    for path, options, message in (
        (tmp_path / "absent.npy", {}, "absent.npy does not exist or is not a file; give one of: .npy, .parquet"),
        (tmp_path, {}, "does not exist or is not a file"),
        (tmp_path / "items.csv", {}, "items.csv has an unknown format"),
        (tmp_path / "objects.npy", {}, "objects.npy cannot be read as an array"),
        (tmp_path / "torn.npy", {}, "torn.npy cannot be read as an array"),
        (tmp_path / "torn.parquet", {}, "torn.parquet cannot be read as a table"),
        (tmp_path / "items.npy", {"ids": tmp_path / "three.npy"}, "three.npy has 3 rows but .*items.npy has 10"),
        (tmp_path / "items.npy", {"metadata": other}, "other.parquet has 1 rows but .*items.npy has 10"),
        (ragged, {}, "ragged.parquet has 1 numbers in row 1 but 2 in row 0"),
        (ragged, {"ids": tmp_path / "three.npy"}, "is a table, which has ids and metadata as columns"),
        (empty, {}, "null.parquet has no embedding in row 1"),
        (text, {}, "text.parquet holds String in column 'embedding'; give lists of numbers"),
        (words, {}, "which is not an array of numbers"),
        (other, {}, "other.parquet has no column 'embedding'; its columns are: vector, id"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            list(read_items(path, **options))
    with pytest.raises(InvalidInputError, match=r"is not a \.npy file"):
        read_array(other)
    with pytest.raises(InvalidInputError, match="batch_size is 0"):
        read_items(tmp_path / "items.npy", batch_size=0)
