"""Another index at the path of one that is open: readers and writers of the old one refuse it, and leave it intact."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from railsearch import DotProduct, Index, ItemBatch, MixtureOfLogits
from railsearch.errors import IndexFolderError
from tests.support.faults.model import read_manifest

QUERIES = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))

CHANGES: dict[str, Callable[[Index], object]] = {
    "refresh": lambda index: index.refresh(),
    "add": lambda index: index.add(torch.ones(1, 4), [77]),
    "upsert": lambda index: index.upsert(torch.ones(1, 4), [1]),
    "remove": lambda index: index.remove([1]),
    "compact": lambda index: index.compact(),
    "tune": lambda index: index.tune(QUERIES, 1),
}


def build(path: Path, seed: int, *, num_items: int = 8) -> Index:
    """Build an index of a mixture whose weights and items depend on the seed."""
    similarity = MixtureOfLogits(
        query_dim=4, item_dim=4, num_query_components=2, num_item_components=2, component_dim=3, seed=seed
    ).eval()
    items = torch.randn(num_items, 4, generator=torch.Generator().manual_seed(seed))
    return Index.build(similarity, items, path=path)


def answers(index: Index) -> tuple[list, list]:
    result = index.search(QUERIES, 5)
    return result.ids.tolist(), result.scores.tolist()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model", [3, 4], ids=["the same model", "another model"])
@pytest.mark.parametrize("num_commits", [0, 1, 2])
def test_an_index_rebuilt_at_the_same_path(tmp_path: Path, change: str, model: int, num_commits: int) -> None:
    path = tmp_path / "index"
    with build(path, 3) as old:
        old.remove([2])
        before = answers(old)
        shutil.rmtree(path)
        with build(path, model) as new:
            for item in range(num_commits):  # so that the number of its version is below, at or above the old one's
                new.remove([item])
            expected = answers(new)
            with pytest.raises(IndexFolderError, match=rf"{path} was rebuilt: index \w+ is open but index \w+ is"):
                CHANGES[change](old)
            assert answers(old) == before  # the version that is open stays open
            assert new.refresh() is False
            assert new.verify().is_intact
        with Index.open(path) as again:
            assert answers(again) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_an_index_that_is_gone(tmp_path: Path, change: str) -> None:
    with build(tmp_path / "index", 3) as index:
        before = answers(index)
        shutil.rmtree(tmp_path / "index")
        with pytest.raises(IndexFolderError, match="index does not exist"):
            CHANGES[change](index)
        assert answers(index) == before
        assert not (tmp_path / "index").exists()


def test_a_folder_that_is_replaced_during_a_change(tmp_path: Path) -> None:
    """The lock is held on the old folder, and the new one is at its path."""
    path = tmp_path / "index"
    with build(path, 3) as old:

        def batches() -> Iterator[ItemBatch]:
            yield ItemBatch(torch.ones(1, 4), [50])
            path.rename(tmp_path / "moved")
            build(path, 4).close()
            yield ItemBatch(torch.ones(1, 4), [51])

        with pytest.raises(IndexFolderError, match="was replaced by another folder while it was being changed"):
            old.add(batches())
    with Index.open(path) as new, Index.open(tmp_path / "moved") as moved:
        assert new.version == moved.version == 1
        assert new.verify().is_intact
        assert moved.verify().is_intact


def test_a_folder_restored_from_a_copy_and_changed_again(tmp_path: Path) -> None:
    """The same index, the same number of the version, and another content: it is read again."""
    path = tmp_path / "index"
    with build(path, 3) as index:
        shutil.copytree(path, tmp_path / "copy")
        index.remove([1])
        shutil.rmtree(path)
        (tmp_path / "copy").rename(path)
        with Index.open(path) as other:
            other.remove([2])
        assert index.version == 2
        assert 1 not in index.ids.tolist()
        assert index.refresh() is True
        assert index.version == 2
        assert index.ids.tolist() == [0, 1, 3, 4, 5, 6, 7]
        assert index.refresh() is False


def test_every_index_has_a_birth_of_its_own(tmp_path: Path) -> None:
    births = set()
    for name in "ab":
        with Index.build(DotProduct(dim=4), torch.eye(4), path=tmp_path / name) as index:
            index.remove([1])
        births |= {read_manifest(file)["birth"] for file in (tmp_path / name / "manifests").iterdir()}
    assert len(births) == 2
