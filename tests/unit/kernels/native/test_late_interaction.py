"""Late interaction in C++: naive loops in fp64, absent components, any sharpness and any number of component pairs."""

import math

import pytest
import torch
from torch import Tensor

from railsearch import BruteForce, Combined, Index, MixtureOfLogits, TwoPass
from railsearch.errors import InvalidInputError
from railsearch.kernels import KernelName, TorchKernel, choose_kernel, select_best, use_kernel
from railsearch.kernels.native import NativeKernel
from railsearch.similarity import ItemParts, LateInteraction, QueryParts
from railsearch.similarity.gate import DROPPED
from tests.support.native import ISAS, PRECISIONS, bits, forced, fp64_scores, make_late, make_parts, needs_native

pytestmark = needs_native

CPU = torch.device("cpu")


def naive_scores(late: LateInteraction, queries: QueryParts, items: ItemParts) -> Tensor:
    """Return the scores (B, N) of the same parts, with plain loops over Python numbers."""

    def softmax(logits: list[float]) -> list[float]:
        powers = [math.exp(each - max(logits)) for each in logits]
        return [power / sum(powers) for power in powers]

    def score(query: list[list[float]], gate: list[float], item: list[list[float]], by_item: list[float]) -> float:
        outer, total = softmax(gate[: len(query)]), 0.0
        for own, weight, sharpness in zip(query, outer, gate[len(query) :], strict=True):
            scores = [sum(a * b for a, b in zip(own, each, strict=True)) / late.temperature for each in item]
            logits = [
                -1e300 if logit == DROPPED else sharpness * score + logit
                for score, logit in zip(scores, by_item, strict=True)
            ]
            total += weight * sum(a * b for a, b in zip(softmax(logits), scores, strict=True))
        return total

    assert queries.gate is not None
    assert items.gate is not None
    own_queries = list(zip(queries.components.tolist(), queries.gate.tolist(), strict=True))
    gates = items.gate.double().masked_fill(items.gate <= DROPPED / 2, DROPPED)  # bf16 has no such number
    own_items = list(zip(items.components.double().tolist(), gates.tolist(), strict=True))
    found = [[score(*query, *item) for item in own_items] for query in own_queries]
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(("pq", "px"), [(1, 1), (1, 6), (5, 1), (3, 4)])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 1e4])
def test_scores_are_those_of_naive_loops(isa: str, dtype: torch.dtype, pq: int, px: int, sharpness: float) -> None:
    late = make_late(pq, px, 7, sharpness=sharpness)
    queries, items = make_parts(late, 3, 53, dtype=dtype)
    expected = naive_scores(late, queries, items)
    kernel = NativeKernel(late)
    with forced(isa):
        scores, bounds = kernel.score(queries, items, 0, 53), kernel.bounds(queries, items)
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=2e-5)
    assert bool((scores <= bounds).all())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("pq", "px", "dim"), [(16, 32, 768), (4, 8, 384), (128, 128, 2), (1, 16384, 1), (16384, 1, 1), (3, 5, 700)]
)
def test_many_component_pairs_in_every_operation(isa: str, pq: int, px: int, dim: int) -> None:
    late = make_late(pq, px, dim, sharpness=1.0)
    num_items = 60
    queries, items = make_parts(late, 7, num_items)
    kernel = NativeKernel(late)
    with forced("portable", num_threads=1):
        whole, bounds = kernel.score(queries, items, 0, num_items), kernel.bounds(queries, items)  # (B, N)
    torch.testing.assert_close(whole.double(), fp64_scores(late, queries, items), rtol=1e-4, atol=1e-4)
    assert bool((whole <= bounds).all())
    thresholds = bounds.median(dim=1).values  # (B,)
    rows = torch.randint(num_items, (7, 50), generator=torch.Generator().manual_seed(0))
    with forced(isa, num_threads=2):
        assert torch.equal(bits(kernel.score(queries, items, 0, num_items)), bits(whole))
        assert torch.equal(bits(kernel.score_candidates(queries, items, rows)), bits(whole.gather(1, rows)))
        scores, found = kernel.top_k(queries, items, num_items)  # k = N
        above = kernel.top_k_above(queries, items, 9, thresholds)
        by_component = kernel.best_by_component(queries, items, 2, num_items)
    best, expected = select_best(whole, num_items)
    assert torch.equal(bits(scores), bits(best))
    assert torch.equal(found, expected)
    is_above = bounds >= thresholds[:, None]
    assert torch.equal(bits(above.scores), bits(select_best(whole.masked_fill(~is_above, -torch.inf), 9)[0]))
    assert torch.equal(above.best_skipped, bounds.masked_fill(is_above, -torch.inf).amax(dim=1))
    assert by_component.scores.shape == (7, pq * px, 2)
    assert torch.equal(bits(by_component.scores[:, :, 0].amax(dim=1)), bits(bounds.amax(dim=1)))
    assert torch.equal(bits(by_component.bounds), bits(select_best(bounds, num_items)[0]))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 1e3, 1e6, 1e30])
