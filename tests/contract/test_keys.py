"""String ids: every call takes them, every table shows them, and a plain dictionary gives the same answers."""

import copy
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from railsearch import BruteForce, DotProduct, Index, ItemBatch, SearchResult, TwoPass
from railsearch.errors import InvalidInputError
from railsearch.index import changes
from railsearch.index.keys import as_keys

DIM = 3


@pytest.fixture(params=["memory", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "index" if request.param == "folder" else None


def build(place: Path | None = None, keys: str = "abcde", **options: object) -> Index:
    items = torch.arange(len(keys) * DIM).view(-1, DIM) % 4 - 1.5
    return Index.build(DotProduct(dim=DIM), items, ids=list(keys), path=place, **options)


class Shop:
    """The reference: vectors by key, in the order in which the keys were added; a replaced one keeps its place."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[float, ...]] = {}

    def put(self, keys: list[str], vectors: torch.Tensor) -> None:
        self.items.update(zip(keys, map(tuple, vectors.tolist()), strict=True))

    def best(self, query: list[float], k: int, hidden: set[str]) -> list[str | None]:
        scores = {
            key: sum(a * b for a, b in zip(query, vector, strict=True))
            for key, vector in self.items.items()
            if key not in hidden
        }
        found: list[str | None] = sorted(scores, key=lambda key: -scores[key])[:k]  # stable: ties by order of addition
        return found + [None] * (k - len(found))


@pytest.mark.parametrize("seed", range(3))
def test_a_dictionary_gives_the_same_answers(place: Path | None, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SMALL", 4)  # several segments
    choice, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    names = [f"sku-{number}" for number in range(30)]

    def some(count: int) -> torch.Tensor:  # small integers: scores are exact, and there are many ties
        return torch.randint(-1, 2, (count, DIM), generator=generator).float()

    shop, first = Shop(), choice.sample(names, 8)
    vectors = some(8)
    shop.put(first, vectors)
    index = Index.build(DotProduct(dim=DIM), vectors, ids=first, path=place)
    for _ in range(14):
        absent, present = [name for name in names if name not in shop.items], list(shop.items)
        kind = choice.choice(["add", "upsert", "remove", "compact"])
        if kind == "compact":
            index.compact()
        elif kind == "remove":
            gone = choice.sample(present, min(len(present), 3))
            index.remove([*gone, "unknown"], missing_ok=True)
            for key in gone:
                del shop.items[key]
        else:
            keys = choice.sample(absent if kind == "add" else names, min(len(absent), 3))
            if not keys:
                continue
            vectors = some(len(keys))
            (index.add if kind == "add" else index.upsert)(vectors, ids=keys)
            shop.put(keys, vectors)
        opened = index if place is None else Index.open(place)
        assert opened.keys == list(shop.items)
        if not shop.items:
            continue
        queries = some(4)
        hidden = [set(choice.sample(names, 5)) for _ in queries]
        k = len(shop.items)
        for strategy in (BruteForce(), TwoPass()):
            found = opened.search(queries, k, strategy, exclude=hidden, pad=True)
            assert found.keys == [shop.best(query, k, own) for query, own in zip(queries.tolist(), hidden, strict=True)]
        allowed = choice.sample(names, 12)
        found = opened.search(queries, k, allow=allowed, pad=True)
        forbidden = set(names) - set(allowed)
        assert found.keys == [shop.best(query, k, forbidden) for query in queries.tolist()]
    if place is not None:
        assert index.verify().is_intact


def test_tables_show_strings_and_hide_integers(place: Path | None) -> None:
    index = build(place, metadata=pl.DataFrame({"price": [1, 2, 3, 4, 5]}))
    result = index.search(torch.ones(2, DIM), 3)
    frame = result.to_frame()
    assert frame.columns == ["query", "rank", "id", "score", "price"]
    assert frame["id"].to_list() == [key for keys in result.keys for key in keys]
    assert frame["price"].to_list() == ["abcde".index(key) + 1 for key in frame["id"]]
    assert result.ids.dtype == torch.int64
    assert index.metadata.columns == ["price"]
    assert (index.has_keys, index.describe()["ids"], index.describe()["metadata"]) == (True, "strings", ["price"])
    assert index.explain(torch.ones(DIM), "c").item_id == "c"
    assert build(place and place.with_name("plain")).metadata is None


def test_the_mapping_can_be_asked_for(place: Path | None) -> None:
    index = build(place)
    index.remove(["b"])
    assert index.find(["d", "b", "x", "a"]).tolist() == [3, -1, -1, 0]
    assert index.keys == ["a", "c", "d", "e"]
    plain = Index.build(DotProduct(dim=2), torch.eye(2), ids=[7, 4])
    assert plain.find([4, 5, 7]).tolist() == [4, -1, 7]
    assert (plain.has_keys, plain.describe()["ids"]) == (False, "integers")
    for call in (lambda: plain.keys, lambda: plain.search(torch.ones(1, 2), 1).keys):
        with pytest.raises(InvalidInputError, match="the ids of this index are integers; take them from"):
            call()


def test_a_condition_reads_string_ids() -> None:
    index = build(metadata=pl.DataFrame({"price": [1, 2, 3, 4, 5]}))
    found = index.search(torch.ones(1, DIM), 2, allow="id IN ('b', 'd', 'e') AND price < 5")
    assert sorted(found.keys[0]) == ["b", "d"]
    found = index.search(torch.ones(1, DIM), 1, allow=pl.col("id") == "c")
    assert found.keys == [["c"]]


def test_a_copied_result_keeps_its_strings() -> None:
    result = build(metadata=pl.DataFrame({"price": [1, 2, 3, 4, 5]})).search(
        torch.ones(2, DIM), 5, exclude=[["a"], []], pad=True
    )
    copied = copy.deepcopy(result)
    assert isinstance(copied, SearchResult)
    assert copied.keys == result.keys
    assert copied.keys[0][-1] is None
    assert copied.to_frame().equals(result.to_frame().drop("price"))


def test_results_outlive_their_version(tmp_path: Path) -> None:
    index = build(tmp_path / "index")
    result = index.search(torch.ones(1, DIM), 5)
    for number in range(6):
        index.upsert(torch.zeros(5, DIM), ids=[f"{key}{number}" for key in "abcde"])
        index.compact()
    assert sorted(result.keys[0]) == list("abcde")


def test_strings_come_in_many_forms() -> None:
    items, keys = torch.eye(2), ["x", "y"]
    for ids in (keys, tuple(keys), np.array(keys), np.array(keys, dtype=object), pl.Series(keys), dict.fromkeys(keys)):
        given = list(ids) if isinstance(ids, dict) else ids
        index = Index.build(DotProduct(dim=2), items, ids=given)
        assert index.keys == keys
        assert index.search(items, 1, exclude=[{"x"}, None]).keys == [["y"], ["y"]]
        assert index.search(items, 1, allow=given).keys == [["x"], ["y"]]
        index.remove(given)
        assert index.keys == []
        index.add(items, ids=["y", "z"])
        assert index.keys == ["y", "z"]
    assert as_keys(torch.arange(2), name="ids") is None
    assert as_keys(np.arange(2), name="ids") is None


def test_batches_bring_strings(place: Path | None) -> None:
    batches = [ItemBatch(torch.eye(2), ["a", "b"]), ItemBatch(torch.eye(2), ["c", "d"])]
    assert Index.build(DotProduct(dim=2), iter(batches), path=place).keys == ["a", "b", "c", "d"]
    for second, message in (
        (["c", "a"], "batch 1 of items, from row 2 on: ids holds 'a' more than once, the second time in row 1"),
        ([5, 6], "ids holds integers but the ids of this index are strings"),
        (None, "batch 1 of items differs in having ids"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Index.build(DotProduct(dim=2), iter([batches[0], ItemBatch(torch.eye(2), second)]))
    with pytest.raises(InvalidInputError, match="ids holds the string 'c' but the ids of this index are integers"):
        Index.build(DotProduct(dim=2), iter([ItemBatch(torch.eye(2), [1, 2]), batches[1]]))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", 1], "ids holds the string 'a' and, in row 1, 1; give only strings, or only integers"),
        (["a", None], "ids holds the string 'a' and, in row 1, None"),
        (["a", "a"], "ids holds 'a' more than once, the second time in row 1; give every item its own id"),
        (["a", ""], "ids has an empty string in row 1"),
        (["a", "\ud800"], "ids has half of a surrogate pair"),
        (["a"], "ids has 1 strings but there are 2 items; give one id for each item"),
        ("ab", "ids is 'ab', a single string; give a list of ids"),
        ({"a"}, "ids is a set, which has no order"),
        (np.array([["a", "b"]]), r"ids has shape \(1, 2\); give a flat list of ids"),
    ],
    ids=str,
)
def test_wrong_strings(ids: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Index.build(DotProduct(dim=2), torch.eye(2), ids=ids)


def test_strings_and_integers_are_not_mixed(place: Path | None) -> None:
    index, one = build(place), torch.ones(1, DIM)
    is_string, is_integer = "the ids of this index are strings", "the ids of this index are integers"
    plain = Index.build(DotProduct(dim=DIM), torch.eye(DIM))
    for call, message in (
        (lambda: index.add(one, ids=[9]), is_string),
        (lambda: index.add(one), f"ids is missing but {is_string}"),
        (lambda: index.upsert(one, ids=[0]), is_string),
        (lambda: index.upsert(one), f"ids is missing but {is_string}"),
        (lambda: index.remove([0]), f"ids holds the integer 0 but {is_string}"),
        (lambda: index.remove(["x"]), r"id 'x' is not in the index \(1 of the given ids are not\)"),
        (lambda: index.add(one, ids=["a"]), r"id 'a' is already in the index \(1 of the given ids are\); use upsert"),
        (lambda: index.search(one, 1, exclude=[[0]]), rf"exclude\[0\] holds the integer 0 but {is_string}"),
        (lambda: index.search(one, 1, allow=[0]), f"allow holds the integer 0 but {is_string}"),
        (lambda: index.explain(one[0], 0), f"item_id holds the integer 0 but {is_string}"),
        (lambda: index.explain(one[0], "x"), "item_id is 'x', which is not among the 5 items"),
        (lambda: plain.add(one, ids=["a"]), f"ids holds the string 'a' but {is_integer}"),
        (lambda: plain.upsert(one, ids=["a"]), is_integer),
        (lambda: plain.remove(["a"]), f"ids holds the string 'a' but {is_integer}"),
        (lambda: plain.search(one, 1, exclude=[["a"]]), rf"exclude\[0\] holds the string 'a' but {is_integer}"),
        (lambda: plain.search(one, 1, allow=["a"]), f"allow holds the string 'a' but {is_integer}"),
        (lambda: plain.explain(one[0], "a"), f"item_id holds the string 'a' but {is_integer}"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()
    assert (index.version, plain.version) == (1, 1)
    assert index.search(one, 2, exclude=[[]], allow=[True] * 5).ids.shape == (
        1,
        2,
    )  # empty lists and masks have no kind
