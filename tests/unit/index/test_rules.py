"""Rules of an answer: caps and diversity against naive loops over whole rankings, and the certificate."""

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import Adaptive, Average, BruteForce, Faiss, Flat, Index, MaxPer, SearchResult, TwoPass
from railsearch.errors import InvalidInputError
from railsearch.foundation.results import NO_ITEM
from railsearch.index import Strategy, serving
from railsearch.index.rules import Rules, apply_rules, widened
from railsearch.index.rules.greedy import choose_capped, choose_diverse
from tests.support.search_worlds import make_world
from tests.support.trials import trials


class FixedRanking:
    """Rankings that are given as scores (B, N) of items that have vectors and metadata; counts what is asked for."""

    def __init__(self, scores: Tensor, vectors: Tensor, frame: pl.DataFrame, num_left: int | None = None) -> None:
        self.scores, self.all_vectors, self.frame = scores, vectors, frame
        self.num_left = scores.shape[1] if num_left is None else num_left
        self.asked: list[int] = []

    @property
    def vector_dim(self) -> int:
        return self.all_vectors.shape[1]

    def vectors(self, ids: Tensor) -> Tensor:
        return self.all_vectors[ids]

    def best(self, queries: Tensor, n: int) -> SearchResult:
        self.asked.append(n)
        ordered = self.scores[queries].sort(dim=1, descending=True, stable=True)
        ids, scores = ordered.indices[:, :n].clone(), ordered.values[:, :n].clone()
        ids[:, self.num_left :], scores[:, self.num_left :] = NO_ITEM, -torch.inf
        return SearchResult(
            ids=ids, scores=scores, ceiling=torch.full((len(ids),), -torch.inf),
            num_scored=torch.full((len(ids),), n), lookup=lambda own: self.frame[own.numpy()],
            locate=lambda rows, _: queries[rows],
        )  # fmt: skip