def test_absent_components_change_no_bit(isa: str, dtype: torch.dtype, sharpness: float) -> None:
    """A query and an item score the same with and without absent components, at any sharpness."""
    few, more = make_late(2, 3, 6, sharpness=sharpness), make_late(4, 5, 6, sharpness=sharpness)
    with torch.no_grad():
        for name, weight in few.state_dict().items():
            weight.copy_(more.state_dict()[name][: len(weight)])
    generator = torch.Generator().manual_seed(0)
    queries, items = torch.randn(3, 2, 6, generator=generator), torch.randn(50, 3, 6, generator=generator)
    items[0] = -queries[0, :1]  # all its scores with that component are the lowest
    pad = torch.nn.functional.pad
    with forced(isa), torch.no_grad():
        own = NativeKernel(few).score(few.query_parts(queries), few.item_parts(items).to(dtype), 0, 50)
        padded = more.query_parts(pad(queries, (0, 0, 0, 2))), more.item_parts(pad(items, (0, 0, 0, 2))).to(dtype)
        assert torch.equal(bits(NativeKernel(more).score(*padded, 0, 50)), bits(own))


def test_texts_without_any_component_score_zero() -> None:
    late = make_late(3, 4, 6)
    queries, items = make_parts(late, 2, 5)
    with torch.no_grad():
        no_query, no_item = late.query_parts(torch.zeros(1, 3, 6)), late.item_parts(torch.zeros(1, 4, 6))
    kernel = NativeKernel(late)
    assert kernel.score(queries, no_item, 0, 1).tolist() == [[0.0], [0.0]]
    assert kernel.score(no_query, items, 0, 5).tolist() == [[0.0] * 5]
    assert kernel.score(no_query, no_item, 0, 1).tolist() == [[0.0]]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 1e6])
def test_components_that_are_not_finite_are_refused(value: float, sharpness: float) -> None:
    late = make_late(3, 4, 6, sharpness=sharpness)
    kernel = NativeKernel(late)
    for place in range(4):
        queries, items = make_parts(late, 2, 50)
        items.components[33, place, 2] = value
        for compute in (
            lambda queries=queries, items=items: kernel.score(queries, items, 0, 50),
            lambda queries=queries, items=items: kernel.bounds(queries, items),
            lambda queries=queries, items=items: kernel.top_k(queries, items, 3),
            lambda queries=queries, items=items: kernel.top_k_above(queries, items, 3, torch.full((2,), -100.0)),
            lambda queries=queries, items=items: kernel.score_candidates(queries, items, torch.tensor([[33], [0]])),
        ):
            with pytest.raises(InvalidInputError, match="NaN or infinite"):
                compute()
        assert kernel.score(queries, items, 0, 33).isfinite().all()


