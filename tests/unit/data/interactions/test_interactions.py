"""Interactions from tables and files: order, ids, bad rows, and what is held out."""

import datetime as dt
import logging
import tarfile
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch.data import Interactions, leave_last_out, read_amazon, read_movielens, read_sequences
from railsearch.errors import InvalidInputError
from tests.support.interactions import histories
from tests.support.shared_data import shared_file


def test_order_is_by_time_and_stable() -> None:
    table = pl.DataFrame(
        {
            "user": ["b", "a", "b", "a", "b", "b"],
            "item": ["x", "y", "z", "x", "w", "v"],
            "timestamp": [5, 9, 5, 1, 2, 5],
        }
    )
    found = Interactions.from_frame(table)
    assert histories(found) == {"a": ["x", "y"], "b": ["w", "x", "z", "v"]}
    assert found.offsets.tolist() == [0, 2, 6]
    assert found.timestamps.tolist() == [1, 9, 2, 5, 5, 5]
    assert len(found) == 6
    assert "6 of 2 users with 5 items" in repr(found)


def test_other_names_types_and_a_catalogue() -> None:
    day = dt.datetime(2024, 1, 2, tzinfo=dt.UTC)
    table = pl.DataFrame(
        {"who": [7, 7], "what": [30, 10], "when": [day, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], "stars": [4, 5]}
    )
    found = Interactions.from_frame(
        table, user="who", item="what", timestamp="when", rating="stars", catalogue=[10, 20, 30, 40]
    )
    assert histories(found) == {7: [10, 30]}
    assert found.item_ids.to_list() == [10, 20, 30, 40]
    assert found.timestamps.tolist() == [1704067200, 1704153600]
    assert found.ratings.tolist() == [5.0, 4.0]


def test_without_times_the_order_given_is_kept() -> None:
    found = Interactions.from_frame(pl.DataFrame({"user": [1, 2, 1], "item": [9, 8, 7]}), timestamp=None)
    assert histories(found) == {1: [9, 7], 2: [8]}
    assert found.timestamps.tolist() == [0, 2, 1]
    assert not found.has_times


def test_bad_rows_are_never_dropped_silently(caplog: pytest.LogCaptureFixture) -> None:
    table = pl.DataFrame({"user": [1, None, 1, 2], "item": [5, 6, None, 7], "timestamp": [1, None, 3, 4]})
    with pytest.raises(
        InvalidInputError, match=r"2 bad rows of 4 but at most 0 .*row 1: no user, no timestamp; row 2: no item"
    ):
        Interactions.from_frame(table)
    with pytest.raises(InvalidInputError, match="at most 1 are allowed"):
        Interactions.from_frame(table, max_bad_rows=1)
    with caplog.at_level(logging.WARNING):
        found = Interactions.from_frame(table, max_bad_rows=2)
    assert found.bad_rows == ("row 1: no user, no timestamp", "row 2: no item")
    assert histories(found) == {1: [5], 2: [7]}
    assert "2 bad rows were skipped" in caplog.text


def test_ratings_are_never_turned_to_nan() -> None:
    table = pl.DataFrame(
        {
            "user": [1, 1, 1, 1, 1],
            "item": [1, 2, 3, 4, 5],
            "timestamp": [1, 2, 3, 4, 5],
            "rating": ["4.5", "five", None, " 3 ", "inf"],
        }
    )
    with pytest.raises(
        InvalidInputError,
        match=r"3 bad rows .*row 1: rating 'five' is not a number; row 2: no rating; row 4: rating 'inf' is not a",
    ):
        Interactions.from_frame(table, rating="rating")
    assert Interactions.from_frame(table, rating="rating", max_bad_rows=3).ratings.tolist() == [4.5, 3.0]
    assert Interactions.from_frame(table).ratings is None
    table = table.with_columns(rating=pl.Series([1.0, float("nan"), 2.0, 3.0, 4.0]))
    with pytest.raises(InvalidInputError, match="row 1: no rating"):
        Interactions.from_frame(table, rating="rating")


def test_empty_ids_are_no_ids() -> None:
    table = pl.DataFrame({"user": ["a", "", " ", "b"], "item": [1.0, 2.0, 3.0, float("nan")]})
    with pytest.raises(InvalidInputError, match=r"3 bad rows .*row 1: no user; row 2: no user; row 3: no item"):
        Interactions.from_frame(table, timestamp=None)


