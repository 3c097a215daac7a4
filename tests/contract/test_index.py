"""Index and strategies against brute force over fp64 scores, with ids, exclusions and bad input."""

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from railsearch import (
    Adaptive,
    Average,
    BruteForce,
    DotProduct,
    Index,
    MixtureOfLogits,
    PerComponent,
    TwoPass,
    fingerprint,
)
from railsearch.errors import FingerprintError, InvalidInputError, NotEnoughItemsError
from railsearch.similarity import ItemParts, QueryParts, Similarity
from tests.support.similarities import KINDS, make_similarity

NUM_ITEMS = 20


@pytest.fixture
def items(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(NUM_ITEMS, 6, generator=generator)


@pytest.fixture
def queries(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(3, 6, generator=generator)


@torch.no_grad()
def fp64_scores(similarity: Similarity, queries: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
    assert isinstance(similarity, torch.nn.Module)
    double = similarity.double()
    scores = double.score(double.query_parts(queries.double()), double.item_parts(items.double()))
    similarity.float()
    return scores


@given(
    seed=st.integers(0, 2**31 - 1),
    kind=st.sampled_from(KINDS),
    k=st.integers(1, 9),
    num_excluded=st.integers(0, 11),
)
def test_brute_force_is_exact(seed: int, kind: str, k: int, num_excluded: int) -> None:
    similarity = make_similarity(kind)
    generator = torch.Generator().manual_seed(seed)
    items, queries = torch.randn(NUM_ITEMS, 6, generator=generator), torch.randn(3, 6, generator=generator)
    ids = torch.randperm(1000, generator=generator)[:NUM_ITEMS]
    gone = [ids[torch.randperm(NUM_ITEMS, generator=generator)[:num_excluded]] for _ in range(3)]
    result = Index.build(similarity, items, ids).search(queries, k, BruteForce(), exclude=gone)
    expected = fp64_scores(similarity, queries, items)
    for query in range(3):
        allowed = [row for row in range(NUM_ITEMS) if int(ids[row]) not in gone[query].tolist()]
        best = sorted(allowed, key=lambda row: -float(expected[query, row]))[:k]
        torch.testing.assert_close(result.scores[query].double(), expected[query, best], rtol=1e-5, atol=1e-4)
        returned = [ids.tolist().index(item) for item in result.ids[query].tolist()]
        torch.testing.assert_close(result.scores[query].double(), expected[query, returned], rtol=1e-5, atol=1e-4)
        assert len(set(returned)) == k
        assert set(returned) <= set(allowed)
    assert bool(result.is_exact.all())
    assert bool((result.gap == 0).all())
    assert result.num_certified.tolist() == [k] * 3
    assert result.num_scored.tolist() == [NUM_ITEMS] * 3


def test_permuted_items_give_the_same_answer(
    similarity: Similarity, items: torch.Tensor, queries: torch.Tensor
) -> None:
    ids = torch.arange(NUM_ITEMS) * 3
    order = torch.randperm(NUM_ITEMS, generator=torch.Generator().manual_seed(5))
    first = Index.build(similarity, items, ids).search(queries, 6)
    second = Index.build(similarity, items[order], ids[order]).search(queries, 6)
    assert torch.equal(first.ids, second.ids)
    torch.testing.assert_close(first.scores, second.scores)


def test_ties_go_to_the_smaller_id() -> None:
    items = torch.ones(NUM_ITEMS, 2)
    ids = torch.arange(NUM_ITEMS).flip(0) + 100
    result = Index.build(DotProduct(dim=2), items, ids).search(torch.ones(1, 2), 4)
    assert result.ids.tolist() == [[100, 101, 102, 103]]


def test_result_unpacks_like_faiss(items: torch.Tensor, queries: torch.Tensor) -> None:
    scores, ids = Index.build(DotProduct(dim=6), items).search(queries, 2)
    assert scores.dtype == torch.float32
    assert ids.dtype == torch.int64
    assert scores.shape == ids.shape == (3, 2)


def test_arrays_lists_and_low_precision_are_welcome(items: torch.Tensor, queries: torch.Tensor) -> None:
    mol = make_similarity("mixture")
    expected = Index.build(mol, items).search(queries, 5)
    read_only = items.numpy().copy()
    read_only.flags.writeable = False
    for given_items, given_queries in (
        (items.numpy(), queries.numpy()),
        (read_only, queries.tolist()),
        (items.double(), queries.double().numpy()),
        (np.asfortranarray(items.numpy()), queries.numpy()[::-1][::-1]),
    ):
        found = Index.build(mol, given_items).search(given_queries, 5)
        assert torch.equal(found.ids, expected.ids)
    half = Index.build(mol, items.half()).search(queries.half(), 5)
    torch.testing.assert_close(half.scores, expected.scores, rtol=0.05, atol=0.2)


def test_ready_parts(items: torch.Tensor, queries: torch.Tensor) -> None:
    mol = make_similarity("mixture")
    expected = Index.build(mol, items).search(queries, 5)
    with torch.no_grad():
        index = Index.build(mol, mol.item_parts(items))
        found = index.search(index.similarity.query_parts(queries), 5)
    assert torch.equal(found.ids, expected.ids)


def test_index_is_safe_from_later_training(items: torch.Tensor, queries: torch.Tensor) -> None:
    mol = make_similarity("mixture")
    index = Index.build(mol, items)
    before, name = index.search(queries, 5), index.fingerprint
    assert isinstance(mol, MixtureOfLogits)
    mol.reset_parameters(torch.Generator().manual_seed(9))
    after = index.search(queries, 5)
    assert torch.equal(before.ids, after.ids)
    assert torch.equal(before.scores, after.scores)
    assert index.fingerprint == name


def test_training_mode_does_not_leak_dropout_into_the_index(items: torch.Tensor, queries: torch.Tensor) -> None:
    mol = make_similarity("mixture")
    expected = Index.build(mol, items).search(queries, 5)
    found = Index.build(mol.train(True), items).search(queries, 5)
    assert torch.equal(found.scores, expected.scores)
    assert mol.training


def test_many_batches_at_build() -> None:
    items = torch.randn(20_000, 6, generator=torch.Generator().manual_seed(0))
    mol = make_similarity("mixture")
    index = Index.build(mol, items)
    result = index.search(items[-3:], 3)
    expected = fp64_scores(mol, items[-3:], items).sort(dim=1, descending=True).values[:, :3]
    torch.testing.assert_close(result.scores.double(), expected, rtol=1e-5, atol=1e-4)


def test_exclude_forms(items: torch.Tensor, queries: torch.Tensor) -> None:
    index = Index.build(DotProduct(dim=6), items)
    best = index.search(queries, 1).ids
    padded = torch.cat([best, torch.full((3, 2), -1)], dim=1)
    ragged = [best[0].tolist(), [*best[1].tolist(), 999_999], best[2].numpy()]
    expected = index.search(queries, 2).ids[:, 1:]
    sets = [set(row) for row in best.tolist()]
    for exclude in (best, padded, padded.numpy(), ragged, sets, [best[0], best[1].repeat(5), best[2]]):
        assert torch.equal(index.search(queries, 1, exclude=exclude).ids, expected)
    nothing = index.search(queries, 1, exclude=[[], None, ()])
    assert torch.equal(nothing.ids, best)


def test_exclusion_that_leaves_too_few(items: torch.Tensor, queries: torch.Tensor) -> None:
    index = Index.build(DotProduct(dim=6), items)
    exclude = [list(range(18)), [], []]
    with pytest.raises(NotEnoughItemsError, match=r"k is 3 but exclude leaves query 0 only 2 of 20 items.*pad=True"):
        index.search(queries, 3, exclude=exclude)
    padded = index.search(queries, 3, exclude=exclude, pad=True)
    assert set(padded.ids[0, :2].tolist()) == {18, 19}
    assert padded.ids[0, 2] == -1
    assert padded.scores[0, 2] == -torch.inf
    assert bool(padded.is_exact.all())
    assert padded.gap.tolist() == [0.0, 0.0, 0.0]
    assert padded.num_certified.tolist() == [2, 3, 3]


def test_user_ids(items: torch.Tensor, queries: torch.Tensor) -> None:
    mol = make_similarity("mixture-user")
    index = Index.build(mol, items)
    known = index.search(queries, 5, user_ids=[0, 1, 2])
    unknown = index.search(queries, 5, user_ids=[-1, -1, -1])
    assert torch.equal(index.search(queries, 5).scores, unknown.scores)
    assert not torch.equal(known.scores, unknown.scores)
    with pytest.raises(InvalidInputError, match=r"user_ids has shape \(2,\) but there are 3 queries"):
        index.search(queries, 5, user_ids=[0, 1])
    with pytest.raises(InvalidInputError, match="user_ids was given but"):
        Index.build(make_similarity("mixture"), items).search(queries, 5, user_ids=[0, 1, 2])


def test_no_queries(items: torch.Tensor) -> None:
    result = Index.build(DotProduct(dim=6), items).search(torch.empty(0, 6), 4)
    assert result.ids.shape == (0, 4)
    assert result.gap.shape == (0,)


NAN = float("nan")


@pytest.mark.parametrize(
    ("items", "ids", "message"),
    [
        (torch.zeros(0, 6), None, "items holds 0 rows"),
        (torch.zeros(4, 5), None, r"items has shape \(4, 5\) but \(rows, 6\) is needed"),
        (torch.zeros(6), None, r"items has shape \(6,\) but \(rows, 6\) is needed; add the batch dimension"),
        (
            torch.tensor([[0.0] * 6, [NAN] * 6]),
            None,
            "items has NaN or infinite values in 1 of 2 rows, the first is row 1",
        ),
        (torch.full((3, 6), float("inf")), None, "in 3 of 3 rows, the first is row 0"),
        (torch.zeros(2, 6, dtype=torch.int64), None, "give floating-point embeddings"),
        ([["a"] * 6], None, "array or tensor of numbers"),
        (torch.zeros(3, 6), [1, 2], r"ids has shape \(2,\) but there are 3 items"),
        (torch.zeros(3, 6), [4, 9, 4], "ids holds 4 more than once, at rows 0 and 2"),
        (torch.zeros(3, 6), [4, -9, 4], "ids holds -9 at row 1; ids must be 0 or greater"),
        (torch.zeros(3, 6), [1.0, 2.0, 3.0], "give integers"),
        (torch.zeros(1, 6), np.array([2**63], dtype=np.uint64), "but the largest id is 9223372036854775807"),
    ],
)
def test_bad_corpus(items: torch.Tensor, ids: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Index.build(DotProduct(dim=6), items, ids)


@pytest.mark.parametrize(
    ("queries", "k", "options", "message"),
    [
        (torch.zeros(2, 6), 0, {}, "k is 0; ask for k >= 1"),
        (torch.zeros(2, 6), 2.0, {}, "k is 2.0; give a whole number"),
        (torch.zeros(2, 6), True, {}, "k is True"),
        (torch.zeros(2, 6), 21, {}, "k is 21 but the index holds 20 items; ask for k <= 20"),
        (torch.zeros(2, 7), 1, {}, r"queries has shape \(2, 7\) but \(rows, 6\) is needed"),
        (torch.zeros(6), 1, {}, r"queries\[None\]"),
        (torch.full((2, 6), NAN), 1, {}, "queries has NaN or infinite values in 2 of 2 rows"),
        (torch.zeros(2, 6), 1, {"strategy": "brute"}, "strategy is 'brute'; give a strategy such as BruteForce"),
        (torch.zeros(2, 6), 1, {"exclude": [[1]]}, "exclude has 1 lists but there are 2 queries"),
        (torch.zeros(2, 6), 1, {"exclude": [[1], [[2]]]}, r"exclude\[1\] has shape \(1, 1\)"),
        (torch.zeros(2, 6), 1, {"exclude": [[1.5], [2]]}, r"exclude\[0\] holds"),
        (torch.zeros(2, 6), 1, {"exclude": 3}, "exclude is a int"),
        (torch.zeros(2, 6), 1, {"exclude": np.array(5)}, "exclude is a ndarray; give one list"),
        (torch.zeros(2, 6), 1, {"exclude": [{1, "a"}, {2}]}, r"exclude\[0\] holds"),
        (torch.zeros(2, 6), 1, {"allow": [[1], [2, 3]]}, "allow is not an array of numbers"),
        (torch.zeros(2, 6), 1, {"allow": {1, "a"}}, "allow holds"),
        (torch.zeros(2, 6), 1, {"allow": np.ma.array([1, 2], mask=[0, 1])}, "allow is a masked array"),
        (torch.zeros(2, 6), 1, {"exclude": [[[1], [2, 3]], []]}, r"exclude\[0\] is not an array of numbers"),
        ([[0.0] * 6, [0.0]], 1, {}, "queries is not an array of numbers.*rows of equal length"),
        (np.ma.masked_array(np.zeros((2, 6)), mask=True), 1, {}, "queries is a masked array"),
        (torch.zeros(2, 6).to_sparse(), 1, {}, "give a dense, real one"),
        (torch.zeros(2, 6), 1, {"strategy": BruteForce}, "give a strategy such as BruteForce"),
    ],
)
def test_bad_search(items: torch.Tensor, queries: torch.Tensor, k: int, options: dict, message: str) -> None:
    index = Index.build(DotProduct(dim=6), items)
    with pytest.raises(InvalidInputError, match=message):
        index.search(queries, k, **options)


def test_overflow_is_an_error_not_an_answer() -> None:
    with pytest.raises(InvalidInputError, match=r"values as large as 1e\+25, in row 0; scale embeddings"):
        Index.build(DotProduct(dim=2, cosine=True), torch.tensor([[1e25, 0.0], [1.0, 1.0]]))
    # The scores show ready parts and weights that are not finite.
    dot = DotProduct(dim=2, temperature=1e-38)
    with pytest.raises(InvalidInputError, match=r"item components has values as large as 2e\+30"):
        Index.build(dot, dot.item_parts(torch.tensor([[-1e30, 0.0], [-2e30, 0.0]])))
    with pytest.raises(InvalidInputError, match="some scores are NaN or infinite"):
        Index.build(dot, torch.ones(2, 2)).search(torch.full((1, 2), 5.0), 1)


def test_the_caller_may_change_the_arguments_later() -> None:
    dot = DotProduct(dim=2)
    items, ids = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), np.array([10, 20])
    index, from_parts = Index.build(dot, items, ids), Index.build(dot, dot.item_parts(items), ids)
    ids[:] = [7, 3]
    index.ids.zero_()
    items.mul_(100)
    for built in (index, from_parts):
        result = built.search(torch.tensor([[0.5, 1.0]]), 2)
        assert result.ids.tolist() == [[20, 10]]
        assert result.scores.tolist() == [[1.0, 0.5]]


@pytest.mark.parametrize("num_items", [1, 17, 129, 200, 20_001])
@pytest.mark.parametrize("num_queries", [1, 5, 33])
def test_equal_scores_stand_in_order_of_their_ids(num_queries: int, num_items: int) -> None:
    # Integers are summed without rounding by any kernel: all scores are exactly equal.
    index = Index.build(DotProduct(dim=2), torch.ones(num_items, 2), ids=torch.arange(num_items).flip(0) + 7)
    k = min(10, num_items)
    result = index.search(torch.full((num_queries, 2), 3.0), k)
    assert torch.equal(result.ids, torch.arange(7, 7 + k).expand(num_queries, k))


@pytest.mark.parametrize("num_items", [129, 5001])
def test_equal_items_score_alike_in_every_block(num_items: int) -> None:
    mol = MixtureOfLogits(seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    one = mol.item_parts(torch.randn(1, 64, generator=generator))
    index = Index.build(mol, one[torch.zeros(num_items, dtype=torch.int64)])
    result = index.search(torch.randn(32, 64, generator=generator), num_items)
    torch.testing.assert_close(result.scores, result.scores[:, :1].expand(-1, num_items), rtol=1e-5, atol=1e-5)
    is_tied = result.scores[:, 1:] == result.scores[:, :-1]
    assert bool((result.ids[:, 1:] > result.ids[:, :-1])[is_tied].all())


def test_large_batches_of_queries_are_cut() -> None:
    mol = make_similarity("mixture-user")
    generator = torch.Generator().manual_seed(0)
    items, queries = torch.randn(30, 6, generator=generator), torch.randn(2500, 6, generator=generator)
    users = torch.randint(-1, 9, (2500,), generator=generator)
    exclude = torch.randint(30, (2500, 2), generator=generator)
    index = Index.build(mol, items)
    together = index.search(queries, 3, exclude=exclude, user_ids=users)
    for query in (0, 1023, 1024, 2499):
        rows = slice(query, query + 1)
        alone = index.search(queries[rows], 3, exclude=exclude[rows], user_ids=users[rows])
        torch.testing.assert_close(together.scores[rows], alone.scores, rtol=1e-5, atol=1e-4)
        assert not set(together.ids[query].tolist()) & set(exclude[query].tolist())


@pytest.mark.parametrize("similarity", [DotProduct, None, torch.zeros(2, 6), "mol"])
def test_not_a_similarity(similarity: object) -> None:
    with pytest.raises(InvalidInputError, match=r"similarity is .*; give a similarity such as MixtureOfLogits"):
        Index.build(similarity, torch.zeros(2, 6))


def test_parts_of_another_model_are_refused_even_where_they_would_fit(
    items: torch.Tensor, queries: torch.Tensor
) -> None:
    mol, other = make_similarity("mixture"), make_similarity("mixture")
    with torch.no_grad():
        next(iter(other.parameters())).add_(0.1)
    index = Index.build(mol, items)
    assert torch.equal(index.search(mol.query_parts(queries), 3).ids, index.search(queries, 3).ids)
    names = f"{fingerprint(other)} but this index was built with {fingerprint(mol)}"
    with pytest.raises(FingerprintError, match=f"the query parts were computed by model {names}"):
        index.search(other.query_parts(queries), 3)
    with pytest.raises(FingerprintError, match=f"the item parts were computed by model {names}"):
        index.add(other.item_parts(items))
    with pytest.raises(FingerprintError, match="the item parts were computed by model"):
        Index.build(mol, other.item_parts(items)[:5])


def test_parts_know_when_their_model_was_trained_further(queries: torch.Tensor) -> None:
    mol = make_similarity("mixture")
    before = mol.query_parts(queries)
    assert before.model == before[1:2].model == fingerprint(mol)
    with torch.no_grad():
        next(iter(mol.parameters())).mul_(1.5)
    assert mol.query_parts(queries).model == fingerprint(mol) != before.model


def test_parts_that_were_computed_in_training_mode_are_refused(queries: torch.Tensor, items: torch.Tensor) -> None:
    mol = make_similarity("mixture").train()
    index = Index.build(mol, items)
    with torch.no_grad():
        for parameter in mol.parameters():
            parameter.data.mul_(-3)
    with pytest.raises(InvalidInputError, match=r"query parts .* in training mode.*call similarity.eval\(\)"):
        index.search(mol.query_parts(queries), 3)
    with pytest.raises(InvalidInputError, match="item parts were computed in training mode"):
        index.add(mol.item_parts(items[:1]), ids=[10**6])
    assert bool(index.search(index.similarity.query_parts(queries), 3).is_exact.all())


def test_a_model_in_half_precision_gives_parts_that_its_index_takes(generator: torch.Generator) -> None:
    mol = MixtureOfLogits(
        num_query_components=2, num_item_components=2, component_dim=4, gate_inputs=["pair"], gate_dim=8, seed=0,
        query_projection="ready", item_projection="ready",
    ).to(torch.bfloat16).eval()  # fmt: skip
    index = Index.build(mol, torch.randn(9, 2, 4, generator=generator).to(torch.bfloat16))
    parts = mol.query_parts(torch.randn(3, 2, 4, generator=generator).to(torch.bfloat16))
    assert parts.model != index.fingerprint  # the index scores with fp32 weights
    assert index.search(parts, 3).ids.shape == (3, 3)


def test_foreign_parts_are_refused(items: torch.Tensor, queries: torch.Tensor) -> None:
    mol, other = make_similarity("mixture"), make_similarity("mixture-pair")
    unnamed = ItemParts(other.item_parts(items).components, None)
    with pytest.raises(InvalidInputError, match=r"item components has shape \(20, 3, 4\) but \(rows, 2, 4\)"):
        Index.build(mol, unnamed)
    index = Index.build(mol, items)
    foreign = QueryParts(other.query_parts(queries).components, None)
    with pytest.raises(InvalidInputError, match="query components has shape"):
        index.search(foreign, 1)
    parts = mol.item_parts(items)
    with pytest.raises(InvalidInputError, match="item gate has 19 rows but its components have 20"):
        Index.build(mol, ItemParts(parts.components, parts.gate[:-1]))
    with pytest.raises(InvalidInputError, match="has a item gate but the item parts have none"):
        Index.build(mol, ItemParts(parts.components, None))
    double = mol.query_parts(queries)
    double = type(double)(double.components.double(), double.gate.double())
    assert torch.equal(index.search(double, 3).ids, index.search(queries, 3).ids)
    from_double = Index.build(mol, ItemParts(parts.components.double(), parts.gate.half()))
    assert torch.equal(from_double.search(queries, 1).ids, index.search(queries, 1).ids)


def test_threads_that_change_one_index_wait_for_each_other(items: torch.Tensor, tmp_path: Path) -> None:
    for path in (None, tmp_path / "index"):
        index = Index.build(DotProduct(dim=6), items, path=path)
        errors = []

        def add(place: int, index: Index = index, errors: list[Exception] = errors) -> None:
            try:
                for number in range(5):
                    index.add(torch.ones(1, 6), [1000 + 100 * place + number])
            except InvalidInputError as error:
                errors.append(error)

        threads = [threading.Thread(target=add, args=(place,)) for place in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert len(index) == NUM_ITEMS + 15


def test_autocast_changes_no_answer(items: torch.Tensor, queries: torch.Tensor) -> None:
    mol = MixtureOfLogits(
        num_query_components=2, num_item_components=3, component_dim=2, gate_inputs=["pair"], gate_dim=8, seed=0,
        query_projection="ready", item_projection="ready",
    )  # fmt: skip
    ready_items, ready_queries = items.view(-1, 3, 2), queries[:, :4].reshape(-1, 2, 2)
    expected = Index.build(mol, ready_items).search(ready_queries, 5)
    with torch.autocast("cpu", torch.bfloat16):
        index = Index.build(mol, ready_items)
        assert index.describe()["precision"] == "fp32"
        for strategy in (BruteForce(), TwoPass()):
            found = index.search(ready_queries, 5, strategy)
            torch.testing.assert_close(found.scores, expected.scores)
            assert torch.equal(found.ids, expected.ids)
        index.add(ready_items[:1])
        assert index.explain(ready_queries[0], int(found.ids[0, 0])).score == pytest.approx(float(found.scores[0, 0]))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_models_in_double_precision(items: torch.Tensor, queries: torch.Tensor, precision: str) -> None:
    mol = make_similarity("mixture").double()
    index = Index.build(mol, items.double(), precision=precision)
    expected = index.search(queries, 5)
    for strategy in (TwoPass(), PerComponent(4), Average(10)):
        found = index.search(queries, 5, strategy)
        assert found.ids.shape == expected.ids.shape
    assert torch.equal(index.search(queries, 5, TwoPass()).ids, expected.ids)


def test_filters_that_leave_few_are_exact_too(queries: torch.Tensor, generator: torch.Generator) -> None:
    index = Index.build(
        DotProduct(dim=6), torch.randn(400, 6, generator=generator), torch.randperm(400, generator=generator)
    )
    index.add(torch.randn(30, 6, generator=generator))
    index.remove([7, 8])
    for num_allowed in (3, 60, 300):
        allow = torch.randperm(430, generator=generator)[:num_allowed]
        exclude = [allow[:2].tolist(), [], [5, 6]]
        found = index.search(queries, 3, exclude=exclude, allow=allow, pad=True)
        everything = index.search(queries, 428).ids.tolist()
        for query, ranked in enumerate(everything):
            wanted = [item for item in ranked if item in set(allow.tolist()) - set(exclude[query])][:3]
            assert [item for item in found.ids[query].tolist() if item >= 0] == wanted
        assert bool((found.num_scored <= num_allowed).all())
    assert index.search(queries, 3, allow=[], pad=True).ids.tolist() == [[-1] * 3] * 3


def test_results_can_be_pickled(items: torch.Tensor, queries: torch.Tensor) -> None:
    index = Index.build(DotProduct(dim=6), items, metadata=pl.DataFrame({"row": range(NUM_ITEMS)}))
    result = index.search(queries, 3)
    again = copy.deepcopy(result)
    assert torch.equal(again.ids, result.ids)
    assert again.to_frame().equals(result.to_frame().drop("row"))


@pytest.mark.parametrize("strategy", [BruteForce(), TwoPass(), Adaptive(), Adaptive(5.0), Adaptive(0.0, 100)], ids=str)
def test_ties_do_not_depend_on_segments(
    strategy: Adaptive, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("railsearch.index.changes.SMALL", 0)
    items = torch.randint(-1, 2, (300, 4), generator=generator).float()  # summed without rounding, with many ties
    queries = torch.randint(-1, 2, (16, 4), generator=generator).float()
    ids = torch.randperm(300, generator=generator)
    whole, pieces = Index.build(DotProduct(dim=4), items, ids), Index.build(DotProduct(dim=4), items[:100], ids[:100])
    pieces.add(items[100:250], ids[100:250])
    pieces.add(items[250:], ids[250:])
    assert pieces.num_segments == 3
    expected, found = whole.search(queries, 7, strategy), pieces.search(queries, 7, strategy)
    assert torch.equal(found.ids, expected.ids)
    assert torch.equal(found.scores, expected.scores)


def test_wrong_paths() -> None:
    for path in (5, "", None):
        with pytest.raises(InvalidInputError, match="give the name of a folder"):
            Index.open(path)


@pytest.mark.parametrize("call", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_an_index_is_neither_pickled_nor_copied(call: Callable[[Index], object], tmp_path: Path) -> None:
    kept = Index.build(DotProduct(dim=2), torch.eye(2), path=tmp_path / "index")
    with pytest.raises(InvalidInputError, match=rf"nor copied; pass its path '{tmp_path}/index', and open"):
        call(kept)
    with pytest.raises(InvalidInputError, match=r"neither pickled nor copied; build it with a path, and open"):
        call(Index.build(DotProduct(dim=2), torch.eye(2)))


@pytest.mark.parametrize("ids", [[2**63, 1], [2**64, 1], [-1, 2**63], np.array([1, 2**63], dtype=np.uint64)], ids=str)
def test_ids_that_do_not_fit(ids: object) -> None:
    with pytest.raises(InvalidInputError, match=r"holds \d{19,20} but the largest id is 9223372036854775807"):
        Index.build(DotProduct(dim=2), torch.eye(2), ids)
    index = Index.build(DotProduct(dim=2), torch.eye(2))
    for call in (
        lambda: index.remove(ids),
        lambda: index.search(torch.eye(2), 1, exclude=[ids, []]),
        lambda: index.search(torch.eye(2), 1, allow=ids),
    ):
        with pytest.raises(InvalidInputError, match=r"but the largest id is 9223372036854775807"):
            call()
