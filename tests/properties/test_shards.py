"""A split index against one index: the same bits, the same order of ties, and certificates that hold."""

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from railsearch import Adaptive, Average, BruteForce, Combined, Index, PerComponent, TwoPass, Weighted
from railsearch.distributed import ShardedIndex, shard_index
from railsearch.index import Strategy
from railsearch.index.strategies import FloorStrategy
from tests.support.native import needs_native
from tests.support.search_worlds import EXACT
from tests.support.split_worlds import KINDS, make_split_world, numbered, same_bits
from tests.support.trials import trials

APPROXIMATE: tuple[Strategy, ...] = (Average(25), PerComponent(4), Combined(2, 25), Weighted(25), Adaptive(max_gap=0.3))
NUM_ITEMS = 120
K = 20


@needs_native
@settings(max_examples=trials(2, 40), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**31 - 1),
    num_shards=st.sampled_from([1, 2, 3, 8]),
    precision=st.sampled_from(["fp32", "fp16"]),
    has_keys=st.booleans(),
    by=st.sampled_from([None, "genre"]),
)
def test_a_split_index_answers_like_one_index(
    kind: str, seed: int, num_shards: int, precision: str, has_keys: bool, by: str | None
) -> None:
    similarity, items, queries = make_split_world(kind, NUM_ITEMS, seed)
    order = torch.randperm(NUM_ITEMS, generator=torch.Generator().manual_seed(seed))
    ids = [f"k{number}" for number in order.tolist()] if has_keys else order.tolist()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        one = Index.build(
            similarity, items, ids, path=path / "one.index", metadata=numbered(NUM_ITEMS), precision=precision
        )
        one.remove(ids[10:20])
        one.upsert(items[:10], ids[15:25], metadata=numbered(10))
        split = ShardedIndex.open(shard_index(one, path / "shards", num_shards, by=by))
        assert torch.equal(split.ids, one.ids)
        filters = [
            {},
            {"allow": "year < 3"},
            {"allow": ids[30:70]},
            {"allow": torch.arange(len(one)) % 3 == 0},
            {"exclude": [ids[:50], [], ids[40:45]]},
        ]
        for strategy in EXACT:
            for own in filters:
                expected = one.search(queries, K, strategy, **own)  # type: ignore[arg-type]
                found = split.search(queries, K, strategy, **own)  # type: ignore[arg-type]
                assert torch.equal(found.ids, expected.ids)
                assert same_bits(found.scores, expected.scores)
                assert bool(found.is_exact.all())
        assert split.search(queries, K).to_frame().equals(one.search(queries, K).to_frame())
        expected = one.search(queries, len(one))  # more than any shard holds
        found = split.search(queries, len(one))
        assert torch.equal(found.ids, expected.ids)
        best = one.search(queries, K)
        for strategy in APPROXIMATE:
            alone, found = one.search(queries, K, strategy), split.search(queries, K, strategy)
            assert bool((found.kth_score >= alone.kth_score - 0.3 * isinstance(strategy, Adaptive)).all())
            missed = ~torch.isin(best.ids, found.ids)
            assert bool((best.scores.masked_fill(~missed, -torch.inf) <= found.ceiling[:, None]).all())
            assert bool((best.kth_score - found.kth_score <= found.gap).all())
        split.close()


@needs_native
@pytest.mark.parametrize("strategy", [TwoPass(), Adaptive()], ids=str)
def test_a_floor_hides_nothing_that_reaches_it(strategy: FloorStrategy) -> None:
    """Equal scores at the floor are found too: which of them are returned depends on ids of other shards."""
    for seed in range(5):
        similarity, items, queries = make_split_world("duplicates", NUM_ITEMS, seed)
        corpus = Index.build(similarity, items).contents.corpus
        parts = similarity.query_parts(queries)
        every = BruteForce().find_rows(corpus, parts, NUM_ITEMS, None)
        for place in (0, 7, K - 1):
            floor = every.scores[:, place]  # (B,)
            found = strategy.find_rows(corpus, parts, K, None, floor=floor)
            for query in range(len(queries)):
                is_wanted = every.scores[query, :K] >= floor[query]  # (K,)
                assert found.rows[query][is_wanted].tolist() == every.rows[query, :K][is_wanted].tolist()
                returned = found.rows[query][found.scores[query] > -torch.inf]  # (n,)
                others = every.scores[query][~torch.isin(every.rows[query], returned)]  # (N - n,)
                reached = torch.maximum(floor, found.scores[:, -1])[query]
                assert others.max() <= torch.maximum(found.ceiling[query], reached)
                assert found.ceiling[query] <= reached
