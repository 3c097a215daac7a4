"""A full disk, or missing permissions: a clear error, the previous version intact, and success later."""

import contextlib
import errno
import itertools
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from railsearch import Index
from railsearch.errors import IndexFolderError
from railsearch.foundation.errors import StorageError
from railsearch.index import changes
from tests.support.faults.model import FIRST, Change, read_content, stray_files
from tests.support.faults.steps import WRITES, watched
from tests.support.trials import IS_FULL

SMALL_DISK = 512 * 1024
PAGE = 4096
NOBODY = 65_534
EACH = "each" if IS_FULL else "every seventh"

CHANGES = [
    Change("add", (50, 51), 1),
    Change("upsert", (5, 52), 2),
    Change("remove", (0, 1), 3),
    Change("compact", (), 4),
]


@pytest.fixture(params=CHANGES, ids=lambda change: change.kind)
def change(request: pytest.FixtureRequest) -> Change:
    return request.param


@pytest.fixture(autouse=True)
def _several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SMALL", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FIRST.build(tmp_path / "index").close()
    return tmp_path / "index"


@contextlib.contextmanager
def full_from(step: int) -> Iterator[list[str]]:
    """Simulate a disk that is full from a certain write on; return the writes that failed."""
    failed: list[str] = []
    count = itertools.count()

    def on_step(name: str, tear: Callable[[], object]) -> None:
        if name not in WRITES or next(count) < step:
            return
        if not failed:
            tear()
        failed.append(name)
        raise OSError(errno.ENOSPC, "No space left on device")

    with watched(on_step):
        yield failed


def test_full_at_every_write_of_a_change(folder: Path, tmp_path: Path, change: Change, say: Callable) -> None:
    for step in itertools.count(0, 1 if IS_FULL else 7):
        target = tmp_path / f"{step}"
        shutil.copytree(folder, target)
        expected = FIRST.rows()
        with Index.open(target) as index:
            with full_from(step) as failed:
                try:
                    change.apply(index)
                    is_done = True
                except StorageError as error:
                    is_done, message = False, str(error)
            if is_done:
                assert set(failed) <= {"ftruncate"}  # the name of the holder is all that is missing from LOCK
            elif "is in place" in message:  # CURRENT was renamed, and only the sync of that failed
                assert failed[0] == "fsync"
                index.refresh()
                expected = change.applied(expected)
                is_done = True
            else:
                assert str(target) in message
                assert "free some space" in message
                assert "The previous version is unchanged" in message
                assert index.version == 1
                assert stray_files(target) == []  # what was written for nothing takes no room
            assert read_content(index) == (change.applied(expected) if is_done else expected)
            if not is_done:
                with Index.open(target) as again:
                    assert again.version == 1
                    assert read_content(again) == expected
                    assert again.verify().is_intact
                change.apply(index)
            assert index.version == 2
            assert read_content(index) == change.applied(FIRST.rows())
        shutil.rmtree(target)
        if not failed:
            break
    say(f"disk full from {EACH} write of {change.kind} on: {step} writes, each an error, the previous version intact")


def test_full_at_every_write_of_a_build(tmp_path: Path, say: Callable) -> None:
    for step in itertools.count(0, 1 if IS_FULL else 7):
        target = tmp_path / f"{step}" / "index"
        target.parent.mkdir()
        with full_from(step) as failed, contextlib.suppress(StorageError):
            FIRST.build(target).close()
            assert not failed
        if not failed:
            break
        if not target.exists():
            assert list(target.parent.iterdir()) == []
            FIRST.build(target).close()
        with Index.open(target) as index:
            assert read_content(index) == FIRST.rows()
    say(f"disk full from {EACH} write of build on: {step} writes, each an error; built when there was room again")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system, which can really be full."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)  # noqa: S607


