"""Folders of prepared data: the same when read back, whole or not there, and refused when damaged."""

import dataclasses
import hashlib
import json
import logging
import shutil
import tarfile
import zipfile
from pathlib import Path

import polars as pl
import pytest

from railsearch.data import (
    PUBLISHED,
    Interactions,
    TableOptions,
    check_prepared,
    prepare,
    read_about,
    read_amazon,
    read_movielens,
    read_prepared,
    read_sequences,
    write_prepared,
)
from railsearch.data.interactions.prepared import FORMAT
from railsearch.errors import DataFolderError, InvalidInputError
from railsearch.foundation.errors import StorageError
from tests.support.interactions import assert_same
from tests.support.shared_data import shared_file


@pytest.fixture
def movielens(tmp_path: Path) -> Path:
    """A folder like that of MovieLens-1M, with equal times and a bad row."""
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    lines = [f"{1 + row % 5}::{10 + row * 7 % 30}::{1 + row % 5}::{1000 + row // 9}" for row in range(100)]
    (folder / "ratings.dat").write_text("\n".join([*lines[:40], "1::2::x::4", *lines[40:]]) + "\n")
    movies = [f"{10 + row}::Movie {row}, \xe9::Drama|War\n" for row in range(35)]
    (folder / "movies.dat").write_bytes("".join(movies).encode("latin-1"))
    return folder


def test_movielens_round_trip(movielens: Path, tmp_path: Path) -> None:
    prepared = prepare("ml-1m", movielens, tmp_path / "out", max_bad_rows=1)
    assert_same(read_prepared(tmp_path / "out"), read_movielens(movielens, max_bad_rows=1))
    about = read_about(tmp_path / "out")
    assert about == prepared.about
    assert (about.num_users, about.num_items, about.num_events, about.min_count) == (5, 35, 100, 0)
    assert about.bad_rows == ("line 41: rating 'x' is not a number",)
    assert (about.first_time, about.last_time) == ("1970-01-01T00:16:40+00:00", "1970-01-01T00:16:51+00:00")
    assert about.terms.startswith("https://files.grouplens.org/")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "about.json",
        "interactions.parquet",
        "items.parquet",
    }
    assert pl.read_parquet(tmp_path / "out" / "items.parquet").columns == ["item", "title", "genres"]


