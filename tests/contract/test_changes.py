"""Add, upsert, remove, compact and reopen, in memory and on disk, against an index rebuilt from the same items."""

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import (
    Adaptive,
    Average,
    BruteForce,
    Combined,
    DotProduct,
    Index,
    ItemBatch,
    PerComponent,
    RailsearchError,
    TwoPass,
    Weighted,
)
from railsearch.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.errors import StorageError
from railsearch.index import building, changes
from railsearch.similarity import Similarity
from tests.support.similarities import make_similarity
from tests.support.trials import IS_FULL, trials

STRATEGIES = (BruteForce(), TwoPass(), Adaptive(), PerComponent(4), Average(6), Combined(2, 4), Weighted(6))
EXACT = STRATEGIES[:3]
DIM = 6
NUM_IDS = 25
TOLERANCE = 1e-3


def embedding(kind: int) -> Tensor:
    """Return one of a few embeddings of small integers: many items are equal, and dot products have no rounding."""
    return torch.tensor([(7 * kind + 3 * place + kind * place) % 5 - 2.0 for place in range(DIM)])


def table(kinds: list[int]) -> pl.DataFrame:
    return pl.DataFrame({"title": [f"kind {kind}" for kind in kinds], "year": [2000 + kind for kind in kinds]})


def arguments(rows: dict[int, int], *, is_distinct: bool = False) -> dict:
    """Return items, ids and metadata for a dictionary from ids to kinds; on request, no two items are alike."""
    kinds = list(rows.values())
    items = [embedding(kind) for kind in kinds]
    if is_distinct:
        items = [
            torch.randn(DIM, generator=torch.Generator().manual_seed(NUM_IDS * kind + item))
            for item, kind in rows.items()
        ]
    return {"items": torch.stack(items), "ids": list(rows), "metadata": table(kinds)}


class Pair:
    """An index in memory and one on disk that get the same changes, and the dictionary that they must equal."""

    def __init__(
        self, similarity: Similarity, rows: dict[int, int], precision: str, folder: Path, *, is_distinct: bool
    ) -> None:
        self.rows = rows
        self.similarity = similarity
        self.is_distinct = is_distinct
        self.precision = precision
        self.folder = folder
        self.indexes = [self._build(None), self._build(folder)]

    def _build(self, path: Path | None) -> Index:
        return Index.build(self.similarity, **self._arguments(self.rows), path=path, precision=self.precision)

    def _arguments(self, rows: dict[int, int]) -> dict:
        return arguments(rows, is_distinct=self.is_distinct)

    def change(self, kind: str, rows: dict[int, int]) -> None:
        absent = {item: row for item, row in rows.items() if item not in self.rows}
        present = [item for item in rows if item in self.rows]
        if kind == "reopen":
            self.indexes[1].close()
            self.indexes[1] = Index.open(self.folder)
        elif kind == "compact":
            for index in self.indexes:
                index.compact()
        elif kind == "remove":
            for index in self.indexes:
                index.remove(present)
            self.rows = {item: row for item, row in self.rows.items() if item not in present}
        elif kind == "upsert":
            for index in self.indexes:
                index.upsert(**self._arguments(rows))
            self.rows = self.rows | rows
        elif absent:
            for index in self.indexes:
                index.add(**self._arguments(absent))
            self.rows = self.rows | absent

    def check(self, queries: Tensor, choice: random.Random) -> None:
        for index in self.indexes:
            assert index.ids.tolist() == sorted(self.rows)
            assert len(index) == len(self.rows)
            if self.rows:
                assert index.metadata.equals(table([self.rows[item] for item in sorted(self.rows)]))
        if not self.rows:
            return
        fresh = self._build(None)
        k = choice.randint(1, min(6, len(self.rows)))
        exclude = [choice.sample(range(NUM_IDS), choice.randint(0, 5)) for _ in queries]
        for options in (
            {},
            {"exclude": exclude, "pad": True},
            {"allow": choice.sample(range(NUM_IDS), 12), "pad": True},
            {"allow": "year >= 2002", "exclude": exclude, "pad": True},
        ):
            scores_of = fresh.search(queries, len(self.rows), **options | {"pad": True})
            for strategy in STRATEGIES:
                expected = fresh.search(queries, k, strategy, **options)
                for index in self.indexes:
                    result = index.search(queries, k, strategy, **options)
                    is_exact = isinstance(strategy, EXACT_TYPES)
                    assert not is_exact or bool(result.is_exact.all())
                    if isinstance(self.similarity, DotProduct):  # nothing is rounded, so ties are exact
                        assert torch.equal(result.scores, expected.scores)
                        assert not is_exact or torch.equal(result.ids, expected.ids)
                    # Rounding decides which of several equal items a first stage returns.
                    is_clear = self.is_distinct and self.precision == "fp32"
                    if is_exact or is_clear:
                        torch.testing.assert_close(result.scores, expected.scores, rtol=0, atol=TOLERANCE)
                    if is_clear:
                        assert torch.equal(result.ids, expected.ids)
                    check_scores(result.ids, result.scores, scores_of.ids, scores_of.scores)
                    assert result.to_frame()["title"].to_list() == [
                        f"kind {self.rows[item]}" for item in result.ids.flatten().tolist() if item != -1
                    ]


