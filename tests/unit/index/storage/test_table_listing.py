"""The list of stored tables: every table with its engine, its state and the versions that have its segment."""

import os
from pathlib import Path

import pytest
import torch

from railsearch import DotProduct, Index
from railsearch.index import TableState
from railsearch.index.storage.table_files import TableFiles

ENGINE = "Faiss('hnsw')"
VECTORS = torch.ones(3, 3)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """An index of two versions, with one table of the first segment and one of a segment that no version has."""
    index = Index.build(DotProduct(dim=3), torch.eye(3), path=tmp_path / "index")
    index.remove([2])
    (segment,) = (path.stem for path in (tmp_path / "index" / "segments").iterdir())
    files = TableFiles(tmp_path / "index")
    files.write(f"{segment}.sum", ENGINE, VECTORS, b"graph" * 20)
    files.write("gone.sum", ENGINE, VECTORS, b"old")
    return index


def own_table(index: Index) -> Path:
    (path,) = (path for path in (index.path / "tables").iterdir() if not path.name.startswith("gone"))
    return path


def own_state(index: Index) -> TableState:
    found = index.verify()
    assert found.is_intact  # a cache is no problem
    (state,) = (table.state for table in found.tables if "gone" not in table.file)
    return state


def test_every_table_is_listed(index: Index) -> None:
    unused, own = sorted(index.verify().tables, key=lambda table: table.versions)
    assert (unused.state, unused.engine, unused.versions) == (TableState.UNUSED, ENGINE, ())
    assert (own.state, own.engine, own.versions) == (TableState.INTACT, ENGINE, (1, 2))
    assert (own.file, own.num_bytes) == (f"tables/{own_table(index).name}", own_table(index).stat().st_size)
    assert index.describe()["tables"] == [f"{ENGINE}: 1 tables of {own.num_bytes:,} bytes"]


def test_every_changed_byte_is_noticed(index: Index) -> None:
    path = own_table(index)
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert own_state(index) is TableState.DAMAGED
    for changed in (b"", content[:-1], content + b"\n", b"\0" * 100_000):
        path.write_bytes(changed)
        assert own_state(index) is TableState.DAMAGED
    path.write_bytes(content)
    assert own_state(index) is TableState.INTACT


def test_hostile_tables_are_neither_read_nor_followed(index: Index, tmp_path: Path) -> None:
    path = own_table(index)
    os.truncate(path, 2**40)  # sparse: reading it would take minutes
    assert own_state(index) is TableState.DAMAGED
    path.write_bytes(b"0" * 32 + b"\n" + b"[" * 60_000 + b"\n")  # a header that is nested too deeply
    assert index.describe()["tables"] == ["unknown: 1 tables of 60,034 bytes"]
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    os.mkfifo(path.with_name(f"x{path.name}"))
    assert all("gone" in table.file for table in index.verify().tables)
    assert index.describe()["tables"] == []
