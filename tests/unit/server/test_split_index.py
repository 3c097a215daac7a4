"""A split index behind the server, with workers in this process: the answers of one index, and missing shards."""

from pathlib import Path

import pytest
import torch

from railsearch import BruteForce
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.distributed.workers import Call, LocalWorkers, Lost
from railsearch.errors import InvalidInputError, ShardLostError
from railsearch.foundation.results import ItemBatch
from railsearch.server.metrics import Metrics
from railsearch.server.problems import problem_of
from railsearch.server.served_index import ServedIndex
from railsearch.server.split_index import SplitIndex
from railsearch.server.whole_index import WholeIndex
from tests.support.served import make_index, make_queries

QUERIES = torch.tensor(make_queries(3))


@pytest.fixture(params=[False, True], ids=["integers", "strings"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[WholeIndex, ServedIndex]:
    """Return one index as it is, and split into shards and served."""
    whole = make_index(tmp_path / "movies.index", 60, has_keys=request.param)
    shard_index(whole.path, tmp_path / "movies", 3, show_progress=False)
    served = ServedIndex(tmp_path / "movies", metrics=Metrics())
    served.open()
    return WholeIndex(whole), served


def search(index: WholeIndex | SplitIndex, k: int = 5, **more: object) -> object:
    parts = index.query_parts(QUERIES, None)
    return index.search(parts, k, BruteForce(), None, None, **{"pad": False, "partial": "refuse", **more})


def test_a_split_index_answers_as_one(both: tuple[WholeIndex, ServedIndex]) -> None:
    whole, served = both
    split = served.current
    assert isinstance(split, SplitIndex)
    assert torch.equal(search(split).ids, search(whole).ids)
    assert torch.equal(search(split).scores, search(whole).scores)
    assert search(split).coverage == 1
    assert split.metadata_schema() == whole.metadata_schema()
    assert list(split.metadata_schema()) == ["title", "year"]
    ids = ["item/7", "item/3"] if split.has_keys else [7, 3]
    assert split.describe_items(ids).equals(whole.describe_items(ids))
    for text, column in (("", None), ("title 1", None), ("TITLE 5", "title"), ("nothing", None)):
        mine = split.find_text(text, limit=4, column=column)
        assert mine.equals(whole.find_text(text, limit=4, column=column))
    assert torch.equal(split.to_integers(ids, name="exclude"), whole.to_integers(ids, name="exclude"))
    assert split.explain(QUERIES[0], ids[0]).score == whole.explain(QUERIES[0], ids[0]).score
    assert split.describe()["shards"] == 3
    with pytest.raises(InvalidInputError, match="1 of 2 ids are not in the index"):
        split.describe_items([*ids[:1], "item/999" if split.has_keys else 999])


def test_changes_are_served_and_other_writers_are_followed(both: tuple[WholeIndex, ServedIndex]) -> None:
    whole, served = both
    before = served.current
    new = ["x"] if whole.has_keys else [100]
    table = whole.describe_items(["item/1"] if whole.has_keys else [1]).drop("id")
    served.change(lambda index: index.put(ItemBatch(QUERIES[:1], new, table), replaces=True))
    assert (served.current.version, len(served.current)) == (2, 61)
    assert (before.version, len(before)) == (1, 60)
    assert not served.is_behind()
    assert not served.refresh()
    other = ShardedIndex.open(served.path)
    other.remove(new)
    assert served.is_behind()
    assert served.refresh()
    assert (served.current.version, len(served.current)) == (3, 60)
    with pytest.raises(InvalidInputError, match="cannot be tuned"):
        served.change_beside(
            lambda index: index.tune(QUERIES, 5, target_recall=0.9, confidence=0.9, user_ids=None) and None
        )


class OneLost:
    """Workers of which one shard stays away."""

    def __init__(self, workers: LocalWorkers) -> None:
        self._workers = workers

    def ask(self, calls: list[Call]) -> list[object]:
        return [Lost(1, "killed") if call.shard == 1 else self._workers.ask([call])[0] for call in calls]

    def close(self) -> None:
        self._workers.close()


def test_a_lost_shard_is_a_problem_or_a_smaller_coverage(both: tuple[WholeIndex, ServedIndex]) -> None:
    _, served = both
    opened = served.current.index
    opened.workers = OneLost(opened.workers)
    with pytest.raises(ShardLostError) as caught:
        search(served.current)
    assert problem_of(caught.value).status == 503
    partial = search(served.current, partial="allow")
    assert 0.4 < partial.coverage < 0.9
    assert not bool(partial.is_exact.any())