def make_ranking(num_items: int, seed: int, num_left: int | None = None) -> FixedRanking:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.nn.functional.normalize(torch.randn(num_items, 3, generator=generator), dim=1)
    frame = pl.DataFrame(
        {
            "genre": [["a", "b", None, "c"][int(torch.randint(4, (), generator=generator))] for _ in range(num_items)],
            "tags": [list("xyz")[: item % 4] for item in range(num_items)],
            "text": ["Drama| Comedy", "Comedy|", "War|Drama|War", ""] * (num_items // 4) + ["War"] * (num_items % 4),
        },
        schema_overrides={"genre": pl.String, "tags": pl.List(pl.String)},
    )
    return FixedRanking(torch.randn(3, num_items, generator=generator), vectors, frame, num_left)


def values_of(frame: pl.DataFrame, item: int, column: str) -> set[str]:
    value = frame[column][item]
    if column == "text":
        return {part.strip() for part in value.split("|")} - {""}
    if column == "tags":
        return set(value)
    return set() if value is None else {value}


def naive(ranking: FixedRanking, query: int, k: int, caps: dict[str, int], diversity: float, pool: int) -> list[int]:
    """Choose from the whole ranking as the documentation says, in Python."""
    order = sorted(range(ranking.scores.shape[1]), key=lambda item: (-float(ranking.scores[query, item]), item))
    order = order[: ranking.num_left]
    size = pool if diversity else len(order)
    while True:
        left = order[:size]
        scores = [float(ranking.scores[query, item]) for item in left]
        spread = (scores[0] - scores[-1]) or 1.0
        chosen: list[int] = []
        while len(chosen) < k:
            best, best_value = None, -np.inf
            for item, score in zip(left, scores, strict=True):
                is_full = any(
                    sum(value in values_of(ranking.frame, other, column) for other in chosen) >= limit
                    for column, limit in caps.items()
                    for value in values_of(ranking.frame, item, column)
                )
                if item in chosen or is_full:
                    continue
                vectors = ranking.all_vectors.double()
                alike = max([float(vectors[item] @ vectors[other]) for other in chosen], default=0.0)
                value = (1 - diversity) * (score - scores[-1]) / spread - diversity * alike
                if value > best_value:
                    best, best_value = item, value
            if best is None:
                break
            chosen.append(best)
        if len(chosen) == k or size >= len(order):
            return chosen
        size *= 2


CAPS = [{"genre": 1}, {"genre": 2, "tags": 3}, {"text": 1}, {"text": 2, "genre": 1}]


@pytest.mark.parametrize("caps", [*CAPS, {}])
@pytest.mark.parametrize("diversity", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("pool", [8, 30])
def test_equals_a_loop_over_the_whole_ranking(caps: dict[str, int], diversity: float, pool: int) -> None:
    ranking = make_ranking(41, seed=int(10 * diversity) + pool + len(caps))
    limits = {name: MaxPer(cap, separator="|") if name == "text" else cap for name, cap in caps.items()}
    rules = Rules.of(limits, diversity, pool)
    if not rules:
        return
    rules.check(7, ranking.frame.schema)
    result = apply_rules(rules, ranking, num_queries=3, num_items=41, k=7)
    for query in range(3):
        wanted = naive(ranking, query, 7, caps, diversity, pool)
        assert result.ids[query].tolist() == wanted + [NO_ITEM] * (7 - len(wanted))
        scores = ranking.scores[query][wanted].tolist()
        assert result.scores[query].tolist() == scores + [-torch.inf] * (7 - len(wanted))
    assert result.lookup is not None
    real = result.ids[result.ids != NO_ITEM]
    assert result.lookup(real).equals(ranking.frame[real.numpy()])


@given(seed=st.integers(0, 10**6), cap=st.integers(1, 4), k=st.integers(1, 20), left=st.integers(1, 23))
@settings(max_examples=trials(10, 25), deadline=None)
def test_any_cap_of_any_ranking(seed: int, cap: int, k: int, left: int) -> None:
    ranking = make_ranking(23, seed, num_left=left)
    result = apply_rules(Rules.of({"tags": cap}, pool=20), ranking, num_queries=3, num_items=23, k=k)
    for query in range(3):
        found = result.ids[query]
        assert found[found != NO_ITEM].tolist() == naive(ranking, query, k, {"tags": cap}, 0.0, 20)


def test_the_pool_is_doubled_only_while_that_is_needed() -> None:
    frame = pl.DataFrame({"genre": ["a"] * 60 + ["b"] * 4})
    ranking = FixedRanking(-torch.arange(64.0).expand(2, -1), torch.eye(64), frame)
    ranking.scores = ranking.scores.clone()
    ranking.scores[1, 63] = 1.0
    result = apply_rules(Rules.of({"genre": 1}, pool=8), ranking, num_queries=2, num_items=64, k=2)
    assert ranking.asked == [8, 16, 32, 64]
    assert result.ids.tolist() == [[0, 60], [63, 0]]
    assert result.num_scored.tolist() == [64, 8]
    assert result.locate is not None  # each search has rows of its own: here the later ones have only query 0
    assert result.locate(torch.tensor([1, 0, 1]), torch.tensor([63, 60, 0])).tolist() == [1, 0, 1]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    ranking = make_ranking(40, seed=1)
    rules = Rules.of(diversity=0.5, pool=20)
    whole = apply_rules(rules, ranking, num_queries=3, num_items=40, k=5)
    monkeypatch.setattr("railsearch.index.rules.applying.VECTOR_VALUES", 60)
    monkeypatch.setattr("railsearch.index.rules.applying.POOL_VALUES", 25)
    cut = apply_rules(rules, ranking, num_queries=3, num_items=40, k=5)
    assert ranking.asked == [20, 20, 20, 20]
    assert torch.equal(cut.ids, whole.ids)
    assert cut.lookup is not None
    assert cut.lookup(cut.ids.flatten()).equals(ranking.frame[cut.ids.flatten().numpy()])
    assert not len(cut.lookup(cut.ids[0, :0]))


def test_without_diversity_the_order_is_that_of_the_scores() -> None:
    scores, vectors = np.array([3.0, 2.0, 2.0, 1.0]), np.ones((4, 2))
    assert choose_diverse(scores, vectors, 4, diversity=0.0) == [0, 1, 2, 3]
    assert choose_diverse(scores[:0], vectors[:0], 4, diversity=0.5) == []
    assert choose_diverse(np.ones(3), np.eye(3), 3, diversity=0.5) == [0, 1, 2]
    assert choose_capped([], [], 3) == []


@pytest.mark.parametrize("strategy", [BruteForce(), TwoPass(), Adaptive()])
def test_the_certificate_of_an_exact_search_is_exact(strategy: Strategy) -> None:
    similarity, items, queries = make_world("random", 50, 0)
    index = Index.build(similarity, items, metadata=pl.DataFrame({"genre": [row % 3 for row in range(50)]}))
    result = apply_rules(Rules.of({"genre": 2}), of_index(index, queries, strategy), num_queries=3, num_items=50, k=6)
    assert result.is_exact.all()
    diverse = apply_rules(Rules.of(diversity=0.5), of_index(index, queries, strategy), num_queries=3, num_items=50, k=6)
    assert diverse.is_exact.all()


def test_diversity_over_an_uncertain_pool_is_not_certain() -> None:
    similarity, items, queries = make_world("random", 50, 0)
    index = Index.build(similarity, items)
    ranking = of_index(index, queries, Average(10))
    result = apply_rules(Rules.of(diversity=0.5, pool=10), ranking, num_queries=3, num_items=50, k=3)
    assert not result.is_exact.any()
    assert result.num_certified.tolist() == [0, 0, 0]


def of_index(index: Index, queries: Tensor, strategy: Strategy) -> "IndexRanking":
    return IndexRanking(index, queries, strategy)


class IndexRanking:
    """The rankings of an index."""

    def __init__(self, index: Index, queries: Tensor, strategy: Strategy) -> None:
        self.index, self.queries, self.strategy = index, queries, strategy
        self.vector_dim = index.similarity.num_item_components * index.similarity.component_dim

    def best(self, queries: Tensor, n: int) -> SearchResult:
        return self.index.search(self.queries[queries], n, widened(self.strategy, n, Flat()), pad=True)

    def vectors(self, ids: Tensor) -> Tensor:
        return serving.item_vectors(self.index, ids)


def test_vectors_have_the_similarity_of_similar_items() -> None:
    similarity, items, _ = make_world("random", 20, 0)
    index = Index.build(similarity, items)
    found = index.similar_items(4, 5)
    vectors = serving.item_vectors(index, torch.arange(20))
    assert torch.allclose(vectors[found.ids[0]] @ vectors[4], found.scores[0], atol=1e-6)


def test_strategies_are_widened() -> None:
    assert widened(Average(5), 9, Flat()) == Average(9)
    assert widened(Average(50), 9, Flat()) == Average(50)
    assert widened(Adaptive(max_scored=3), 9, Flat()) == Adaptive(max_scored=9)
    assert widened(TwoPass(), 9, Faiss(kind="flat")) == TwoPass()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"diversity": 1.5}, "diversity is 1.5; give a number from 0 to 1"),
        ({"diversity": float("nan")}, "give a number from 0 to 1"),
        ({"diversity": True}, "give a number from 0 to 1"),
        ({"max_per": 3}, r"give a mapping such as \{'genre': 2\}"),
        ({"max_per": {"genre": 0}}, r"max_per\['genre'\] is 0"),
        ({"max_per": {"genre": "two"}}, r"max_per\['genre'\] is 'two'"),
        ({"pool": 0, "diversity": 0.5}, "pool is 0"),
        ({"pool": 4, "diversity": 0.5}, "pool is 4 but k is 5; ask for pool >= 5"),
        ({"pool": 50}, "there is no rule to apply; give max_per or diversity"),
        ({"max_per": {"title": 2}}, "max_per names 'title', which is not a column of the items; choose from: genre"),
        ({"max_per": {"tags": MaxPer(2, separator="|")}}, "a list has several values already; omit the separator"),
        ({"max_per": {"when": MaxPer(2, separator="|")}}, "holds Date, not text; omit the separator"),
        ({"max_per": {"struct": 2}}, "counts values of type Struct"),
    ],
)
def test_wrong_rules_are_refused(arguments: dict[str, object], message: str) -> None:
    schema = pl.Schema(
        {"genre": pl.String(), "tags": pl.List(pl.String()), "when": pl.Date(), "struct": pl.Struct({"a": pl.Int8()})}
    )
    with pytest.raises(InvalidInputError, match=message):
        Rules.of(**arguments).check(5, schema)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    rules = Rules.of({"genre": np.int64(2)}, diversity=np.float32(0.5), pool=np.int64(7))  # type: ignore[dict-item, arg-type]
    assert rules.diversity == 0.5
    assert rules.first_pool(3) == 7


def test_wrong_separators_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="separator is ''; give a text"):
        MaxPer(2, separator="")
    with pytest.raises(InvalidInputError, match="limit is 0"):
        MaxPer(0)
