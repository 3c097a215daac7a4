"""Table files: a cache that is used only if every byte of it is right, and that never leaves its folder."""

import os
from pathlib import Path

import pytest
import torch

from railsearch.index.storage.table_files import TableFiles, remove_tables

VECTORS = torch.ones(3, 2)
STORED = b"graph" * 20
LIMIT = 10_000


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    files = TableFiles(tmp_path)
    files.write("seg.sum", "Faiss('hnsw')", VECTORS, STORED)
    return files


def table_file(folder: Path) -> Path:
    (path,) = (folder / "tables").iterdir()
    return path


def test_what_was_written_is_read(files: TableFiles, tmp_path: Path) -> None:
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) == STORED
    assert table_file(tmp_path).name.startswith("seg.sum.Faiss-hnsw-")
    files.write("seg.sum", "Faiss('hnsw')", VECTORS, b"")
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) == b""


def test_every_change_of_a_byte_is_noticed(files: TableFiles, tmp_path: Path) -> None:
    path = table_file(tmp_path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None
    for size in range(len(content)):
        path.write_bytes(content[:size])
        assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None
    path.write_bytes(content + b"\n")
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None


def test_a_table_of_something_else_is_not_used(files: TableFiles, tmp_path: Path) -> None:
    path = table_file(tmp_path)
    assert files.read("seg.sum", "Faiss('ivf')", VECTORS, max_bytes=LIMIT) is None
    assert files.read("other.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None
    for vectors in (torch.ones(4, 2), torch.ones(3, 2, dtype=torch.float16)):
        assert files.read("seg.sum", "Faiss('hnsw')", vectors, max_bytes=LIMIT) is None
    # A file under the name of another table says itself that it is not that table.
    files.write("other.sum", "Faiss('hnsw')", VECTORS, STORED)
    (other,) = (tmp_path / "tables").glob("other*")
    path.replace(other)
    assert files.read("other.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None


def test_keys_that_look_alike_have_files_of_their_own(files: TableFiles) -> None:
    for key in ("Faiss hnsw", "Faiss('hnsw' )", "Faiss-hnsw"):
        assert files.read("seg.sum", key, VECTORS, max_bytes=LIMIT) is None
        files.write("seg.sum", key, VECTORS, key.encode())
        assert files.read("seg.sum", key, VECTORS, max_bytes=LIMIT) == key.encode()


def test_only_a_regular_file_of_the_folder_is_read(files: TableFiles, tmp_path: Path) -> None:
    path, outside = table_file(tmp_path), tmp_path / "outside"
    path.rename(outside)
    path.symlink_to(outside)
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None
    path.unlink()
    os.mkfifo(path)  # must not wait for a writer
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None
    path.unlink()
    path.mkdir()
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None


def test_a_file_that_is_too_large_is_not_read(files: TableFiles, tmp_path: Path) -> None:
    os.truncate(table_file(tmp_path), 2**40)  # sparse: it takes no room, and would take all memory
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) is None


def test_a_folder_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    outside, index = tmp_path / "outside", tmp_path / "index"
    outside.mkdir()
    index.mkdir()
    (outside / "gone.sum.x.table").write_bytes(b"not ours")
    (index / "tables").symlink_to(outside)
    files = TableFiles(index)
    with pytest.raises(OSError, match="symbolic link"):
        files.write("seg.sum", "key", VECTORS, STORED)
    assert files.read("seg.sum", "key", VECTORS, max_bytes=LIMIT) is None
    remove_tables(index, set())
    assert [path.name for path in outside.iterdir()] == ["gone.sum.x.table"]


def test_cleanup_keeps_tables_of_segments_that_are_named(files: TableFiles, tmp_path: Path) -> None:
    files.write("gone.sum", "key", VECTORS, STORED)
    (tmp_path / "tables" / "seg.sum.key.table.abc.tmp").write_bytes(b"half")
    (tmp_path / "tables" / "notes.txt").write_bytes(b"of a user")
    remove_tables(tmp_path, {"seg"})
    names = sorted(path.name for path in (tmp_path / "tables").iterdir())
    assert names[0] == "notes.txt"
    assert len(names) == 2
    assert names[1].startswith("seg.sum.")
    remove_tables(tmp_path / "no index", set())  # a folder without tables has nothing to remove


def test_a_write_that_fails_leaves_the_table_before(
    files: TableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk on fire"):
        files.write("seg.sum", "Faiss('hnsw')", VECTORS, b"newer")
    assert files.read("seg.sum", "Faiss('hnsw')", VECTORS, max_bytes=LIMIT) == STORED
    assert len(list((tmp_path / "tables").iterdir())) == 1
