"""Text conditions: what they look at, how mistakes are shown, and their limits."""

import datetime as dt
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.metadata import evaluate_filter

FRAME = pl.DataFrame(
    {
        "title": ["Up", 'It\'s a "Gift"', "up%", None],
        "year": [2009, 1934, 2010, None],
        "price": [1.5, float("nan"), -3.0, None],
        "release date": [dt.date(2009, 5, 16), None, dt.date(2010, 1, 1), dt.date(1999, 12, 31)],
        "seen": pl.Series([0, 1_700_000_000_000, None, 1], dtype=pl.Datetime("ms", "Europe/Berlin")),
        "is_new": [True, False, None, True],
        "blob": [b"a", b"b", None, b"d"],
        "tags": [["a"], [], None, ["b"]],
        "NOT": [1, 2, 3, 4],
    }
)


def rows(condition: object, frame: pl.DataFrame = FRAME) -> list[int]:
    mask = evaluate_filter(condition, frame, torch.arange(len(frame)))  # type: ignore[arg-type]
    return mask.nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("year >= 2000 AND title LIKE 'U%'", [0]),
        ("title = 'It''s a \"Gift\"'", [1]),
        ("\"release date\" >= '2009-05-16'", [0, 2]),
        ('"release date" IS NULL', [1]),
        ("seen >= '2023-11-14 23:13:20'", [1]),  # 22:13:20 in UTC, one hour later in Berlin
        ("seen > '2023-11-14T23:13:20.000'", []),
        ("seen BETWEEN '1970-01-01' AND '1970-01-02'", [0, 3]),
        ("is_new", [0, 3]),
        ("NOT is_new", [1]),
        ("is_new = TRUE OR year = 2010", [0, 2, 3]),
        ("2000 < year", [0, 2]),
        ("year != 2009", [1, 2]),
        ("price != 0", [0, 2]),  # NaN matches no comparison
        ("price > -100", [0, 2]),
        ("NOT (price > 100)", [0, 2]),
        ("price NOT IN (7)", [0, 2]),
        ("price IS NULL", [3]),
        ("blob IS NOT NULL AND tags IS NOT NULL", [0, 1, 3]),
        ('"NOT" > 3', [3]),
        ("year > price", [0, 2]),
        ("TRUE", [0, 1, 2, 3]),
        ("year IN (1934, 2010.5)", [1]),
    ],
)
def test_conditions(condition: str, expected: list[int]) -> None:
    assert rows(condition) == expected