@pytest.mark.parametrize(
    ("times", "unit", "seconds"),
    [
        ([1_700_000_000, 5, -3], "s", [-3, 5, 1_700_000_000]),
        ([1_700_000_000_999, 1_700_000_000_001], "ms", [1_700_000_000] * 2),
        ([2.75, 2.25], "s", [2, 2]),
        (["2024-01-02", "2024-01-01T23:00:00", "2024-01-02 00:00:00+02:00"], "s", [1704146400, 1704150000, 1704153600]),
        (["1.5e9", "1500000001"], "s", [1_500_000_000, 1_500_000_001]),
        ([dt.date(2024, 1, 2), dt.date(2024, 1, 1)], "s", [1704067200, 1704153600]),
    ],
)
def test_times_of_many_kinds(times: list[object], unit: str, seconds: list[int]) -> None:
    table = pl.DataFrame({"user": 1, "item": range(len(times)), "timestamp": times})
    assert Interactions.from_frame(table, time_unit=unit).timestamps.tolist() == seconds


def test_order_within_a_second_is_kept() -> None:
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    by_kind = (
        ([moment + dt.timedelta(milliseconds=900), moment], "s"),
        ([10.9, 10.1], "s"),
        ([10_900, 10_100], "ms"),
    )
    for times, unit in by_kind:
        table = pl.DataFrame({"user": 1, "item": ["later", "sooner"], "timestamp": times})
        assert histories(Interactions.from_frame(table, time_unit=unit)) == {1: ["sooner", "later"]}


def test_milliseconds_are_not_taken_for_seconds() -> None:
    table = pl.DataFrame({"user": [1, 1], "item": [1, 2], "timestamp": [1_700_000_000_000, 1_700_000_001_000]})
    with pytest.raises(
        InvalidInputError,
        match="row 0: timestamp '1700000000000' is beyond the year 5138 in s; set the unit with time_unit=UNIT",
    ):
        Interactions.from_frame(table)
    assert Interactions.from_frame(table, time_unit="ms").timestamps.tolist() == [1_700_000_000, 1_700_000_001]
    with pytest.raises(InvalidInputError, match="time_unit is 'h'; choose from: s, ms, us, ns"):
        Interactions.from_frame(table, time_unit="h")


def test_a_column_called_line_is_nothing_special() -> None:
    table = pl.DataFrame({"user": [1, None], "item": [1, 2], "line": ["blue", "red"]})
    with pytest.raises(InvalidInputError, match="row 1: no user"):
        Interactions.from_frame(table, timestamp=None)


def test_ids_of_other_types() -> None:
    table = pl.DataFrame({"user": ["b", "a", "b"], "item": [3, 1, 2]}).with_columns(pl.col("user").cast(pl.Categorical))
    assert histories(Interactions.from_frame(table, timestamp=None)) == {"a": [1], "b": [3, 2]}
    with pytest.raises(InvalidInputError, match=r"column 'item' holds List\(Int64\); give numbers or text as ids"):
        Interactions.from_frame(pl.DataFrame({"user": [1], "item": [[1]]}), timestamp=None)
    with pytest.raises(InvalidInputError, match="column 'timestamp' holds Boolean; give numbers or dates as times"):
        Interactions.from_frame(pl.DataFrame({"user": [1], "item": [1], "timestamp": [True]}))
    table = pl.DataFrame({"user": [1], "item": [1], "rating": [dt.date(2024, 1, 1)]})
    with pytest.raises(InvalidInputError, match="column 'rating' holds Date; give numbers as ratings"):
        Interactions.from_frame(table, timestamp=None, rating="rating")


