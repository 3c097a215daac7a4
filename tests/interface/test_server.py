"""`railsearch serve` as a real process: searches, items, writes and jobs, against the library in this process."""

import io
import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, save

from railsearch import Index
from railsearch.index import parse_strategy
from tests.support.served import DIM, PATIENCE, Served, make_index, make_queries, serving

QUERIES = make_queries(5)
STRATEGIES = ["BruteForce", "TwoPass", "Adaptive", "Average(20)", "PerComponent(3)", "Combined(3, 10)"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    make_index(folder / "movies.index")
    make_index(folder / "strings.index", 60, has_keys=True, seed=1)
    make_index(folder / "changing.index", 50, seed=2)
    make_index(folder / "tuned.index", 400, seed=3)
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(*sorted(folder.iterdir()), "--writable") as served:
        yield served


@pytest.fixture(scope="module")
def movies(folder: Path) -> Iterator[Index]:
    with Index.open(folder / "movies.index") as index:
        yield index


def wait_for_job(served: Served, job: dict) -> dict:
    end = time.monotonic() + PATIENCE
    while job["state"] == "running" and time.monotonic() < end:
        time.sleep(0.02)
        job = served.ask("GET", f"/v1/jobs/{job['id']}").json
    return job


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_answers_are_those_of_the_library(served: Served, movies: Index, strategy: str) -> None:
    expected = movies.search(torch.tensor(QUERIES), 7, parse_strategy(strategy))
    answer = served.search(embeddings=QUERIES, k=7, strategy=strategy).json
    assert answer["index"] == {"name": "movies", "version": 1, "fingerprint": movies.fingerprint}
    assert answer["strategy"] == strategy
    assert answer["expected_recall"] is None
    assert all(value >= 0 for value in answer["milliseconds"].values())
    for query, found in enumerate(answer["results"]):
        assert [hit["id"] for hit in found["hits"]] == expected.ids[query].tolist()
        scores = torch.tensor([hit["score"] for hit in found["hits"]])
        torch.testing.assert_close(scores, expected.scores[query])
        assert found["is_exact"] == bool(expected.is_exact[query])
        assert found["num_certified"] == int(expected.num_certified[query])
        assert found["num_scored"] == int(expected.num_scored[query])
        assert found["kth_score"] == found["hits"][-1]["score"]
        ceiling = float(expected.ceiling[query])
        assert found["ceiling"] == (pytest.approx(ceiling, rel=1e-4) if math.isfinite(ceiling) else None)
        assert found["gap"] == pytest.approx(float(expected.gap[query]), abs=1e-4)


def test_fields_explanations_and_ids_as_text(served: Served, movies: Index) -> None:
    (found,) = served.search(embeddings=QUERIES[:1], k=3, fields=["title"], explain=2, ids="string").json["results"]
    hits = found["hits"]
    assert all(hit["fields"] == {"title": f"Title {hit['id']}"} for hit in hits)
    assert ["explanation" in hit for hit in hits] == [True, True, False]
    expected = movies.explain(torch.tensor(QUERIES[0]), int(hits[0]["id"]))
    shown = hits[0]["explanation"]
    assert shown["score"] == pytest.approx(hits[0]["score"], rel=1e-4)
    for name in ("component_scores", "gate_weights", "contributions"):
        torch.testing.assert_close(torch.tensor(shown[name]), getattr(expected, name))
    (whole,) = served.search(embeddings=QUERIES[:1], k=1, fields="all").json["results"]
    assert whole["hits"][0]["fields"].keys() == {"title", "year"}
    body = {"embeddings": QUERIES[:1], "item_ids": [5, 3], "fields": ["year"]}
    answer = served.ask("POST", "/v1/indexes/movies/explain", body).json
    assert [entry["id"] for entry in answer["explanations"]] == [5, 3]
    assert answer["explanations"][0]["fields"] == {"year": 1955}
    score = float(movies.explain(torch.tensor(QUERIES[0]), 3).score)
    assert answer["explanations"][1]["score"] == pytest.approx(score)


def test_filters(served: Served, movies: Index) -> None:
    (found,) = served.search(embeddings=QUERIES[:1], k=3, allow="year >= 2015", fields="all").json["results"]
    assert all(hit["fields"]["year"] >= 2015 for hit in found["hits"])
    (found,) = served.search(embeddings=QUERIES[:1], k=2, allow=[4, 9, 11], exclude=[[9, 12345]]).json["results"]
    assert {hit["id"] for hit in found["hits"]} == {4, 11}
    (found,) = served.search(embeddings=QUERIES[:1], k=3, allow=[4, 9], pad=True).json["results"]
    assert len(found["hits"]) == 2
    assert (found["kth_score"], found["ceiling"], found["is_exact"]) == (None, None, True)
    reply = served.search(embeddings=QUERIES[:1], k=3, allow=[4, 9])
    assert (reply.status, reply.json["error"]) == (422, "NotEnoughItemsError")
    with pytest.raises(ValueError, match=r"allow leaves only 2") as raised:
        movies.search(torch.tensor(QUERIES[:1]), 3, allow=[4, 9])
    assert reply.json["detail"] == str(raised.value)


def test_string_ids(served: Served) -> None:
    answer = served.search("strings", embeddings=QUERIES[:2], k=60, exclude=[["item/3"], []], pad=True).json
    assert "item/3" not in {hit["id"] for hit in answer["results"][0]["hits"]}
    assert len(answer["results"][1]["hits"]) == 60
    item = served.ask("GET", "/v1/indexes/strings/items/item%2F7").json
    assert (item["id"], item["fields"]["title"]) == ("item/7", "Title 7")
    assert served.ask("GET", "/v1/indexes/strings/items/item/7").status == 200
    assert served.ask("GET", "/v1/indexes/strings/items/nothing").status == 404
    wrong = served.search("strings", embeddings=QUERIES[:1], exclude=[[3]])
    assert (wrong.status, wrong.json["error"]) == (422, "InvalidInputError")


def test_items_are_looked_up(served: Served) -> None:
    found = served.ask("GET", "/v1/indexes/movies/items?text=TITLE%2012&limit=3").json["items"]
    assert [item["id"] for item in found] == [12, 120, 121]
    assert served.ask("GET", "/v1/indexes/movies/items?limit=2&ids=string").json["items"][1]["id"] == "1"
    assert served.ask("GET", "/v1/indexes/strings/items?text=item/59&column=id").json["items"][0]["id"] == "item/59"
    for query in ("limit=0", "limit=101", "limit=x", "column=year", "ids=x"):
        assert served.ask("GET", f"/v1/indexes/movies/items?text=a&{query}").status == 422
    assert served.ask("GET", "/v1/indexes/movies/items/7").json["fields"] == {"title": "Title 7", "year": 1957}
    for name in ("999", "-1", "7.0", "x", "99999999999999999999", "9223372036854775808", "%00", "%D9%A3"):  # Arabic
        assert served.ask("GET", f"/v1/indexes/movies/items/{name}").status == 404


def test_binary_searches(served: Served, movies: Index) -> None:
    queries = torch.tensor(QUERIES)
    tensors = {
        "embeddings": queries,
        "exclude": torch.tensor([3, 7, 5]),
        "exclude_offsets": torch.tensor([0, 2, 2, 2, 2, 3]),
    }
    body = save(tensors, metadata={"settings": json.dumps({"k": 6, "explain": 2, "fields": ["title"]})})
    binary = "application/x-safetensors"
    headers = {"Content-Type": binary, "Accept": binary}
    reply = served.ask("POST", "/v1/indexes/movies/search", body, headers=headers)
    assert (reply.status, reply.headers["content-type"]) == (200, binary)
    found = load(reply.body)
    expected = movies.search(queries, 6, exclude=[[3, 7], [], [], [], [5]])
    assert torch.equal(found["ids"], expected.ids)
    torch.testing.assert_close(found["scores"], expected.scores)
    assert bool((found["ceiling"] == -torch.inf).all())
    assert found["component_scores"].shape == found["gate_weights"].shape == (5, 2, 2, 3)
    whole = (found["component_scores"] * found["gate_weights"]).sum(dim=(2, 3))
    torch.testing.assert_close(whole, found["scores"][:, :2], rtol=1e-4, atol=1e-4)
    with safe_open_bytes(reply.body) as file:
        answer = json.loads(file.metadata()["answer"])
    assert answer["fields"][0][0] == {"title": f"Title {int(found['ids'][0, 0])}"}
    assert answer["keys"] is None
    mixed = served.ask("POST", "/v1/indexes/movies/search", body, headers={"Content-Type": binary}).json
    assert mixed["results"][4]["hits"][0]["id"] == int(found["ids"][4, 0])


def safe_open_bytes(content: bytes):
    path = Path(pytest.importorskip("tempfile").mkdtemp()) / "file"
    path.write_bytes(content)
    return safe_open(path, "pt")


def test_indexes_describe_themselves(served: Served, movies: Index) -> None:
    answer = served.ask("GET", "/v1/indexes").json
    assert [index["name"] for index in answer["indexes"]] == ["changing", "movies", "strings", "tuned"]
    own = served.ask("GET", "/v1/indexes/movies").json
    assert (own["items"], own["version"], own["query_shape"], own["ids"]) == (200, 1, [DIM], "integers")
    assert own["accepts"] == ["embeddings"]
    assert own["metadata"] == [{"name": "title", "type": "String"}, {"name": "year", "type": "Int64"}]
    assert own["limits"]["max_k"] == 1000
    assert own["fingerprint"] == movies.fingerprint
    text = served.ask("GET", "/v1/indexes").body.decode()
    assert str(movies.path.parent) not in text


def test_a_change_is_searched_when_it_is_answered(served: Served, folder: Path) -> None:
    path = "/v1/indexes/changing"
    before = served.ask("GET", path).json["version"]
    vector = [3.0] * DIM
    row = {"title": "New", "year": 2024}
    reply = served.ask("POST", f"{path}/items", {"ids": [1000], "embeddings": [vector], "metadata": [row]})
    assert (reply.status, reply.json) == (200, {"version": before + 1, "items": 51})
    assert served.ask("GET", f"{path}/items/1000").json["fields"] == row
    again = served.ask("POST", f"{path}/items", {"ids": [1000], "embeddings": [vector], "metadata": [row]})
    assert (again.status, again.json["error"]) == (409, "IdExistsError")
    changed = {"ids": [1000], "embeddings": [[-1] * DIM], "metadata": [{"title": "Newer", "year": 2025}]}
    assert served.ask("PUT", f"{path}/items", changed).json == {"version": before + 2, "items": 51}
    table = pl.DataFrame({"id": [2000, 2001], "embedding": [vector, vector], "year": [1, 2], "title": ["a", "b"]})
    for content_type, write in (
        ("application/vnd.apache.arrow.file", table.write_ipc),
        ("application/vnd.apache.arrow.stream", table.write_ipc_stream),
    ):
        content = io.BytesIO()
        write(content)
        reply = served.ask("PUT", f"{path}/items", content.getvalue(), headers={"Content-Type": content_type})
        assert reply.status == 200, reply.body
        assert reply.json["items"] == 53
    answer = served.search("changing", embeddings=[vector], k=53, fields="all").json
    assert answer["index"]["version"] == before + 4
    assert {"a", "b", "Newer"} <= {hit["fields"]["title"] for hit in answer["results"][0]["hits"]}
    removed = served.ask("POST", f"{path}/items/remove", {"ids": [2000, 2001, 1000]})
    assert removed.json == {"version": before + 5, "items": 50}
    missing = served.ask("POST", f"{path}/items/remove", {"ids": [2000]})
    assert (missing.status, missing.json["error"]) == (422, "InvalidInputError")
    with Index.open(folder / "changing.index") as index:
        assert (index.version, len(index)) == (before + 5, 50)
        index.upsert(torch.ones(1, DIM), [77], metadata=pl.DataFrame({"title": ["x"], "year": [1]}))
    assert served.ask("POST", f"{path}/refresh").json == {"version": before + 6, "changed": True}
    assert served.ask("POST", f"{path}/refresh").json == {"version": before + 6, "changed": False}
    job = wait_for_job(served, served.ask("POST", f"{path}/compact").json)
    assert (job["state"], job["result"]) == ("done", {"version": before + 7})
    assert served.ask("GET", path).json["segments"] == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"ids": [1], "embeddings": [[1.0] * DIM]}, "no columns"),
        ({"ids": [1], "embeddings": [[1.0] * DIM], "metadata": [{"title": "a"}]}, "metadata[0] has the names 'title'"),
        ({"ids": [1], "embeddings": [[1.0] * DIM], "metadata": [{"title": 3, "year": 1}]}, "not of type String"),
        ({"ids": [1], "embeddings": [[1.0] * 3], "metadata": [{"title": "a", "year": 1}]}, "items has shape (1, 3)"),
        ({"ids": ["a"], "embeddings": [[1.0] * DIM], "metadata": [{"title": "a", "year": 1}]}, "ids"),
        ({"ids": [1], "texts": ["a"]}, "without a text model"),
        ({"ids": [1]}, "embeddings is missing"),
    ],
)
def test_wrong_items_change_nothing(served: Served, body: dict, message: str) -> None:
    before = served.ask("GET", "/v1/indexes/changing").json["version"]
    reply = served.ask("PUT", "/v1/indexes/changing/items", body)
    assert reply.status == 422, reply.body
    assert message in reply.json["detail"]
    assert served.ask("GET", "/v1/indexes/changing").json["version"] == before


