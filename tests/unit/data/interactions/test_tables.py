"""Interactions from CSV, Parquet and Arrow files: ids, quotes, line numbers, and what is wrong with them."""

from pathlib import Path

import polars as pl
import pytest

from railsearch.data import Interactions, read_interactions
from railsearch.errors import InvalidInputError
from tests.support.interactions import histories


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_csv_with_quotes_names_and_a_mark(tmp_path: Path) -> None:
    file = write(
        tmp_path / "events.csv",
        '\ufeffwho, what,"note, or none",when,stars\r\n'
        'ann,"Chair, red","said ""no""",20,4.5\r\n'
        'bob,Table,"two\r\nlines",5,1\r\n'
        "\r\n"
        "ann,Table,,10,2\r\n",
    )
    found = read_interactions(file, user="who", item="what", timestamp="when", rating="stars")
    assert histories(found) == {"ann": ["Table", "Chair, red"], "bob": ["Table"]}
    assert found.ratings.tolist() == [2.0, 4.5, 1.0]
    assert found.source == str(file)


def test_bad_rows_are_named_by_the_line_they_begin_in(tmp_path: Path) -> None:
    file = write(
        tmp_path / "events.csv",
        'user,item,timestamp,note\n1,7,10,"a\nb"\n,7,11,\n1,8\n1,9,soon,\n1,9,12,"c\n\nd"\n1,10,1700000000000,\n',
    )
    with pytest.raises(
        InvalidInputError,
        match=r"4 bad rows of 6 but at most 0 are allowed \(line 4: no user; line 5: 2 fields instead of 4; "
        r"line 6: timestamp 'soon' is not a number or ISO date; line 10: timestamp '1700000000000' is beyond the year",
    ):
        read_interactions(file)
    found = read_interactions(file, max_bad_rows=4)
    assert histories(found) == {1: [7, 9]}
    assert len(found.bad_rows) == 4


def test_ids_that_look_like_numbers_lose_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "events.csv", "user,item,timestamp\n1,007,1\n2,7,2\n-3,7,3\n")
    found = read_interactions(file)
    assert found.user_ids.to_list() == [-3, 1, 2]
    assert found.item_ids.to_list() == ["007", "7"]


def test_columns_of_a_text_catalogue_are_numbers_and_missing_values(tmp_path: Path) -> None:
    events = write(tmp_path / "events.csv", "user,item,timestamp\na,x,1\na,y,2\na,z,3\n")
    items = write(
        tmp_path / "items.csv",
        "item,price,year,zip,genre\nx,19.90,1999,01234,Drama\ny,5,,1.5, \nz,,2001,7,\n",
    )
    found = read_interactions(events, items=items).items_table()
    assert found["price"].to_list() == [19.9, 5.0, None]
    assert found["year"].to_list() == [1999, None, 2001]
    assert found["zip"].to_list() == ["01234", "1.5", "7"]  # 01234 is no number
    assert found["genre"].to_list() == ["Drama", None, None]  # no category: `max_per` sets no cap


def test_tabs_and_no_times(tmp_path: Path) -> None:
    file = write(tmp_path / "events.tsv", "user\titem\nb\tx\na\ty\nb\tw\n")
    found = read_interactions(file, timestamp=None)
    assert histories(found) == {"a": ["y"], "b": ["x", "w"]}
    assert not found.has_times


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_tables_are_as_in_memory(tmp_path: Path, suffix: str) -> None:
    table = pl.DataFrame(
        {"user": ["07", "7", "07"], "item": [3, 2, 1], "timestamp": [3, 2, 1], "rating": [1.0, 2.0, 3.0]}
    )
    path = tmp_path / f"events.{suffix}"
    table.write_parquet(path) if suffix == "parquet" else table.write_ipc(path)
    found = read_interactions(path, rating="rating")
    expected = Interactions.from_frame(table, rating="rating")
    assert histories(found) == histories(expected) == {"07": [1, 3], "7": [2]}
    assert found.ratings.tolist() == expected.ratings.tolist()
    table.with_columns(item=pl.Series([1, None, 2])).write_parquet(tmp_path / "bad.parquet")
    with pytest.raises(InvalidInputError, match="row 1: no item"):
        read_interactions(tmp_path / "bad.parquet")