def test_a_catalogue_with_titles() -> None:
    events = pl.DataFrame({"user": [1, 1, 2], "id": [30, 10, 50]})
    movies = pl.DataFrame({"id": [40, 30, 10], "title": ["D", "C", "A"], "year": [4, 3, 1]})
    found = Interactions.from_frame(events, item="id", timestamp=None, catalogue=movies)
    assert found.item_ids.to_list() == [10, 30, 40, 50]
    assert found.item_columns.rows() == [("A", 1), ("C", 3), ("D", 4), (None, None)]
    for wrong, message in (
        (movies.rename({"id": "item"}), "the catalogue of a table has no column 'id'; its columns are: item, title"),
        (movies.with_columns(item=1), "has ids in 'id', and another column 'item'"),
        (pl.concat([movies, movies[:1]]), "the catalogue of a table holds 40 more than once"),
        ([1, None], "the catalogue of a table has no id in row 1"),
        ([1.5], "catalogue holds Float64 ids but events hold Int64 ones"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Interactions.from_frame(events, item="id", timestamp=None, catalogue=wrong)


def test_wrong_tables() -> None:
    table = pl.DataFrame({"user": [1], "item": [2], "timestamp": [3]})
    for arguments, message in (
        (([1, 2],), "is a list; give a table with an Arrow interface"),
        ((table.drop("item"),), "has no column 'item'; its columns are: user, timestamp"),
        ((table[:0],), "has no events"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Interactions.from_frame(*arguments)
    with pytest.raises(InvalidInputError, match="catalogue holds String ids but events hold Int64 ones"):
        Interactions.from_frame(table, catalogue=["a"])
    with pytest.raises(InvalidInputError, match="max_bad_rows is -1"):
        Interactions.from_frame(table, max_bad_rows=-1)


def test_movielens_1m_and_20m(tmp_path: Path) -> None:
    older, newer = tmp_path / "ml-1m", tmp_path / "ml-20m"
    older.mkdir()
    newer.mkdir()
    (older / "ratings.dat").write_text("2::10::5::978300760\n1::30::4::5\n1::20::3::5\n1::10::3::4\n")
    (older / "movies.dat").write_bytes(
        "10::Am\xe9lie, the::Comedy\n20::B::Drama\n30::C::Drama\n40::D::War\n".encode("latin-1")
    )
    (newer / "ratings.csv").write_text("userId,movieId,rating,timestamp\r\n1,20,3.5,7\r\n1,10,4.0,6\r\n")
    (newer / "movies.csv").write_text('movieId,title,genres\n10,"A, the",Comedy\n20,B,Drama\n')
    assert histories(read_movielens(older)) == {1: [10, 30, 20], 2: [10]}
    assert read_movielens(older).item_ids.to_list() == [10, 20, 30, 40]
    assert histories(read_movielens(newer)) == {1: [10, 20]}
    assert read_movielens(newer).ratings.tolist() == [4.0, 3.5]
    assert read_movielens(older).item_columns.row(0) == ("Am\xe9lie, the", "Comedy")
    assert read_movielens(newer).item_columns.rows() == [("A, the", "Comedy"), ("B", "Drama")]


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "books.csv").write_text("A1,B9,5.0,100\nA1,B2,1.0,50\nA0,B9,2.0,1")
    assert histories(read_amazon(tmp_path / "books.csv")) == {"A0": ["B9"], "A1": ["B2", "B9"]}
    (tmp_path / "pairs.txt").write_text("1 5\n1 3\n2 5\n")
    assert histories(read_sequences(tmp_path / "pairs.txt")) == {1: [5, 3], 2: [5]}
    (tmp_path / "lines.txt").write_text("1 5 3  9\n2 5\n")
    assert histories(read_sequences(tmp_path / "lines.txt")) == {1: [5, 3, 9], 2: [5]}


def test_wrong_files_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "ratings.dat").write_text("1::10::5::100\n1::20\nx::30::1::5\n\n1::10::5::soon\n")
    with pytest.raises(InvalidInputError, match=r"movies.dat does not exist"):
        read_movielens(tmp_path)
    (tmp_path / "movies.dat").write_text("10::A::B\n")
    with pytest.raises(
        InvalidInputError,
        match=r"3 bad rows of 4 .*line 2: 2 fields instead of 4; line 3: user 'x' is not a whole number; "
        "line 5: timestamp 'soon' is not a number or ISO date",
    ):
        read_movielens(tmp_path)
    assert histories(read_movielens(tmp_path, max_bad_rows=3)) == {1: [10]}
    (tmp_path / "movies.dat").write_text("10::A::B\nten::A::B\n")
    with pytest.raises(InvalidInputError, match=r"movies.dat has no id in line 2"):
        read_movielens(tmp_path, max_bad_rows=3)
    with pytest.raises(InvalidInputError, match="is not a folder"):
        read_movielens(tmp_path / "nothing")
    with pytest.raises(InvalidInputError, match=r"nothing\.csv does not exist"):
        read_amazon(tmp_path / "nothing.csv")
    (tmp_path / "movies.dat").write_text("10::A::B\n10::A::B\n")
    with pytest.raises(InvalidInputError, match=r"holds 10 more than once"):
        read_movielens(tmp_path, max_bad_rows=3)
    (tmp_path / "ratings.dat").unlink()
    (tmp_path / "ratings.csv").write_text("1,20,3.5,7\n1,10,4.0,6\n")
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n10,A,B\n")
    with pytest.raises(InvalidInputError, match=r"begins with '1,20,3.5,7' but 'userId,movieId,rating,timestamp'"):
        read_movielens(tmp_path)
    (tmp_path / "ratings.csv").write_text("userId,movieId,rating,timestamp\n1,10,4.0,6\n")
    (tmp_path / "movies.csv").write_text("movieId,title\n10,A\n")
    with pytest.raises(InvalidInputError, match="has the columns movieId, title; movieId, title and genres are needed"):
        read_movielens(tmp_path)
    (tmp_path / "books.csv").write_bytes(b"A1,B9,5.0,100\nA1,B\xe9,1.0,50\n")
    with pytest.raises(InvalidInputError, match="is not utf-8 text in line 2"):
        read_amazon(tmp_path / "books.csv")
    (tmp_path / "books.csv").write_text("A1,B9,5.0,100\n,B2,1.0,50\nA1,B2,,50\n")
    with pytest.raises(InvalidInputError, match=r"2 bad rows of 3 .*line 2: no user; line 3: no rating"):
        read_amazon(tmp_path / "books.csv")
    (tmp_path / "words.txt").write_text("1 5\n1 five\n")
    with pytest.raises(InvalidInputError, match="line 2: item 'five' is not a whole number"):
        read_sequences(tmp_path / "words.txt")


def test_sequences_lose_no_line(tmp_path: Path) -> None:
    file = tmp_path / "sequences.txt"
    file.write_text("1 5 3\n2\n3\t4\n")
    with pytest.raises(InvalidInputError, match=r"1 bad rows of 4 .*line 2: no item"):
        read_sequences(file)
    found = read_sequences(file, max_bad_rows=1)
    assert histories(found) == {1: [5, 3], 3: [4]}
    assert not found.has_times
    file.write_text("196 242 3 881250949\n22 377 1 878887116\n196 302 3 891717742\n")
    with pytest.raises(InvalidInputError, match=r"has user 196 in lines 1 and 3, with more than one item"):
        read_sequences(file)


def test_blocks_of_a_long_file_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{number % 7},item{number % 5},{number % 5}.0,{number}" for number in range(50)]
    lines[20] = "7"
    (tmp_path / "long.csv").write_bytes("\r\n".join([*lines[:30], "", *lines[30:]]).encode())
    expected = read_amazon(tmp_path / "long.csv", max_bad_rows=1)
    for size in (1, 16, 100):
        monkeypatch.setattr("railsearch.data.text_files.BYTES_PER_BLOCK", size)
        found = read_amazon(tmp_path / "long.csv", max_bad_rows=1)
        assert histories(found) == histories(expected)
        assert found.bad_rows == ("line 21: 1 fields instead of 4",)


def test_leave_last_out() -> None:
    rows = [("a", item) for item in (1, 2, 3, 4)] + [("b", 5), ("b", 6)] + [("c", 7), ("c", 8), ("c", 9)]
    table = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    interactions = Interactions.from_frame(table, timestamp=None)
    split = leave_last_out(interactions)
    assert interactions.item_ids[split.test.items.tolist()].to_list() == [4, 9]
    assert interactions.item_ids[split.validation.items.tolist()].to_list() == [3, 8]
    assert split.test.users.tolist() == split.validation.users.tolist() == [0, 2]
    # What may be looked at ends just before the item that is to be found.
    for held_out in (split.test, split.validation):
        assert torch.equal(interactions.items[held_out.history_ends], held_out.items)
    assert split.train_ends.tolist() == [2, 6, 7]
    assert split.num_train_events == 2 + 2 + 1
    assert "2 users (1 with too few events are not counted)" in split.protocol
    paper = leave_last_out(interactions, has_validation=False)
    assert paper.validation is None
    assert interactions.item_ids[paper.test.items.tolist()].to_list() == [4, 6, 9]
    assert paper.num_train_events == 3 + 1 + 2
    assert "validation" not in paper.protocol
    with pytest.raises(InvalidInputError, match="no user has more than 2 events"):
        leave_last_out(Interactions.from_frame(table[4:6], timestamp=None))


@pytest.mark.data
def test_movielens_1m_as_published(tmp_path: Path) -> None:
    archive = shared_file("ml-1m.tar.xz")
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    found = read_movielens(next(tmp_path.rglob("ratings.dat")).parent)
    assert (len(found), found.num_users, found.num_items) == (1_000_209, 6_040, 3_883)
    assert len(found.items.unique()) == 3_706
    in_sight = [
        found.items[max(first, last - 200) : last]
        for first, last in zip(found.offsets[:-1], found.offsets[1:], strict=True)
    ]
    assert len(torch.cat(in_sight).unique()) == 3_649  # the paper's count
