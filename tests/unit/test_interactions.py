"""Interactions from tables and files: order, ids, bad rows, and what is held out."""

import datetime as dt
import logging
import tarfile
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import InvalidInputError
from railsearch.data import Interactions, leave_last_out, read_amazon, read_movielens, read_sequences

SHARED = Path(__file__).parents[3] / "shared" / "data"


def histories(interactions: Interactions) -> dict[object, list[object]]:
    """Each user's items in order, by their own ids."""
    result: dict[object, list[object]] = {user: [] for user in interactions.user_ids}
    for user, item in zip(interactions.users.tolist(), interactions.items.tolist(), strict=True):
        result[interactions.user_ids[user]].append(interactions.item_ids[item])
    return result


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


def test_bad_rows_are_never_dropped_silently(caplog: pytest.LogCaptureFixture) -> None:
    table = pl.DataFrame({"user": [1, None, 1, 2], "item": [5, 6, None, 7], "timestamp": [1, None, 3, 4]})
    with pytest.raises(
        InvalidInputError, match=r"2 bad rows of 4 but at most 0 .*row 1: no user or timestamp; row 2: no item"
    ):
        Interactions.from_frame(table)
    with pytest.raises(InvalidInputError, match="at most 1 are allowed"):
        Interactions.from_frame(table, max_bad_rows=1)
    with caplog.at_level(logging.WARNING):
        found = Interactions.from_frame(table, max_bad_rows=2)
    assert found.bad_rows == ("row 1: no user or timestamp", "row 2: no item")
    assert histories(found) == {1: [5], 2: [7]}
    assert "2 bad rows were left out" in caplog.text


def test_wrong_tables() -> None:
    table = pl.DataFrame({"user": [1], "item": [2], "timestamp": [3]})
    for arguments, message in (
        (([1, 2],), "is a list; give a table that speaks Arrow"),
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
        match=r"3 bad rows of 4 .*line 2: no user or item or timestamp; line 3: no user; line 5: no timestamp",
    ):
        read_movielens(tmp_path)
    assert histories(read_movielens(tmp_path, max_bad_rows=3)) == {1: [10]}
    (tmp_path / "movies.dat").write_text("10::A::B\nten::A::B\n")
    with pytest.raises(InvalidInputError, match=r"movies.dat has no id in line 2"):
        read_movielens(tmp_path, max_bad_rows=3)
    with pytest.raises(InvalidInputError, match="is no folder"):
        read_movielens(tmp_path / "nothing")
    with pytest.raises(InvalidInputError, match=r"nothing\.csv does not exist"):
        read_amazon(tmp_path / "nothing.csv")
    (tmp_path / "words.txt").write_text("1 5\n1 five\n")
    with pytest.raises(InvalidInputError, match="line 2: no item"):
        read_sequences(tmp_path / "words.txt")


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
    archive = SHARED / "ml-1m.tar.xz"
    if not archive.is_file():
        pytest.skip(f"{archive} is not here")
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
