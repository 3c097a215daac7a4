"""Passages that are encoded in parts: the index is that of one build, and its parts can be read on their own."""

import json
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Index, TextRetriever
from railsearch.data import read_passage_texts
from railsearch.data.passages.passage_parts import PassageParts
from railsearch.distributed.batch import build_passages_index
from railsearch.errors import InvalidInputError, JobFolderError
from tests.support.batch_worlds import InterruptedJobError, StoppingRunner
from tests.support.tiny_text import PAIRS, make_base, make_retriever

NUM_PASSAGES = 50


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("passages")
    make_retriever(make_base(folder / "base")).save(folder / "model")
    write_passages(folder / "passages.jsonl")
    return folder


def write_passages(file: Path) -> Path:
    """Write passages with ids, with a title, without ids, and with blank lines."""
    lines = []
    for number in range(NUM_PASSAGES):
        fields = {"id": f"p{number}"} if number % 3 else {}
        if number % 5 == 0:
            fields["title"] = "who"
        lines.append(json.dumps({**fields, "text": f"{PAIRS[number % 20][1]} w{number % 40} ü"}, ensure_ascii=False))
        if number % 7 == 0:
            lines.append("")
    file.write_text("\ufeff" + "\n".join(lines))
    return file


def build(shared: Path, index: Path, **options: object) -> Index:
    given = {"passages_per_part": 16, "show_progress": False, **options}
    return build_passages_index(shared / "model", shared / "passages.jsonl", index, **given)[0]


def test_the_index_is_that_of_one_build(shared: Path, tmp_path: Path) -> None:
    built = build(shared, tmp_path / "index")
    retriever = TextRetriever.load(shared / "model")
    texts = read_passage_texts(shared / "passages.jsonl")
    assert built.keys == list(texts)
    assert built.metadata.equals(pl.DataFrame({"passage": list(texts.values())}))
    retriever.open_index(tmp_path / "index")
    found = retriever.search([PAIRS[3][0], PAIRS[4][0]], 5)
    retriever.build_index(texts, show_progress=False)
    expected = retriever.search([PAIRS[3][0], PAIRS[4][0]], 5)
    assert found.ids.tolist() == expected.ids.tolist()
    assert torch.allclose(found.scores, expected.scores, atol=1e-6)  # batches of other sizes may round differently
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_an_interrupted_build_continues(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(InterruptedJobError):
        build(shared, tmp_path / "index", runner=StoppingRunner(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.parts"]
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "index.parts").glob("part-*")}
    assert len(kept) == 2
    with pytest.raises(JobFolderError, match="its passages_per_part is 16 but this job has 20"):
        build(shared, tmp_path / "index", passages_per_part=20)
    build(shared, tmp_path / "index")
    assert len(Index.open(tmp_path / "index")) == NUM_PASSAGES
    with pytest.raises(InvalidInputError, match="already exists"):
        build(shared, tmp_path / "index")


def test_parts_of_a_file(shared: Path, tmp_path: Path) -> None:
    texts = read_passage_texts(shared / "passages.jsonl")
    for size in (1, 7, 50, 99):
        parts = PassageParts.cut(shared / "passages.jsonl", passages_per_part=size, show_progress=False)
        assert parts.num_passages == NUM_PASSAGES
        found = [parts.read(part) for part in range(parts.num_parts)]
        assert all(len(own) == size for own in found[:-1])
        assert {name: text for own in found for name, text in own.items()} == texts


def test_files_that_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "passages.jsonl"
    wrong = [
        ('{"id": 1, "text": "a"}\n\n{"id": "1", "text": "b"}', "id '1' in line 3 of .* is already taken"),
        ('{"text": "a"}\n{"id": 2}', "has no field 'text' in line 2"),
        ("{", "holds no JSON in line 1"),
        ("\n", "holds no passages"),
    ]
    for content, message in wrong:
        file.write_text(content)
        with pytest.raises(InvalidInputError, match=message):
            PassageParts.cut(file, passages_per_part=2, show_progress=False)
    file.rename(tmp_path / "passages.jsonl.gz")
    with pytest.raises(InvalidInputError, match=r"is packed, .* unpack it first"):
        PassageParts.cut(tmp_path / "passages.jsonl.gz", passages_per_part=2)
    (tmp_path / "passages.csv").write_text("id,text\n1,a\n")
    with pytest.raises(InvalidInputError, match=r"passages.csv is a table, .* write JSON lines"):
        PassageParts.cut(tmp_path / "passages.csv", passages_per_part=2)