EXACT_TYPES = tuple(type(strategy) for strategy in EXACT)


def check_scores(ids: Tensor, scores: Tensor, known_ids: Tensor, known_scores: Tensor) -> None:
    """Check that each id occurs once, with its own score."""
    for query in range(len(ids)):
        known = dict(zip(known_ids[query].tolist(), known_scores[query].tolist(), strict=True))
        found = [item for item in ids[query].tolist() if item != -1]
        assert len(set(found)) == len(found)
        for item, score in zip(found, scores[query].tolist(), strict=False):
            assert abs(known[item] - score) <= TOLERANCE


WORLDS = [(kind, precision) for kind in ("dot", "mixture", "distinct") for precision in ("fp32", "fp16", "bf16")][
    :: 1 if IS_FULL else 4
]
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
"""Without shrinking, which takes minutes; the sequences are short anyway."""

ROWS = st.dictionaries(st.integers(0, NUM_IDS - 1), st.integers(0, 5), min_size=1, max_size=8)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "add", "upsert", "remove", "compact", "reopen"]), ROWS), min_size=1, max_size=8
)


@pytest.mark.parametrize(("kind", "precision"), WORLDS)
def test_any_sequence_of_changes_equals_a_rebuild(kind: str, precision: str) -> None:
    @settings(max_examples=trials(2, 25), phases=PHASES)
    @given(first=ROWS, sequence=CHANGES, small=st.sampled_from([0, 4, 65_536]), seed=st.integers(0, 99))
    def run(first: dict[int, int], sequence: list, small: int, seed: int) -> None:
        choice = random.Random(seed)
        similarity = make_similarity("dot" if kind == "dot" else "mixture")
        queries = torch.stack([embedding(number) for number in range(3)]) + (0.25 if kind == "dot" else 0.1)
        with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
            patch.setattr(changes, "SMALL", small)
            pair = Pair(similarity, first, precision, Path(name) / "index", is_distinct=kind == "distinct")
            for change, rows in sequence:
                pair.change(change, rows)
            pair.check(queries, choice)
            assert pair.indexes[1].verify().is_intact
            pair.indexes[1].close()

    run()


FIRST = {item: item % 6 for item in range(8)}


