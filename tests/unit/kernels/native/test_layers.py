"""Sides in C++: components and gates as torch has them in fp64, and the same bits for a row in every batch."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from railsearch import DotProduct, Index, MixtureOfLogits
from railsearch.errors import InvalidInputError
from railsearch.kernels import KernelName, compute_item_parts, compute_query_parts, use_kernel
from railsearch.kernels.native import can_project
from railsearch.similarity import LateInteraction, Similarity
from railsearch.similarity.fingerprints import leave_unnamed
from tests.support.native import ISAS, bits, forced, make_late, needs_native

pytestmark = needs_native

PROJECTIONS = ["linear", "residual", "swiglu", "geglu", "ready"]
SHAPES = st.fixed_dictionaries(
    {
        "query_projection": st.sampled_from(PROJECTIONS),
        "item_projection": st.sampled_from(PROJECTIONS),
        "num_query_components": st.integers(2, 5),
        "num_item_components": st.integers(1, 5),
        "component_dim": st.integers(1, 70),
        "gate_inputs": st.sampled_from([["query", "item", "pair"], ["query"], ["item"], []]),
        "user_table_size": st.sampled_from([None, 7]),
        "normalizes": st.booleans(),
        "seed": st.integers(0, 2**31 - 1),
    }
)


def make(**shape: object) -> MixtureOfLogits:
    dim = shape["component_dim"]
    sides = {f"{side}_dim": None if shape[f"{side}_projection"] == "ready" else dim for side in ("query", "item")}
    mixture = MixtureOfLogits(**shape, **sides, projection_dim=33, gate_dim=19).eval()  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # biases and residuals start at zero, which would hide mistakes
        for weight in mixture.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    return mixture


SIMILARITIES = st.one_of(
    SHAPES.map(lambda shape: make(**shape)),
    st.builds(
        make_late,
        st.integers(1, 5),
        st.integers(1, 5),
        st.sampled_from([1, 2, 33, 70, 300]),
        projects_components=st.booleans(),
        seed=st.integers(0, 2**31 - 1),
    ),
)


def draw(similarity: Similarity, count: int, side: str) -> Tensor:
    shape = similarity.query_shape if side == "query" else similarity.item_shape
    inputs = torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))
    if isinstance(similarity, LateInteraction):
        inputs[::3, 0] = 0.0  # absent
    return inputs


@settings(deadline=None)
@given(mixture=SIMILARITIES, count=st.integers(0, 40), isa=st.sampled_from(ISAS))
def test_sides_are_those_of_fp64(mixture: MixtureOfLogits | LateInteraction, count: int, isa: str) -> None:
    exact = copy.deepcopy(mixture).double()
    queries, items = draw(mixture, count, "query"), draw(mixture, count, "item")
    users = torch.arange(count) - 1 if mixture.takes_user_ids else None
    assert can_project(mixture, queries, items)
    with forced(isa):
        found = compute_query_parts(mixture, queries, users), compute_item_parts(mixture, items)
    wanted = (
        exact.query_parts(queries.double(), user_ids=users),
        exact.item_parts(items.double()),
    )
    for own, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(own.components.double(), other.components, rtol=1e-4, atol=1e-5)
        assert (own.gate is None) == (other.gate is None)
        if own.gate is not None and other.gate is not None:
            torch.testing.assert_close(own.gate.double(), other.gate, rtol=1e-4, atol=1e-5)
    assert found[0].model == mixture.query_parts(queries, user_ids=users).model


@settings(deadline=None)
@given(
    mixture=SIMILARITIES,
    count=st.integers(1, 150),
    isa=st.sampled_from(ISAS),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_bits_never_depend_on_the_batch(
    mixture: MixtureOfLogits | LateInteraction, count: int, isa: str, threads: int, data: st.DataObject
) -> None:
    queries, items = draw(mixture, count, "query"), draw(mixture, count, "item")
    with forced("portable"):
        all_queries, all_items = compute_query_parts(mixture, queries), compute_item_parts(mixture, items)
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first + 1, count))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with forced(isa):
            own_queries = compute_query_parts(mixture, queries[first:last])
            own_items = compute_item_parts(mixture, items[first:last])
    finally:
        torch.set_num_threads(before)
    for own, whole in ((own_queries, all_queries), (own_items, all_items)):
        assert torch.equal(bits(own.components), bits(whole.components[first:last]))
        if own.gate is not None and whole.gate is not None:
            assert torch.equal(bits(own.gate), bits(whole.gate[first:last]))


@settings(deadline=None)
@given(count=st.integers(2, 70), dim=st.integers(1, 50), seed=st.integers(0, 2**31 - 1))
def test_a_batch_of_embeddings_is_answered_as_each_alone(count: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for similarity in (
        MixtureOfLogits(query_dim=dim, item_dim=dim, component_dim=8, gate_dim=8, seed=0).eval(),
        DotProduct(dim=dim, cosine=True),
        make_late(3, 4, dim, seed=seed),
        make_late(2, 3, dim, projects_components=True, seed=seed),
    ):
        queries = torch.randn(count, *similarity.query_shape, generator=generator)
        items = torch.randn(60, *similarity.item_shape, generator=generator)
        index = Index.build(similarity, torch.cat([items, items[:5]]))
        whole = index.search(queries, 20)
        for row in (0, count - 1):
            alone = index.search(queries[row : row + 1], 20)
            assert torch.equal(alone.ids[0], whole.ids[row])
            assert torch.equal(bits(alone.scores[0]), bits(whole.scores[row]))
        in_two = Index.build(similarity, items)
        in_two.add(items[:5], [60, 61, 62, 63, 64])
        again = in_two.search(queries, 20)
        assert torch.equal(again.ids, whole.ids), "copies in another batch have the same score, so the smaller id wins"
        assert torch.equal(bits(again.scores), bits(whole.scores))


def test_weights_that_change_are_used_at_once() -> None:
    mixture = make(component_dim=8, query_projection="linear", item_projection="swiglu", seed=0)
    queries = draw(mixture, 3, "query")
    before = compute_query_parts(mixture, queries).components
    for weight in mixture.parameters():
        weight.data.mul_(-1)
    after = compute_query_parts(mixture, queries).components
    torch.testing.assert_close(after, mixture.query_parts(queries).components)
    assert not torch.equal(before, after)


def test_a_copy_that_never_changes_is_packed_once_for_each_instruction_set() -> None:
    mixture = make(component_dim=8, query_projection="geglu", item_projection="linear", seed=0)
    leave_unnamed(mixture)
    queries = draw(mixture, 5, "query")
    expected = mixture.query_parts(queries).components
    for isa in [*ISAS, *ISAS]:
        with forced(isa):
            torch.testing.assert_close(compute_query_parts(mixture, queries).components, expected)


def test_whatever_may_change_the_formula_is_left_to_torch() -> None:
    plain = make(component_dim=4, query_projection="linear", item_projection="linear", seed=0)
    queries = draw(plain, 2, "query")
    assert can_project(plain, queries)
    assert not can_project(plain, queries.double())
    assert not can_project(copy.deepcopy(plain).train(), queries)
    assert not can_project(copy.deepcopy(plain).double(), queries)

    hooked = copy.deepcopy(plain)
    hooked.query_network.register_forward_hook(lambda module, given, result: 2 * result)
    assert not can_project(hooked, queries)

    class Own(MixtureOfLogits):
        """A formula of its own."""

    assert not can_project(Own(query_dim=4, item_dim=4, component_dim=4).eval(), queries)

    class OwnLate(LateInteraction):
        """A formula of its own."""

    assert not can_project(OwnLate().eval(), queries)
    assert not can_project(LateInteraction(component_dropout=0.5), queries)  # in training
    with use_kernel(KernelName.TORCH):
        assert torch.equal(compute_query_parts(plain, queries).components, plain.query_parts(queries).components)


def test_user_ids_without_a_table_are_refused() -> None:
    mixture = make(component_dim=4, query_projection="linear", item_projection="linear", seed=0)
    with pytest.raises(InvalidInputError, match="user_table_size is None"):
        compute_query_parts(mixture, draw(mixture, 2, "query"), torch.tensor([0, 1]))
    with pytest.raises(InvalidInputError, match="no user table"):
        compute_query_parts(DotProduct(dim=4), torch.ones(2, 4), torch.tensor([0, 1]))
    with pytest.raises(InvalidInputError, match="no user table"):
        compute_query_parts(make_late(1, 1, 4), torch.ones(2, 1, 4), torch.tensor([0, 1]))
