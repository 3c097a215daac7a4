"""Columns that go with items: returned with results, and filtered by, exactly."""

from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import BruteForce, DotProduct, Index, ItemBatch, TwoPass
from railsearch.errors import InvalidInputError, NotEnoughItemsError

TITLES = [f"title {row}" for row in range(60)]
YEARS = [1990 + row % 7 for row in range(60)]


@pytest.fixture
def table() -> pl.DataFrame:
    return pl.DataFrame({"title": TITLES, "year": YEARS})


@pytest.fixture(params=["memory", "disk"])
def index(request: pytest.FixtureRequest, tmp_path: Path, table: pl.DataFrame) -> Index:
    items = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    ids = torch.randperm(60, generator=torch.Generator().manual_seed(1)) + 100
    path = tmp_path / "index" if request.param == "disk" else None
    return Index.build(DotProduct(dim=4), items, ids, metadata=table.with_columns(pl.Series("item", ids)), path=path)


@pytest.fixture
def queries() -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(2))


def test_results_bring_their_columns(index: Index, queries: torch.Tensor) -> None:
    result = index.search(queries, 5)
    frame = result.to_frame()
    assert frame.columns == ["query", "rank", "id", "score", "title", "year", "item"]
    assert frame["id"].to_list() == frame["item"].to_list() == result.ids.flatten().tolist()
    assert frame["query"].to_list() == [0] * 5 + [1] * 5 + [2] * 5
    assert frame["rank"].to_list() == [1, 2, 3, 4, 5] * 3
    assert frame["score"].to_list() == result.scores.flatten().tolist()
    assert index.metadata["item"].to_list() == index.ids.tolist()


def test_results_without_columns_and_with_empty_places(queries: torch.Tensor) -> None:
    index = Index.build(DotProduct(dim=4), torch.eye(4))
    frame = index.search(queries, 3, exclude=[[0, 1], [], [0, 1, 2, 3]], pad=True).to_frame()
    assert frame.columns == ["query", "rank", "id", "score"]
    assert frame["query"].to_list() == [0, 0, 1, 1, 1]
    assert index.metadata is None


@pytest.mark.parametrize("strategy", [BruteForce(), TwoPass()], ids=str)
def test_conditions_are_filters(index: Index, queries: torch.Tensor, strategy: TwoPass) -> None:
    wanted = index.ids[torch.tensor((index.metadata["year"] >= 1995).to_list())]
    expected = index.search(queries, 4, allow=wanted)
    for allow in ("year >= 1995", pl.col("year") >= 1995, "NOT (year < 1995)", "year IN (1995, 1996)"):
        found = index.search(queries, 4, strategy, allow=allow)
        assert torch.equal(found.ids, expected.ids)
        assert bool(found.is_exact.all())
    one = index.search(queries, 1, strategy, allow="title = 'title 7'")
    assert set(one.to_frame()["title"]) == {"title 7"}


def test_allowed_ids_are_those_that_a_search_can_find(index: Index, queries: torch.Tensor) -> None:
    index.remove([105, 107])
    mask = torch.arange(58) % 3 == 0
    for allow in ("year >= 1994", pl.col("year") < 1992, [110, 105, 103, 110, 7], {120, 101}, mask, None):
        found = index.search(queries, 58, allow=allow, pad=True)
        expected = sorted(set(found.ids[0].tolist()) - {-1})
        assert index.allowed_ids(allow).tolist() == expected
        assert 0 < len(expected) < 60


def test_conditions_look_at_what_is_there(index: Index, queries: torch.Tensor) -> None:
    newest = int(index.metadata["year"].max())
    newest_ids = index.ids[torch.tensor((index.metadata["year"] == newest).to_list())]
    index.remove(newest_ids)
    generator = torch.Generator().manual_seed(3)
    new = torch.randn(3, 4, generator=generator)
    index.add(new[:2], [500, 501], metadata=pl.DataFrame({"title": ["x", "y"], "year": [1, 1], "item": [500, 501]}))
    found = index.search(queries, 3, allow=pl.col("year") == pl.col("year").max())  # of those that are left
    assert set(found.to_frame()["year"]) == {newest - 1}
    index.upsert(new[2:], [500], metadata=pl.DataFrame({"title": ["z"], "year": [9999], "item": [500]}))
    assert set(index.search(queries, 1, allow="year > 3000").to_frame()["title"]) == {"z"}
    before = index.search(queries, 7)
    index.compact()
    after = index.search(queries, 7)
    assert after.to_frame().drop("score").equals(before.to_frame().drop("score"))
    torch.testing.assert_close(after.scores, before.scores)  # compaction changes blocks, and with them last bits
    assert index.metadata["item"].to_list() == index.ids.tolist()


