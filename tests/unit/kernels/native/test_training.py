"""The mixture of training in C++: scores and gradients as autograd has them in fp64, and dropout."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import MixtureOfLogits
from railsearch.kernels import KernelName, training_scores, use_kernel
from railsearch.kernels.native import can_train, has_training, native_mixture
from railsearch.similarity import ItemParts, QueryParts
from railsearch.similarity.parts import by_pair
from tests.support.native import GATES, ISAS, bits, forced, make_mixture
from tests.support.trials import trials

pytestmark = pytest.mark.skipif(not has_training(), reason="the native kernels of training are not compiled")

PAIR_GATES = [inputs for inputs in GATES if "pair" in inputs]


def make(*, dropout: float = 0.0, **shape: object) -> MixtureOfLogits:
    mol = make_mixture(**shape).train()  # type: ignore[arg-type]
    mol.gate.dropout = dropout
    return mol


def draw(
    mol: MixtureOfLogits, num_queries: int, num_items: int, *, has_own_items: bool, seed: int
) -> list[Tensor | None]:
    """Return component products and the gates of both sides, where the mixture has them."""
    generator = torch.Generator().manual_seed(seed)
    num_pairs = mol.num_query_components * mol.num_item_components
    shape = (num_queries, num_items, num_pairs)
    sizes = (num_queries, mol.num_query_components, num_items, mol.num_item_components)
    products = 4 * torch.randn(sizes, generator=generator)
    query_gate = torch.randn(num_queries, num_pairs, generator=generator) if mol.gate.query is not None else None
    item_gate = torch.randn(shape if has_own_items else shape[1:], generator=generator)
    return [products, query_gate, item_gate if mol.gate.item is not None else None]


def gradients(mol: MixtureOfLogits, mixed: Tensor, inputs: list[Tensor | None], upstream: Tensor) -> list[Tensor]:
    assert mol.gate.pair is not None
    wanted = [*(each for each in inputs if each is not None), *mol.gate.pair.parameters()]
    return list(torch.autograd.grad(mixed, wanted, upstream))


def native_results(mol: MixtureOfLogits, inputs: list[Tensor | None], upstream: Tensor) -> list[Tensor]:
    own = [None if each is None else each.clone().requires_grad_() for each in inputs]
    assert can_train(mol.gate, *own)
    torch.manual_seed(5)
    mixed = native_mixture(mol.gate, *own)  # type: ignore[arg-type]
    return [mixed.detach(), *gradients(mol, mixed, own, upstream)]


def fp64_results(mol: MixtureOfLogits, inputs: list[Tensor | None], upstream: Tensor) -> list[Tensor]:
    mol = copy.deepcopy(mol).double()
    own = [None if each is None else each.double().requires_grad_() for each in inputs]
    products, query_gate, item_gate = own
    assert products is not None
    scores = by_pair(products)
    weights = mol.gate(scores, None if query_gate is None else query_gate[:, None], item_gate)
    mixed = (weights * scores).sum(dim=-1)
    return [mixed.detach(), *gradients(mol, mixed, own, upstream.double())]


@settings(deadline=None, max_examples=trials(15, 60))
@given(
    num_query_components=st.integers(1, 6),
    num_item_components=st.integers(1, 5),
    gate_dim=st.integers(1, 40),
    gate_inputs=st.sampled_from(PAIR_GATES),
    activation=st.sampled_from(["silu", "identity"]),
    num_queries=st.integers(1, 20),
    num_items=st.integers(1, 90),
    has_own_items=st.booleans(),
    isa=st.sampled_from(ISAS),
    seed=st.integers(0, 2**31 - 1),
)
def test_scores_and_gradients_are_those_of_autograd_in_fp64(
    num_query_components: int,
    num_item_components: int,
    gate_dim: int,
    gate_inputs: list[str],
    activation: str,
    num_queries: int,
    num_items: int,
    has_own_items: bool,
    isa: str,
    seed: int,
) -> None:
    mol = make(
        num_query_components=num_query_components, num_item_components=num_item_components, dim=2, gate_dim=gate_dim,
        gate_inputs=gate_inputs, activation=activation, seed=seed,
    )  # fmt: skip
    inputs = draw(mol, num_queries, num_items, has_own_items=has_own_items, seed=seed)
    upstream = torch.randn(num_queries, num_items, generator=torch.Generator().manual_seed(seed + 1))
    with forced(isa):
        found = native_results(mol, inputs, upstream)
    for one, exact in zip(found, fp64_results(mol, inputs, upstream), strict=True):
        size = float(exact.abs().max())
        # Gradients of gates are sums of up to 1,800 terms that cancel, so rounding is that of the terms.
        assert float((one.double() - exact).abs().max()) <= 1e-4 * max(size, 1.0)


def test_gradient_is_that_of_finite_differences() -> None:
    mol = make(num_query_components=2, num_item_components=2, dim=2, gate_dim=8, gate_inputs=["query", "item", "pair"])
    inputs = draw(mol, 3, 30, has_own_items=False, seed=0)
    upstream = torch.randn(3, 30, generator=torch.Generator().manual_seed(1))
    _, to_scores, to_query_gate, to_item_gate, *_ = native_results(mol, inputs, upstream)
    wide = copy.deepcopy(mol).double()

    def loss(moved: list[Tensor]) -> float:
        products, query_gate, item_gate = moved
        scores = by_pair(products)
        with torch.no_grad():
            weights = wide.gate(scores, query_gate[:, None], item_gate)
            return float(((weights * scores).sum(dim=-1) * upstream).sum())

    own = [each.double() for each in inputs if each is not None]
    for place, gradient in enumerate([to_scores, to_query_gate, to_item_gate]):
        direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        ahead, behind = (
            loss([each + sign * 1e-5 * direction if i == place else each for i, each in enumerate(own)])
            for sign in (1, -1)
        )
        assert float((gradient * direction).sum()) == pytest.approx((ahead - behind) / 2e-5, rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("isa", ISAS)
def test_same_bits_on_any_number_of_threads(isa: str) -> None:
    mol = make(
        num_query_components=3, num_item_components=3, dim=2, gate_dim=10, gate_inputs=["query", "item", "pair"],
        dropout=0.3,
    )  # fmt: skip
    inputs = draw(mol, 37, 50, has_own_items=False, seed=0)
    upstream = torch.randn(37, 50, generator=torch.Generator().manual_seed(1))
    results = []
    for num_threads in (1, 2, 3):
        with forced(isa, num_threads):
            results.append(native_results(mol, inputs, upstream))
    for other in results[1:]:
        assert all(torch.equal(bits(one), bits(same)) for one, same in zip(results[0], other, strict=True))


class TestDropout:
    """A gate of equal logits: a kept pair's weight is 1 / (number of kept pairs)."""

    NUM_PAIRS = 12

    def run(
        self, dropout: float, *, isa: str = ISAS[0], seed: int = 0, num_pairs: int = NUM_PAIRS
    ) -> tuple[Tensor, Tensor]:
        """Return weights (B, N, P), read from the gradient, and the scores minus the mixture under those weights."""
        mol = make(
            num_query_components=num_pairs, num_item_components=1, dim=2, gate_dim=3, gate_inputs=["pair"],
            activation="identity", dropout=dropout,
        )  # fmt: skip
        assert mol.gate.pair is not None
        with torch.no_grad():
            for parameter in mol.gate.pair.parameters():
                parameter.zero_()
        generator = torch.Generator().manual_seed(3)
        products = torch.randn(40, num_pairs, 90, 1, generator=generator).requires_grad_()
        torch.manual_seed(seed)
        with forced(isa):
            mixed = native_mixture(mol.gate, products, None, None)
            (weights,) = torch.autograd.grad(mixed, products, torch.ones_like(mixed))
        return by_pair(weights), mixed.detach() - by_pair(weights * products.detach()).sum(dim=-1)

    @pytest.mark.parametrize("dropout", [0.05, 0.2, 0.5])
    def test_the_share_is_dropped_everywhere_alike_and_the_rest_sums_to_one(self, dropout: float) -> None:
        weights, _ = self.run(dropout)
        is_kept = weights > 0
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(40, 90))
        torch.testing.assert_close(
            weights[is_kept], (1 / is_kept.sum(dim=-1, keepdim=True)).expand_as(weights)[is_kept]
        )
        share = (~is_kept).double()
        assert float(share.mean()) == pytest.approx(dropout, abs=0.01)
        for dims in [(0, 1), (0, 2), (1, 2)]:
            found = share.mean(dim=dims)
            deviation = (dropout * (1 - dropout) / (weights.numel() / found.numel())) ** 0.5
            assert float((found - dropout).abs().max()) < 5 * deviation

    def test_pairs_are_dropped_independently(self) -> None:
        dropped = (self.run(0.3)[0] == 0).double().reshape(-1, self.NUM_PAIRS)
        correlation = torch.corrcoef(dropped.T) - torch.eye(self.NUM_PAIRS)
        assert float(correlation.abs().max()) < 5 / len(dropped) ** 0.5
        neighbours = torch.corrcoef(torch.stack([dropped[:-1].flatten(), dropped[1:].flatten()]))[0, 1]
        assert abs(float(neighbours)) < 5 / dropped.numel() ** 0.5

    def test_backward_drops_the_same_pairs_as_forward(self) -> None:
        _, difference = self.run(0.4)
        assert float(difference.abs().max()) < 1e-5

    def test_if_all_are_dropped_all_have_the_same_weight(self) -> None:
        weights, difference = self.run(0.9, num_pairs=3)
        is_even = (weights - 1 / 3).abs().amax(dim=-1) < 1e-6
        assert float(is_even.double().mean()) == pytest.approx(0.9**3 + 0.1**3, abs=0.03)
        assert float(difference.abs().max()) < 1e-5

    def test_seeds_differ_and_instruction_sets_agree(self) -> None:
        first = self.run(0.3)[0]
        assert not torch.equal(first, self.run(0.3, seed=1)[0])
        for isa in ISAS:
            assert torch.equal(first == 0, self.run(0.3, isa=isa)[0] == 0)

    def test_nothing_is_dropped_in_eval_mode(self) -> None:
        mol = make(num_query_components=3, num_item_components=2, dim=2, gate_dim=3, gate_inputs=["pair"], dropout=0.5)
        products, *_ = draw(mol, 4, 5, has_own_items=False, seed=0)
        assert products is not None
        mol.eval()
        scores = by_pair(products)
        expected = (mol.gate(scores, None, None) * scores).sum(dim=-1)
        torch.testing.assert_close(native_mixture(mol.gate, products, None, None), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("has_own_candidates", [False, True])
def test_native_and_torch_train_alike(has_own_candidates: bool) -> None:
    mol = make(num_query_components=3, num_item_components=2, dim=4, gate_dim=5, gate_inputs=["query", "item", "pair"])
    generator = torch.Generator().manual_seed(4)
    queries, items = (torch.randn(count, 6, generator=generator) for count in (4, 7))
    rows = torch.randint(7, (4, 3), generator=generator)
    found = []
    for kernel in KernelName:
        with use_kernel(kernel):
            torch.manual_seed(5)  # items drop values too
            item_parts = mol.item_parts(items)
            own = item_parts[rows] if has_own_candidates else item_parts
            scores = training_scores(mol, mol.query_parts(queries), own)
        assert scores.grad_fn is not None
        assert ("NativeMixture" in scores.grad_fn.name()) == (kernel is KernelName.NATIVE)
        found.append([scores, *torch.autograd.grad(scores.square().sum(), list(mol.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)


def test_other_precisions_are_left_to_torch() -> None:
    mol = make(num_query_components=3, num_item_components=2, dim=4, gate_dim=5, gate_inputs=["pair"]).double()
    parts = QueryParts(torch.ones(2, 3, 4).double(), None), ItemParts(torch.ones(2, 2, 4).double(), None)
    assert not can_train(mol.gate)
    assert training_scores(mol, *parts).dtype == torch.float64
