"""One writer at a time, and readers who see exactly one version, for as long as they like."""

import contextlib
import gc
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from railsearch import Index, ItemBatch, TwoPass
from railsearch.errors import IndexFolderError, IndexLockedError
from railsearch.index import changes
from railsearch.index.storage import WriterLock
from tests.support.faults.model import (
    DIM,
    FIRST,
    KEPT_VERSIONS,
    Change,
    Content,
    read_content,
    read_manifest,
    stray_files,
)
from tests.support.faults.writer import drawn
from tests.support.trials import trials

QUERY = torch.tensor([[1.0, -2.0, 0.5, 4.0]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FIRST.build(tmp_path / "index").close()
    return tmp_path / "index"


class OtherProcess:
    """Another process that writes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.faults.writer"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, *words: object) -> None:
        print(json.dumps([str(word) if isinstance(word, Path) else word for word in words]), file=self._process.stdin)
        self._process.stdin.flush()

    def answer(self) -> int:
        return int(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


@pytest.fixture(scope="module")
def other_process() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.stop()


def best(content: Content, k: int) -> list[tuple[int, float]]:
    """The k best of a content, in plain arithmetic; all numbers are halves, so that there is nothing to round."""
    scored = {item: sum(a * b for a, b in zip(QUERY[0].tolist(), row[0], strict=True)) for item, row in content.items()}
    return sorted(scored.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


def found(index: Index, k: int) -> list[tuple[int, float]]:
    result = index.search(QUERY, k, TwoPass())
    return list(zip(result.ids[0].tolist(), result.scores[0].tolist(), strict=True))


def test_a_reader_during_many_commits(
    folder: Path, other_process: OtherProcess, say: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    num_commits = trials(25, 1000)
    contents = {1: FIRST.rows()}
    for version, (_, content) in enumerate(drawn(FIRST.rows(), num_commits), start=2):
        contents[version] = content
    num_looks, seen = 0, [1]
    with (
        caplog.at_level(logging.WARNING),
        Index.open(folder) as still,
        Index.open(folder) as reader,
    ):
        other_process.tell(folder, "commit", num_commits)
        while reader.version <= num_commits:
            assert other_process.is_running
            has_moved = reader.refresh()
            assert has_moved == (reader.version != seen[-1])
            assert reader.version >= seen[-1]
            seen.append(reader.version)
            assert read_content(reader) == contents[reader.version]
            k = min(5, len(reader))
            assert not k or found(reader, k) == best(contents[reader.version], k)
            if num_looks % 10 == 0:
                assert read_content(still) == contents[1]
                assert reader.verify().problems == ()
                with Index.open(folder) as newcomer:
                    assert newcomer.version >= reader.version
                    assert read_content(newcomer) == contents[newcomer.version]
            num_looks += 1
        assert other_process.answer() == reader.version
        assert read_content(still) == contents[1]
        assert still.version == 1
    assert seen[-1] == num_commits + 1
    assert [record.getMessage() for record in caplog.records] == []
    say(
        f"a reader during {num_commits} commits: {num_looks} refreshes, {len(set(seen))} versions seen, each the "
        "brute-force answer of exactly one version; none backwards"
    )


def test_a_version_stays_for_its_reader_and_goes_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SMALL", 0)
    reader = Index.open(folder)
    forgotten = Index.open(folder)
    first = read_manifest(folder / "manifests/00000001.json")["files"]
    writer = Index.open(folder)
    writer.compact()
    for item in range(8):
        writer.remove([item])
    assert writer.version == 10
    assert writer.verify().versions == (1, 8, 9, 10)
    assert all((folder / file).exists() for file in first)
    assert read_content(reader) == read_content(forgotten) == FIRST.rows()
    with Index.open(folder, version=1) as another:
        assert read_content(another) == FIRST.rows()
    reader.close()
    writer.remove([8])
    assert (folder / "manifests/00000001.json").exists()
    del forgotten
    gc.collect()
    writer.remove([9])
    assert writer.verify().versions == (10, 11, 12)
    assert not any((folder / file).exists() for file in first if not file.startswith("similarity/"))
    assert stray_files(folder) == []


def test_a_reader_that_moves_on_lets_go(folder: Path) -> None:
    with Index.open(folder) as reader, Index.open(folder) as writer:
        for item in range(6):
            writer.remove([item])
            assert reader.refresh()
            assert not reader.refresh()
            assert len(reader) == 11 - item
        assert len(writer.verify().versions) == KEPT_VERSIONS


def test_versions_that_cleanup_keeps_and_removes(folder: Path) -> None:
    with Index.open(folder) as index:
        for item in range(6):
            index.remove([item])
    for version in (5, 6, 7):
        with Index.open(folder, version=version) as older:
            assert (older.version, len(older)) == (version, 13 - version)
    for version in (1, 4):
        with pytest.raises(
            IndexFolderError, match=f"{version:08d}.json does not exist; versions in this folder: 5, 6, 7"
        ):
            Index.open(folder, version=version)
    for version in (8, 10**12):
        with pytest.raises(
            IndexFolderError, match=rf"version {version} of {folder} was never acknowledged.*newest is 7"
        ):
            Index.open(folder, version=version)
    with Index.open(folder, version=6) as older:
        with pytest.raises(IndexFolderError, match=r"version 6 was opened but the newest is 7; .* refresh\(\) first"):
            older.remove([10])
        assert len(older) == 7
        assert older.refresh()
        older.remove([10])
        assert older.version == 8


def test_a_pinned_version_is_not_changed_behind_its_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Index.open(folder) as writer, Index.open(folder, version=1) as pinned:
        real = WriterLock.held

        def held(lock: WriterLock, purpose: str) -> contextlib.AbstractContextManager[Callable[[], None]]:
            monkeypatch.setattr(WriterLock, "held", real)
            writer.remove([0])  # just before the lock is taken
            return real(lock, purpose)

        monkeypatch.setattr(WriterLock, "held", held)
        with pytest.raises(IndexFolderError, match="version 1 was opened but the newest is 2"):
            pinned.remove([1])
        assert writer.refresh() is False


def test_a_second_writer_in_this_process(folder: Path) -> None:
    with Index.open(folder) as index, Index.open(folder) as other:

        def batches() -> Iterator[ItemBatch]:
            for change in ("add", "upsert", "remove", "compact"):
                with pytest.raises(
                    IndexLockedError, match=rf"{folder} is being changed by process {os.getpid()} on .*add"
                ):
                    Change(change, (50,) if change != "remove" else (1,), 1).apply(other)
            assert other.refresh() is False
            yield ItemBatch(torch.ones(1, DIM), [900], index.metadata[:1])

        index.add(batches())
        other.remove([900])
        assert (index.version, other.version, len(other)) == (2, 3, 12)


def test_a_second_writer_in_another_process(folder: Path, other_process: OtherProcess) -> None:
    with Index.open(folder) as index:
        other_process.tell(folder, "hold", 900)
        holder = other_process.answer()
        message = rf"{folder} is being changed by process {holder} on .*\(add, .*\); wait until it is done"
        with pytest.raises(IndexLockedError, match=message):
            index.remove([1])
        assert read_content(index) == FIRST.rows()
        other_process.tell("go on")
        assert other_process.answer() == 2
        index.remove([1])
        assert index.version == 3
        assert 900 in index.ids


def test_two_processes_in_turn(folder: Path, other_process: OtherProcess) -> None:
    with Index.open(folder) as index:
        for turn in range(5):
            Change("add", (100 + turn,), 1).apply(index)
            assert index.version == 2 + 2 * turn
            other_process.tell(folder, "add", 200 + turn)
            assert other_process.answer() == 3 + 2 * turn
        index.refresh()
        assert index.ids.tolist() == [*range(12), *range(100, 105), *range(200, 205)]


def test_threads_that_write_wait_for_each_other(folder: Path) -> None:
    errors: list[BaseException] = []

    def add(first: int) -> None:
        try:
            with Index.open(folder) as index:
                for item in range(first, first + 4):
                    while True:
                        with contextlib.suppress(IndexLockedError):
                            Change("add", (item,), 1).apply(index)
                            break
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(first,)) for first in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Index.open(folder) as index:
        assert index.version == 1 + 2 * 4
        assert len(index) == 12 + 2 * 4


def test_searches_while_the_same_index_changes(folder: Path) -> None:
    steps = list(drawn(FIRST.rows(), trials(10, 100)))
    allowed = [best(content, 3) for content in (FIRST.rows(), *(content for _, content in steps))]
    wrong: list[object] = []
    is_over = threading.Event()
    with Index.open(folder) as index:

        def search() -> None:
            try:
                while not is_over.is_set():
                    answer = found(index, 3)
                    if answer not in allowed:
                        wrong.append(answer)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=search) for _ in range(2)]
        for thread in threads:
            thread.start()
        for change, _ in steps:
            change.apply(index)
        is_over.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_who_asks_whether_the_lock_is_held_is_in_nobodys_way(folder: Path) -> None:
    lock = WriterLock(folder)
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            lock.is_held()

    asking = threading.Thread(target=ask)
    with lock.held("test"):
        asking.start()
    try:
        for _ in range(trials(200, 5000)):
            with lock.held("test"):
                assert lock.is_held()
    finally:
        is_over.set()
        asking.join()


def test_what_is_mapped_outlives_its_version(folder: Path) -> None:
    index = Index.open(folder)
    before = index.search(QUERY, 3).to_frame()
    fresh = Index.open(folder)
    with Index.open(folder) as writer:
        index.close()
        fresh.close()
        writer.compact()
        for item in range(4):
            writer.remove([item])
    assert index.search(QUERY, 3).to_frame().equals(before)
    assert fresh.search(QUERY, 3).to_frame().equals(before)  # its metadata are read only now
