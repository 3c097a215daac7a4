"""Kill -9 at any moment: acknowledged changes are kept, others are complete or missing, and the index still works."""

import collections
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from railsearch import Index
from railsearch.index import changes
from tests.support.faults.model import FIRST, Change, Content, read_content, stray_files
from tests.support.trials import IS_FULL, trials

LONGEST_DELAY = 0.3
EXTRA = Change("add", (1000,), 77)


class Victim:
    """A process that makes changes on request and is killed while it does."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.faults.victim"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def run(self, *, delay: float | None = None, **task: object) -> int:
        """Do a task; return the exit code, which is -9 if the process was killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"delay": delay, "task": task}), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    victim = Victim()
    yield victim
    victim.stop()


def read_log(log: Path) -> tuple[list[Change], Change | None]:
    """Return the changes that were acknowledged, and the one that was begun but not acknowledged."""
    acknowledged: list[Change] = []
    begun = None
    for line in log.read_text().splitlines() if log.exists() else []:
        entry = json.loads(line)
        if entry["state"] == "begun":
            begun = Change(entry["kind"], tuple(entry["ids"]), entry["number"])
        else:
            assert begun is not None
            acknowledged.append(begun)
            begun = None
    return acknowledged, begun


def check_survived(folder: Path, log: Path, before: Content, version: int) -> str:
    """Check everything that must survive a kill; return where the process was killed."""
    acknowledged, in_flight = read_log(log)
    expected = before
    for change in acknowledged:
        expected = change.applied(expected)
    version += len(acknowledged)
    with Index.open(folder) as index:
        found = read_content(index)
        has_moved = index.version == version + 1
        if has_moved:
            assert in_flight is not None, "a version that nobody asked for"
            expected = in_flight.applied(expected)
        else:
            assert index.version == version
        assert found == expected
        assert index.verify().problems == ()
        EXTRA.apply(index)
        assert read_content(index) == EXTRA.applied(expected)
        assert stray_files(folder) == []
    with Index.open(folder) as index:
        assert read_content(index) == EXTRA.applied(expected)
    if in_flight is None:
        return "between two changes"
    return "inside a change that had taken effect" if has_moved else "inside a change that had not"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with string ids, several segments and removed items."""
    folder = tmp_path_factory.mktemp("kill") / "index"
    with pytest.MonkeyPatch.context() as patch, FIRST.build(folder, has_keys=True) as index:
        patch.setattr(changes, "SMALL", 0)
        for change in PREPARED:
            change.apply(index)
    return folder


PREPARED = [Change("add", (20, 21, 22), 1), Change("remove", (3, 20), 2), Change("upsert", (5, 30), 3)]


def prepared_content() -> Content:
    content = FIRST.rows()
    for change in PREPARED:
        content = change.applied(content)
    return content


def test_killed_at_a_random_moment(victim: Victim, folder: Path, tmp_path: Path, say: Callable[[str], None]) -> None:
    choice = random.Random(4)
    where = collections.Counter[str]()
    num_acknowledged = 0
    for trial in range(trials(5, 200)):
        target, log = tmp_path / f"{trial}", tmp_path / f"{trial}.log"
        shutil.copytree(folder, target)
        delay = choice.choice([0.0, 0.02, LONGEST_DELAY]) * choice.random()
        small = choice.choice([0, 4, 65_536])
        code = victim.run(delay=delay, log=str(log), path=str(target), seed=trial, small=small, change=None, step=None)
        assert code == -signal.SIGKILL, log.read_text()
        where[check_survived(target, log, prepared_content(), 1 + len(PREPARED))] += 1
        num_acknowledged += len(read_log(log)[0])
        shutil.rmtree(target)
    falls = ", ".join(f"{count} {place}" for place, count in sorted(where.items()))
    say(
        f"kill -9 at a random moment: {where.total()} trials, {num_acknowledged} changes acknowledged, "
        f"0 lost, 0 phantom, 0 unopenable ({falls})"
    )


@pytest.mark.parametrize(
    "change",
    [
        ("add", (50, 51)),
        pytest.param(("upsert", (5, 21, 52)), marks=pytest.mark.slow),
        pytest.param(("remove", (0, 22)), marks=pytest.mark.slow),
        pytest.param(("compact", ()), marks=pytest.mark.slow),
    ],
    ids=lambda change: change[0],
)
def test_killed_at_every_step_of_a_change(
    victim: Victim, folder: Path, tmp_path: Path, change: tuple[str, tuple[int, ...]], say: Callable[[str], None]
) -> None:
    where = collections.Counter[str]()
    stride = 1 if IS_FULL else 23
    for small, offset in ((0, 0), (65_536, 0 if IS_FULL else 11)):
        for step in itertools.count(offset, stride):
            target, log = tmp_path / f"{small}-{step}", tmp_path / f"{small}-{step}.log"
            shutil.copytree(folder, target)
            code = victim.run(log=str(log), path=str(target), seed=0, small=small, change=change, step=step)
            assert code in {-signal.SIGKILL, 0}, log.read_text()
            place = check_survived(target, log, prepared_content(), 1 + len(PREPARED))
            shutil.rmtree(target)
            if code == 0:  # there are fewer steps than that
                assert place == "between two changes"
                break
            where[place] += 1
    assert len(where) >= 2 or not IS_FULL, "some steps come before the change takes effect, and some after"
    falls = ", ".join(f"{count} {place}" for place, count in sorted(where.items()))
    every = "every step" if IS_FULL else "some steps"
    say(f"kill -9 at {every} of {change[0]}: {where.total()} steps, 0 lost, 0 phantom, 0 unopenable ({falls})")


def test_killed_while_it_is_built(victim: Victim, tmp_path: Path, say: Callable[[str], None]) -> None:
    num_absent = num_whole = 0
    for step in itertools.count(0, 1 if IS_FULL else 23):
        target, log = tmp_path / f"{step}" / "index", tmp_path / f"{step}.log"
        code = victim.run(log=str(log), path=str(target), seed=0, small=0, change=["build"], step=step)
        assert code in {-signal.SIGKILL, 0}, log.read_text()
        is_there = target.exists()
        num_absent, num_whole = num_absent + (not is_there), num_whole + is_there
        with Index.open(target) if is_there else FIRST.build(target) as index:
            assert read_content(index) == FIRST.rows()
            assert index.verify().is_intact
            EXTRA.apply(index)
            assert stray_files(target) == []
        if not is_there:  # the second build has removed what the first began
            assert [path.name for path in target.parent.iterdir()] == ["index"]
        if code == 0:
            break
    assert num_absent
    assert num_whole > 1 or not IS_FULL
    every = "every step" if IS_FULL else "some steps"
    say(f"kill -9 at {every} of build: {num_absent} times missing, {num_whole} times complete, all built or opened")