@pytest.mark.parametrize(
    ("condition", "place", "problem"),
    [
        ("", 0, "expected a column or a value, but found the end"),
        ("yeer > 1", 0, "there is no column 'yeer'; columns are: title, year, price"),
        ("year >", 6, "expected a column or a value, but found the end"),
        ("year", 0, "year holds numbers, which is not a condition; compare it"),
        ("MAX(year) > 3", 0, "MAX is called, but a condition cannot call functions"),
        ("year > 'x", 7, "the text that starts here has no closing '"),
        ('"year > 3', 0, 'the column name that starts here has no closing "'),
        ("year > 'x'", 7, "year holds numbers; compare it with a number"),
        ("title > 3", 8, "title holds text; compare it with 'text'"),
        ("title > year", 8, "year holds Int64 but title holds String; compare columns of one type"),
        ("is_new < TRUE", 0, "is_new holds true or false, which has no order; use = or !="),
        ("blob = 'a'", 0, "blob holds Binary, which can only be tested with IS NULL"),
        ("tags = 'a'", 0, r"tags holds List\(String\), which can only be tested with IS NULL"),
        ("year LIKE '2%'", 0, "year holds numbers, but LIKE needs a column of text"),
        ("year = NULL", 7, "NULL is compared with IS NULL or IS NOT NULL"),
        ('title = "Up"', 8, "there is no column 'Up'"),
        ('title IN ("Up")', 10, "double quotes mark a column; text goes into single quotes"),
        ("1 = 1", 2, "two values are compared; compare a column with a value"),
        ("year > 1 year < 3", 9, "year is not expected here; write AND, OR or the end"),
        ("year + 1 > 3", 5, "has no meaning in a condition"),
        ("year > 1; DROP", 8, "';' has no meaning in a condition"),
        ("year IN (SELECT x)", 9, "expected a value: a number, 'text', TRUE or FALSE, but found SELECT"),
        ("(year > 1", 9, r"expected \), but found the end"),
        ("\"release date\" > 'May'", 17, "'May' is not a date; write one such as '2024-01-31'"),
        ("seen > '2024-02-30'", 7, "'2024-02-30' is not a time in Europe/Berlin"),
        ("year > 1e309", 7, "the number is too large"),
        ("year > 1e999999999", 7, "the number is too large"),
        ("title = '\ud800'", 8, "the text is not valid Unicode"),
        ("title LIKE '" + "%_" * 17 + "'", 11, "the patterns have more than 24 wildcards within text"),
        ("(" * 17 + "year > 1" + ")" * 17, 16, "nested deeper than 16 levels"),
        ("NOT " * 17 + "year > 1", 64, "nested deeper than 16 levels"),
        (" OR ".join(["year > 1"] * 65), 64 * 12, "there are more than 64 tests"),
    ],
)
def test_mistakes_are_shown_at_their_place(condition: str, place: int, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        rows(condition)
    first, shown, caret = str(caught.value).split("\n")
    assert first.startswith(f"allow cannot be read at character {place + 1}: ")
    assert first.endswith(".")
    assert shown[caret.index("^") :][:1].strip() == condition[place : place + 1].strip().replace("\ud800", "")


def test_limits_can_be_reached() -> None:
    assert rows(" OR ".join(["title LIKE '%It%'"] * 64)) == [1]
    with pytest.raises(InvalidInputError, match="more than 24 wildcards"):
        rows(" OR ".join(["title LIKE '%a______b%'"] * 5))
    assert rows(" OR ".join(["year > 2009"] * 64)) == [2]
    assert rows("(" * 16 + "year > 2009" + ")" * 16) == [2]
    assert rows("title IN (" + "'x', " * 400 + "'Up')") == [0]
    with pytest.raises(InvalidInputError, match="a condition of 4,097 bytes but at most 4,096 are allowed"):
        rows("year > 1" + " " * 4089)


def test_no_condition_reads_files_or_runs_a_query(tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("x\n2009\n")
    for condition in (
        f"year IN (SELECT x FROM read_csv('{secret}'))",  # noqa: S608
        f"year IN (read_csv('{secret}'))",
        "year IN (SELECT x FROM read_csv('http://127.0.0.1:9/'))",
        "LPAD(title, 200000, 'x') = 'y'",
        " OR ".join(f"year = {year}" for year in range(1_000)),
        " OR ".join(f"year = {year}" for year in range(10_000)),
        "(" * 4096,
        "NOT " * 1024,
    ):
        with pytest.raises(InvalidInputError) as caught:
            rows(condition)
        assert "2009" not in str(caught.value).split("\n")[0]


def test_patterns_take_linear_time() -> None:
    frame = pl.DataFrame({"title": ["a" * 2_000] * 200})
    assert rows(f"title LIKE '{'%a' * 16}%b'", frame) == []  # by backtracking: hours


def test_large_integers_are_compared_exactly() -> None:
    frame = pl.DataFrame({"x": [2**63 - 1, 2**63 - 2, -(2**63)]})
    assert rows("x = 9223372036854775806", frame) == [1]
    assert rows("x > 9223372036854775806.5", frame) == [0]
    assert rows("x < 1e30", frame) == [0, 1, 2]
    assert rows("x < -1e30", frame) == []


def test_polars_expressions_that_panic_are_refused() -> None:
    def panics(values: pl.Series) -> pl.Series:
        raise pl.exceptions.PanicException("boom")

    for expression in (pl.col("missing") > 1, pl.col("title") > 3, pl.col("year").map_batches(panics)):
        with pytest.raises(InvalidInputError, match="cannot be evaluated"):
            rows(expression)
