"""Indexes that are served with their models: questions as text, histories and users."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from railsearch import Index, RailsearchError, Recommender, TextRetriever
from railsearch.data import Interactions, write_prepared
from railsearch.server.encoding import read_models
from railsearch.server.service import ServerSettings, Service
from tests.support.served import Served, make_index, serving
from tests.support.tiny_text import PAIRS, make_base, make_retriever
from tests.support.training_worlds import random_walks, small_recipe

PASSAGES = {f"p{number}": passage for number, (_, passage) in enumerate(PAIRS)}
QUESTIONS = [question for question, _ in PAIRS[:3]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    plain = random_walks()
    events = pl.DataFrame(
        {"user": plain.users.numpy(), "item": plain.items.numpy(), "timestamp": plain.timestamps.numpy()}
    )
    titles = pl.DataFrame({"item": range(40), "title": [f"Title {item}" for item in range(40)]})
    world = Interactions.from_frame(events, catalogue=titles)
    write_prepared(world, folder / "data", name="walks")
    recommender = Recommender.fit(world, small_recipe("hstu", "mixture-user", epochs=1))
    recommender.save(folder / "recommender")
    recommender.build_index(folder / "items.index")
    retriever = make_retriever(make_base(folder / "base"))
    retriever.save(folder / "retriever")
    retriever.build_index(PASSAGES, folder / "passages.index")
    make_index(folder / "plain.index", 20)
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    indexes = [folder / f"{name}.index" for name in ("items", "passages", "plain")]
    models = ["--model", folder / "recommender", "--model", folder / "retriever", "--data", folder / "data"]
    with serving(*indexes, *models, "--writable") as served:
        yield served


def test_inputs_are_described(served: Served) -> None:
    described = {index["name"]: index for index in served.ask("GET", "/v1/indexes").json["indexes"]}
    assert described["items"]["accepts"] == ["embeddings", "histories", "users"]
    assert described["items"]["history_column"] == "item"
    assert described["items"]["model"]["kind"] == "recommender"
    assert described["passages"]["accepts"] == ["embeddings", "texts"]
    assert described["passages"]["model"]["kind"] == "text retriever"
    assert described["plain"]["accepts"] == ["embeddings"]
    refused = served.search("plain", texts=["who"])
    assert (refused.status, refused.json["error"]) == (422, "InvalidInputError")
    assert "this index takes no texts" in refused.json["detail"]


def test_questions_as_text(served: Served, folder: Path) -> None:
    retriever = TextRetriever.load(folder / "retriever")
    retriever.open_index(folder / "passages.index")
    expected = retriever.search(QUESTIONS, k=4).keys
    answer = served.search("passages", texts=QUESTIONS, k=4, fields=["passage"], explain=1).json
    assert [[hit["id"] for hit in found["hits"]] for found in answer["results"]] == expected
    best = answer["results"][0]["hits"][0]
    assert best["fields"]["passage"] == PASSAGES[best["id"]]
    assert len(best["explanation"]["gate_weights"]) == 2
    body = {"texts": QUESTIONS[:1], "item_ids": ["p3"]}
    assert served.ask("POST", "/v1/indexes/passages/explain", body).status == 200
    for wrong in ([""], ["a" * 20_001], [3], "who", []):
        assert served.search("passages", texts=wrong).status == 422


def test_passages_are_written_as_text(served: Served, folder: Path) -> None:
    path = "/v1/indexes/passages/items"
    reply = served.ask("POST", path, {"ids": ["new"], "texts": ["it is w1 w2 end"]})
    assert (reply.status, reply.json["items"]) == (200, 21)
    again = served.ask("POST", path, {"ids": ["new"], "texts": ["it is w1 w2 end"]})
    assert (again.status, again.json["error"]) == (409, "IdExistsError")
    assert served.ask("PUT", path, {"ids": ["new"], "texts": ["it is w3 w2 end"]}).json["items"] == 21
    assert served.ask("GET", f"{path}/new").json["fields"] == {"passage": "it is w3 w2 end"}
    assert served.ask("POST", f"{path}/remove", {"ids": ["new"]}).json["items"] == 20
    for wrong in ({"texts": ["a"]}, {"ids": ["a", "b"], "texts": ["a"]}, {"ids": ["a"], "texts": [""]}):
        assert served.ask("POST", path, wrong).status == 422
    with Index.open(folder / "passages.index") as index:
        assert len(index) == 20


def test_histories_and_users(served: Served, folder: Path) -> None:
    recommender = Recommender.load(folder / "recommender", interactions=random_walks())
    expected = recommender.recommend(histories=[[3, 1, 4], [1]], k=5)["item"].to_list()
    answer = served.search("items", histories=[[3, 1, 4], [1]], k=5, fields=["title"]).json
    hits = [hit for found in answer["results"] for hit in found["hits"]]
    assert [hit["id"] for hit in hits] == expected
    assert hits[0]["fields"]["title"] == f"Title {expected[0]}"
    assert {3, 1, 4}.isdisjoint(expected[:5])
    kept = served.search("items", histories=[[3, 1, 4]], k=40, filter_viewed=False).json["results"][0]["hits"]
    assert len(kept) == 40
    known = recommender.recommend([7, 3], 4)["item"].to_list()
    found = served.search("items", users=[7, 3], k=4, explain=1).json["results"]
    assert [hit["id"] for own in found for hit in own["hits"]] == known
    fewer = served.search("items", users=[7], k=4, exclude=[known[:1]]).json["results"][0]["hits"]
    assert known[0] not in {hit["id"] for hit in fewer}
    for wrong in ({"users": [999]}, {"histories": [[999]]}, {"histories": [[]]}, {"users": ["x"]}, {"histories": [3]}):
        reply = served.search("items", **wrong)
        assert (reply.status, reply.json["error"]) == (422, "InvalidInputError"), reply.body
    assert served.search("items", histories=[[3]], exclude=[["x"]]).status == 422


@pytest.mark.parametrize(
    ("indexes", "models", "data", "message"),
    [
        (["plain"], ["recommender"], None, "was not built by a recommender"),
        (["plain", "items"], ["retriever"], None, "has built none of the indexes"),
        (["passages"], ["retriever"], "data", "no --model is a recommender"),
        (["passages"], ["passages.index"], None, "holds an Index; give the model of a text retriever"),
    ],
)
def test_a_model_must_fit_its_index(
    folder: Path, indexes: list[str], models: list[str], data: str | None, message: str
) -> None:
    def start() -> None:
        read = read_models([folder / name for name in models], None if data is None else folder / data)
        Service([folder / f"{name}.index" for name in indexes], settings=ServerSettings(), models=read).open()

    with pytest.raises(RailsearchError, match=message):
        start()
