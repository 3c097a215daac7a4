"""Files of pairs: every format gives the same rows, and errors name the line."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from railsearch.data import read_pair_rows
from railsearch.errors import InvalidInputError

PAIRS = [[0, 7], [2, 1], [0, 3]]
TABLE = pl.DataFrame({"query": [0, 2, 0], "item": [7, 1, 3]})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plain.csv", "0,7\n2,1\n0,3"),
        ("header.csv", "query,item\n0,7\n2,1\n0,3\n"),
        ("swapped.csv", "Item, Query\n7,0\n1,2\n3,0\n"),
        ("more.csv", "query,score,item\n0,.5,7\n2,.1,1\n0,1,3\n"),
        ("other.csv", '\ufeffq,"x"\r\n"0", 7\r\n\r\n2,1\r\n0,3\r\n'),
        ("tabs.tsv", "0\t7\n2\t1\n0\t3\n"),
    ],
)
def test_text(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_pair_rows(tmp_path / name).tolist() == PAIRS


def test_arrays_and_tables(tmp_path: Path) -> None:
    np.save(tmp_path / "pairs.npy", np.array(PAIRS, dtype=np.uint16))
    TABLE.select("item", "query").write_parquet(tmp_path / "pairs.parquet")
    TABLE.rename({"query": "a", "item": "b"}).write_ipc(tmp_path / "pairs.arrow")
    for name in ("pairs.npy", "pairs.parquet", "pairs.arrow"):
        found = read_pair_rows(tmp_path / name)
        assert found.tolist() == PAIRS
        assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query,item\n0,7\n1,x\n", r"line 3 of .* is '1,x'; give two whole numbers"),
        ("0,7\n1\n", r"line 2 of .* is '1'"),
        ("0,7\n1,-2\n", r"line 2 of .* is '1,-2'"),
        ("0,7\n1,1.5\n", r"line 2 of"),
        ("0,7\n1,99999999999999999999\n", r"line 2 of"),
        ("a,b,c\n0,7,1\n", "has 3 columns; give two"),
        ("0,7,1\n", "has 3 columns; give two"),
        ("query,item\n", "holds no pairs"),
        ("", "holds no pairs"),
    ],
)
def test_bad_text(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        read_pair_rows(tmp_path / "pairs.csv")


def test_bad_files(tmp_path: Path) -> None:
    np.save(tmp_path / "floats.npy", np.zeros((3, 2)))
    np.save(tmp_path / "flat.npy", np.zeros(3, dtype=int))
    pl.DataFrame({"query": [0.5], "item": [1]}).write_parquet(tmp_path / "floats.parquet")
    pl.DataFrame({"query": [0, None], "item": [1, 2]}).write_parquet(tmp_path / "gaps.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "binary.csv").write_bytes(b"0,\xff\n")
    (tmp_path / "pairs.json").write_text("[]")
    for name, message in {
        "floats.npy": "of float64; give whole numbers",
        "flat.npy": r"has shape \(3,\)",
        "floats.parquet": "holds Float64 with 0 missing values in column 'query'",
        "gaps.parquet": "with 1 missing values in column 'query'",
        "broken.parquet": "cannot be read as a table",
        "binary.csv": "not utf-8 text at byte 2",
        "pairs.json": "unknown format; give one of: .csv, .tsv, .npy",
        "missing.csv": "does not exist or is not a file",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            read_pair_rows(tmp_path / name)
