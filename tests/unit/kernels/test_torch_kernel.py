"""The torch kernel, and any other kernel that takes its place."""

import dataclasses
from collections import Counter

import pytest
import torch
from torch import Tensor

from railsearch import Adaptive, Average, BruteForce, Combined, DotProduct, Index, PerComponent, TwoPass, Weighted
from railsearch.index import Strategy
from railsearch.kernels import (
    BestAbove,
    BestByComponent,
    Kernel,
    KernelName,
    Nearest,
    Roundoff,
    RowFilter,
    TorchKernel,
    choose_kernel,
    choose_scan,
    target_ranks,
    use_kernel,
)
from railsearch.similarity import ItemParts, QueryParts, Similarity
from tests.support.search_worlds import TOLERANCE, make_world

CPU = torch.device("cpu")


def test_torch_keeps_the_contract() -> None:
    with use_kernel(KernelName.TORCH):
        kernel = choose_kernel(DotProduct(dim=2), CPU)
    assert isinstance(kernel, TorchKernel)
    assert isinstance(kernel, Kernel)
    assert not kernel.is_bit_stable
    assert kernel.roundoff == Roundoff(relative=2.0**-24, underflow=2.0**-126)


@pytest.mark.parametrize("kind", ["random", "dot"])
def test_scores_and_bounds_of_a_stretch(kind: str) -> None:
    similarity, items, queries = make_world(kind, 70, seed=0)
    with torch.no_grad():
        query_parts, item_parts = similarity.query_parts(queries), similarity.item_parts(items)
        expected = similarity.score(query_parts, item_parts)
        expected_bounds = similarity.compare(query_parts, item_parts).component_scores.amax(dim=-1)
    for pairs_per_block in (None, 7, 64):
        kernel = TorchKernel(similarity, pairs_per_block=pairs_per_block)
        for first, last in ((0, 70), (0, 1), (3, 50), (69, 70), (5, 5)):
            found = kernel.score(query_parts, item_parts, first, last)
            torch.testing.assert_close(found, expected[:, first:last], rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(kernel.bounds(query_parts, item_parts), expected_bounds, rtol=0, atol=TOLERANCE)


def test_a_scan_returns_the_best_rows_and_raises_bounds() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(-1, 2, (500, 4), generator=generator).float()  # many ties
    vectors = torch.randint(-1, 2, (3, 2, 4), generator=generator).float()
    hidden = [torch.tensor([1, 5]), torch.tensor([], dtype=torch.int64), torch.tensor([499])]
    row_filter = RowFilter.from_lists(hidden, device=CPU)
    bounds = torch.full((3, 500), -torch.inf)
    found = choose_scan(CPU)(vectors, table, 9, row_filter, bounds=bounds)
    products = vectors @ table.T  # (B, V, N)
    row_filter.hide(products, 0)
    assert torch.equal(bounds, products.amax(dim=1))
    for query in range(3):
        for vector in range(2):
            own = products[query, vector].tolist()
            assert (
                found.rows[query, vector].tolist() == sorted(range(500), key=lambda row, own=own: (-own[row], row))[:9]
            )


@dataclasses.dataclass(frozen=True)
class CountingKernel:
    """A kernel that is not torch's own: a stranger that implements the Protocol and nothing else."""

    inner: TorchKernel
    calls: Counter[str]
    error: float = 2.0**-24

    is_bit_stable = True
    name = "counting"

    @property
    def roundoff(self) -> Roundoff:
        self.calls["roundoff"] += 1
        return Roundoff(self.error, 2.0**-126)

    def score(self, query_parts: QueryParts, item_parts: ItemParts, first: int, last: int) -> Tensor:
        self.calls["score"] += 1
        return self.inner.score(query_parts, item_parts, first, last)

    def score_candidates(self, query_parts: QueryParts, items: ItemParts, candidates: Tensor) -> Tensor:
        self.calls["score_candidates"] += 1
        return self.inner.score_candidates(query_parts, items, candidates)

    def top_k(
        self, query_parts: QueryParts, item_parts: ItemParts, k: int, row_filter: RowFilter | None = None
    ) -> tuple[Tensor, Tensor]:
        self.calls["top_k"] += 1
        return self.inner.top_k(query_parts, item_parts, k, row_filter)

    def scan(
        self, vectors: Tensor, table: Tensor, n: int, row_filter: RowFilter | None, *, bounds: Tensor | None = None
    ) -> Nearest:
        self.calls["scan"] += 1
        return self.inner.scan(vectors, table, n, row_filter, bounds=bounds)

    def top_k_above(
        self,
        query_parts: QueryParts,
        item_parts: ItemParts,
        k: int,
        thresholds: Tensor,
        row_filter: RowFilter | None = None,
    ) -> BestAbove:
        self.calls["top_k_above"] += 1
        return self.inner.top_k_above(query_parts, item_parts, k, thresholds, row_filter)

    def best_by_component(
        self, query_parts: QueryParts, item_parts: ItemParts, n: int, m: int, row_filter: RowFilter | None = None
    ) -> BestByComponent:
        self.calls["best_by_component"] += 1
        return self.inner.best_by_component(query_parts, item_parts, n, m, row_filter)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        self.calls["bounds"] += 1
        return self.inner.bounds(query_parts, item_parts)


@pytest.mark.parametrize(
    ("strategy", "used"),
    [
        (BruteForce(), {"top_k"}),
        (TwoPass(), {"score_candidates", "top_k_above"}),
        (Adaptive(), {"score_candidates", "bounds"}),
        (PerComponent(3), {"score_candidates", "best_by_component"}),
        (Average(20), {"score_candidates"}),
        (Weighted(20), {"score_candidates", "scan"}),
        (Combined(3, 20), {"score_candidates", "best_by_component"}),
    ],
    ids=lambda value: "+".join(sorted(value)) if isinstance(value, set) else str(value),
)
def test_another_kernel_takes_the_place_of_torch(
    strategy: Strategy, used: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    similarity, items, queries = make_world("random", 800, seed=3)
    monkeypatch.setattr("railsearch.index.corpus.choose_kernel", TorchKernel)
    expected = Index.build(similarity, items).search(queries, 5, strategy)
    calls: Counter[str] = Counter()

    def choose(similarity: Similarity, device: torch.device) -> Kernel:
        return CountingKernel(TorchKernel(similarity, device), calls)

    monkeypatch.setattr("railsearch.index.corpus.choose_kernel", choose)
    found = Index.build(similarity, items).search(queries, 5, strategy)
    torch.testing.assert_close(found.scores, expected.scores, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(found.ceiling, expected.ceiling, rtol=0, atol=TOLERANCE)
    assert used | {"roundoff"} <= set(calls)


def test_a_certificate_allows_for_the_roundoff_of_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity, items, queries = make_world("random", 800, seed=3)
    exact = Index.build(similarity, items).search(queries, 5, PerComponent(3))
    monkeypatch.setattr(
        "railsearch.index.corpus.choose_kernel",
        lambda similarity, device: CountingKernel(TorchKernel(similarity, device), Counter(), error=2.0**-12),
    )
    coarse = Index.build(similarity, items).search(queries, 5, PerComponent(3))
    assert bool((coarse.ceiling > exact.ceiling).all())


def test_ranks_use_the_kernel_that_they_are_given() -> None:
    similarity, items, queries = make_world("random", 100, seed=4)
    with torch.no_grad():
        query_parts, item_parts = similarity.query_parts(queries), similarity.item_parts(items)
    calls: Counter[str] = Counter()
    kernel = CountingKernel(TorchKernel(similarity), calls)
    targets = torch.tensor([3, 50, 99])
    found = target_ranks(similarity, query_parts, item_parts, targets, kernel=kernel)
    assert torch.equal(found, target_ranks(similarity, query_parts, item_parts, targets))
    assert calls["score"] == 1
