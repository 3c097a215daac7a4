"""Searches over shards: shards that stay away, filters, errors, and how many items are scored."""

import pickle
from pathlib import Path

import polars as pl
import pytest
import torch

from railsearch import Adaptive, Average, Index, TwoPass
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.errors import InvalidInputError, NotEnoughItemsError, ShardLostError
from railsearch.index import Strategy
from railsearch.kernels import native
from tests.support.search_worlds import make_world
from tests.support.split_worlds import forgetful, make_split

QUERIES = torch.randn(3, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> ShardedIndex:
    return make_split(tmp_path_factory.mktemp("split"), 4)


def test_a_lost_shard_is_refused_by_default(split: ShardedIndex) -> None:
    with pytest.raises(ShardLostError, match=r"first shard 2 \(it was unplugged\).*partial='allow'"):
        forgetful(split, {2}).search(QUERIES, 5)
    with pytest.raises(ShardLostError, match="no shard answered"):
        forgetful(split, range(4)).search(QUERIES, 5, partial="allow")
    with pytest.raises(InvalidInputError, match="partial"):
        split.search(QUERIES, 5, partial="maybe")


@pytest.mark.parametrize("strategy", [None, TwoPass(), Adaptive(), Average(10)], ids=str)
@pytest.mark.parametrize("after", [0, 1])
def test_a_partial_answer_says_what_it_covers(split: ShardedIndex, strategy: Strategy | None, after: int) -> None:
    """In two rounds, a shard can be lost before the first or before the second; Adaptive needs only one here."""
    has_answered = after == 1 and strategy != TwoPass()
    result = forgetful(split, {1}, after=after).search(QUERIES, 5, strategy, partial="allow")
    if has_answered:
        assert result.coverage == 1
        return
    counts = [len(Index.open(split.path / f"shard-{number:05d}")) for number in range(4)]
    assert result.coverage == pytest.approx(1 - counts[1] / 60)
    assert not result.is_exact.any()
    assert result.ceiling.tolist() == [torch.inf] * 3
    assert int(result.num_certified.sum()) == 0
    whole = split.search(QUERIES, 60)
    if strategy != Average(10):
        here = torch.cat([Index.open(split.path / f"shard-{number:05d}").ids for number in (0, 2, 3)])
        for query in range(3):
            best = [item for item in whole.ids[query].tolist() if item in set(here.tolist())][:5]
            assert result.ids[query].tolist() == best
    assert "of the items searched" in repr(result)
    assert pickle.loads(pickle.dumps(result)).coverage == result.coverage  # noqa: S301
    assert result.to_frame()["year"].to_list() == [item % 7 for item in result.ids.flatten().tolist()]


def test_a_complete_answer_covers_everything(split: ShardedIndex) -> None:
    result = split.search(QUERIES, 5, partial="allow")
    assert result.coverage == 1.0
    assert result.is_exact.all()
    assert "searched" not in repr(result)


def test_too_few_items_are_an_error_or_padded(split: ShardedIndex) -> None:
    with pytest.raises(NotEnoughItemsError, match="k is 61 but the index holds 60 items"):
        split.search(QUERIES, 61)
    with pytest.raises(NotEnoughItemsError, match="leave query 0 only 3 of 60 items"):
        split.search(QUERIES, 5, allow=[1, 2, 3, 999])
    padded = split.search(QUERIES, 5, allow=[1, 2, 3], pad=True)
    assert padded.ids[:, 3:].tolist() == [[-1, -1]] * 3
    assert padded.is_exact.all() or padded.ceiling.tolist() == [-torch.inf] * 3
    assert len(padded.to_frame()) == 9


def test_an_expression_sees_the_items_of_all_shards(split: ShardedIndex) -> None:
    one = Index.open(split.path.parent / "one.index")
    for condition in (pl.col("year") == pl.col("year").max(), pl.col("year").cum_sum() < 50, pl.lit(True)):
        expected = one.search(QUERIES, 2, allow=condition)
        assert torch.equal(split.search(QUERIES, 2, allow=condition).ids, expected.ids)


def test_wrong_filters_are_refused(split: ShardedIndex) -> None:
    with pytest.raises(InvalidInputError, match="mask of shape"):
        split.search(QUERIES, 2, allow=torch.ones(59, dtype=torch.bool))
    with pytest.raises(InvalidInputError, match="nosuch"):
        split.search(QUERIES, 2, allow="nosuch = 3")
    with pytest.raises(InvalidInputError, match="ids of this index are integers"):
        split.search(QUERIES, 2, exclude=[["a"], [], []])
    expected = split.search(QUERIES, 2, allow="year = 3")
    assert torch.equal(split.search(QUERIES, 2, allow=pl.col("year") == 3).ids, expected.ids)


def test_wrong_queries_and_strategies_are_refused(split: ShardedIndex) -> None:
    with pytest.raises(InvalidInputError, match="queries"):
        split.search(torch.randn(2, 5), 3)
    with pytest.raises(InvalidInputError, match="strategy is"):
        split.search(QUERIES, 3, "TwoPass")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="user_ids"):
        split.search(split.similarity.query_parts(QUERIES), 3, user_ids=[1, 2, 3])


def test_ready_parts_explanations_and_no_queries(split: ShardedIndex) -> None:
    parts = split.similarity.query_parts(QUERIES)
    result = split.search(parts, 3)
    assert torch.equal(result.ids, split.search(QUERIES, 3).ids)
    best = int(result.ids[0, 0])
    assert split.explain(QUERIES[0], best).score == pytest.approx(float(result.scores[0, 0]), abs=1e-5)
    with pytest.raises(InvalidInputError, match="not among the 60 items"):
        split.explain(QUERIES[0], 1000)
    assert split.find([best, 1000]).tolist() == [best, -1]
    for strategy in (None, TwoPass(), Adaptive()):
        assert split.search(QUERIES[:0], 3, strategy).ids.shape == (0, 3)
    with pytest.raises(InvalidInputError, match="neither pickled nor copied"):
        pickle.dumps(split)


@pytest.mark.skipif(not native.is_available(), reason="torch scores all items where bounds would skip few")
def test_rounds_score_hardly_more_than_one_machine(tmp_path: Path) -> None:
    similarity, items, _ = make_world("random", 3000, 0)
    queries = torch.randn(16, 6, generator=torch.Generator().manual_seed(2))
    one = Index.build(similarity, items, path=tmp_path / "one.index")
    split = ShardedIndex.open(shard_index(one, tmp_path / "shards", 4))
    shards = [Index.open(split.path / f"shard-{number:05d}") for number in range(4)]
    for strategy in (TwoPass(), Adaptive()):
        alone, found = one.search(queries, 10, strategy), split.search(queries, 10, strategy)
        each_for_itself = torch.stack([shard.search(queries, 10, strategy).num_scored for shard in shards]).sum(dim=0)
        assert torch.equal(found.ids, alone.ids)
        assert int(found.num_scored.sum()) < 1.25 * int(alone.num_scored.sum())
        assert int(found.num_scored.sum()) < int(each_for_itself.sum())
