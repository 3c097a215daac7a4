"""`railsearch.client` against a real server process, compared with the library in this process."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from railsearch import Average, Index, Recommender, TextRetriever, errors
from railsearch.client import AsyncClient, Change, Client, Job, Refreshed, ServedResult
from railsearch.index import parse_strategy
from tests.support.clients import KINDS, Call, Kind, ask
from tests.support.served import Served, make_index, make_queries, serving
from tests.support.served_models import ServedModel, make_recommender, make_text_retriever
from tests.support.tiny_text import PAIRS

QUERIES = np.array(make_queries(4), dtype="f4")
STRATEGIES = ["BruteForce", "TwoPass", "Adaptive", "Average(20)", "PerComponent(3)", "Combined(3, 10)"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    make_index(folder / "movies.index")
    make_index(folder / "strings.index", 60, has_keys=True, seed=1)
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder / "movies.index", folder / "strings.index") as served:
        yield served


@pytest.fixture(scope="module")
def movies(folder: Path) -> Iterator[Index]:
    with Index.open(folder / "movies.index") as index:
        yield index


@pytest.fixture(scope="module")
def strings(folder: Path) -> Iterator[Index]:
    with Index.open(folder / "strings.index") as index:
        yield index


def assert_same_rows(found: pl.DataFrame, expected: pl.DataFrame, *, tolerance: float) -> None:
    """Compare scores within a tolerance, whose name differs between versions of polars, and all else exactly."""
    assert found.columns == expected.columns
    assert_frame_equal(found.drop("score"), expected.drop("score"))
    assert np.allclose(found["score"].to_numpy(), expected["score"].to_numpy(), rtol=0, atol=tolerance)


def search(kind: Kind, served: Served, index: str, *arguments: object, **options: object) -> ServedResult:
    found = ask(kind, served.url, lambda client: client.search(index, *arguments, **options))  # type: ignore[arg-type]
    assert isinstance(found, ServedResult)
    return found


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_search_is_that_of_the_library(kind: Kind, served: Served, movies: Index, strategy: str) -> None:
    expected = movies.search(QUERIES, 7, parse_strategy(strategy), allow="year < 2000", exclude=[[3], [], None, [1, 2]])
    found = search(
        kind, served, "movies", QUERIES, k=7, strategy=strategy, allow="year < 2000",
        exclude=[[3], [], None, [1, 2]], fields="all",
    )  # fmt: skip
    assert found.ids.tolist() == expected.ids.tolist()
    assert np.allclose(found.scores, expected.scores.numpy(), atol=1e-5)
    assert np.allclose(found.ceiling, expected.ceiling.numpy(), atol=1e-5)
    assert found.is_exact.tolist() == expected.is_exact.tolist()
    assert found.num_scored.tolist() == expected.num_scored.tolist()
    assert (found.strategy, found.version, found.fingerprint) == (strategy, 1, movies.fingerprint)
    assert_same_rows(found.to_frame(), expected.to_frame(), tolerance=1e-5)


@pytest.mark.parametrize(
    "queries",
    [QUERIES, QUERIES.tolist(), torch.from_numpy(QUERIES), QUERIES.astype("f8"), torch.from_numpy(QUERIES).double()],
    ids=["numpy", "lists", "torch", "numpy fp64", "torch fp64"],
)
def test_any_array_gives_the_same_answer(kind: Kind, served: Served, queries: object) -> None:
    found = search(kind, served, "movies", queries, k=5, strategy=Average(50))
    expected = search(kind, served, "movies", QUERIES, k=5, strategy="Average(50)")
    assert found.ids.tolist() == expected.ids.tolist()
    assert np.allclose(found.scores, expected.scores, atol=1e-5)


def test_half_precision_is_sent_as_it_is(kind: Kind, served: Served) -> None:
    found = search(kind, served, "movies", QUERIES.astype("f2"), k=5)
    expected = search(kind, served, "movies", QUERIES.astype("f2").astype("f4"), k=5)
    assert found.scores.tolist() == expected.scores.tolist()


def test_lists_of_ids_filter(kind: Kind, served: Served, strings: Index) -> None:
    found = search(kind, served, "movies", QUERIES, k=3, allow=[5, 9, 11], pad=True, exclude=[[5], [], [], []])
    assert set(found.ids[0].tolist()) == {9, 11, -1}
    assert set(found.ids[1].tolist()) == {5, 9, 11}
    assert found.scores[0, -1] == -np.inf
    named = search(
        kind, served, "strings", QUERIES[:1], k=2, allow=["item/3", "item/4"], exclude=[["item/4"]], pad=True
    )
    assert named.keys == [["item/3", None]]
    assert named.keys == strings.search(QUERIES[:1], 2, allow=["item/3"], pad=True).keys


def test_explanations_come_with_a_search_and_alone(kind: Kind, served: Served, strings: Index) -> None:
    found = search(kind, served, "strings", QUERIES, k=3, explain=2)
    assert [len(each) for each in found.explanations] == [2] * len(QUERIES)
    best = found.explanations[1][0]
    expected = strings.explain(QUERIES[1], str(found.keys[1][0]))
    assert best.item_id == expected.item_id
    assert np.allclose(best.contributions, expected.contributions.numpy(), atol=1e-5)
    (alone,) = ask(
        kind,
        served.url,
        lambda client: client.explain("strings", [str(best.item_id)], embedding=QUERIES[1], fields=["title"]),
    )  # type: ignore[misc]
    assert alone.ranked()[0][:2] == expected.ranked()[0][:2]
    assert np.allclose(alone.gate_weights, expected.gate_weights.numpy(), atol=1e-5)
    assert alone.fields == {"title": f"Title {str(best.item_id).removeprefix('item/')}"}


def test_items_are_looked_up(kind: Kind, served: Served) -> None:
    assert ask(kind, served.url, lambda client: client.item("movies", 7)).fields == {"title": "Title 7", "year": 1957}
    assert ask(kind, served.url, lambda client: client.item("strings", "item/7")).id == "item/7"
    found = ask(kind, served.url, lambda client: client.find_items("movies", "title 19", limit=3, column="title"))
    assert [each.id for each in found] == [19, 190, 191]
    for dots in (".", ".."):  # a path with these would name something else
        with pytest.raises(errors.NotServedError, match=f"there is no item '{dots}'"):
            ask(kind, served.url, lambda client, dots=dots: client.item("strings", dots))  # type: ignore[misc]
    with pytest.raises(errors.NotServedError, match="there is no item '999'"):
        ask(kind, served.url, lambda client: client.item("movies", 999))


def test_a_server_describes_its_indexes(kind: Kind, served: Served) -> None:
    assert [each["name"] for each in ask(kind, served.url, lambda client: client.indexes())] == ["movies", "strings"]
    about = ask(kind, served.url, lambda client: client.describe("movies"))
    assert (about["items"], about["query_shape"], about["accepts"]) == (200, [8], ["embeddings"])
    assert ask(kind, served.url, lambda client: client.jobs()) == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda client: client.search("nope", QUERIES), errors.NotServedError, "no index 'nope'"),
        (lambda client: client.search("movies", QUERIES[:, :3]), errors.InvalidInputError, r"shape \(4, 3\)"),
        (lambda client: client.search("movies", QUERIES, k=201), errors.NotEnoughItemsError, "k is 201"),
        (lambda client: client.search("movies", QUERIES * np.nan), errors.InvalidInputError, "NaN or infinite"),
        (lambda client: client.search("movies", QUERIES, strategy="Fast"), errors.InvalidInputError, "Fast"),
        (lambda client: client.search("movies", QUERIES, allow="yeer > 1"), errors.InvalidInputError, "yeer"),
        (lambda client: client.search("movies", texts=["a"]), errors.InvalidInputError, "texts"),
        (lambda client: client.search("movies", QUERIES, k=10**6), errors.InvalidInputError, "max_k"),
        (lambda client: client.explain("movies", [999], embedding=QUERIES[0]), errors.InvalidInputError, "999"),
        (lambda client: client.remove("movies", [1]), errors.AccessDeniedError, "--writable"),
        (lambda client: client.job("nope"), errors.NotServedError, "nope"),
    ],
    ids=range(11),
)
def test_errors_are_those_of_the_library(
    kind: Kind, served: Served, call: Call, error: type[errors.RailsearchError], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(kind, served.url, call)


def test_threads_share_a_client(served: Served) -> None:
    expected = search(Client, served, "movies", QUERIES, k=5).ids.tolist()
    found: list[list[list[int]]] = []
    with Client(served.url) as client:
        workers = [
            threading.Thread(target=lambda: found.append(client.search("movies", QUERIES, k=5).ids.tolist()))
            for _ in range(8)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert found == [expected] * 8


def test_tasks_share_a_client(served: Served) -> None:
    expected = search(Client, served, "movies", QUERIES, k=5).ids.tolist()

    async def run() -> list[ServedResult]:
        async with AsyncClient(served.url) as client:
            return await asyncio.gather(*(client.search("movies", QUERIES, k=5) for _ in range(20)))

    assert [each.ids.tolist() for each in asyncio.run(run())] == [expected] * 20


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    pytest.importorskip("transformers")
    return make_text_retriever(tmp_path_factory.mktemp("answers"))


@pytest.fixture(scope="module")
def writable(tmp_path_factory: pytest.TempPathFactory, answers: ServedModel) -> Iterator[Served]:
    """Return a server with an index to change for each kind of client, and with texts."""
    folders = [tmp_path_factory.mktemp("changing") / f"{kind.__name__}.index" for kind in KINDS.values()]
    for folder in folders:
        make_index(folder, 50, seed=2)
    with serving(*folders, answers.index, "--model", answers.model, "--writable") as served:
        yield served


def test_changes_are_durable_and_searched(kind: Kind, writable: Served) -> None:
    name, more = kind.__name__, pl.DataFrame({"title": ["new", "newer"], "year": [2024, 2025]})

    def change(call: Call) -> object:
        return ask(kind, writable.url, call)

    before = change(lambda client: client.describe(name))["version"]  # type: ignore[index]
    added = change(lambda client: client.add(name, QUERIES[:2], [1000, 1001], metadata=more))
    assert added == Change(before + 1, 52)
    replaced = change(lambda client: client.upsert(name, torch.from_numpy(QUERIES[2:]), [1000, 7], metadata=more))
    assert replaced == Change(before + 2, 52)
    assert change(lambda client: client.remove(name, [3, 4])) == Change(before + 3, 50)
    change(lambda client: client.remove(name, [4], missing_ok=True))
    refreshed = change(lambda client: client.refresh(name))
    assert isinstance(refreshed, Refreshed)
    assert not refreshed.has_changed
    with pytest.raises(errors.IdExistsError, match="7"):
        change(lambda client: client.add(name, QUERIES[:1], [7], metadata=more[:1]))
    change(lambda client: client.add(name, QUERIES[:1].tolist(), metadata=more[:1]))
    assert change(lambda client: client.item(name, 1002)).fields["title"] == "new"  # type: ignore[attr-defined]
    assert change(lambda client: client.item(name, 7)).fields["title"] == "newer"  # type: ignore[attr-defined]
    found = search(kind, writable, name, QUERIES, k=51)
    assert set(found.ids[0].tolist()) == set(range(50)) - {3, 4} | {1000, 1001, 1002}


def test_jobs_are_waited_for(kind: Kind, writable: Served) -> None:
    sample = np.random.default_rng(0).normal(size=(64, 8)).astype("f4")
    calls: dict[str, Call] = {
        "compact": lambda client: client.compact(kind.__name__),
        "tune": lambda client: client.tune(kind.__name__, sample, k=5, target_recall=0.5),
    }
    for name, call in calls.items():
        started = ask(kind, writable.url, call)
        assert isinstance(started, Job)
        done = ask(kind, writable.url, lambda client, started=started: client.wait(started))
        assert isinstance(done, Job)
        assert (done.state, done.kind, done.index) == ("done", name, kind.__name__)
        assert done in ask(kind, writable.url, lambda client: client.jobs())  # type: ignore[operator]
    assert done.result is not None
    assert done.result["k"] == 5


def test_keys_are_asked_for(folder: Path) -> None:
    keys = {"RAILSEARCH_READ_KEYS": "reader-key-reader-key", "RAILSEARCH_WRITE_KEYS": "writer-key-writer-key"}
    with serving(folder / "movies.index", environment=keys) as served:
        for kind in KINDS.values():
            for key in ("", "wrong-key-wrong-key"):
                with pytest.raises(errors.AccessDeniedError) as caught:
                    ask(kind, served.url, lambda client: client.indexes(), api_key=key)
                assert not key or key not in str(caught.value)
            reader = {"api_key": "reader-key-reader-key"}
            assert ask(kind, served.url, lambda client: client.describe("movies"), **reader)["items"] == 200
            with pytest.raises(errors.AccessDeniedError, match="write key"):
                ask(kind, served.url, lambda client: client.refresh("movies"), **reader)


def test_a_full_queue_is_waited_for_or_an_error(served: Served, folder: Path) -> None:
    async def run(url: str) -> list[ServedResult | BaseException]:
        async with AsyncClient(url) as client:
            calls = (client.search("movies", QUERIES, k=5) for _ in range(40))
            return await asyncio.gather(*calls, return_exceptions=True)

    with serving(folder / "movies.index", "--queue", 4) as small:
        outcomes = asyncio.run(run(small.url))
    expected = search(Client, served, "movies", QUERIES, k=5).ids.tolist()
    assert all(isinstance(each, (ServedResult, errors.ServerBusyError)) for each in outcomes)
    found = [each.ids.tolist() for each in outcomes if isinstance(each, ServedResult)]
    assert found == [expected] * len(found) != []


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> ServedModel:
    return make_recommender(tmp_path_factory.mktemp("films"))


@pytest.fixture(scope="module")
def recommending(films: ServedModel) -> Iterator[Served]:
    with serving(films.index, "--model", films.model, "--data", films.data) as served:
        yield served


def test_histories_and_users(kind: Kind, films: ServedModel, recommending: Served) -> None:
    recommender = Recommender.load(films.model)
    recommender.open_index(films.index)
    history = ["film-3", "film-9"]
    found = search(kind, recommending, "films", histories=[history], k=5, fields=["item"])
    assert found.to_frame()["item"].to_list() == recommender.recommend(histories=[history], k=5)["item"].to_list()
    best_id = found.ids[0, :1]
    (best,) = ask(kind, recommending.url, lambda client: client.explain("films", best_id, history=history))  # type: ignore[misc]
    assert np.isclose(best.score, found.scores[0, 0], atol=1e-4)
    seen = search(kind, recommending, "films", histories=[history], k=40, filter_viewed=False, fields=["item"])
    assert set(history) <= set(seen.to_frame()["item"])
    assert search(kind, recommending, "films", users=[3, 4], k=5).ids.shape == (2, 5)


def test_texts(kind: Kind, writable: Served, answers: ServedModel) -> None:
    retriever = TextRetriever.load(answers.model)
    retriever.open_index(answers.index)
    questions = [question for question, _ in PAIRS[:3]]
    found = search(kind, writable, "answers", texts=questions, k=4, fields=["passage"], allow="id LIKE 'p%'")
    expected = retriever.search(questions, k=4, allow="id LIKE 'p%'")
    assert found.keys == expected.keys
    assert_same_rows(found.to_frame(), expected.to_frame(), tolerance=1e-4)
    name = f"new-{kind.__name__}"
    ask(kind, writable.url, lambda client: client.add("answers", texts=["it is w1"], ids=[name]))
    assert ask(kind, writable.url, lambda client: client.item("answers", name)).fields["passage"] == "it is w1"  # type: ignore[attr-defined]
