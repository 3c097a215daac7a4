"""Calls for servers: versions side by side, queries without neighbours, and items by id or text."""

from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import DotProduct, Index
from railsearch.errors import InvalidInputError
from railsearch.foundation.json_values import rows_as_json, rows_from_json
from railsearch.foundation.results import ExpectedRecall
from railsearch.index import Average
from railsearch.index.serving import describe_items, find_text, is_same_version, query_parts, reopen, warm_up
from railsearch.index.tuned import TunedStrategy
from railsearch.kernels import native
from tests.support.served import DIM, make_index, make_queries

QUERIES = torch.tensor(make_queries(50))


def test_a_reopened_index_leaves_the_other_alone(tmp_path: Path) -> None:
    first = make_index(tmp_path / "index", 30)
    second = reopen(first)
    assert is_same_version(first, second)
    second.remove([3])
    assert (first.version, len(first), second.version, len(second)) == (1, 30, 2, 29)
    assert not is_same_version(first, second)
    third = reopen(first)
    assert is_same_version(second, third)
    del second, third
    assert first.search(QUERIES[:1], 30).ids.shape == (1, 30)
    for _ in range(5):  # the first version stays open, whatever is cleaned up
        writer = reopen(first)
        writer.compact()
    assert sorted(first.search(QUERIES[:1], 30).ids[0].tolist()) == list(range(30))
    warm_up(first)
    with pytest.raises(InvalidInputError, match="in memory only"):
        reopen(Index.build(DotProduct(dim=2), torch.eye(2)))


def test_query_parts_do_not_depend_on_neighbours(tmp_path: Path) -> None:
    index = make_index(tmp_path / "index", 30)
    whole = query_parts(index, QUERIES)
    for first, last in ((0, 1), (3, 9), (31, 33), (0, 32), (49, 50)):
        own = query_parts(index, QUERIES[first:last])
        assert torch.equal(own.components, whole.components[first:last])
        assert torch.equal(own.gate, whole.gate[first:last])
    torch.testing.assert_close(index.search(whole, 5).scores, index.search(QUERIES, 5).scores)


def test_query_parts_and_tuning_use_the_kernel_that_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(tmp_path / "index", 300).close()
    monkeypatch.setattr(native, "query_parts", lambda *_: pytest.fail("kernel='torch' was chosen"))
    with Index.open(tmp_path / "index", kernel="torch") as index:
        found = query_parts(index, QUERIES)
        torch.testing.assert_close(found.components, index.similarity.query_parts(QUERIES).components)
        index.tune(torch.randn(100, DIM), 3, target_recall=0.1, show_progress=False)


@pytest.mark.parametrize("has_keys", [False, True])
def test_items_by_id_and_text(tmp_path: Path, has_keys: bool) -> None:
    index = make_index(tmp_path / "index", 40, has_keys=has_keys)
    wanted = ["item/7", "item/3"] if has_keys else [7, 3]
    found = describe_items(index, wanted)
    assert found.columns == ["id", "title", "year"]
    assert (found["id"].to_list(), found["title"].to_list()) == (wanted, ["Title 7", "Title 3"])
    with pytest.raises(InvalidInputError, match="1 of 2 ids are not in the index"):
        describe_items(index, [*wanted[:1], "item/99" if has_keys else 99])
    index.remove(wanted[:1])
    assert find_text(index, "TITLE 7")["title"].to_list() == []
    assert find_text(index, "le 1", limit=3)["title"].to_list() == ["Title 1", "Title 10", "Title 11"]
    assert len(find_text(index, "", limit=5)) == 5
    assert len(find_text(index, "title", limit=100)) == 39
    assert find_text(index, ".*")["title"].to_list() == []
    with pytest.raises(InvalidInputError, match="not a column of text"):
        find_text(index, "a", column="year")
    if has_keys:
        assert find_text(index, "ITEM/3", limit=1)["id"].to_list() == ["item/3"]
    else:
        bare = Index.build(DotProduct(dim=DIM), torch.ones(3, DIM))
        assert find_text(bare, "a")["id"].to_list() == []
        assert find_text(bare, "", limit=2)["id"].to_list() == [0, 1]


def test_tuned_strategies_as_text() -> None:
    tuned = TunedStrategy(Average(500), ExpectedRecall(0.9915, 0.95, 8))
    assert TunedStrategy.parse(str(tuned)) == tuned
    assert TunedStrategy.parse("Average(500)") == TunedStrategy(Average(500))
    for text in ("Average(500); recall", "x", "Average(500); recall >= 2.5 with confidence 0.95 at version 8"):
        with pytest.raises(InvalidInputError):
            TunedStrategy.parse(text)


def test_recall_is_expected_only_of_what_was_measured() -> None:
    index = Index.build(DotProduct(dim=2), torch.randn(30, 2))
    measured = ExpectedRecall(0.9, 0.95, 1)
    index.contents.remember(3, TunedStrategy(Average(5), measured))
    queries = torch.randn(2, 2)
    assert index.search(queries, 3).expected_recall == measured
    assert index.search(queries, 3, Average(5)).expected_recall == measured
    for found in (
        index.search(queries, 3, Average(6)),
        index.search(queries, 2),
        index.search(queries, 3, exclude=[[1], []]),
        index.search(queries, 3, allow=range(20)),
    ):
        assert found.expected_recall is None


def test_rows_survive_json() -> None:
    frame = pl.DataFrame(
        {
            "text": ["a", None],
            "day": pl.Series(["2024-01-31", None], dtype=pl.String).str.to_date(),
            "time": pl.Series(["2024-01-31T10:30:00", None], dtype=pl.String).str.to_datetime(),
            "price": [1.5, None],
            "count": [3, None],
            "flag": [True, None],
            "tags": [["a", "b"], []],
        }
    )
    assert rows_from_json(rows_as_json(frame), frame.schema).equals(frame)


def test_integers_of_128_bits_are_text_in_json() -> None:
    frame = pl.DataFrame({"hash": [2**100, 2**64 - 1, -(2**63) - 1, None]}, schema={"hash": pl.Int128})
    found = [row["hash"] for row in rows_as_json(frame)]
    assert found == [str(2**100), 2**64 - 1, str(-(2**63) - 1), None]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "has the names none"),
        ({"year": 1, "b": 2}, "has the names 'year', 'b'"),
        ({"year": "x"}, "not of type Int64"),
        ({"year": 1.5}, "not of type Int64"),
        ({"year": 2**70}, "not of type Int64"),
        ({"year": [1]}, "not of type Int64"),
        ({"year": {"a": 1}}, "not of type Int64"),
        ({"year": True}, "not of type Int64"),
    ],
)
def test_rows_of_another_form_are_refused(row: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        rows_from_json([row], pl.Schema({"year": pl.Int64}))


@pytest.mark.parametrize("value", ["abc", "5", True, [1.0], {"a": 1}])
def test_no_number_is_made_of_other_values_and_none_is_lost(value: object) -> None:
    with pytest.raises(InvalidInputError, match="'price' that is not of type Float32"):
        rows_from_json([{"price": 1}, {"price": None}, {"price": value}], pl.Schema({"price": pl.Float32}))
