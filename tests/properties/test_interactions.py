"""Interactions of any small table, against plain Python; and the same after they were prepared and read back."""

import csv
import tempfile
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch.data import Interactions, read_interactions, read_prepared, write_prepared
from tests.support.interactions import assert_same, histories
from tests.support.trials import trials

IDS = st.one_of(
    st.lists(st.integers(-5, 5) | st.integers(-(2**62), 2**62), min_size=1, max_size=4),
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1), min_size=1, max_size=4),
)
"""Ids to draw from, all of one type."""


@st.composite
def tables(draw: st.DrawFn) -> pl.DataFrame:
    users, items = draw(IDS), draw(IDS)
    rows = draw(
        st.lists(
            st.tuples(st.sampled_from(users), st.sampled_from(items), st.integers(0, 3), st.integers(1, 5)), min_size=1
        )
    )
    table = pl.DataFrame(rows, schema=["user", "item", "timestamp", "rating"], orient="row")
    is_kept = [all(str(value).strip() for value in row[:2]) for row in rows]  # blank ids are bad rows, tested elsewhere
    return table.filter(is_kept)


def expected_histories(table: pl.DataFrame) -> dict[object, list[object]]:
    rows = sorted(table.rows(), key=lambda row: row[2])  # stable
    return {user: [row[1] for row in rows if row[0] == user] for user in sorted(set(table["user"]))}


@given(tables())
@settings(max_examples=trials(10, 25), deadline=None)
def test_order_ids_and_round_trip(table: pl.DataFrame) -> None:
    if not len(table):
        return
    found = Interactions.from_frame(table, rating="rating")
    assert histories(found) == expected_histories(table)
    with tempfile.TemporaryDirectory() as folder:
        write_prepared(found, Path(folder, "prepared"), name="any")
        assert_same(read_prepared(Path(folder, "prepared")), found)


@given(tables())
@settings(max_examples=trials(15, 60), deadline=None)
def test_csv_keeps_every_id(table: pl.DataFrame) -> None:
    if not len(table):
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "events.csv")
        with file.open("w", encoding="utf-8", newline="") as text:
            writer = csv.writer(text, quoting=csv.QUOTE_ALL)
            writer.writerow(table.columns)
            writer.writerows(table.rows())
        found = read_interactions(file)
    as_text = {str(user): list(map(str, items)) for user, items in histories(found).items()}
    expected = {str(user): list(map(str, items)) for user, items in expected_histories(table).items()}
    assert as_text == expected