@pytest.fixture(params=["memory", "disk"])
def index(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setattr(changes, "SMALL", 0)
    path = tmp_path / "index" if request.param == "disk" else None
    with Index.build(DotProduct(dim=DIM), **arguments(FIRST), path=path) as index:
        index.add(**arguments({20: 1}))
        yield index


def state(index: Index) -> object:
    """Return everything that a failed change must leave unchanged."""
    files = [] if index.path is None else sorted(path for path in index.path.rglob("*") if path.name != "LOCK")
    result = index.search(torch.stack([embedding(number) for number in range(3)]), len(index))
    return index.version, result.ids.tolist(), result.scores.tolist(), index.metadata.rows(), files


@pytest.fixture
def unchanged(index: Index) -> Iterator[None]:
    """Check after the test that the index is unchanged, and can be opened and changed."""
    before = state(index)
    yield
    assert state(index) == before
    if index.path is not None:
        assert index.verify().is_intact
        with Index.open(index.path) as again:
            assert state(again) == before
    index.upsert(**arguments({3: 2, 30: 3}))


def batch(rows: dict[int, int], **other: object) -> ItemBatch:
    return ItemBatch(**arguments(rows) | other)


NAN = torch.full((2, DIM), 1.0).index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(torch.nan))
LARGEST = 2**63 - 1

