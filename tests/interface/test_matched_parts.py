"""The part of a long passage that matched, on the command line and over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from railsearch import TextRetriever
from tests.support.commands import run
from tests.support.served import Served, serving
from tests.support.tiny_text import WORDS, make_base, make_retriever

PASSAGES = {
    "long": " ".join(WORDS),
    "turned": " ".join(reversed(WORDS)),
    "short": "it is w3 end",
}
QUESTIONS = ["w20", "w1 w2 w3"]
SHOWN = ["passage_start", "passage_end", "snippet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    options = {"pooling": "windows", "num_query_components": 1, "num_item_components": 6}
    retriever = make_retriever(make_base(folder / "base"), **options)
    retriever.save(folder / "model")
    retriever.build_index(PASSAGES, folder / "index")
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder / "index", "--model", folder / "model", "--writable") as served:
        yield served


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[dict[str, object]]]:
    """The columns of each question by the library."""
    retriever = TextRetriever.load(folder / "model")
    retriever.open_index(folder / "index")
    frame = retriever.search(QUESTIONS, k=3).to_frame()
    return [part.select("id", *SHOWN).to_dicts() for part in frame.partition_by("query", maintain_order=True)]


def test_the_command_line_shows_the_part_in_place_of_the_passage(
    folder: Path, expected: list[list[dict[str, object]]]
) -> None:
    texts = [argument for question in QUESTIONS for argument in ("--text", question)]
    answers = json.loads(run("search", folder / "index", *texts, "-k", 3, "--json"))["queries"]
    for answer, own in zip(answers, expected, strict=True):
        assert [{name: item[name] for name in ("id", *SHOWN)} for item in answer["items"]] == own
        assert "passage" not in answer["items"][0]
    shown = run("search", folder / "index", "--text", "w20", "-k", 1)
    assert "passage" in shown
    assert "snippet" in shown


def test_a_server_returns_the_part_as_fields(served: Served, expected: list[list[dict[str, object]]]) -> None:
    answer = served.search("index", texts=QUESTIONS, k=3, fields="all").json
    for result, own in zip(answer["results"], expected, strict=True):
        found = [{"id": hit["id"], **{name: hit["fields"][name] for name in SHOWN}} for hit in result["hits"]]
        assert found == own
        assert "passage_starts" not in result["hits"][0]["fields"]
    some = served.search("index", texts=QUESTIONS[:1], k=1, fields=["snippet"]).json
    assert some["results"][0]["hits"][0]["fields"] == {"snippet": expected[0][0]["snippet"]}


def test_rules_keep_the_part(served: Served, expected: list[list[dict[str, object]]]) -> None:
    answer = served.search("index", texts=QUESTIONS, k=2, fields=SHOWN, diversity=0.9).json
    for result, own in zip(answer["results"], expected, strict=True):
        found = [{"id": hit["id"], **hit["fields"]} for hit in result["hits"]]
        assert len(found) == 2
        assert all(hit in own for hit in found)


def test_a_passage_that_is_added_over_http_has_its_parts(served: Served) -> None:
    added = served.ask("POST", "/v1/indexes/index/items", {"ids": ["new"], "texts": [" ".join(WORDS[10:35])]})
    assert added.status == 200, added.json
    found = served.search("index", texts=["w20"], k=4, fields="all").json["results"][0]["hits"]
    (fields,) = [hit["fields"] for hit in found if hit["id"] == "new"]
    assert fields["passage"][fields["passage_start"] : fields["passage_end"]] == fields["snippet"]
