"""Input from the edge of the world: one line that says what is wrong, exit code 2, and no trace."""

import datetime as dt
import io
import json
import logging
import struct
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from railsearch import Index, MixtureOfLogits, save_similarity
from railsearch.cli.terminal import visible
from tests.support.commands import run, run_main

HUGE = 10**23


def refused(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that must fail with one line, and return the line."""
    code = run_main(*arguments)
    error = capfd.readouterr().err
    assert code == 2, error
    assert "Traceback" not in error
    assert error.count("\n") == 1, error
    assert error.startswith("error: ")
    return error


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index with columns of every kind, queries, interactions and a recipe."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    save_similarity(MixtureOfLogits(query_dim=8, item_dim=8, num_query_components=2, seed=0), "model")
    np.save("users.npy", rng.normal(size=(1, 8)).astype(np.float32))
    items = pl.DataFrame(
        {
            "embedding": rng.normal(size=(3, 8)).astype(np.float32),
            "title": ["\x1b[2J\x1b]0;owned\x07", "\u202egnp.exe", "plain"],
            "blob": [b"\x00\xff", b"\x1b[31m", None],
            "tags": [["a\x1b"], [], None],
            "price": [Decimal("1.50"), None, Decimal("-3.25")],
            "lasts": [dt.timedelta(seconds=90), None, dt.timedelta(days=-1)],
            "day": [dt.date(2020, 1, 31), None, dt.date(1, 1, 1)],
            "pair": [{"x": 1.5, "y": b"z"}, None, {"x": float("nan"), "y": None}],
        }
    )
    items.write_parquet("items.parquet")
    run("index", "build", "index", "--model", "model", "--items", "items.parquet")
    Path("lines.txt").write_text("1 5 3 9\n2 5 3\n")
    Path("recipe.toml").write_text('[encoder]\nkind = "sasrec"\n')
    return tmp_path


SEARCH = ("search", "index", "--queries", "users.npy", "-k", 3)


def test_every_column_has_json(world: Path) -> None:
    items = json.loads(run(*SEARCH, "--json"))["queries"][0]["items"]
    by_id = {item["id"]: item for item in items}
    assert (by_id[0]["blob"], by_id[0]["price"], by_id[0]["day"]) == ("AP8=", "1.50", "2020-01-31")
    assert by_id[0]["pair"] == {"x": 1.5, "y": "eg=="}
    assert by_id[2]["pair"] == {"x": None, "y": None}
    assert by_id[0]["title"] == "\x1b[2J\x1b]0;owned\x07"  # JSON escapes it by itself


def test_values_do_not_control_the_terminal(world: Path) -> None:
    text = run(*SEARCH)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert visible("a\tb\x7f\x9b\u2028\ud800é漢👍") == r"a\tb\x7f\x9b\u2028\ud800é漢👍"


def test_warnings_and_errors_do_not_control_the_terminal(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("events.csv").write_text("user,item,timestamp\n1,2,3\n4,5,\x1b[2Jsoon\n")
    arguments = ("data", "prepare", "x", "--from", "events.csv")
    assert r"\x1b[2Jsoon" in refused(capfd, *arguments)
    with Path("terminal").open("w") as stderr, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        patch.setattr(logging.getLogger(), "handlers", [])  # those of pytest
        assert run_main(*arguments, "--max-bad-rows", 1) == 0
    warning = Path("terminal").read_text()
    assert warning.startswith("warning: events.csv: 1 bad rows were skipped")
    assert r"\x1b[2Jsoon" in warning
    assert "\x1b" not in warning + capfd.readouterr().out


def test_ids_beyond_int64(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number in (2**63, 2**64, 10**40):
        assert str(number) in refused(capfd, "index", "remove", "index", number)
    assert len(Index.open("index")) == 3


@pytest.mark.parametrize("shape", ["(-3, 8)", "(3, -8)", "(1000000000000, 8)", f"({10**30}, 8)", "(3,"])
def test_arrays_with_absurd_headers(world: Path, capfd: pytest.CaptureFixture[str], shape: str) -> None:
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    Path("bad.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(96))
    assert "bad.npy cannot be read as an array" in refused(capfd, "search", "index", "--queries", "bad.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("data", "prepare", "x", "--from", "lines.txt", "--min-count", HUGE), f"--min-count is {HUGE}"),
        (("data", "prepare", "x", "--from", "lines.txt", "--max-bad-rows", HUGE), f"--max-bad-rows is {HUGE}"),
        (("data", "prepare", "n" * 300, "--from", "lines.txt"), "File name too long"),
        (("data", "prepare", "x", "--from", "n" * 300 + ".txt"), "File name too long"),
        (("data", "info", "n" * 300), "File name too long"),
        (("search", "n" * 300, "--queries", "users.npy"), "File name too long"),
        (("search", "index", "--queries", "n" * 300 + ".npy"), "File name too long"),
        (("search", "index", "--queries", "users.npy", "-k", HUGE), f"k is {HUGE}"),
        (("bench", "ml-20m", "--items", 10**20), "--items is 100000000000000000000"),
        (("bench", "ml-20m", "--items", 10**12), "--items is 1000000000000, which takes"),
        (
            ("train", "recipe.toml", "--data", "lines", "--set", "encoder.dim=1000000000000"),
            "dim is 1000000000000: input should be less than",
        ),
        (("train", "deep.toml"), "nested too deeply"),
        (("train", "recipe.toml", "--set", "encoder.dim=" + "[" * 5000), "nested too deeply"),
        ((*SEARCH, "--allow", "title = '\udcff'"), "not valid Unicode"),
        (("data", "info", "caf\udce9"), "does not exist"),
        (("data", "prepare", "x", "--from", "lines.txt", "--to", "model", "--overwrite"), "holds other files"),
    ],
)
def test_absurd_arguments(
    world: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[object, ...], message: str
) -> None:
    Path("deep.toml").write_text("a = " + "[" * 5000)
    if "Unicode" in message:  # the condition is shown on two more lines
        assert run_main(*arguments) == 2
        assert message in capfd.readouterr().err
    else:
        assert message in refused(capfd, *arguments)


def test_errors_name_flags_on_the_command_line(world: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_main("data", "prepare", "x", "--from", "lines.txt") == 0
    assert "pass --overwrite" in refused(capfd, "data", "prepare", "x", "--from", "lines.txt")
    assert "--pad" in refused(capfd, *SEARCH, "--allow", "title = 'plain'")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_device(world: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for more in ((), ("--json",)):
        with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            line = refused(capfd, *SEARCH, *more)
        assert line == "error: the output cannot be written (No space left on device).\n"


def test_an_ascii_terminal(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
        assert run_main(*SEARCH, "--explain") == 0
        text = written.getvalue()
    assert text.isascii()
    assert b"why item" in text
    assert b"\\u25" not in text  # shades and boxes are drawn with ASCII, not escaped


def test_an_interrupt_while_modules_are_imported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Interrupts:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "railsearch.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "railsearch.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    assert run_main("doctor") == 130
    assert capfd.readouterr().err == "interrupted\n"


def test_an_interrupt_anywhere(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("railsearch.cli.app.diagnose", interrupt)
    assert run_main("doctor") == 130
    assert capfd.readouterr().err == "interrupted\n"
