"""Rules of searches and similar items over HTTP, of a whole and of a split index, as the library answers them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from railsearch import Index, MaxPer, errors
from railsearch.client import AsyncClient, ServedResult
from railsearch.distributed import shard_index
from railsearch.server.app import create_app
from railsearch.server.limits import Limits
from railsearch.server.service import ServerSettings, Service
from tests.support.served import make_index, make_queries

QUERIES = make_queries(3)
NAMES = ["movies", "split", "strings", "split-strings"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    for name, has_keys in (("movies", False), ("strings", True)):
        make_index(folder / f"{name}.index", 150, has_keys=has_keys)
        target = folder / ("split" if name == "movies" else "split-strings")
        shard_index(folder / f"{name}.index", target, 3, show_progress=False)
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    paths = [folder / name for name in ("movies.index", "strings.index", "split", "split-strings")]
    service = Service(paths, settings=ServerSettings(limits=Limits(max_pool=150, max_compared=20_000)))
    service.open()
    yield service
    service.close()


def ask(service: Service, call: Callable[[AsyncClient], Awaitable[object]]) -> object:
    """Make a call of the client in this process."""

    async def run() -> object:
        transport = httpx.ASGITransport(app=create_app(service))  # type: ignore[arg-type]
        async with AsyncClient("http://localhost", transport=transport) as client:
            return await call(client)

    return asyncio.run(run())


def naive(index: Index, query: int, k: int) -> list[int]:
    """Walk down the whole ranking, with at most one item of each year."""
    ranking = index.search([QUERIES[query]], len(index)).to_frame()
    years: dict[int, int] = {}
    chosen = []
    for place, year in enumerate(ranking["year"]):
        if years.get(year, 0) < 1 and len(chosen) < k:
            chosen.append(place)
            years[year] = years.get(year, 0) + 1
    return ranking["id"].gather(chosen).to_list()


@pytest.mark.parametrize("name", NAMES)
def test_caps_of_a_search(service: Service, folder: Path, name: str) -> None:
    with Index.open(folder / ("strings.index" if "strings" in name else "movies.index")) as index:
        found = ask(
            service, lambda client: client.search(name, QUERIES, k=60, max_per={"year": 1}, pool=60, fields=["year"])
        )
        assert isinstance(found, ServedResult)
        for query in range(3):
            shown = found.keys[query] if found.has_keys else found.ids[query].tolist()
            assert shown == naive(index, query, 60)
    assert found.is_exact.all()
    assert found.fields is not None
    assert len({own["year"] for own in found.fields[0] if own is not None}) == 60


@pytest.mark.parametrize("name", NAMES)
def test_diversity_of_a_search(service: Service, name: str) -> None:
    whole = "strings" if "strings" in name else "movies"
    found, same, plain = (
        ask(service, lambda client, own=own, more=more: client.search(own, QUERIES, k=5, **more))
        for own, more in (
            (name, {"diversity": 0.6, "pool": 30}), (whole, {"diversity": 0.6, "pool": 30}), (name, {}),
        )
    )  # fmt: skip
    assert isinstance(found, ServedResult)
    assert isinstance(same, ServedResult)
    assert isinstance(plain, ServedResult)
    assert found.to_frame()["id"].to_list() == same.to_frame()["id"].to_list() != plain.to_frame()["id"].to_list()
    assert found.is_exact.all()
    assert found.ids[:, 0].tolist() == plain.ids[:, 0].tolist()


@pytest.mark.parametrize("name", NAMES)
def test_similar_items(service: Service, folder: Path, name: str) -> None:
    has_keys = "strings" in name
    ids = ["item/3", "item/90"] if has_keys else [3, 90]
    gone = ["item/5"] if has_keys else [5]
    with Index.open(folder / ("strings.index" if has_keys else "movies.index")) as index:
        expected = index.similar_items(ids, 4, exclude=gone, allow="year < 2000").to_frame()
    found = ask(
        service,
        lambda client: client.similar_items(name, ids, k=4, exclude=gone, allow="year < 2000", fields=["title"]),
    )
    assert isinstance(found, list)
    flat = [hit for own in found for hit in own]
    assert [hit.id for hit in flat] == expected["id"].to_list()
    assert [hit.score for hit in flat] == pytest.approx(expected["score"].to_list())
    assert [hit.fields["title"] for hit in flat] == expected["title"].to_list()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.similar_items("movies", [999]), "item 999 is not among the 150 items"),
        (lambda client: client.similar_items("movies", list(range(33))), "max_similar_items"),
        (lambda client: client.similar_items("movies", [1], k=150), "an item has only 149 others"),
        (lambda client: client.similar_items("movies", [1], fields=["plot"]), "not a column of the index"),
        (lambda client: client.search("movies", QUERIES, max_per={"genre": 2}), "max_per names 'genre'"),
        (lambda client: client.search("movies", QUERIES, diversity=3.0), "diversity"),
        (lambda client: client.search("movies", QUERIES, diversity=0.5, pool=5), "pool is 5 but k is 10"),
        (lambda client: client.search("movies", QUERIES, pool=50), "no rule to apply"),
        (lambda client: client.search("movies", QUERIES, diversity=0.5, pool=151), "max_pool"),
        (lambda client: client.search("movies", QUERIES[:2], k=100, diversity=0.5, pool=150), r"30000 .*max_compared"),
        (lambda client: client.search("movies", QUERIES, max_per={"year": MaxPer(1, separator="|")}), "not text"),
        (lambda client: client.search("movies", QUERIES, k=80, max_per={"year": 1}), "the rules leave query 0 only 70"),
    ],
)
def test_wrong_requests(service: Service, call: Callable[[AsyncClient], Awaitable[object]], message: str) -> None:
    with pytest.raises(errors.InvalidInputError, match=message):
        ask(service, call)


def test_padding_is_a_choice(service: Service) -> None:
    found = ask(service, lambda client: client.search("movies", QUERIES, k=80, max_per={"year": 1}, pad=True))
    assert isinstance(found, ServedResult)
    assert (found.ids[:, :70] >= 0).all()
    assert (found.ids[:, 70:] == -1).all()
