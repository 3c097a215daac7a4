"""A split index that is damaged, incomplete, mixed or hostile is refused, before any work."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash

import railsearch
from railsearch import DotProduct, Index
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.distributed.layout import SHARDS_FILE
from railsearch.errors import FingerprintError, IndexFolderError, RailsearchError
from railsearch.index.storage.manifest import seal
from tests.support.split_worlds import make_split


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    split = make_split(tmp_path_factory.mktemp("split"), 3, num_items=20)
    split.close()
    return split.path


@pytest.fixture
def shards(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "shards"))


def reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change shards.json as somebody would who knows how it is sealed."""
    config = json.loads((path / SHARDS_FILE).read_text())
    del config["checksum"]
    change(config)
    config["checksum"] = xxhash.xxh3_128_hexdigest(json.dumps(config, sort_keys=True).encode())
    (path / SHARDS_FILE).write_text(json.dumps(config))


def test_load_opens_a_split_index(shards: Path) -> None:
    assert isinstance(railsearch.load(shards), ShardedIndex)


def test_a_missing_and_a_foreign_shard_are_named(shards: Path, tmp_path: Path) -> None:
    shutil.move(shards / "shard-00001", tmp_path / "aside")
    with pytest.raises(IndexFolderError, match=r"lists 3 shards but .*shard-00001 is missing \(2 shard folders"):
        ShardedIndex.open(shards)
    other = make_split(tmp_path / "other", 3, num_items=20)
    shutil.copytree(other.path / "shard-00001", shards / "shard-00001")
    with pytest.raises(IndexFolderError, match=r"shard-00001 holds index \w+ but \w+ belongs to this split"):
        ShardedIndex.open(shards)
    shutil.rmtree(shards / "shard-00001")
    Index.build(DotProduct(dim=6, cosine=True), torch.eye(6), path=shards / "shard-00001")
    with pytest.raises(FingerprintError, match=r"shard-00001 was built with model \w+ but this split has"):
        ShardedIndex.open(shards)
    shutil.rmtree(shards / "shard-00001")
    (shards / "shard-00001").symlink_to(tmp_path / "aside")
    with pytest.raises(IndexFolderError, match="is a symbolic link"):
        ShardedIndex.open(shards)
    shutil.copytree(tmp_path / "aside", shards / "shard-00003")
    with pytest.raises(IndexFolderError, match=r"lists 3 shards but .*shard-00003 is not one of them"):
        ShardedIndex.open(shards)


def test_two_shards_that_changed_places_are_noticed(shards: Path) -> None:
    (shards / "shard-00000").rename(shards / "aside")
    (shards / "shard-00001").rename(shards / "shard-00000")
    (shards / "aside").rename(shards / "shard-00001")
    with pytest.raises(IndexFolderError, match="belongs to this split"):
        ShardedIndex.open(shards)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("births", [], "0 shards, not 1 to 10000"),
        ("births", ["a" * 32] * 20_000, "20000 shards, not 1 to 10000"),
        ("births", ["a" * 32, "a" * 32, "b" * 32], "births"),
        ("births", ["../../etc", "a" * 32, "b" * 32], "the shard '../../etc'"),
        ("births", 3, "3 shards"),
        ("births", None, "None shards"),
        ("fingerprint", "nonsense", "the fingerprint 'nonsense'"),
        ("fingerprint", "a" * 64, "a{64}"),
        ("split", "b" * 32, "of split"),
        ("has_keys", "yes", "has_keys"),
        ("by", 7, "by 7"),
        ("models", {"a": 1}, "models"),
        ("source", {"a": 1}, "source"),
        ("files", {}, "is not in the list"),
        ("files", {"../secret": {"size": 1, "checksum": "0"}}, "is not a file of a split index"),
        ("format_version", 99, "format version 99"),
    ],
)
def test_a_hostile_list_of_shards_is_refused(shards: Path, name: str, value: object, message: str) -> None:
    reseal(shards, lambda config: config.update({name: value}))
    with pytest.raises((IndexFolderError, FingerprintError), match=message):
        ShardedIndex.open(shards)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": "railsearch.shards"}', b"[" * 100_000])
def test_a_damaged_list_of_shards_is_refused(shards: Path, content: bytes) -> None:
    (shards / SHARDS_FILE).write_bytes(content)
    with pytest.raises(IndexFolderError):
        ShardedIndex.open(shards)


def test_a_changed_list_and_a_changed_model_are_noticed(shards: Path) -> None:
    text = (shards / SHARDS_FILE).read_text()
    (shards / SHARDS_FILE).write_text(text.replace('"by": null', '"by": "year"'))
    with pytest.raises(IndexFolderError, match="changed or damaged"):
        ShardedIndex.open(shards)
    (shards / SHARDS_FILE).write_text(text)
    with (shards / "similarity" / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(IndexFolderError, match=r"model\.safetensors"):
        ShardedIndex.open(shards)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("versions", [1, 1], "names 2 versions but there are 3 shards"),
        ("versions", [1, 1, 0], "versions but there are 3 shards"),
        ("versions", [1, 9, 1], r"00000009\.json does not exist"),
        ("versions", [1, -1, 1], "damaged"),
        ("versions", "111", "damaged"),
        ("versions", None, "damaged"),
        ("num_items", [2**63, 1, 1], "damaged"),
        ("next_id", True, "damaged"),
        ("number", 5, "is snapshot 5"),
        ("surprise", 5, "damaged"),
    ],
)
def test_a_hostile_snapshot_is_refused(shards: Path, name: str, value: object, message: str) -> None:
    file = shards / "snapshots" / "00000001.json"
    stated = json.loads(file.read_text().partition("\n")[2])
    file.write_bytes(seal(json.dumps({**stated, name: value})))
    with pytest.raises(IndexFolderError, match=message):
        ShardedIndex.open(shards)


def test_snapshots_that_are_gone_or_damaged_are_refused(shards: Path) -> None:
    file = shards / "snapshots" / "00000001.json"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(IndexFolderError, match="damaged"):
        ShardedIndex.open(shards)
    file.unlink()
    with pytest.raises(IndexFolderError, match="holds no snapshot"):
        ShardedIndex.open(shards)
    with pytest.raises(
        IndexFolderError, match=r"shards\.json does not exist; give a folder that railsearch index shard"
    ):
        ShardedIndex.open(shards / "snapshots")


def test_a_damaged_shard_is_refused_when_it_is_opened(shards: Path) -> None:
    file = next((shards / "shard-00002" / "segments").iterdir())
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(IndexFolderError, match=r"shard-00002.*is damaged"):
        ShardedIndex.open(shards)


def test_a_split_in_the_place_of_another_is_noticed(shards: Path, tmp_path: Path) -> None:
    opened = ShardedIndex.open(shards)
    one = Index.build(DotProduct(dim=6), torch.eye(6), path=tmp_path / "one.index")
    shutil.rmtree(shards)
    shard_index(one, shards, 3)
    with pytest.raises(RailsearchError, match="was split again"):
        opened.refresh()