BAD = {
    "nan": ({"items": NAN}, r"items has NaN or infinite values in 1 of 2 rows, the first is row 1"),
    "infinite": ({"items": NAN.nan_to_num(torch.inf)}, r"items has NaN or infinite values in 1 of 2 rows"),
    "wrong dim": ({"items": torch.ones(2, 5)}, r"items has shape \(2, 5\) but \(rows, 6\) is needed"),
    "one row": ({"items": torch.ones(DIM)}, r"items has shape \(6,\).*items\[None\]"),
    "no rows": ({"items": torch.ones(0, DIM), "ids": [], "metadata": table([])}, r"0 rows; give at least 1 item"),
    "whole numbers": ({"items": torch.ones(2, DIM, dtype=torch.int64)}, r"give floating-point embeddings"),
    "repeated ids": ({"ids": [40, 40]}, r"ids holds 40 more than once, at rows 0 and 1"),
    "negative id": ({"ids": [40, -2]}, r"ids holds -2 at row 1; ids must be 0 or greater"),
    "too large an id": (
        {"ids": np.array([40, 2**63], dtype=np.uint64)},
        "but the largest id is 92233",
    ),
    "much too large an id": ({"ids": [40, 2**70]}, r"ids holds 1180591620717411303424 but the largest id"),
    "ids as floats": ({"ids": [40.0, 41.0]}, r"ids holds torch.float64 values; give integers"),
    "too few ids": ({"ids": [40]}, r"ids has shape \(1,\) but there are 2 items"),
    "no metadata": ({"metadata": None}, r"metadata has no columns but the index has columns title .*, year"),
    "too little metadata": ({"metadata": table([1])}, r"metadata has 1 rows but there are 2 items"),
    "a column less": ({"metadata": table([1, 2]).drop("year")}, r"has columns title .String. but the index has"),
    "a column more": ({"metadata": table([1, 2]).with_columns(more=1)}, r"more .* but the index has columns"),
    "another type": ({"metadata": table([1, 2]).cast({"year": pl.String})}, r"year .String. but the index has"),
    "a reserved name": ({"metadata": table([1, 2]).rename({"title": "score"})}, r"column 'score', which"),
    "no table": ({"metadata": [1, 2]}, r"metadata is a list; give a polars DataFrame"),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("case", BAD)
def test_bad_items_change_nothing(index: Index, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, message = BAD[case]
    monkeypatch.setattr(building, "SEGMENT_BYTES", 1)  # a segment for every row: the first is written before the error
    rows = arguments({40: 1, 41: 2}) | bad
    for call in (index.add, index.upsert):
        with pytest.raises(InvalidInputError, match=message):
            call(**rows)
        with pytest.raises(InvalidInputError, match=message):
            call(ItemBatch(**rows))
        with pytest.raises(InvalidInputError, match=message):
            call(iter([batch({50: 3, 51: 4}), ItemBatch(**rows)]))


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("segment_bytes", [1, 2**28])
@pytest.mark.parametrize("call", ["add", "upsert"])
def test_an_id_in_two_batches_changes_nothing(
    index: Index, call: str, segment_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "SEGMENT_BYTES", segment_bytes)
    with pytest.raises(InvalidInputError, match=r"id 41 .*; (give every item its own id|use upsert)") as caught:
        getattr(index, call)(iter([batch({40: 1, 41: 2}), batch({41: 3, 42: 4})]))
    assert call == "add" or "use upsert" not in str(caught.value)


@pytest.mark.parametrize("segment_bytes", [1, 2**28])
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_an_id_in_two_batches_builds_nothing(
    is_on_disk: bool, segment_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "SEGMENT_BYTES", segment_bytes)
    path = tmp_path / "index" if is_on_disk else None
    with pytest.raises(InvalidInputError, match=r"id 41 "):
        Index.build(DotProduct(dim=DIM), iter([batch({40: 1, 41: 2}), batch({41: 3, 42: 4})]), path=path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unchanged")
def test_adding_existing_ids_changes_nothing(index: Index) -> None:
    with pytest.raises(InvalidInputError, match=r"id 20 is already in the index \(1 of the given ids are\); use"):
        index.add(**arguments({40: 1, 20: 2}))


@pytest.mark.usefixtures("unchanged")
def test_removing_missing_ids_changes_nothing(index: Index) -> None:
    with pytest.raises(InvalidInputError, match=r"id 40 is not in the index \(2 of the given ids are not\)"):
        index.remove([3, 40, 41])
    for ids, message in (([3.0], "give integers"), ([[3]], "flat list"), ([2**64], "largest id")):
        with pytest.raises(InvalidInputError, match=message):
            index.remove(ids)


def test_removing_with_missing_ok(index: Index) -> None:
    index.remove([3, 40], missing_ok=True)
    assert 3 not in index.ids
    with pytest.raises(InvalidInputError, match="id 3 is not in the index"):
        index.remove([3])


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("call", ["add", "upsert"])
def test_batches_that_bring_nothing(index: Index, call: str) -> None:
    with pytest.raises(InvalidInputError, match="items holds no batch"):
        getattr(index, call)(iter([]))


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("error", [RuntimeError("mine"), OSError(5, "mine"), KeyboardInterrupt("mine"), StopIteration])
@pytest.mark.parametrize("call", ["add", "upsert"])
def test_an_error_of_the_users_own_iterator(
    index: Index, call: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "SEGMENT_BYTES", 1)

    def batches() -> Iterator[ItemBatch]:
        yield batch({40: 1, 41: 2})
        raise error

    expected = RuntimeError if error is StopIteration else type(error)
    with pytest.raises(expected, match=r"mine|StopIteration") as caught:
        getattr(index, call)(batches())
    assert not isinstance(caught.value, RailsearchError)


@pytest.mark.parametrize("error", [RuntimeError("mine"), OSError(5, "mine"), KeyboardInterrupt("mine")])
def test_an_error_of_the_users_own_iterator_while_building(error: BaseException, tmp_path: Path) -> None:
    def batches() -> Iterator[ItemBatch]:
        yield batch({40: 1, 41: 2})
        raise error

    with pytest.raises(type(error), match="mine"):
        Index.build(DotProduct(dim=DIM), batches(), path=tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_came_into_being_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def batches() -> Iterator[ItemBatch]:
        # It finds the folder of the running build, and does not touch it.
        Index.build(DotProduct(dim=DIM), **arguments(FIRST), path=tmp_path / "index").close()
        yield batch({40: 1, 41: 2})

    with pytest.raises(StorageError, match=r"index cannot be created \(.*not empty\)"):
        Index.build(DotProduct(dim=DIM), batches(), path=tmp_path / "index")
    with Index.open(tmp_path / "index") as index:
        assert index.ids.tolist() == list(FIRST)
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.mark.usefixtures("unchanged")
def test_more_than_there_is(index: Index) -> None:
    with pytest.raises(NotEnoughItemsError, match="k is 10 but the index holds 9 items; ask for k <= 9"):
        index.search(torch.ones(1, DIM), 10)


def test_an_index_that_was_emptied(index: Index) -> None:
    index.remove(index.ids)
    for _ in range(2):
        assert len(index) == 0
        with pytest.raises(NotEnoughItemsError, match="k is 1 but the index holds 0 items"):
            index.search(torch.ones(1, DIM), 1)
        index.compact()
        if index.path is not None:
            with Index.open(index.path) as again:
                assert len(again) == 0
                assert again.metadata.is_empty()
    index.add(**arguments({7: 1}))
    assert index.search(torch.ones(1, DIM), 1).ids.tolist() == [[7]]
    assert index.search(torch.ones(1, DIM), 1).to_frame()["title"].to_list() == ["kind 1"]


def test_ids_that_are_left_out(index: Index) -> None:
    rows = arguments({0: 1, 1: 2})
    del rows["ids"]
    index.add(**rows)
    assert index.ids.tolist() == [*FIRST, 20, 21, 22]
    index.add(iter([ItemBatch(**rows), ItemBatch(**rows)]))
    assert index.ids.tolist() == [*FIRST, 20, 21, 22, 23, 24, 25, 26]
    for items in (rows["items"], rows["items"].tolist()):
        with pytest.raises(InvalidInputError, match="ids is missing"):
            index.upsert(items, metadata=rows["metadata"])
    with pytest.raises(InvalidInputError, match="ids is missing"):
        index.upsert(iter([ItemBatch(**rows)]))
    with pytest.raises(InvalidInputError, match="ids is missing"):
        index.upsert(ItemBatch(**rows))
    with pytest.raises(InvalidInputError, match="differs in having ids"):
        index.add(iter([ItemBatch(**rows), batch({90: 1})]))


def test_the_largest_id(index: Index) -> None:
    index.add(**arguments({LARGEST: 1}))
    assert index.ids[-1] == LARGEST
    rows = arguments({0: 1, 1: 2})
    del rows["ids"]
    for items in (rows, {"items": iter([ItemBatch(**rows)])}):
        with pytest.raises(InvalidInputError, match=r"ids after 9223372036854775807 do not fit into int64; give ids"):
            index.add(**items)
    index.remove([LARGEST])
    assert len(index) == 9


def test_columns_in_another_order(index: Index) -> None:
    rows = arguments({40: 1, 41: 2})
    index.add(**rows | {"metadata": rows["metadata"].select("year", "title")})
    index.add(**arguments({42: 3}))
    index.upsert(iter([batch({43: 1}), batch({44: 4}, metadata=table([4]).select("year", "title"))]))
    index.compact()
    assert index.metadata.columns == ["title", "year"]
    assert index.metadata[-5:]["title"].to_list() == ["kind 1", "kind 2", "kind 3", "kind 1", "kind 4"]
    allowed = index.search(torch.ones(1, DIM), 3, allow="year = 2004 AND title = 'kind 4'", pad=True)
    assert allowed.ids.tolist() == [[4, 44, -1]]


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_metadata_of_any_type_is_kept_or_refused(is_on_disk: bool, tmp_path: Path) -> None:
    columns: dict[str, Callable[[], pl.Series]] = {
        "category": lambda: pl.Series(["a", "b"], dtype=pl.Categorical),
        "list": lambda: pl.Series([[1, 2], None]),
        "struct": lambda: pl.Series([{"x": 1}, {"x": 2}]),
        "nothing": lambda: pl.Series([None, None]),
        "object": lambda: pl.Series([object(), object()], dtype=pl.Object),
    }
    for name, make in columns.items():
        path = tmp_path / name if is_on_disk else None
        frame = pl.DataFrame({name: make()})
        rows = arguments({1: 1, 2: 2}) | {"metadata": frame}
        if name == "object":
            with pytest.raises(InvalidInputError, match=r"column 'object' of Python objects"):
                Index.build(DotProduct(dim=DIM), **rows, path=path)
            continue
        with Index.build(DotProduct(dim=DIM), **rows, path=path) as index:
            index.upsert(**rows | {"ids": [2, 3]})
            index.compact()
            assert index.metadata.equals(frame[[0, 0, 1]])
