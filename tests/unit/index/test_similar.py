"""Similar items: the exact top K by the mean cosine of components, against fp64, in every form of an index."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from railsearch import DotProduct, Faiss, Index, MixtureOfLogits
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.index import similar
from tests.support.search_worlds import make_world
from tests.support.split_worlds import numbered


def naive(components: Tensor, item: int, hidden: set[int]) -> list[tuple[int, float]]:
    """Return all other rows with their similarity, best first, by a loop in fp64."""
    rows = components.double()
    found = []
    for other in set(range(len(rows))) - {item} - hidden:
        cosines = [float(torch.nn.functional.cosine_similarity(a, b, dim=0, eps=1e-300))
                   for a, b in zip(rows[item], rows[other], strict=True)]  # fmt: skip
        found.append((other, sum(cosines) / len(cosines)))
    return sorted(found, key=lambda own: (-own[1], own[0]))


def components_of(index: Index) -> Tensor:
    """Return the stored components of all live items, in the order of ids."""
    corpus = index.contents.corpus
    return corpus[corpus.rows].components


@pytest.mark.parametrize("kind", ["random", "single", "dot"])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_equals_a_loop(kind: str, precision: str) -> None:
    similarity, items, _ = make_world(kind, 60, 3)
    index = Index.build(similarity, items, precision=precision)
    result = index.similar_items(torch.tensor([0, 17, 59]), 8, exclude=[5, 6, 1000])
    for query, item in enumerate((0, 17, 59)):
        truth = naive(components_of(index), item, {5, 6})[:8]
        assert result.scores[query].tolist() == pytest.approx([score for _, score in truth], abs=1e-5)
        assert result.ids[query].tolist() == [other for other, _ in truth]
    assert result.is_exact.all()
    assert result.num_scored.tolist() == [57, 57, 57]


def test_ties_go_to_the_smaller_id_in_every_segment() -> None:
    similarity, items, _ = make_world("random", 12, 0)
    index = Index.build(similarity, items[[0, 1, 2]], ids=[50, 51, 7])
    index.add(items[[0, 1, 0]], ids=[3, 4, 90])
    index.remove([4])
    result = index.similar_items(50, 4)
    assert result.ids[0, :2].tolist() == [3, 90]
    assert set(result.ids[0].tolist()) == {3, 90, 51, 7}
    assert result.scores[0, 0] == result.scores[0, 1] == pytest.approx(1.0, abs=1e-6)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity, items, _ = make_world("dot", 60, 1)
    whole = Index.build(similarity, items).similar_items(range(60), 5)
    monkeypatch.setattr(similar, "VALUES_PER_BLOCK", 40)
    cut = Index.build(similarity, items).similar_items(range(60), 5)
    assert torch.equal(whole.ids, cut.ids)
    assert torch.equal(whole.scores, cut.scores)


def test_components_without_length_count_as_nothing() -> None:
    index = Index.build(DotProduct(dim=2), torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0], [5.0, 0.0]]))
    assert index.similar_items(0, 3).scores.tolist() == [[0.0, 0.0, 0.0]]
    assert index.similar_items(1, 3).ids.tolist() == [[3, 0, 2]]


def test_works_on_disk_with_keys_filters_and_any_engine(tmp_path: Path) -> None:
    similarity, items, _ = make_world("random", 40, 2)
    keys = [f"item-{row}" for row in range(40)]
    built = Index.build(similarity, items, keys, path=tmp_path / "keys.index", metadata=numbered(40))
    wanted = built.similar_items("item-3", 4, allow="year < 3", exclude=["item-7", "nobody"])
    for engine in (None, Faiss(kind="flat")):
        opened = Index.open(tmp_path / "keys.index", engine=engine, verify="lazy")
        result = opened.similar_items(["item-3"], 4, allow="year < 3", exclude=["item-7", "nobody"])
        assert result.keys == wanted.keys
        assert "item-7" not in result.keys[0]
    assert result.to_frame()["year"].max() < 3


@pytest.mark.parametrize("by", [None, "genre"])
def test_a_split_index_has_the_same_answers(tmp_path: Path, by: str | None) -> None:
    similarity, items, _ = make_world("duplicates", 60, 4)
    index = Index.build(similarity, items, path=tmp_path / "one.index", metadata=numbered(60))
    index.remove([3, 30])
    whole = index.similar_items([0, 59, 8], 50, exclude=[5], allow="year < 6", pad=True)
    with ShardedIndex.open(shard_index(index, tmp_path / "shards", 4, by=by)) as split:
        found = split.similar_items([0, 59, 8], 50, exclude=[5], allow="year < 6", pad=True)
        assert torch.equal(found.ids, whole.ids)
        assert torch.equal(found.scores, whole.scores)
        assert torch.equal(found.num_scored, whole.num_scored)
        with pytest.raises(InvalidInputError, match=r"item 30 is not among the 58 items"):
            split.similar_items(30)
        with pytest.raises(NotEnoughItemsError, match="pad=True"):
            split.similar_items(0, 50, allow="year = 6")


def test_wrong_requests_are_refused() -> None:
    similarity, items, _ = make_world("random", 9, 0)
    index = Index.build(similarity, items)
    with pytest.raises(InvalidInputError, match=r"item 77 is not among the 9 items of this index"):
        index.similar_items(np.array([1, 77]))
    with pytest.raises(NotEnoughItemsError, match=r"k is 9 but an item has only 8 others .*ask for k <= 8"):
        index.similar_items(1, 9)
    with pytest.raises(NotEnoughItemsError, match=r"k is 5 but exclude and allow leave only 2 of 9 items"):
        index.similar_items([1], 5, allow=[1, 2, 3])
    assert index.similar_items([1], 5, allow=[1, 2, 3], pad=True).ids[0, 2:].tolist() == [-1, -1, -1]
    with pytest.raises(InvalidInputError, match="integers"):
        index.similar_items("one")
    with pytest.raises(InvalidInputError, match=r"ids has shape \(1, 2\); give a flat list of ids"):
        index.similar_items([[1, 2]])
    with pytest.raises(InvalidInputError, match=r"exclude has shape \(1, 2\); give a flat list of ids"):
        index.similar_items(1, 3, exclude=[[1, 2]])


def test_of_a_mixture_rank_items_that_score_alike() -> None:
    """Items with nearly the same embedding have nearly the same scores for every query, and are the most similar."""
    similarity = MixtureOfLogits(query_dim=8, item_dim=8, num_query_components=2, num_item_components=4, seed=0).eval()
    items = torch.randn(30, 8, generator=torch.Generator().manual_seed(0))
    items[29] = items[4] + 0.01
    index = Index.build(similarity, items, metadata=pl.DataFrame({"title": [str(row) for row in range(30)]}))
    assert index.similar_items(4, 1).to_frame()["title"].to_list() == ["29"]
