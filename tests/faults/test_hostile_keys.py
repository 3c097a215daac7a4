"""Received folders whose string ids cannot be true: refused when they are used, and reported by verify."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import DotProduct, Index
from railsearch.errors import IndexFolderError
from railsearch.index import changes
from railsearch.index.storage.manifest import seal
from tests.support.faults.model import read_manifest
from tests.support.faults.mutations import reseal_index


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of two segments with string ids."""
    monkeypatch.setattr(changes, "SMALL", 0)
    index = Index.build(DotProduct(dim=3), torch.eye(3), ids=["a", "b", "c"], path=tmp_path / "index")
    index.add(torch.eye(3), ids=["d", "e", "f"])
    assert index.num_segments == 2
    return tmp_path / "index"


def forge(folder: Path, frame: pl.DataFrame) -> Path:
    """Put another table into the second segment, with manifest and checksums that fit."""
    name = "manifests/00000002.json"
    body = read_manifest(folder / name)
    file = f"metadata/{body['segments'][1]['name']}.arrow"
    frame.write_ipc(folder / file)
    reseal_index(folder, name, body)
    return folder / file


CALLS: list[Callable[[Index], object]] = [
    lambda index: index.search(torch.eye(3), 6).keys,
    lambda index: index.search(torch.eye(3), 2, exclude=[["b"], [], []]),
    lambda index: index.remove(["b"]),
    lambda index: index.upsert(torch.ones(1, 3), ids=["b"]),
]


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"id": ["d", "d", "f"]}),
        pl.DataFrame({"id": ["d", None, "f"]}),
        pl.DataFrame({"id": [4, 5, 6]}),
        pl.DataFrame({"name": ["d", "e", "f"]}),
        pl.DataFrame({"id": ["d", "e", "f"], "score": [1, 2, 3]}),
    ],
    ids=["repeated", "missing", "integers", "no column", "reserved"],
)
def test_keys_that_cannot_be_true(folder: Path, frame: pl.DataFrame) -> None:
    file = forge(folder, frame)
    for call in CALLS:
        with Index.open(folder) as index, pytest.raises(IndexFolderError, match=f"{file} (must have|has a column)"):
            call(index)
    (problem,) = Index.check(folder).problems
    assert str(file) in problem.message
    assert (problem.versions, problem.is_current) == ((2,), True)


def test_a_key_in_two_segments(folder: Path) -> None:
    file = forge(folder, pl.DataFrame({"id": ["d", "b", "f"]}))
    for call in CALLS[1:]:
        with Index.open(folder) as index, pytest.raises(IndexFolderError, match=f"{file} holds id 'b', which another"):
            call(index)
    (problem,) = Index.check(folder).problems
    assert "holds id 'b', which another segment holds too" in problem.message
    with Index.open(folder, version=1) as index:  # the version before is as it was
        assert index.keys == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"has_keys": [True, False]}, "some segments have string ids and some do not"),
        ({"has_keys": [1, 1]}, "has_keys is 1"),
        ({"has_keys": [True, True], "has_metadata": [False, False]}, "string ids but no metadata"),
    ],
)
def test_a_manifest_that_contradicts_itself(folder: Path, flags: dict[str, list], message: str) -> None:
    path = folder / "manifests/00000002.json"
    body = read_manifest(path)
    for name, values in flags.items():
        for segment, value in zip(body["segments"], values, strict=True):
            segment[name] = value
    path.write_bytes(seal(json.dumps(body)))
    with pytest.raises(IndexFolderError, match=message):
        Index.open(folder)


def test_string_ids_that_are_denied(folder: Path) -> None:
    path = folder / "manifests/00000002.json"
    body = read_manifest(path)
    for segment in body["segments"]:
        del segment["has_keys"]  # as in the manifest of an older railsearch
    path.write_bytes(seal(json.dumps(body)))
    with Index.open(folder) as index, pytest.raises(IndexFolderError, match="has a column 'id' that it must not have"):
        index.search(torch.eye(3), 2).to_frame()
    assert not Index.check(folder).is_intact
