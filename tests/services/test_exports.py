"""The page about migrating: what it exports from Milvus and PostgreSQL is built into an index, as the page says."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from railsearch import Index
from tests.support.commands import run
from tests.support.markdown import blocks_of
from tests.support.servers import Server

pytestmark = pytest.mark.services
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "migrating.md"
NUM_ITEMS, DIM = 2500, 32  # more than two pages of Milvus
YEARS = [1980 + row % 40 for row in range(NUM_ITEMS)]


@pytest.fixture
def items() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(NUM_ITEMS, DIM)).astype("float32")


def test_items_of_milvus_are_exported(
    milvus: Server, items: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pymilvus import DataType, MilvusClient

    client = MilvusClient(milvus.address, token=milvus.token)
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=DIM)
    schema.add_field("year", DataType.INT64)
    parameters = client.prepare_index_params()
    parameters.add_index("embedding", index_type="FLAT", metric_type="COSINE")
    client.create_collection("items", schema=schema, index_params=parameters, consistency_level="Strong")
    rows = [{"id": row, "embedding": items[row].tolist(), "year": YEARS[row]} for row in range(NUM_ITEMS)]
    client.insert("items", rows)
    client.close()
    monkeypatch.setenv("MILVUS_TOKEN", milvus.token)
    check_export("pymilvus", items, tmp_path, monkeypatch, replaced=("http://127.0.0.1:19530", milvus.address))


def test_items_of_postgres_are_exported(
    postgres: Server, items: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    url = f"{postgres.address} password={postgres.token}"
    with psycopg.connect(url) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(f"CREATE TABLE items (id bigint PRIMARY KEY, embedding vector({DIM}), year int)")
        rows = [(row, str(items[row].tolist()), YEARS[row]) for row in range(NUM_ITEMS)]
        connection.cursor().executemany("INSERT INTO items VALUES (%s, %s, %s)", rows)
    monkeypatch.setenv("POSTGRES_URL", url)
    check_export("psycopg", items, tmp_path, monkeypatch)


def check_export(
    client: str, items: np.ndarray, folder: Path, patch: pytest.MonkeyPatch, *, replaced: tuple[str, str] = ("", "")
) -> None:
    """Run the block of the page that uses the client, then those that build an index and search it."""
    patch.chdir(folder)
    blocks = blocks_of(PAGE)
    export = next(block for block in blocks if block.asks_a_database and client in block.text)
    save = next(block for block in blocks if "save_similarity" in block.text)
    np.save("queries.npy", items[:2])
    for block in (export, save):
        exec(compile(block.text.replace(*replaced), str(block), "exec"), {"__name__": "__main__"})  # noqa: S102
    build, search = next(block for block in blocks if "items.parquet" in block.text and block.language is None).commands
    for line in (build, search):
        run(*shlex.split(line)[1:])
    index = Index.open("items.index")
    result = index.search(items[[7, 2400]], 1, allow="year >= 1980")
    assert len(index) == NUM_ITEMS
    assert result.ids.flatten().tolist() == [7, 2400]
    assert result.to_frame()["year"].to_list() == [YEARS[7], YEARS[2400]]