def test_results_outlive_the_version_they_came_from(tmp_path: Path, queries: torch.Tensor) -> None:
    index = Index.build(
        DotProduct(dim=4), torch.eye(4), metadata=pl.DataFrame({"name": list("abcd")}), path=tmp_path / "i"
    )
    result = index.search(queries, 4)
    for number in range(6):
        index.upsert(torch.eye(4), [0, 1, 2, 3], metadata=pl.DataFrame({"name": [f"{number}"] * 4}))
    assert len(list((tmp_path / "i" / "metadata").iterdir())) < 6
    assert set(result.to_frame()["name"]) == set("abcd")


def test_null_is_not_true(queries: torch.Tensor) -> None:
    index = Index.build(DotProduct(dim=4), torch.eye(4), metadata=pl.DataFrame({"year": [1, None, 3, None]}))
    assert set(index.search(queries, 2, allow="year > 0").ids.flatten().tolist()) == {0, 2}
    with pytest.raises(NotEnoughItemsError, match="allow leaves only 2 of 4 items"):
        index.search(queries, 3, allow="year > 0")


def test_what_speaks_arrow(queries: torch.Tensor) -> None:
    class Spoken:
        def __init__(self, frame: pl.DataFrame) -> None:
            self.frame = frame

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.frame.__arrow_c_stream__(requested_schema)

    index = Index.build(DotProduct(dim=4), torch.eye(4), metadata=Spoken(pl.DataFrame({"name": list("abcd")})))
    assert set(index.search(queries, 4).to_frame()["name"]) == set("abcd")


def test_batches_bring_columns(tmp_path: Path, table: pl.DataFrame) -> None:
    items = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    batches = (ItemBatch(items[first : first + 7], metadata=table[first : first + 7]) for first in range(0, 60, 7))
    index = Index.build(DotProduct(dim=4), batches, path=tmp_path / "index")
    assert index.metadata.equals(table)
    assert torch.equal(index.ids, torch.arange(60))


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        ("yeer > 1", "there is no column 'yeer'; columns are: title, year, item"),
        ("year >", "expected a column or a value, but found the end"),
        ("MAX(year) > 3", "MAX is called, but a condition cannot call functions"),
        (pl.col("year"), "returns 60 values of Int64; write a condition"),
        (pl.col("year").max(), "returns 1 values of Int64"),
        (pl.col("title") > 3, "cannot be evaluated"),
    ],
)
def test_wrong_conditions(index: Index, queries: torch.Tensor, allow: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        index.search(queries, 1, allow=allow)


def test_wrong_tables(index: Index, queries: torch.Tensor, table: pl.DataFrame) -> None:
    plain = Index.build(DotProduct(dim=4), torch.eye(4))
    with pytest.raises(InvalidInputError, match="'year > 1' but this index has no metadata"):
        plain.search(queries, 1, allow="year > 1")
    for metadata, message in (
        (table[:3], "metadata has 3 rows but there are 60 items"),
        (table.rename({"title": "score"}), "metadata has a column 'score', which every table of results has"),
        ({"title": TITLES}, "metadata is a dict; give a polars DataFrame"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Index.build(DotProduct(dim=4), torch.randn(60, 4), metadata=metadata)
    version = index.version
    for metadata, message in (
        (None, "metadata has no columns but the index has columns title"),
        (pl.DataFrame({"title": ["a"]}), r"metadata has columns title \(String\) but the index has columns"),
        (pl.DataFrame({"title": ["a"], "year": ["b"], "item": [1]}), r"year \(String\)"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            index.add(torch.randn(1, 4), metadata=metadata)
    assert (index.version, len(index)) == (version, 60)
    with pytest.raises(InvalidInputError, match="but the index has no columns"):
        plain.add(torch.randn(1, 4), metadata=table[:1])


@pytest.mark.parametrize(
    "column",
    [
        pl.Series("day", [2**31 - 1, 0], dtype=pl.Int32).cast(pl.Date),
        pl.Series("day", [2**62, None], dtype=pl.Int64).cast(pl.Datetime("ms")),
        pl.Series("day", [2**62, 1], dtype=pl.Int64).cast(pl.Datetime("us", "UTC")),
        pl.Series("day", [2**62, 1], dtype=pl.Int64).cast(pl.Duration("ms")),
        pl.Series("day", [[2**62], None], dtype=pl.List(pl.Int64)).cast(pl.List(pl.Datetime("ms"))),
        pl.Series("day", [{"x": 2**62}, None], dtype=pl.Struct({"x": pl.Int64})).cast(
            pl.Struct({"x": pl.Datetime("ms")})
        ),
    ],
)
def test_dates_that_cannot_be_printed_are_refused(column: pl.Series) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'day' .* outside the years 1 to 9999; correct or drop it"):
        Index.build(DotProduct(dim=2), torch.eye(2), metadata=column.to_frame())
    usual = pl.Series("day", [0, None], dtype=pl.Int64).cast(pl.Datetime("ms")).to_frame()
    assert Index.build(DotProduct(dim=2), torch.eye(2), metadata=usual).metadata.equals(usual)
