"""Calls that fail or do less than asked: a clear error, the folder intact, and an index that works afterwards."""

import contextlib
import errno
import itertools
import logging
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from railsearch import DotProduct, Index, RailsearchError, load_similarity, save_similarity
from railsearch.foundation.errors import StorageError
from railsearch.index import changes
from tests.support.faults.faulty_disk import CHANGES, MODES, Fault, failing, read_plainly, short_calls
from tests.support.faults.model import FIRST, Change, Content, read_content, stray_files
from tests.support.trials import IS_FULL

PREPARED = [Change("add", (20, 21), 1), Change("remove", (3, 20), 2), Change("upsert", (5, 30), 3)]
CALLS = [
    Change("add", (50, 51), 4),
    Change("upsert", (5, 21, 52), 5),
    Change("remove", (0, 21), 6),
    Change("compact", (), 7),
]
HARMLESS = {"ftruncate", "pwrite"}
"""Calls that only write the name of the holder into LOCK."""


@pytest.fixture(autouse=True)
def _is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence warnings of cleanups that failed, and keep several segments."""
    monkeypatch.setattr(logging.getLogger("railsearch.index.storage.store"), "disabled", True)
    monkeypatch.setattr(changes, "SMALL", 0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "index"
    with pytest.MonkeyPatch.context() as patch, FIRST.build(folder) as index:
        patch.setattr(changes, "SMALL", 0)
        for change in PREPARED:
            change.apply(index)
    return folder


def prepared_content() -> Content:
    content = FIRST.rows()
    for change in PREPARED:
        content = change.applied(content)
    return content


def faults(root: Path) -> Iterator[Fault]:
    """Give a fault at each call in turn, of each kind, until a call is reached that is never made.

    The default suite gives a few of them, `make faults` each call with EIO and every third with the other kinds.
    """
    for place, (code, is_lasting) in enumerate(MODES.values()):
        stride = (3 if place else 1) if IS_FULL else 61
        for number in itertools.count(0 if IS_FULL else 15 * place, stride):
            fault = Fault(root, number, code, is_lasting)
            yield fault
            if not fault.hits:
                break


def check_error(error: Exception, fault: Fault) -> None:
    """Check that an error is one of ours or the system's, and says which file or folder is meant."""
    context = f"{type(error).__name__}: {error} after {fault.hits[:1]}"
    assert isinstance(error, (RailsearchError, OSError)), context
    assert str(fault.root) in str(error), context
    if fault.code == errno.ENOSPC and fault.hits[0][0] in CHANGES:
        assert not isinstance(error, ValueError), context


@pytest.mark.parametrize("change", CALLS if IS_FULL else CALLS[::3], ids=lambda change: change.kind)
def test_changes(prepared: Path, tmp_path: Path, change: Change, say: Callable[[str], None]) -> None:
    before, after = prepared_content(), change.applied(prepared_content())
    outcomes = Counter[str]()
    for fault in faults(tmp_path / "index"):
        folder = shutil.copytree(prepared, tmp_path / "index")
        with Index.open(folder) as index:
            read_content(index)
            version = index.version
            current = (folder / "CURRENT").read_bytes()
            fault.watched = folder / "CURRENT"
            try:
                with failing(fault):
                    change.apply(index)
                error = None
            except Exception as raised:
                error = raised
                check_error(error, fault)
            if not fault.hits:
                assert error is None
                shutil.rmtree(folder)
                continue
            name, path = fault.hits[0]
            context = f"{name} of {path}: {error}"
            has_moved = fault.content_at_hit != current
            if error is None:
                outcomes["done"] += 1
                assert has_moved or name not in CHANGES - HARMLESS, f"silent success: {context}"
                assert (name, path) != ("fsync", str(folder)), f"silent success: {context}"
                assert index.version == version + 1, context
            elif index.version == version and read_plainly(folder / "CURRENT") == current:
                outcomes["refused"] += 1
                assert read_content(index) == before, context
                with Index.open(folder) as again:
                    assert read_content(again) == before, context
                    assert again.verify().problems == (), context
                change.apply(index)
            else:
                outcomes["in place"] += 1
                assert has_moved, context
                assert "in place" in str(error), context
                index.refresh()
            assert index.version == version + 1, context
            assert read_content(index) == after, context
            Change("add", (60,), 8).apply(index)
            assert read_content(index) == Change("add", (60,), 8).applied(after), context
            assert stray_files(folder) == [], context
        with Index.open(folder) as again:
            assert again.verify().problems == ()
        shutil.rmtree(folder)
    assert outcomes["refused"]
    assert len(outcomes) == 3 or not IS_FULL
    say(f"I/O errors during {change.kind}: {outcomes.total()} calls, {_listed(outcomes)}")


def _listed(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))


def test_build(tmp_path: Path, say: Callable[[str], None]) -> None:
    outcomes = Counter[str]()
    for fault in faults(tmp_path / "place"):
        place = tmp_path / "place"
        place.mkdir()
        try:
            with failing(fault):
                FIRST.build(place / "index").close()
            error = None
        except Exception as raised:
            error = raised
            check_error(error, fault)
        if fault.hits:
            outcomes["done" if error is None else "refused"] += 1
        if error is not None and not (place / "index").exists():
            FIRST.build(place / "index").close()
        with Index.open(place / "index") as index:
            assert read_content(index) == FIRST.rows()
            assert index.verify().problems == ()
        assert [path.name for path in place.iterdir()] == ["index"], f"{fault.hits[:1]}: {error}"
        shutil.rmtree(place)
    assert outcomes["refused"]
    say(f"I/O errors during build: {outcomes.total()} calls, {_listed(outcomes)}")