def test_tuning_is_a_job_and_its_recall_is_reported(served: Served) -> None:
    path = "/v1/indexes/tuned"
    reply = served.ask("POST", f"{path}/tune", {"embeddings": make_queries(200, seed=4), "k": 3, "target_recall": 0.01})
    assert reply.status == 202
    assert reply.headers["location"] == f"/v1/jobs/{reply.json['id']}"
    job = wait_for_job(served, reply.json)
    assert job["state"] == "done", job
    (tuned,) = served.ask("GET", path).json["tuned"]
    assert (tuned["k"], tuned["strategy"]) == (3, job["result"]["chosen"])
    answer = served.search("tuned", embeddings=QUERIES[:1], k=3).json
    assert answer["strategy"] == job["result"]["chosen"]
    assert answer["expected_recall"] == tuned["expected_recall"]
    if not job["result"]["is_exact"]:
        assert answer["expected_recall"]["confidence"] == 0.95
        named = served.search("tuned", embeddings=QUERIES[:1], k=3, strategy=tuned["strategy"]).json
        assert named["expected_recall"] == answer["expected_recall"]
        filtered = served.search("tuned", embeddings=QUERIES[:1], k=3, exclude=[[1]]).json
        assert filtered["expected_recall"] is None
    assert served.search("tuned", embeddings=QUERIES[:1], k=2).json["expected_recall"] is None
    assert served.ask("GET", "/v1/jobs").json["jobs"][0]["id"]
    assert served.ask("GET", "/v1/jobs/nothing").status == 404
    few = wait_for_job(served, served.ask("POST", f"{path}/tune", {"embeddings": QUERIES[:2], "k": 3}).json)
    assert (few["state"], few["problem"]["error"]) == ("failed", "InvalidInputError")


def test_a_rebuilt_folder_is_served_after_a_refresh(served: Served, folder: Path) -> None:
    make_index(folder / "new", 60, has_keys=True, seed=9)
    shutil.rmtree(folder / "strings.index")
    (folder / "new").rename(folder / "strings.index")
    with Index.open(folder / "strings.index") as index:
        expected = index.search(torch.tensor(QUERIES[:1]), 5).keys[0]
    refused = served.ask("POST", "/v1/indexes/strings/items/remove", {"ids": expected[:1]})
    assert (refused.status, refused.json["error"]) == (409, "IndexRebuiltError")
    served.ask("POST", "/v1/indexes/strings/refresh")
    (found,) = served.search("strings", embeddings=QUERIES[:1], k=5).json["results"]
    assert [hit["id"] for hit in found["hits"]] == expected
