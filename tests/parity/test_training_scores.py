"""The fused mixture of training with torch against the plain one: the same scores and the same gradients."""

import pytest
import torch
from torch import Tensor

from railsearch import MixtureOfLogits
from railsearch.kernels import training_scores
from railsearch.kernels.fused_mixture import fused_mixture

GATES = [("query", "item", "pair"), ("query", "pair"), ("item", "pair"), ("pair",)]


def make(gate_inputs: tuple[str, ...], activation: str, dropout: float) -> MixtureOfLogits:
    return MixtureOfLogits(
        query_dim=6, item_dim=6, num_query_components=3, num_item_components=2, component_dim=4, gate_dim=5,
        gate_inputs=gate_inputs, gate_activation=activation, gate_dropout=dropout, item_dropout=0.0, seed=0,
    ).double()  # fmt: skip


def gradients(mol: MixtureOfLogits, scores: Tensor, inputs: list[Tensor]) -> list[Tensor | None]:
    trained = [*inputs, *mol.parameters()]
    return list(
        torch.autograd.grad((scores * torch.arange(scores.numel()).view_as(scores)).sum(), trained, allow_unused=True)
    )


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("activation", ["silu", "identity"])
@pytest.mark.parametrize("gate_inputs", GATES)
@pytest.mark.parametrize("has_own_candidates", [False, True])
def test_same_scores_and_gradients_as_autograd(
    gate_inputs: tuple[str, ...], activation: str, dropout: float, has_own_candidates: bool
) -> None:
    mol = make(gate_inputs, activation, dropout)
    generator = torch.Generator().manual_seed(1)
    queries, items = (
        torch.randn(count, 6, generator=generator, dtype=torch.float64, requires_grad=True) for count in (4, 7)
    )
    rows = torch.randint(7, (4, 3), generator=generator)

    def scores(*, is_plain: bool) -> Tensor:
        torch.manual_seed(3)
        query_parts, item_parts = mol.query_parts(queries), mol.item_parts(items)
        if has_own_candidates:
            item_parts = item_parts[rows]
        if not is_plain:
            return training_scores(mol, query_parts, item_parts)
        return (mol.compare_candidates if has_own_candidates else mol.compare)(query_parts, item_parts).scores

    plain, fused = scores(is_plain=True), scores(is_plain=False)
    assert "Mixture" in fused.grad_fn.name()  # type: ignore[union-attr]  # the quick way was taken
    torch.testing.assert_close(fused, plain)
    for found, expected in zip(
        gradients(mol, fused, [queries, items]), gradients(mol, plain, [queries, items]), strict=True
    ):
        if expected is not None:
            assert found is not None
            torch.testing.assert_close(found, expected)


def test_gradient_is_that_of_finite_differences() -> None:
    mol = make(("query", "item", "pair"), "silu", 0.0)
    generator = torch.Generator().manual_seed(2)
    scores, query_gate, item_gate = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 3, 6), (2, 1, 6), (3, 6))
    )
    assert torch.autograd.gradcheck(lambda *inputs: fused_mixture(mol.gate, *inputs), (scores, query_gate, item_gate))


def test_dropped_pairs_have_no_weight_and_the_rest_sums_to_one() -> None:
    mol = make(("pair",), "identity", 0.5)
    compared = mol.compare(
        mol.query_parts(torch.randn(50, 6, dtype=torch.float64)),
        mol.item_parts(torch.randn(40, 6, dtype=torch.float64)),
    )
    torch.testing.assert_close(compared.gate_weights.sum(dim=-1), torch.ones(50, 40, dtype=torch.float64))
    share = float((compared.gate_weights == 0).double().mean())
    assert share == pytest.approx(0.5, abs=0.03)
