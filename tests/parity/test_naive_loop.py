"""MixtureOfLogits against a triple loop in fp64, for every projection, gate and user table."""

import itertools

import pytest
import torch

from railsearch import MixtureOfLogits
from railsearch.kernels import TorchKernel
from tests.support.naive import naive_scores

GATES = [list(names) for count in range(4) for names in itertools.combinations(["query", "item", "pair"], count)]


def build(**options: object) -> MixtureOfLogits:
    mol = MixtureOfLogits(
        query_dim=5, item_dim=7, num_query_components=3, num_item_components=2, component_dim=4,
        projection_dim=6, gate_dim=5, **options,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in mol.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return mol.eval()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(4, 5, generator=generator), torch.randn(9, 7, generator=generator)


@pytest.mark.parametrize("gate_inputs", GATES, ids="+".join)
@pytest.mark.parametrize("gate_activation", ["silu", "identity"])
def test_every_gate(gate_inputs: list[str], gate_activation: str) -> None:
    mol = build(gate_inputs=gate_inputs, gate_activation=gate_activation)
    queries, items = inputs()
    expected = torch.tensor(naive_scores(mol, queries.tolist(), items.tolist()), dtype=torch.float64)
    torch.testing.assert_close(mol(queries, items).double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mol.double()(queries.double(), items.double()), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("query_projection", ["linear", "swiglu", "geglu"])
@pytest.mark.parametrize("item_projection", ["linear", "swiglu", "geglu"])
def test_every_projection(query_projection: str, item_projection: str) -> None:
    mol = build(query_projection=query_projection, item_projection=item_projection)
    queries, items = inputs()
    expected = torch.tensor(naive_scores(mol, queries.tolist(), items.tolist()), dtype=torch.float64)
    torch.testing.assert_close(mol(queries, items).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("users", [None, [0, 3, 12, -1]])
def test_user_component(users: list[int] | None) -> None:
    mol = build(user_table_size=4)
    queries, items = inputs()
    ids = None if users is None else torch.tensor(users)
    expected = torch.tensor(naive_scores(mol, queries.tolist(), items.tolist(), users), dtype=torch.float64)
    torch.testing.assert_close(mol(queries, items, user_ids=ids).double(), expected, rtol=1e-5, atol=1e-5)


def test_blocked_scoring() -> None:
    mol = build()
    queries, items = inputs()
    query_parts, item_parts = mol.query_parts(queries), mol.item_parts(items)
    expected = torch.tensor(naive_scores(mol, queries.tolist(), items.tolist()))
    scores, rows = TorchKernel(mol, pairs_per_block=6).top_k(query_parts, item_parts, k=9)
    torch.testing.assert_close(scores, expected.sort(dim=1, descending=True).values, rtol=1e-5, atol=1e-5)
    candidates = torch.tensor([[8, 0, 3]] * 4)
    own = TorchKernel(mol, pairs_per_block=5).score_candidates(query_parts, item_parts, candidates)
    torch.testing.assert_close(own, expected.gather(1, candidates), rtol=1e-5, atol=1e-5)
    assert torch.equal(rows.sort(dim=1).values, torch.arange(9).expand(4, 9))