def test_items_with_titles(tmp_path: Path) -> None:
    events = write(tmp_path / "events.csv", "user,product,timestamp\n1,10,1\n1,30,2\n")
    items = write(tmp_path / "items.csv", 'product,title\n30,"C, the"\n20,B\n10,A\n')
    found = read_interactions(events, item="product", items=items)
    assert found.item_ids.to_list() == [10, 20, 30]
    assert found.item_columns.to_dict(as_series=False) == {"title": ["A", "B", "C, the"]}
    pl.DataFrame({"product": [20, 10], "title": ["B", "A"]}).write_parquet(tmp_path / "items.parquet")
    found = read_interactions(events, item="product", items=tmp_path / "items.parquet")
    assert found.item_columns["title"].to_list() == ["A", "B", None]
    # One id that is no number makes text of all, in both tables, so that they still meet.
    write(items, "product,title\n10,A\n020,B\n")
    found = read_interactions(events, item="product", items=items)
    assert found.item_ids.to_list() == ["020", "10", "30"]
    assert found.item_columns["title"].to_list() == ["B", "A", None]
    pl.DataFrame({"product": ["10"]}).write_parquet(tmp_path / "items.parquet")
    assert read_interactions(events, item="product", items=tmp_path / "items.parquet").item_ids.to_list() == [
        "10",
        "30",
    ]


def test_long_files_come_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "events.csv", "user,item,timestamp\n" + "".join(f"{n % 3},{n},{n}\n" for n in range(20)))
    expected = histories(read_interactions(file))
    monkeypatch.setattr("railsearch.data.text_files.ROWS_PER_BLOCK", 7)
    assert histories(read_interactions(file)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with the columns .none.; give a header of different names"),
        ("user,item,user\n1,2,3\n", "begins with the columns user, item, user"),
        ("user,item,timestamp\n", "has a header and no rows"),
        ("1,2,3\n4,5,6\n", "has no column 'user'; its columns are: 1, 2, 3"),
        ("user,item\n1,2\n", "its columns are: user, item; pass timestamp=None if the rows"),
        (
            'user,item,timestamp\n1,2,3\n1,"2,3\n1,2,3\n',
            "cannot be read as CSV from line 3 on .unexpected end of data",
        ),
        ('user,item,timestamp\n1,"2"2,3\n', "cannot be read as CSV from line 2 on"),
        ("user,item,timestamp\n1,2,x\n", r"1 bad rows of 1 .*line 2: timestamp 'x' is not a number or ISO date"),
    ],
)
def test_wrong_csv(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_interactions(write(tmp_path / "events.csv", text))


def test_wrong_files(tmp_path: Path) -> None:
    events = write(tmp_path / "events.csv", "user,item,timestamp\n1,2,3\n")
    (tmp_path / "events.csv.gz").write_bytes(b"")
    (tmp_path / "latin.csv").write_bytes(b"user,item,timestamp\n1,2,3\nR\xe9mi,2,3\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    write(tmp_path / "items.csv", "item,title\n2,a,b\n")
    for file, items, message in (
        ("nothing.csv", None, "nothing.csv does not exist"),
        ("events.csv.gz", None, "has an unknown format; give one of: .csv, .tsv, .parquet"),
        ("latin.csv", None, "is not utf-8 text in line 3"),
        ("broken.parquet", None, "broken.parquet cannot be read as a table"),
        (events, tmp_path / "items.csv", "items.csv has too few or too many fields in line 2; 2 are needed"),
        (events, tmp_path / "latin.csv", "is not utf-8 text"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            read_interactions(tmp_path / file, items=items)
