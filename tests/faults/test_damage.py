"""Files that were truncated, flipped, lost or forged: an error that names the file, or the same answer as before."""

import copy
import itertools
import json
import logging
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Index, RailsearchError, save_similarity
from railsearch.errors import IndexFolderError
from railsearch.index import changes
from railsearch.index.storage.manifest import seal
from tests.support.faults.model import read_manifest
from tests.support.similarities import make_similarity
from tests.support.trials import IS_FULL, trials

KINDS = ("LOCK", "CURRENT", "manifests", "segments", "tombstones", "metadata", "similarity")
QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(5))


def answers(index: Index) -> object:
    """Return everything that an index says about its items."""
    result = index.search(QUERIES, len(index))
    return index.version, result.ids.tolist(), result.scores.tolist(), result.to_frame().to_dicts()


class Folder:
    """An index folder that is damaged in one place at a time, and restored."""

    def __init__(self, original: Path, path: Path) -> None:
        self.path = path
        self._original = original
        shutil.copytree(original, path)
        self.files = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
        self.versions = sorted(int(file.stem) for file in (path / "manifests").iterdir())
        self.answers: dict[int | None, object] = {version: self.open(version) for version in self.versions}
        self.answers[None] = self.answers[self.versions[-1]]
        self._needed = {version: self._files_of(version) for version in self.versions}
        self._needed[None] = self._needed[self.versions[-1]] | {"CURRENT"}

    def open(self, version: int | None) -> object:
        with Index.open(self.path, version=version) as index:
            return answers(index)

    def of_kind(self, kind: str) -> list[str]:
        return [file for file in self.files if file.partition("/")[0] == kind]

    def some_files(self) -> list[str]:
        """Return one file of each kind; in a full run, all files."""
        return self.files if IS_FULL else [self.of_kind(kind)[-1] for kind in KINDS]

    def replace(self, file: str, content: bytes | None) -> None:
        """Replace the bytes of a file; None removes it."""
        (self.path / file).unlink(missing_ok=True)
        if content is not None:
            (self.path / file).write_bytes(content)

    def restore(self, file: str) -> None:
        shutil.copy(self._original / file, self.path / file)

    def check(self, file: str, version: int | None) -> bool:
        """Open a version while a file is damaged; return True if it was refused, as it must be if it needs the file."""
        if file in self._needed[version]:
            with pytest.raises(IndexFolderError) as caught:
                self.open(version)
            assert str(self.path / file) in str(caught.value)
            assert caught.value.__class__.__module__ == "railsearch.foundation.errors"
            return True
        assert self.open(version) == self.answers[version]
        if file != "LOCK":
            with Index.open(self.path, version=version) as index:
                (problem,) = index.verify().problems
                assert file in problem.message
                assert problem.file == file
                if file != "CURRENT":  # the versions that need the file, by the manifests themselves
                    needed = [own for own in self.versions if file in self._needed[own]]
                    assert problem.versions == tuple(needed)
                    assert problem.is_current == (self.versions[-1] in needed)
        return False

    def _files_of(self, version: int) -> set[str]:
        manifest = f"manifests/{version:08d}.json"
        return {manifest, *read_manifest(self.path / manifest)["files"]}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with several versions, segments with and without removed items, metadata, and a model with a gate."""
    path = tmp_path_factory.mktemp("damage") / "index"
    generator = torch.Generator().manual_seed(0)

    def some(*ids: int) -> dict:
        names = pl.DataFrame({"name": [f"item {item}" for item in ids], "year": [1900 + item for item in ids]})
        return {"items": torch.randn(len(ids), 6, generator=generator), "ids": list(ids), "metadata": names}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changes, "SMALL", 0)
        with Index.build(make_similarity("mixture"), **some(*range(9)), path=path) as index:
            index.add(**some(10, 11, 12))
            index.remove([3, 11])
            index.upsert(**some(4, 20, 21))
            index.remove([0, 20])
    return path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Folder:
    return Folder(original, tmp_path / "index")


def test_the_folder_has_everything_that_can_be_damaged(folder: Folder) -> None:
    assert {file.partition("/")[0] for file in folder.files} == set(KINDS)
    assert folder.versions == [3, 4, 5]
    assert all(len(folder.of_kind(kind)) > 1 for kind in KINDS[2:])


def truncated(content: bytes, choice: random.Random) -> bytes:
    return content[: choice.choice([0, choice.randrange(len(content)), len(content) - 1])]


def flipped(content: bytes, choice: random.Random) -> bytes:
    place = choice.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << choice.randrange(8)]) + content[place + 1 :]


@pytest.mark.parametrize("spoil", [truncated, flipped], ids=lambda spoil: spoil.__name__)
def test_a_damaged_file_is_refused_by_name_or_does_not_matter(
    folder: Folder, spoil: Callable[[bytes, random.Random], bytes], say: Callable[[str], None]
) -> None:
    choice = random.Random(6)
    num_trials, num_refused, harmless = trials(21, 2000), 0, set()
    for trial in range(num_trials):
        file = choice.choice(folder.of_kind(KINDS[trial % len(KINDS)]))
        folder.replace(file, spoil((folder.path / file).read_bytes(), choice))
        is_refused = folder.check(file, None)
        folder.check(file, choice.choice(folder.versions))
        folder.restore(file)
        num_refused += is_refused
        harmless |= set() if is_refused else {file}
    current = {"CURRENT", f"manifests/{folder.versions[-1]:08d}.json"} | set(
        read_manifest(folder.path / f"manifests/{folder.versions[-1]:08d}.json")["files"]
    )
    assert harmless <= set(folder.files) - current  # the lock, and files that only older versions need
    assert num_refused > num_trials / 3
    say(
        f"{spoil.__name__}: {num_trials} trials over {len(folder.files)} files; {num_refused} refused by name, "
        f"{num_trials - num_refused} of files that the newest version does not need, with the right answer"
    )


def test_a_missing_file_is_refused_by_name_or_does_not_matter(folder: Folder) -> None:
    for file in folder.some_files():
        folder.replace(file, None)
        if file.startswith("manifests/"):
            version = int(Path(file).stem)
            with pytest.raises(IndexFolderError, match=r"0000\d\.json does not exist; versions in this folder: \d, \d"):
                folder.open(version)
        else:
            for version in (None, *folder.versions):
                folder.check(file, version)
        folder.restore(file)
    assert folder.open(None) == folder.answers[None]


def test_a_file_that_became_a_folder(folder: Folder) -> None:
    for file in folder.some_files():
        folder.replace(file, None)
        (folder.path / file).mkdir()
        if file == "LOCK":
            with (
                Index.open(folder.path) as index,
                pytest.raises(IndexFolderError, match=r"LOCK cannot be used: it is a folder"),
            ):
                index.remove([1])
        else:
            for version in (None, *folder.versions):
                if file != f"manifests/{folder.versions[0]:08d}.json":
                    folder.check(file, version)
        (folder.path / file).rmdir()
        folder.restore(file)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99, 1.0, None])
def test_a_version_that_was_never_acknowledged_is_ignored_with_a_warning(
    folder: Folder, share: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    newest = folder.versions[-1]
    body = read_manifest(folder.path / f"manifests/{newest:08d}.json") | {"version": newest + 1}
    content = seal(json.dumps(body))
    begun = folder.path / f"manifests/{newest + 1:08d}.json"
    begun.write_bytes(os.urandom(500) if share is None else content[: int(share * len(content))])
    with caplog.at_level(logging.WARNING):
        assert folder.open(None) == folder.answers[None]
    said = f"{folder.path}: version {newest + 1} was begun but never acknowledged; using version {newest}"
    assert [record.getMessage() for record in caplog.records] == [said]
    with pytest.raises(IndexFolderError, match=r"never acknowledged|is damaged"):
        Index.open(folder.path, version=newest + 1)
    with Index.open(folder.path) as index:
        index.remove([1])
        assert index.version == newest + 1
        after = answers(index)
    caplog.clear()
    assert folder.open(None) == after
    assert not caplog.records


def test_stray_files_are_ignored(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    names = ["notes.txt", "manifests/notes.json", "manifests/²²²²²²²².json", "manifests/9.json", "manifests/00000009"]
    names += ["manifests/00000009.json.abc.tmp", "segments/abc.safetensors.abc.tmp", "CURRENT.abc.tmp", "x/y.tmp"]
    for name in names:
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_bytes(b"something else")
    assert folder.open(None) == folder.answers[None]
    with Index.open(folder.path) as index:
        index.remove([1])
        assert index.verify().is_intact
        assert index.verify().versions == (4, 5, 6)
    assert not caplog.records
    assert [name for name in names if not (folder.path / name).exists()] == names[5:8]


def test_a_forged_manifest_names_nothing_outside(folder: Folder, tmp_path: Path) -> None:
    newest = folder.versions[-1]
    manifest = f"manifests/{newest:08d}.json"
    body = read_manifest(folder.path / manifest)
    segment = body["segments"][0]
    tensors = (folder.path / f"segments/{segment['name']}.safetensors").read_bytes()
    (tmp_path / "x.safetensors").write_bytes(tensors)
    (tmp_path / "x").write_bytes(tensors)
    entry = body["files"][f"segments/{segment['name']}.safetensors"]
    forgeries = [
        body | {"files": body["files"] | {"../x": entry}},
        body | {"files": body["files"] | {str(tmp_path / "x"): entry}},
        body | {"files": body["files"] | {"segments/../../x": entry}},
        body | {"segments": [segment | {"name": "../../x"}]},
        body | {"segments": [segment | {"name": "../../x"}], "files": body["files"] | {"segments/x": entry}},
        body | {"segments": [segment | {"tombstones": "../x.safetensors"}]},
        body | {"segments": [segment | {"tombstones": str(tmp_path / "x.safetensors")}]},
    ]
    for forgery in forgeries:
        folder.replace(manifest, seal(json.dumps(forgery)))
        with pytest.raises(IndexFolderError, match=r"(names|lists) .*x.*, which is not .*; restore it"):
            Index.open(folder.path)


def test_a_manifest_that_is_sealed_but_makes_no_sense(folder: Folder) -> None:
    manifest = f"manifests/{folder.versions[-1]:08d}.json"
    body = read_manifest(folder.path / manifest)
    for forgery in itertools.islice(forgeries_of(body), 0, None, 1 if IS_FULL else 10):
        folder.replace(manifest, seal(json.dumps(forgery)))
        try:
            folder.open(None)
        except RailsearchError as error:
            assert str(folder.path) in str(error)  # noqa: PT017  (it may also open: a forged date harms nobody)


def forgeries_of(body: object) -> Iterator[object]:
    """Give copies of a manifest with one value changed or omitted, at every place of it."""
    yield from (None, [], {}, "x", -1, 2**70, 0.5, True, [None], {"x": None})
    if isinstance(body, (dict, list)):
        for key in list(body) if isinstance(body, dict) else range(len(body)):
            without = copy.copy(body)
            del without[key]
            yield without
            for forged in forgeries_of(body[key]):
                changed = copy.copy(body)
                changed[key] = forged
                yield changed


def test_a_newer_format(folder: Folder) -> None:
    manifest = f"manifests/{folder.versions[-1]:08d}.json"
    body = read_manifest(folder.path / manifest)
    folder.replace(manifest, seal(json.dumps(body | {"format_version": 4, "news": 1})))
    with pytest.raises(IndexFolderError, match=r"json has format version 4 but this railsearch reads 2 and 3; open it"):
        Index.open(folder.path)
    folder.replace(manifest, seal(json.dumps(body | {"format": "other"})))
    with pytest.raises(IndexFolderError, match=r"json is not a manifest of a railsearch index"):
        Index.open(folder.path)


@pytest.mark.parametrize("body", [7, [], {}, {"version": "5"}, {"version": None}, {"version": 4.5}, {"version": True}])
def test_a_forged_pointer(folder: Folder, body: object) -> None:
    folder.replace("CURRENT", seal(json.dumps(body)))
    with pytest.raises(IndexFolderError, match=r"CURRENT is damaged.*open a version by its number \(here: 3, 4, 5\)"):
        Index.open(folder.path)


def test_a_pointer_to_nowhere(folder: Folder) -> None:
    folder.replace("CURRENT", seal(json.dumps({"version": 9})))
    with pytest.raises(IndexFolderError, match=r"00000009\.json does not exist; versions in this folder: 3, 4, 5"):
        Index.open(folder.path)
    folder.replace("CURRENT", None)
    with pytest.raises(IndexFolderError, match=r"CURRENT is missing; restore it, or open a version by its number"):
        Index.open(folder.path)
    for version in folder.versions:
        assert folder.open(version) == folder.answers[version]


def test_a_manifest_in_the_place_of_another(folder: Folder) -> None:
    folder.replace("manifests/00000005.json", (folder.path / "manifests/00000004.json").read_bytes())
    with pytest.raises(IndexFolderError, match=r"00000005\.json is the manifest of version 4"):
        Index.open(folder.path)


def test_a_segment_in_the_place_of_another(folder: Folder) -> None:
    for kind in ("segments", "tombstones", "metadata"):
        contents = {file: (folder.path / file).read_bytes() for file in folder.of_kind(kind)}
        for file, content in contents.items():
            folder.replace(file, next(other for other in contents.values() if other != content))
            for version in folder.versions:
                folder.check(file, version)
            folder.restore(file)


def test_foreign_folders(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "CURRENT").write_text("CURRENT of another database")
    (tmp_path / "file").write_text("text")
    save_similarity(make_similarity("mixture"), tmp_path / "model")
    for name in ("empty", "other", "model"):
        with pytest.raises(IndexFolderError, match=f"{name}.* is not a railsearch index; give another folder"):
            Index.open(tmp_path / name)
    with pytest.raises(IndexFolderError, match="file is a file; give the folder of an index"):
        Index.open(tmp_path / "file")
    with pytest.raises(IndexFolderError, match=r"absent does not exist; build it with Index\.build"):
        Index.open(tmp_path / "absent")
    with pytest.raises(IndexFolderError, match="inside does not exist"):
        Index.open(tmp_path / "file" / "inside")


def test_a_damaged_newest_version_is_not_built_upon(folder: Folder, tmp_path: Path) -> None:
    index = Index.open(folder.path, version=folder.versions[-1])
    newest = f"manifests/{folder.versions[-1]:08d}.json"
    mine = set(read_manifest(folder.path / newest)["files"]) - folder._needed[folder.versions[0]]
    for file in sorted(mine):
        folder.replace(file, flipped((folder.path / file).read_bytes(), random.Random(0)))
        with Index.open(folder.path, version=folder.versions[0]) as older:
            assert answers(older) == folder.answers[folder.versions[0]]
            for call in (older.refresh, older.compact):
                with pytest.raises(IndexFolderError, match=str(folder.path / file)):
                    call()
        assert answers(index) == folder.answers[None]  # the open version stays open
        folder.restore(file)


def test_a_damaged_older_version_is_no_hindrance(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.replace("manifests/00000004.json", b"garbage")
    with Index.open(folder.path) as index:
        index.remove([1])
        assert "cleanup of old versions failed" in caplog.text
        assert "00000004.json is damaged" in caplog.text
        caplog.clear()
        for item in (2, 4):
            index.remove([item])
        assert not caplog.records
        assert index.verify().is_intact
        assert index.verify().versions == (6, 7, 8)
