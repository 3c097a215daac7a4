"""The published implementation's own figures, to 1e-5 (golden/README.md says where they come from)."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from railsearch import MixtureOfLogits
from railsearch.similarity import load_balance_loss

GOLDEN = Path(__file__).parent / "golden"
NAMES = {
    "weight.query_out": "query_network.output.weight",
    "bias.query_glu": "query_network.unit.hidden.bias",
    "bias.query_out": "query_network.output.bias",
    "weight.item": "item_network.output.weight",
    "bias.item": "item_network.output.bias",
    "weight.user_table": "user_table.rows.weight",
    **{
        f"{kind}.gate_{side}_{layer}": f"gate.{side}.{name}.{kind}"
        for side in ("query", "item", "pair")
        for layer, name in ((1, "hidden"), (2, "output"))
        for kind in ("weight", "bias")
    },
}


def read(case: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(GOLDEN / f"{case}.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def weights_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed = {NAMES[name]: tensor for name, tensor in tensors.items() if name in NAMES}
    if "weight.query_glu" in tensors:
        renamed["query_network.unit.hidden.weight"] = tensors["weight.query_glu"].T
    return renamed


def check_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("case", ["recommendation-swiglu", "recommendation-geglu-user"])
def test_recommendation(case: str) -> None:
    tensors, sizes = read(case)
    users = tensors.get("input.user_ids")
    mol = MixtureOfLogits(
        query_dim=tensors["input.queries"].shape[1],
        item_dim=tensors["input.items"].shape[1],
        num_query_components=int(sizes["num_query_components"]),
        num_item_components=int(sizes["num_item_components"]),
        component_dim=int(sizes["component_dim"]),
        temperature=float(sizes["temperature"]),
        query_projection=sizes["glu"],
        projection_dim=tensors["weight.query_out"].shape[1],
        gate_dim=tensors["weight.gate_pair_1"].shape[0],
        user_table_size=int(sizes["user_table"]) or None,
        epsilon=float(sizes["eps"]),
    ).eval()
    mol.load_state_dict(weights_of(tensors))
    query_parts = mol.query_parts(tensors["input.queries"], user_ids=users)
    item_parts = mol.item_parts(tensors["input.items"])
    found = mol.compare(query_parts, item_parts)
    check_close(query_parts.components, tensors["expected.query_components"])
    check_close(item_parts.components, tensors["expected.item_components"])
    check_close(found.component_scores, tensors["expected.component_scores"])
    check_close(found.gate_weights, tensors["expected.gate_weights"])
    check_close(found.scores, tensors["expected.scores"])
    check_close(load_balance_loss(found.gate_weights), tensors["expected.load_balance_loss"])
    if users is not None:
        check_close(mol.user_penalty(users), tensors["expected.user_penalty"])


def test_text_with_ready_components() -> None:
    tensors, sizes = read("text-pair-gate")
    mol = MixtureOfLogits(
        num_query_components=int(sizes["num_query_components"]),
        num_item_components=int(sizes["num_item_components"]),
        component_dim=int(sizes["component_dim"]),
        temperature=float(sizes["temperature"]),
        query_projection="ready",
        item_projection="ready",
        gate_inputs=["pair"],
        gate_dim=tensors["weight.gate_pair_1"].shape[0],
    ).eval()
    mol.load_state_dict(weights_of(tensors))
    found = mol.compare(
        mol.query_parts(tensors["input.query_components"]), mol.item_parts(tensors["input.item_components"])
    )
    check_close(found.component_scores, tensors["expected.component_scores"])
    check_close(found.gate_weights, tensors["expected.gate_weights"])
    check_close(found.scores, tensors["expected.scores"])
    check_close(load_balance_loss(found.gate_weights), tensors["expected.load_balance_loss"])
