"""`railsearch data`, used as people would, rightly and wrongly."""

import dataclasses
import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railsearch import RailsearchError
from railsearch.cli.app import app
from railsearch.data import PUBLISHED, read_prepared
from railsearch.errors import DataFolderError, DownloadError, InvalidInputError

EVENTS = """customer,product,when,stars
ann,"Chair, red",2024-01-05,5
bob,Table,2024-01-06,4
ann,Table,2024-02-05T10:00:00Z,3
ann,Lamp,soon,2
"""


def run(*arguments: object, code: int = 0, answer: str | None = None) -> str:
    """What a command prints; an error of ours is raised, as `main` prints it."""
    result = CliRunner().invoke(app, ["data", *map(str, arguments)], input=answer)
    if isinstance(result.exception, RailsearchError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    movielens = tmp_path / "unpacked"
    movielens.mkdir()
    (movielens / "ratings.dat").write_text("1::10::5::978300760\n1::20::3::978300761\n2::10::4::978300760\n")
    (movielens / "movies.dat").write_text("10::[bold]Toy Story (1995)::Comedy\n20::B::Drama\n30::C::War\n")
    (tmp_path / "events.csv").write_text(EVENTS)
    (tmp_path / "lines.txt").write_text("1 5 3 9\n2 5\n")
    return tmp_path


@pytest.mark.parametrize("command", ["prepare", "info"])
def test_help_teaches(command: str) -> None:
    text = " ".join(run(command, "--help").split())
    assert f"Example: railsearch data {command}" in text
    assert "--json" in text


def test_movielens(folder: Path) -> None:
    text = run("prepare", "ml-1m", "--from", folder / "unpacked")
    for words in ("data/ml-1m", "users 2", "items 3 (title, genres)", "events 3", "median 1, longest 2",
                  "2000-12-31T22:12:40+00:00 to 2000-12-31T22:12:41+00:00", "bad rows none",
                  "https://files.grouplens.org/datasets/movielens/ml-1m-README.txt"):  # fmt: skip
        assert "".join(words.split()) in "".join(text.split()), words  # long values are folded
    assert len(read_prepared("data/ml-1m")) == 3
    described = json.loads(run("info", "data/ml-1m", "--json"))
    assert (described["name"], described["num_items"], described["item_columns"]) == ("ml-1m", 3, ["title", "genres"])
    with pytest.raises(InvalidInputError, match=r"already exists; choose another path or pass overwrite=True"):
        run("prepare", "ml-1m", "--from", folder / "unpacked")
    run("prepare", "ml-1m", "--from", folder / "unpacked", "--overwrite")


def test_a_table_of_ones_own(folder: Path) -> None:
    arguments = ["prepare", "shop", "--from", "events.csv", "--user", "customer", "--item", "product"]
    with pytest.raises(
        InvalidInputError, match=r"line 5: timestamp 'soon' is not a number or ISO date.*max_bad_rows=N"
    ):
        run(*arguments, "--timestamp", "when")
    assert not (folder / "data").exists() or not list((folder / "data").iterdir())
    text = run(*arguments, "--timestamp", "when", "--rating", "stars", "--max-bad-rows", 1)
    assert "1 skipped: line 5" in " ".join(text.split())
    assert read_prepared("data/shop").ratings.tolist() == [5.0, 3.0, 4.0]
    (folder / "products.csv").write_text("product,price\nLamp,10\nSofa,200\n")
    described = json.loads(run(*arguments, "--to", "other", "--in-order", "--items", "products.csv", "--json"))
    assert (described["num_events"], described["num_items"], described["has_times"]) == (4, 4, False)
    assert read_prepared("other").item_columns["price"].to_list() == [None, 10, 200, None]
    with pytest.raises(InvalidInputError, match="--in-order means that there are no times"):
        run(*arguments, "--to", "third", "--in-order", "--timestamp", "when")
    with pytest.raises(
        InvalidInputError, match="has no column 'user'; its columns are: customer, product, when, stars"
    ):
        run("prepare", "again", "--from", "events.csv")


def test_sequences_and_min_count(folder: Path) -> None:
    assert "none; events are sorted by time" in run("prepare", "lines", "--from", folder / "lines.txt")
    (folder / "more.txt").write_text("1 5 3\n2 5 3\n3 5\n")
    described = json.loads(run("prepare", "more", "--from", "more.txt", "--min-count", 2, "--json"))
    assert (described["num_users"], described["num_events"], described["num_dropped"]) == (2, 4, 1)
    assert "1 events of users or items with fewer than 2 events" in run("info", "data/more")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ml1m",), r"'ml1m' is not a published data set \(ml-1m, ml-20m, books\)"),
        (("ml-20m", "--from", "unpacked"), r"ratings.csv does not exist"),
        (("books", "--from", "absent"), r"absent does not exist; pass the folder of ratings_Books.csv"),
        (("lines", "--from", "lines.txt", "--rating", "stars"), "is a file of sequences, which has no columns"),
        (("ml-1m", "--from", "unpacked", "--user", "who"), "ml-1m has known columns"),
        (("ml-1m",), "downloaded under the terms of use at https://files.grouplens.org.*accept_terms=True"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_input(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run("prepare", *arguments)


@pytest.mark.usefixtures("folder")
def test_options_have_limits() -> None:
    for option in (("--min-count", -1), ("--max-bad-rows", -1), ("--time-unit", "h")):
        run("prepare", "lines", "--from", "lines.txt", *option, code=2)


def test_damage_is_named(folder: Path) -> None:
    run("prepare", "lines", "--from", folder / "lines.txt")
    (folder / "data" / "lines" / "items.parquet").write_bytes(b"")
    with pytest.raises(DataFolderError, match=r"items.parquet was changed or damaged after saving: it has 0 bytes"):
        run("info", "data/lines")
    with pytest.raises(DataFolderError, match=r"about.json does not exist"):
        run("info", "unpacked")


@pytest.fixture
def is_published(folder: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small collection as if it were the published one, on a server on this machine."""
    with zipfile.ZipFile(folder / "ml-1m.zip", "w") as archive:
        for file in (folder / "unpacked").iterdir():
            archive.write(file, f"ml-1m/{file.name}")
    content = (folder / "ml-1m.zip").read_bytes()
    monkeypatch.setattr("tests.support.file_server.CONTENT", content)
    small = dataclasses.replace(
        PUBLISHED["ml-1m"],
        address=f"{server}/ml-1m.zip",
        sha256=hashlib.sha256(content).hexdigest(),
        num_events=3,
    )
    monkeypatch.setitem(PUBLISHED, "ml-1m", small)


@pytest.mark.usefixtures("is_published")
def test_download_with_accepted_terms() -> None:
    text = run("prepare", "ml-1m", "--accept-terms")
    terms, summary = text.index("research only, no redistribution"), text.index("events")
    assert terms < summary
    assert read_prepared("data/ml-1m").source.endswith("/ml-1m.zip")


@pytest.mark.usefixtures("is_published")
def test_download_asks_who_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("railsearch.cli.data._is_person_present", lambda: True)
    assert "nothing was downloaded" in run("prepare", "ml-1m", answer="n\n", code=1)
    assert not (folder / "data").exists()
    run("prepare", "ml-1m", answer="y\n")
    # What would fail anyway fails before the question.
    with pytest.raises(InvalidInputError, match="already exists"):
        run("prepare", "ml-1m")


@pytest.mark.usefixtures("is_published")
def test_a_download_that_is_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, "ml-1m", dataclasses.replace(PUBLISHED["ml-1m"], sha256="0" * 64))
    with pytest.raises(DownloadError, match="has checksum"):
        run("prepare", "ml-1m", "--accept-terms")
    assert not list((folder / "data").iterdir())