def leave_room(disk: Path, num_bytes: int | None) -> None:
    """Fill a disk except for some bytes; None empties it."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    if num_bytes is not None:
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - num_bytes)


def test_a_really_full_disk(small_disk: Path, say: Callable) -> None:
    num_refused = 0
    for change in CHANGES:
        target = small_disk / change.kind
        for num_pages in itertools.count():
            FIRST.build(target).close()
            with Index.open(target) as index:
                leave_room(small_disk, num_pages * PAGE)
                try:
                    change.apply(index)
                    is_done = True
                except StorageError as error:
                    is_done, message = False, str(error)
                if not is_done:
                    assert str(target) in message
                    assert "free some space" in message
                    assert read_content(index) == FIRST.rows()
                    with Index.open(target) as again:
                        assert again.verify().is_intact
                        assert read_content(again) == FIRST.rows()
                    assert shutil.disk_usage(small_disk).free >= (num_pages - 1) * PAGE  # LOCK takes one
                    num_refused += 1
                leave_room(small_disk, None)
                if not is_done:
                    change.apply(index)
                assert read_content(index) == change.applied(FIRST.rows())
            shutil.rmtree(target)
            if is_done:
                break
    say(f"a tmpfs with room for ever fewer pages: {num_refused} changes refused, each with the previous version intact")


def test_a_build_on_a_really_full_disk(small_disk: Path) -> None:
    target = small_disk / "index"
    for num_pages in itertools.count():
        leave_room(small_disk, num_pages * PAGE)
        try:
            FIRST.build(target).close()
            break
        except StorageError as error:
            message = str(error)
        assert "No space left on device" in message
        assert [path.name for path in small_disk.iterdir()] == ["ballast"]
    assert num_pages > 3
    with Index.open(target) as index:
        assert read_content(index) == FIRST.rows()


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Return a folder that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Drop the rights of root while the block runs."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def without(permission: int, *paths: Path) -> Iterator[None]:
    modes = [stat.S_IMODE(path.stat().st_mode) for path in paths]
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode & ~permission)
    try:
        yield
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


def test_a_folder_that_may_only_be_read(open_place: Path, change: Change) -> None:
    target = open_place / "index"
    FIRST.build(target).close()
    everything = [target, *target.rglob("*")]
    with without(0o222, *everything), as_nobody(), Index.open(target) as index:
        assert read_content(index) == FIRST.rows()
        assert index.verify().is_intact
        with pytest.raises(StorageError, match=f"{target}/LOCK cannot be written .Permission denied.; check perm"):
            change.apply(index)
        assert read_content(index) == FIRST.rows()
    (target / "LOCK").touch()
    (target / "LOCK").chmod(0o666)
    with without(0o222, *everything), as_nobody(), Index.open(target) as index:
        with pytest.raises(StorageError, match=f"{target} cannot be written .Permission denied.*; check permissio"):
            change.apply(index)
        assert read_content(index) == FIRST.rows()
    with Index.open(target) as index:
        assert index.version == 1
        change.apply(index)


def test_files_that_may_not_be_read(open_place: Path) -> None:
    target = open_place / "index"
    FIRST.build(target).close()
    for path in [open_place, target, *target.rglob("*")]:
        if path.name == "tombstones":  # which is empty
            continue
        with without(0o777, path), as_nobody(), pytest.raises(IndexFolderError, match=r"cannot be read.*check permiss"):
            Index.open(target)
    with Index.open(target) as index:
        assert read_content(index) == FIRST.rows()


def test_a_place_where_nothing_may_be_built(open_place: Path) -> None:
    (open_place / "closed").mkdir()
    for permission in (0o222, 0o777):
        with (
            without(permission, open_place / "closed"),
            as_nobody(),
            pytest.raises(StorageError, match=r"index cannot be created \(Permission denied\); check permissions"),
        ):
            FIRST.build(open_place / "closed" / "index")
    FIRST.build(open_place / "closed" / "index").close()
    with pytest.raises(StorageError, match=r"CURRENT/index cannot be created"):
        FIRST.build(open_place / "closed" / "index" / "CURRENT" / "index")


def test_a_full_disk_is_not_a_value_error() -> None:
    assert issubclass(StorageError, OSError)
    assert not issubclass(StorageError, ValueError)