@pytest.mark.parametrize("side", ["query", "item"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_gates_that_are_not_finite_are_refused(side: str, value: float) -> None:
    late = make_late(3, 4, 6)
    _, items = make_parts(late, 2, 50)
    with torch.no_grad():
        queries = late.query_parts(torch.randn(2, 3, 6))  # no component is absent
    gate = queries.gate if side == "query" else items.gate
    assert gate is not None
    for place in range(gate.shape[1]):
        before = float(gate[1, place])
        gate[1, place] = value
        with pytest.raises(InvalidInputError, match="NaN or infinite"):
            NativeKernel(late).score(queries, items, 0, 50)
        gate[1, place] = before


def test_it_is_chosen_for_late_interaction_and_not_for_a_subclass() -> None:
    class Mine(LateInteraction):
        pass

    assert isinstance(choose_kernel(make_late(2, 3, 4), CPU), NativeKernel)
    assert isinstance(choose_kernel(Mine().eval(), CPU), TorchKernel)
    with use_kernel(KernelName.NATIVE), pytest.raises(InvalidInputError, match="MixtureOfLogits, LateInteraction and"):
        choose_kernel(Mine().eval(), CPU)


def test_other_precisions_of_queries_are_left_to_torch() -> None:
    late = make_late(2, 3, 4).double()
    queries, items = late.query_parts(torch.randn(2, 2, 4).double()), late.item_parts(torch.randn(5, 3, 4).double())
    assert NativeKernel(late).score(queries, items, 0, 5).dtype == torch.float64


def test_a_changed_temperature_is_seen() -> None:
    late = make_late(2, 3, 4, sharpness=0.0)
    with torch.no_grad():
        late.sharpness_change.zero_()
    queries, items = make_parts(late, 2, 5)
    kernel = NativeKernel(late)
    before = kernel.score(queries, items, 0, 5)
    late.temperature = 2 * late.temperature
    torch.testing.assert_close(kernel.score(queries, items, 0, 5), before / 2)


def test_parts_with_a_gate_of_another_similarity_are_refused() -> None:
    late = make_late(2, 3, 4)
    queries, items = make_parts(late, 2, 5)
    mixture = MixtureOfLogits(
        num_query_components=2, num_item_components=3, component_dim=4, query_projection="ready",
        item_projection="ready", seed=0,
    ).eval()  # fmt: skip
    with torch.no_grad():
        others = mixture.query_parts(torch.randn(2, 2, 4)), mixture.item_parts(torch.randn(5, 3, 4))
    for kernel in (NativeKernel(late), TorchKernel(late)):
        with pytest.raises(InvalidInputError, match="the query parts have no gate of late interaction"):
            kernel.score(others[0], items, 0, 5)
        with pytest.raises(InvalidInputError, match="the item parts have no gate of late interaction"):
            kernel.score(queries, others[1], 0, 5)
        with pytest.raises(InvalidInputError, match="the item parts have no gate of late interaction"):
            kernel.score(queries, ItemParts(items.components, None), 0, 5)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_strategies_segments_and_batches_return_the_same_bits(precision: str) -> None:
    late = make_late(3, 5, 8, sharpness=1.0)
    generator = torch.Generator().manual_seed(0)
    items, queries = torch.randn(300, 5, 8, generator=generator), torch.randn(6, 3, 8, generator=generator)
    items[:, 3:][torch.rand(300, 2, generator=generator) < 0.5] = 0.0
    items[150:] = items[:150]  # every item twice: ties are everywhere
    one = Index.build(late, items, precision=precision, show_progress=False)
    many = Index.build(late, items[:100], precision=precision, show_progress=False)
    many.add(items[100:130], ids=range(100, 130))
    many.add(items[130:], ids=range(130, 300))
    assert str(one.describe()["kernel"]).startswith("native")
    expected = one.search(queries, 300, BruteForce())
    for strategy in (BruteForce(), TwoPass(), Combined(3, 80)):
        found = many.search(queries, 20, strategy)
        exact = found.is_exact
        assert bool(exact.all()) or isinstance(strategy, Combined)
        assert torch.equal(bits(found.scores[exact]), bits(expected.scores[exact, :20]))
        assert torch.equal(found.ids[exact], expected.ids[exact, :20])
        for row in range(6):
            alone = one.search(queries[row : row + 1], 20, strategy)
            assert torch.equal(bits(alone.scores[0]), bits(found.scores[row]))
            assert torch.equal(alone.ids[0], found.ids[row])
