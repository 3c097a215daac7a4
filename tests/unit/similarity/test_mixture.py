"""MixtureOfLogits by hand: initialisation, sides computed once, bad options."""

import json
import math

import numpy as np
import pytest
import torch

from railsearch import DotProduct, MixtureOfLogits
from railsearch.errors import InvalidInputError
from railsearch.similarity import GateActivation, ItemParts, QueryParts


def test_paper_formula_by_hand() -> None:
    mol = MixtureOfLogits(
        num_query_components=2, num_item_components=1, component_dim=2, temperature=0.5,
        query_projection="ready", item_projection="ready", gate_inputs=["pair"], gate_dim=2,
    ).eval()  # fmt: skip
    with torch.no_grad():
        for parameter in mol.parameters():
            parameter.zero_()
        mol.gate.pair.output.bias.copy_(torch.tensor([math.log(3.0), 0.0]))  # weights 3/4 and 1/4
    queries = torch.tensor([[[2.0, 0.0], [0.0, 5.0]]])
    items = torch.tensor([[[3.0, 4.0]]])
    found = mol.compare(mol.query_parts(queries), mol.item_parts(items))
    torch.testing.assert_close(found.component_scores, torch.tensor([[[1.2, 1.6]]]))
    torch.testing.assert_close(found.gate_weights, torch.tensor([[[0.75, 0.25]]]))
    torch.testing.assert_close(found.scores, torch.tensor([[1.3]]))


def test_one_by_one_components_are_a_cosine() -> None:
    ready = {"query_projection": "ready", "item_projection": "ready"}
    mol = MixtureOfLogits(num_query_components=1, num_item_components=1, component_dim=4, **ready).eval()
    queries, items = torch.randn(3, 4), torch.randn(5, 4)
    expected = DotProduct(dim=4, cosine=True, temperature=0.05)(queries, items)
    torch.testing.assert_close(mol(queries[:, None], items[:, None]), expected)


def test_components_have_length_one_and_zero_stays_zero() -> None:
    mol = MixtureOfLogits(query_dim=6, item_dim=6, user_table_size=3).eval()
    lengths = mol.query_parts(torch.randn(4, 6), user_ids=torch.tensor([0, 1, 2, -1])).components.norm(dim=-1)
    torch.testing.assert_close(lengths[:3], torch.ones(3, 8))
    assert lengths[3, -1] == 0
    torch.testing.assert_close(mol.item_parts(torch.randn(4, 6)).components.norm(dim=-1), torch.ones(4, 4))


def test_item_side_is_computed_once() -> None:
    mol = MixtureOfLogits(query_dim=6, item_dim=6).eval()
    queries, item_parts = mol.query_parts(torch.randn(2, 6)), mol.item_parts(torch.randn(3, 6))
    expected = mol.score(queries, item_parts)
    for name in ("item_network", "gate.item"):
        for parameter in mol.get_submodule(name).parameters():
            torch.nn.init.constant_(parameter, math.nan)
    assert torch.equal(mol.score(queries, item_parts), expected)


def test_first_weights() -> None:
    mol = MixtureOfLogits(query_dim=64, item_dim=64, user_table_size=50)
    weights = mol.state_dict()
    assert weights["query_network.unit.hidden.weight"].std() == pytest.approx(0.02, rel=0.1)
    bound = math.sqrt(6 / (64 + 4 * 32))
    largest = float(weights["item_network.output.weight"].abs().max())
    assert 0.9 * bound < largest <= bound
    assert all(bool((tensor == 0).all()) for name, tensor in weights.items() if name.endswith("bias"))
    assert bool((weights["user_table.rows.weight"][0] == 0).all())
    assert bool((weights["user_table.rows.weight"][1:] != 0).any(dim=1).all())


def test_seed_decides_the_first_weights() -> None:
    first, second, other = (MixtureOfLogits(user_table_size=4, seed=seed) for seed in (7, 7, 8))
    third = MixtureOfLogits(user_table_size=4)
    third.reset_parameters(torch.Generator().manual_seed(7))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]), name
        assert torch.equal(tensor, third.state_dict()[name]), name
    assert not torch.equal(first.gate.pair.hidden.weight, other.gate.pair.hidden.weight)


def test_dropout_only_while_training() -> None:
    mol = MixtureOfLogits(query_dim=6, item_dim=6, user_table_size=3)
    queries, items, users = torch.randn(2, 6), torch.randn(3, 6), torch.tensor([0, 1])
    assert not torch.equal(mol(queries, items, user_ids=users), mol(queries, items, user_ids=users))
    mol.eval()
    assert torch.equal(mol(queries, items, user_ids=users), mol(queries, items, user_ids=users))


def test_users_share_rows_by_hash_and_padding_learns_nothing() -> None:
    mol = MixtureOfLogits(query_dim=6, item_dim=6, user_table_size=10).eval()
    own = mol.query_parts(torch.zeros(2, 6), user_ids=torch.tensor([3, 13])).components[:, -1]
    assert torch.equal(own[0], own[1])
    mol(torch.randn(2, 6), torch.randn(3, 6), user_ids=torch.tensor([-1, 4])).sum().backward()
    gradient = mol.user_table.rows.weight.grad
    assert bool((gradient[0] == 0).all())
    assert bool((gradient[5] != 0).any())


