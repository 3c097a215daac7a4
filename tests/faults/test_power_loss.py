"""Power loss at any moment: every disk that may be left opens at a committed version; nothing acknowledged is lost."""

import contextlib
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from railsearch import DotProduct, Index, load_similarity, save_similarity
from railsearch.errors import IndexFolderError
from railsearch.foundation.files import new_folder, settled_folder
from railsearch.index import changes
from tests.support.faults.model import FIRST, Change, Content, read_content, stray_files
from tests.support.faults.power_loss import SIMPLE, State, states
from tests.support.faults.recording import recorded
from tests.support.trials import IS_FULL, trials

EXTRA = Change("add", (1000,), 77)
HISTORY = [
    Change("add", (20, 21), 1),
    Change("upsert", (5, 21, 30), 2),
    Change("remove", (0, 20), 3),
    Change("compact", (), 4),
    Change("remove", (1,), 5),
]
LOSSES = SIMPLE if IS_FULL else ("nothing", "torn")


@pytest.fixture(autouse=True)
def _is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let warnings of versions that were never acknowledged go by, and keep several segments."""
    monkeypatch.setattr(logging.getLogger("railsearch.index.storage.store"), "disabled", True)
    monkeypatch.setattr(changes, "SMALL", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the folder in which everything is recorded."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@contextlib.contextmanager
def written(state: State, place: Path) -> Iterator[Path]:
    """Write a state into a folder that is removed after the block."""
    folder = place / "state"
    folder.mkdir()
    state.write(folder)
    yield folder
    shutil.rmtree(folder)


def truths(kinds: list[Change]) -> list[Content]:
    """Return the content of every version, from the first."""
    found = [FIRST.rows()]
    for change in kinds:
        found.append(change.applied(found[-1]))
    return found


def check(folder: Path, state: State, expected: list[Content], *, acknowledged: int) -> int:
    """Check an index that a power failure left; return its version, which is 0 if there is none."""
    context = f"after {state.num_events} events, {state.loss}: {[path for path, _ in state.files]}"
    if not folder.exists():
        assert acknowledged == 0, f"lost an acknowledged build {context}"
        with pytest.raises(IndexFolderError, match="does not exist"):
            Index.open(folder)
        FIRST.build(folder).close()
        assert [path.name for path in folder.parent.iterdir()] == [folder.name], context
        return 0
    with Index.open(folder) as index:
        assert acknowledged <= index.version <= acknowledged + 1, context
        version, content = index.version, expected[index.version - 1]
        assert read_content(index) == content, context
        assert index.verify().problems == (), context
        EXTRA.apply(index)
        assert stray_files(folder) == [], context
    with Index.open(folder) as index:
        assert read_content(index) == EXTRA.applied(content), context
    return version


@pytest.mark.parametrize(
    ("small", "has_keys"), [(0, False), (0, True), (65_536, False), (65_536, True)] if IS_FULL else [(0, False)]
)
def test_changes(
    tmp_path: Path, root: Path, small: int, has_keys: bool, say: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SMALL", small)
    history = HISTORY if IS_FULL else [HISTORY[0], HISTORY[2]]
    with FIRST.build(root / "index", has_keys=has_keys) as index, recorded(root) as recording:
        for change in history:
            change.apply(index)
            recording.acknowledge()
    versions = []
    for state in states(recording, num_random=trials(0, 4), seed=small, losses=LOSSES):
        with written(state, tmp_path) as folder:
            versions.append(check(folder / "index", state, truths(history), acknowledged=1 + state.num_acknowledged))
    assert set(versions) == set(range(1, len(history) + 2))
    say(f"power loss during {len(history)} changes: {len(versions)} states, 0 lost, 0 unopenable")


def test_build(tmp_path: Path, root: Path, say: Callable[[str], None]) -> None:
    with recorded(root) as recording:
        FIRST.build(root / "new" / "deep" / "index").close()
        recording.acknowledge()
    versions = []
    for state in states(recording, num_random=trials(0, 4), seed=0, losses=LOSSES):
        with written(state, tmp_path) as folder:
            target = folder / "new" / "deep" / "index"
            versions.append(check(target, state, truths([]), acknowledged=state.num_acknowledged))
    assert set(versions) == {0, 1}
    say(f"power loss during a build: {len(versions)} states, each with the complete index or none")


def test_a_model_folder_that_is_replaced(tmp_path: Path, root: Path, say: Callable[[str], None]) -> None:
    models = [DotProduct(dim=dim) for dim in (3, 4, 5)]
    save_similarity(models[0], root / "model")
    with recorded(root) as recording:
        for model in models[1:]:
            save_similarity(model, root / "model", overwrite=True)
            recording.acknowledge()
    found = list(states(recording, num_random=trials(0, 4), seed=0, losses=LOSSES))
    for state in found:
        with written(state, tmp_path) as folder:
            opened = load_similarity(folder / "model")
            allowed = models[state.num_acknowledged : state.num_acknowledged + 2]
            assert opened.config in [model.config for model in allowed], state
            save_similarity(DotProduct(dim=6), folder / "model", overwrite=True)
            assert load_similarity(folder / "model").config == {**models[0].config, "dim": 6}
            assert [path.name for path in folder.iterdir()] == ["model"]
    say(f"power loss during saves over a model: {len(found)} states, each with the model before or after")


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file under a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_any_folder_that_is_replaced(tmp_path: Path, root: Path, say: Callable[[str], None]) -> None:
    trees = [{f"{place}file-{number}": bytes([number]) * 100 for place in ("", "a/", "a/b/")} for number in range(4)]
    with recorded(root) as recording:
        for tree in trees:
            with new_folder(root / "deep" / "folder", replaces=True) as folder:
                for path, content in tree.items():
                    (folder / path).parent.mkdir(exist_ok=True)
                    (folder / path).write_bytes(content)
            recording.acknowledge()
    found = list(states(recording, num_random=trials(1, 4), seed=0, losses=SIMPLE))
    for state in found:
        with written(state, tmp_path) as place:
            target = settled_folder(place / "deep" / "folder")
            if not target.exists():
                assert state.num_acknowledged == 0, state
            else:
                allowed = trees[max(0, state.num_acknowledged - 1) : state.num_acknowledged + 1]
                assert read_tree(target) in allowed, state
    say(f"power loss while folders are replaced: {len(found)} states, each with the folder before or after")


def test_the_suite_sees_a_missing_sync(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railsearch.foundation.files.sync", lambda path: None)
    with FIRST.build(root / "index") as index, recorded(root) as recording:
        HISTORY[0].apply(index)
        recording.acknowledge()
    last = list(states(recording, num_random=0, seed=0, losses=("nothing",)))[-1]
    assert last.num_acknowledged == 1
    with written(last, tmp_path) as folder, Index.open(folder / "index") as opened:
        assert opened.version == 1
        assert torch.equal(opened.ids, torch.arange(12))
