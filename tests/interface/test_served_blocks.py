"""Blocks of the pages that ask a server: their commands and programs run against a real one."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Index, MixtureOfLogits
from tests.support.markdown import SERVER, Block, blocks_of
from tests.support.served import Served, serving

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.asks_a_server]
PROGRAMS = [block for block in BLOCKS if block.language == "python"]
CURL = [(block, line) for block in BLOCKS for line in block.commands if line.startswith("curl ")]
PYTHON_DIM = 3
"""Length of the query embeddings of an index that Python programs ask."""


def make_index(path: Path, dim: int) -> Path:
    """Build the index that a page names."""
    similarity = MixtureOfLogits(query_dim=dim, item_dim=dim, num_query_components=2, num_item_components=2, seed=0)
    movies = pl.DataFrame(
        {"title": [f"movie {row}" for row in range(100)], "year": [1950 + row % 70 for row in range(100)]}
    )
    Index.build(similarity, torch.randn(100, dim), path=path, metadata=movies)
    return path


def at(served: Served, text: str) -> str:
    """Return the text of a page with the address of a server that runs."""
    return SERVER.sub(served.url, text)


@pytest.mark.slow
@pytest.mark.parametrize(("block", "line"), CURL, ids=str)
def test_curl_gets_an_answer(block: Block, line: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    name = re.search(r"/v1/indexes/(\w+)/search", line)
    body = re.search(r"'(\{.*\})'", line)
    assert name is not None
    assert body is not None
    dim = len(json.loads(body[1])["embeddings"][0])
    with serving(make_index(tmp_path / f"{name[1]}.index", dim)) as served:
        asked = shlex.split(at(served, line), comments=True)
        done = subprocess.run([*asked, "--noproxy", "*"], check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert "error" not in answer, answer
    assert len(answer["results"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_gets_an_answer(block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = re.search(r'client\.search\("(\w+)"', block.text)
    assert name is not None
    with serving(make_index(tmp_path / f"{name[1]}.index", PYTHON_DIM)) as served:
        exec(compile(at(served, block.text), str(block), "exec"), {"__name__": "__main__"})  # noqa: S102
    assert "movie" in capsys.readouterr().out


def test_pages_ask_servers_that_they_started() -> None:
    assert len(CURL) >= 3
    assert PROGRAMS
    for block in BLOCKS:
        text = "\n".join(each.text for each in blocks_of(block.file))
        for name in re.findall(r"/v1/indexes/(\w+)/|client\.search\(\"(\w+)\"", block.text):
            index = next(filter(None, name))
            assert re.search(rf"railsearch serve {index}\.index", text) or block.file.name == "filtering.md"