def test_open(prepared: Path, say: Callable[[str], None]) -> None:
    outcomes = Counter[str]()
    for fault in faults(prepared):
        try:
            with failing(fault), Index.open(prepared) as index:
                found = read_content(index)
        except Exception as error:
            check_error(error, fault)
            outcomes["refused"] += 1
        else:
            assert found == prepared_content(), fault.hits
            outcomes["done"] += bool(fault.hits)
    with Index.open(prepared) as index:
        assert read_content(index) == prepared_content()
    say(f"I/O errors during open: {outcomes.total()} calls, {_listed(outcomes)}")


def test_refresh(prepared: Path, tmp_path: Path, say: Callable[[str], None]) -> None:
    outcomes = Counter[str]()
    folder = shutil.copytree(prepared, tmp_path / "index")
    after = CALLS[0].applied(prepared_content())
    with Index.open(folder) as writer:
        CALLS[0].apply(writer)
    for fault in faults(folder):
        with Index.open(folder, version=1 + len(PREPARED)) as index:
            read_content(index)
            try:
                with failing(fault):
                    index.refresh()
                    read_content(index)
            except Exception as error:
                check_error(error, fault)
                outcomes["refused"] += 1
                assert read_content(index) in (prepared_content(), after), fault.hits[:1]
            else:
                outcomes["done"] += bool(fault.hits)
                assert read_content(index) == after, fault.hits[:1]
            index.refresh()
            assert read_content(index) == after, fault.hits[:1]
    say(f"I/O errors during refresh: {outcomes.total()} calls, {_listed(outcomes)}")


def test_verify(prepared: Path, say: Callable[[str], None]) -> None:
    outcomes = Counter[str]()
    for fault in faults(prepared):
        with Index.open(prepared) as index:
            try:
                with failing(fault):
                    report = index.verify()
            except Exception as error:
                check_error(error, fault)
                outcomes["refused"] += 1
            else:
                outcomes["reported" if report.problems else "done"] += bool(fault.hits)
                name, _ = fault.hits[0] if fault.hits else ("", "")
                assert report.problems or name not in {"read", "readinto", "pread"}, f"silent success: {fault.hits}"
            assert index.verify().is_intact
    say(f"I/O errors during verify: {outcomes.total()} calls, {_listed(outcomes)}")


def test_model_folders(tmp_path: Path, say: Callable[[str], None]) -> None:
    outcomes = Counter[str]()
    old, new = DotProduct(dim=3), DotProduct(dim=4)
    for fault in faults(tmp_path / "place"):
        (tmp_path / "place").mkdir()
        folder = tmp_path / "place" / "model"
        save_similarity(old, folder)
        try:
            with failing(fault):
                save_similarity(new, folder, overwrite=True)
            outcomes["done"] += bool(fault.hits)
            expected = [new]
        except Exception as error:
            check_error(error, fault)
            outcomes["refused"] += 1
            expected = [old, new]
        assert load_similarity(folder).config in [each.config for each in expected], fault.hits[:1]
        save_similarity(new, folder, overwrite=True)
        assert load_similarity(folder).config == new.config
        assert [path.name for path in folder.parent.iterdir()] == ["model"], fault.hits[:1]
        shutil.rmtree(tmp_path / "place")
    say(f"I/O errors during saves over a model: {outcomes.total()} calls, {_listed(outcomes)}")


def test_short_reads_and_writes(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    content = FIRST.rows()
    with short_calls(tmp_path):
        with FIRST.build(folder) as index:
            for change in (*PREPARED, CALLS[3]):
                change.apply(index)
                content = change.applied(content)
                assert read_content(index) == content
        with Index.open(folder) as index:
            assert read_content(index) == content
            assert index.verify().is_intact
    with Index.open(folder) as index:
        assert read_content(index) == content
        assert index.verify().is_intact


@contextlib.contextmanager
def files_end_at(num_bytes: int) -> Iterator[None]:
    """Let the system cut writes short at so many bytes of a file, and refuse the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("change", CALLS, ids=lambda change: change.kind)
def test_files_that_the_system_cuts_off(prepared: Path, tmp_path: Path, change: Change) -> None:
    folder = shutil.copytree(prepared, tmp_path / "index")
    num_refused = 0
    with Index.open(folder) as index:
        for limit in itertools.count(0, 100 if IS_FULL else 600):
            version = index.version
            try:
                with files_end_at(limit):
                    change.apply(index)
                break
            except StorageError as error:
                assert "File too large" in str(error)  # noqa: PT017
                num_refused += 1
            assert index.version == version
            assert read_content(index) == prepared_content()
            assert stray_files(folder) == []
        assert read_content(index) == change.applied(prepared_content())
        assert index.verify().is_intact
    assert num_refused >= 2


def test_signals_that_interrupt_calls(tmp_path: Path) -> None:
    num_signals = itertools.count()
    before = signal.signal(signal.SIGALRM, lambda *_: next(num_signals))
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        content = FIRST.rows()
        with FIRST.build(tmp_path / "index") as index:
            for change in (*PREPARED, CALLS[3]):
                change.apply(index)
                content = change.applied(content)
        with Index.open(tmp_path / "index") as index:
            assert read_content(index) == content
            assert index.verify().is_intact
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert next(num_signals) > 3