def test_a_file_that_is_not_whole_is_noticed(
    movielens: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        prepare("ml-1m", movielens, tmp_path / "out", max_bad_rows=1)
    assert "has 101 events but 1,000,209 were published; check that the file is complete" in caplog.text
    caplog.clear()
    monkeypatch.setitem(PUBLISHED, "ml-1m", dataclasses.replace(PUBLISHED["ml-1m"], num_events=101))
    prepare("ml-1m", movielens, tmp_path / "other", max_bad_rows=1)
    assert "published" not in caplog.text


def test_books_as_in_the_paper(tmp_path: Path) -> None:
    events = [(f"U{user}", f"B{item:03}") for user in range(7) for item in range(user + 1)] * 2
    file = tmp_path / "ratings_Books.csv"
    file.write_text("".join(f"{user},{item},5.0,{time}\n" for time, (user, item) in enumerate(events)))
    about = prepare("books", file, tmp_path / "books").about
    direct = read_amazon(file)
    assert (about.min_count, about.num_events, about.num_dropped) == (5, 44, 12)
    assert about.num_events + about.num_dropped == len(direct) == 56
    assert about.num_users == 5
    prepare("books", tmp_path, tmp_path / "all", min_count=0)
    assert_same(read_prepared(tmp_path / "all"), direct)


def test_files_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(
        "who,what,when\nb,007,2024-01-01T00:00:00.9\nb,7,2024-01-01T00:00:00.1\na,7,2023-05-05\n"
    )
    table = TableOptions(user="who", item="what", timestamp="when")
    about = prepare("shop", tmp_path / "events.csv", tmp_path / "shop", table=table).about
    found = read_prepared(tmp_path / "shop")
    assert found.item_ids.gather(found.items.numpy()).to_list() == ["7", "7", "007"]
    assert (about.has_ratings, about.terms, about.last_time) == (False, None, "2024-01-01T00:00:00+00:00")

    (tmp_path / "lines.txt").write_text("1 5 3 9\n2 5\n")
    about = prepare("lines", tmp_path / "lines.txt", tmp_path / "lines").about
    assert_same(read_prepared(tmp_path / "lines"), read_sequences(tmp_path / "lines.txt"))
    assert (about.has_times, about.first_time, about.median_history, about.longest_history) == (False, None, 1, 3)


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("1 5 3 9\n")
    assert prepare("lines", "lines.txt").folder == Path("data/lines")
    assert len(read_prepared("data/lines")) == 3


def test_a_table_in_memory(tmp_path: Path) -> None:
    events = Interactions.from_frame(pl.DataFrame({"user": [2, 1], "item": ["x", "y"], "timestamp": [1.5, 2.5]}))
    write_prepared(events, tmp_path / "out", name="mine", terms="https://example.org/terms")
    assert_same(read_prepared(tmp_path / "out"), events)
    assert read_about(tmp_path / "out").terms == "https://example.org/terms"
    with pytest.raises(InvalidInputError, match="already exists; choose another path or pass overwrite=True"):
        write_prepared(events, tmp_path / "out", name="mine")
    assert write_prepared(events, tmp_path / "out", name="newer", overwrite=True).name == "newer"


def zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as content:
        for file in folder.iterdir():
            content.write(file, f"ml-1m/{file.name}")
    return path


def test_an_archive_that_was_downloaded_by_hand(movielens: Path, tmp_path: Path) -> None:
    archive = zipped(movielens, tmp_path / "ml-1m.zip")
    prepare("ml-1m", archive, tmp_path / "out", max_bad_rows=1)
    expected = dataclasses.replace(read_movielens(movielens, max_bad_rows=1), source=str(archive))
    assert_same(read_prepared(tmp_path / "out"), expected)
    # The folder that it was unpacked into is as good as the one inside.
    prepare("ml-1m", tmp_path, tmp_path / "outer", max_bad_rows=1)


@pytest.fixture
def as_published(movielens: Path, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """MovieLens-1M as if the small one were the published one, on a server on this machine; its address."""
    content = zipped(movielens, tmp_path / "small.zip").read_bytes()
    monkeypatch.setattr("tests.support.file_server.CONTENT", content)
    address = f"{server}/ml-1m.zip"
    small = dataclasses.replace(
        PUBLISHED["ml-1m"], address=address, sha256=hashlib.sha256(content).hexdigest(), num_events=101
    )
    monkeypatch.setitem(PUBLISHED, "ml-1m", small)
    return address


def test_a_download(as_published: str, movielens: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"ml-1m-README.txt \(research only.*accept them with accept_terms=True"
    ):
        prepare("ml-1m", target=tmp_path / "out", max_bad_rows=1)
    prepare("ml-1m", target=tmp_path / "out", max_bad_rows=1, accept_terms=True)
    expected = dataclasses.replace(read_movielens(movielens, max_bad_rows=1), source=as_published)
    assert_same(read_prepared(tmp_path / "out"), expected)
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_a_failure_leaves_nothing(as_published: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_published
    out = tmp_path / "new" / "out"
    with pytest.raises(InvalidInputError, match="1 bad rows of 101 but at most 0"):
        prepare("ml-1m", target=out, accept_terms=True)
    monkeypatch.setitem(PUBLISHED, "ml-1m", dataclasses.replace(PUBLISHED["ml-1m"], sha256="0" * 64))
    with pytest.raises(OSError, match="has checksum"):
        prepare("ml-1m", target=out, accept_terms=True)
    assert not list(out.parent.iterdir())


def test_wrong_sources(movielens: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("1 5 3 9\n")
    (tmp_path / "picture.png").write_bytes(b"")
    for name, source, options, message in (
        ("ml-20m", movielens, {}, r"ratings.csv does not exist; MovieLens 20M, by GroupLens is read from ratings.csv"),
        ("ml-1m", tmp_path / "nothing", {}, "nothing does not exist; pass the folder of ratings.dat and"),
        (
            "ml-1m",
            tmp_path / "lines.txt",
            {},
            "is neither a folder nor a zip archive; pass the folder of ratings.dat and",
        ),
        ("books", movielens, {}, r"ratings_Books.csv does not exist"),
        ("ml1m", movielens, {}, r"is a folder, and 'ml1m' is not a published data set \(ml-1m, ml-20m, books\)"),
        ("ml1m", None, {}, "'ml1m' is not a published data set .*; pass a file of your own with source=PATH"),
        ("mine", tmp_path / "nothing.csv", {}, r"nothing.csv does not exist"),
        ("mine", tmp_path / "picture.png", {}, r"an unknown format; pass a table .* or sequences \(.txt\)"),
        ("../mine", tmp_path / "lines.txt", {}, "give a plain name"),
        ("lines", tmp_path / "lines.txt", {"table": TableOptions()}, "which has no columns"),
        ("ml-1m", movielens, {"table": TableOptions()}, "ml-1m has known columns"),
        ("lines", tmp_path / "lines.txt", {"min_count": 4}, "no user of .* has 4 events"),
        ("lines", tmp_path / "lines.txt", {"min_count": -1}, "min_count is -1"),
        ("ml-1m", movielens, {"max_bad_rows": -1}, "max_bad_rows is -1"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            prepare(name, source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    (movielens / "movies.dat").unlink()
    with pytest.raises(InvalidInputError, match=r"movies.dat does not exist"):
        prepare("ml-1m", movielens, tmp_path / "out")


def test_what_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("1 5 3 9\n")
    prepare("lines", file, tmp_path / "out")
    with pytest.raises(InvalidInputError, match="already exists"):
        prepare("lines", file, tmp_path / "out")
    file.write_text("1 5 3 x\n")
    with pytest.raises(InvalidInputError, match="bad rows"):
        prepare("lines", file, tmp_path / "out", overwrite=True)
    assert len(read_prepared(tmp_path / "out")) == 3
    file.write_text("1 5 3\n")
    prepare("lines", file, tmp_path / "out", overwrite=True)
    assert len(read_prepared(tmp_path / "out")) == 2
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInputError, match="holds other files than a railsearch folder of prepared data"):
        prepare("lines", file, tmp_path / "out", overwrite=True)
    with pytest.raises(StorageError, match="cannot be written"):
        prepare("lines", file, file / "out")


@pytest.mark.parametrize(
    "names", [["interactions.parquet", "items.parquet"], ["about.json"], ["about.json", "interactions.parquet"]]
)
def test_files_of_a_user_are_never_replaced(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "lines.txt").write_text("1 5 3 9\n")
    (tmp_path / "out").mkdir()
    for name in names:
        (tmp_path / "out" / name).write_text('{"mine": true}')
    with pytest.raises(InvalidInputError, match="holds other files than a railsearch folder of prepared data"):
        prepare("lines", tmp_path / "lines.txt", tmp_path / "out", overwrite=True)
    assert [(tmp_path / "out" / name).read_text() for name in names] == ['{"mine": true}'] * len(names)


def damage(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)


def restate(folder: Path, **changes: object) -> None:
    stated = json.loads((folder / "about.json").read_text())
    (folder / "about.json").write_text(json.dumps({**stated, **changes}))


def reseal(folder: Path, **changes: object) -> None:
    FORMAT.write(folder, {**FORMAT.read(folder), **changes})


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: damage(folder, "interactions.parquet"), r"interactions.parquet was changed or damaged after"),
        (lambda folder: damage(folder, "items.parquet"), r"items.parquet was changed or damaged after saving"),
        (lambda folder: (folder / "items.parquet").unlink(), r"items.parquet does not exist; prepare the data again"),
        (
            lambda folder: (folder / "about.json").unlink(),
            r"about.json does not exist; give a folder that `railsearch data",
        ),
        (lambda folder: (folder / "about.json").write_text("{"), r"about.json cannot be read"),
        (lambda folder: (folder / "about.json").write_text("[]"), r"about.json is not the config of a railsearch"),
        (lambda folder: restate(folder, format="other"), r"about.json is not the config of a railsearch"),
        (lambda folder: restate(folder, format_version=1), "has format version 1 but this railsearch reads 2"),
        (lambda folder: restate(folder, num_users=3), r"about.json was changed or damaged after saving"),
        (lambda folder: restate(folder, source="elsewhere"), r"about.json was changed or damaged after saving"),
        (lambda folder: reseal(folder, num_users="many"), r"is damaged in: num_users"),
        (lambda folder: reseal(folder, files={}), r"interactions.parquet is not in the list of about.json"),
        (
            lambda folder: reseal(folder, num_users=3),
            r"states \(3, 3, 4\) users, items and events but .* hold \(2, 3, 4\)",
        ),
        (lambda folder: reseal(folder, has_ratings=True), r"does not hold prepared data .*has no column 'rating'"),
        (shutil.rmtree, r"about.json does not exist"),
    ],
)
def test_damaged_and_foreign_folders(tmp_path: Path, harm: object, message: str) -> None:
    (tmp_path / "lines.txt").write_text("1 5 3 9\n2 5\n")
    prepare("lines", tmp_path / "lines.txt", tmp_path / "out")
    assert callable(harm)
    harm(tmp_path / "out")
    with pytest.raises(DataFolderError, match=message):
        read_prepared(tmp_path / "out")


def test_an_edited_description_is_refused_without_reading_the_data(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("1 5 3 9\n2 5\n")
    prepare("lines", tmp_path / "lines.txt", tmp_path / "out")
    restate(tmp_path / "out", num_events=10**9)
    for read in (read_about, check_prepared, read_prepared):
        with pytest.raises(DataFolderError, match=r"about.json was changed or damaged after saving"):
            read(tmp_path / "out")


@pytest.mark.data
def test_movielens_1m_round_trip(tmp_path: Path) -> None:
    archive = shared_file("ml-1m.tar.xz")
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    folder = next(tmp_path.rglob("ratings.dat")).parent
    about = prepare("ml-1m", folder, tmp_path / "out").about
    assert (about.num_users, about.num_items, about.num_events) == (6_040, 3_883, PUBLISHED["ml-1m"].num_events)
    assert (about.longest_history, about.bad_rows) == (2_314, ())
    found = read_prepared(tmp_path / "out")
    assert_same(found, read_movielens(folder))
    assert found.item_columns["title"][0] == "Toy Story (1995)"


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "counts"),
    [("bert4rec_beauty", (353_962, 40_226, 54_542)), ("sasrec_Video", (287_107, 31_013, 23_715))],
)
def test_sequences_as_published(tmp_path: Path, file: str, counts: tuple[int, int, int]) -> None:
    archive = shared_file("amazon-seq.tar.xz")
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    path = next(tmp_path.rglob(f"{file}.txt"))
    about = prepare(file, path, tmp_path / "out").about
    assert (about.num_events, about.num_users, about.num_items) == counts
    assert_same(read_prepared(tmp_path / "out"), read_sequences(path))