def test_user_penalty_is_the_mean_squared_length() -> None:
    mol = MixtureOfLogits(component_dim=2, user_table_size=2)
    with torch.no_grad():
        mol.user_table.rows.weight.copy_(torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]]))
    assert mol.user_penalty(torch.tensor([0, 1])).item() == pytest.approx((25 + 1) / 2)
    assert MixtureOfLogits().user_penalty(torch.tensor([0])).item() == 0.0


def test_config_builds_the_same_similarity() -> None:
    mol = MixtureOfLogits(query_projection="ready", gate_inputs=("pair", "item"), user_table_size=5, temperature=0.2)
    assert MixtureOfLogits(**mol.config).config == mol.config
    assert mol.config["query_dim"] is None


def test_config_takes_numpy_numbers_and_follows_changes() -> None:
    mol = MixtureOfLogits(num_query_components=np.int64(2), temperature=np.float32(0.5), epsilon=1)
    assert json.loads(json.dumps(mol.config)) == mol.config
    assert (type(mol.config["num_query_components"]), type(mol.config["epsilon"])) == (int, float)
    mol.temperature = 0.25
    mol.gate.activation = GateActivation.IDENTITY
    assert (mol.config["temperature"], mol.config["gate_activation"]) == (0.25, "identity")
    dot = DotProduct(dim=2)
    dot.temperature = 0.1
    assert dot.config["temperature"] == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_dim": 0}, "query_dim is 0; ask for query_dim >= 1"),
        ({"item_dim": None}, "item_dim is None; give a whole number"),
        ({"num_query_components": 0}, "num_query_components is 0"),
        ({"component_dim": 2.5}, "component_dim is 2.5; give a whole number"),
        ({"temperature": 0.0}, "temperature is 0.0; give a finite number above 0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"gate_dropout": 1.0}, "gate_dropout is 1.0; give a rate of at least 0 and below 1"),
        (
            {"query_projection": "swish"},
            "query_projection is 'swish'; choose from: linear, residual, swiglu, geglu, ready",
        ),
        ({"gate_inputs": ["user"]}, "gate_inputs is 'user'; choose from: query, item, pair"),
        ({"gate_inputs": "pair"}, "gate_inputs is 'pair'; give a list, such as"),
        ({"gate_inputs": None}, "gate_inputs is None; give a list"),
        ({"temperature": "0.1"}, "temperature is '0.1'; give a number"),
        ({"gate_dropout": None}, "gate_dropout is None; give a number"),
        ({"seed": -1}, "seed is -1"),
        ({"gate_activation": "relu"}, "gate_activation is 'relu'; choose from: silu, identity"),
        ({"user_table_size": 0}, "user_table_size is 0"),
        ({"user_table_size": 5, "num_query_components": 1}, "ask for num_query_components with a user table >= 2"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        MixtureOfLogits(**options)


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        MixtureOfLogits(64)


def test_bad_inputs() -> None:
    mol = MixtureOfLogits(query_dim=6, item_dim=6)
    with pytest.raises(InvalidInputError, match=r"queries has shape \(2, 5\) but \(rows, 6\) is needed"):
        mol.query_parts(torch.zeros(2, 5))
    with pytest.raises(InvalidInputError, match="user_ids was given but user_table_size is None"):
        mol.query_parts(torch.zeros(2, 6), user_ids=torch.tensor([0, 1]))
    with_users = MixtureOfLogits(query_dim=6, item_dim=6, user_table_size=3)
    with pytest.raises(InvalidInputError, match=r"user_ids has shape \(3,\) but there are 2 queries"):
        with_users.query_parts(torch.zeros(2, 6), user_ids=torch.tensor([0, 1, 2]))
    with pytest.raises(InvalidInputError, match=r"user_ids holds torch\.float32 values; give integers"):
        with_users.query_parts(torch.zeros(2, 6), user_ids=torch.zeros(2))
    queries, items = mol.query_parts(torch.zeros(2, 6)), mol.item_parts(torch.zeros(3, 6))
    with pytest.raises(InvalidInputError, match="this similarity has a query gate but the query parts have none"):
        mol.score(QueryParts(queries.components, None), items)
    uniform = MixtureOfLogits(query_dim=6, item_dim=6, gate_inputs=[])
    with pytest.raises(InvalidInputError, match="this similarity has no item gate but the item parts have one"):
        uniform.score(uniform.query_parts(torch.zeros(2, 6)), ItemParts(items.components, items.gate))


@pytest.mark.parametrize(("cosine", "expected"), [(False, [[22.0, 0.0]]), (True, [[2 * 11 / 125**0.5, 0.0]])])
def test_dot_product_by_hand(cosine: bool, expected: list) -> None:
    similarity = DotProduct(dim=2, cosine=cosine, temperature=0.5)
    scores = similarity(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(scores, torch.tensor(expected))


def test_dot_product_has_no_users() -> None:
    with pytest.raises(InvalidInputError, match="no user table"):
        DotProduct(dim=2).query_parts(torch.zeros(1, 2), user_ids=torch.tensor([1]))


def test_absurd_sizes_are_refused_before_they_take_memory() -> None:
    with pytest.raises(InvalidInputError, match=r"num_query_components \* num_item_components is 16,?777,?216"):
        MixtureOfLogits(query_dim=4, item_dim=4, num_query_components=4096, num_item_components=4096)
    with pytest.raises(InvalidInputError, match="component_dim is"):
        MixtureOfLogits(query_dim=4, item_dim=4, component_dim=10**9)
