"""The networks of a similarity's two sides in C++: a row has the same bits in every batch."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor, nn

from railsearch.foundation.inputs import as_user_ids, check_rows
from railsearch.kernels.native.library import chosen_isa, is_available, library
from railsearch.similarity import DotProduct, ItemParts, LateInteraction, MixtureOfLogits, QueryParts, Similarity
from railsearch.similarity.fingerprints import is_unnamed, remembered_fingerprint
from railsearch.similarity.gate import Gate
from railsearch.similarity.projection import ComponentProjections, GatedLinearUnit, Residual
from railsearch.similarity.temperature import Temperature
from railsearch.similarity.user_table import NO_USER, UserTable

Projected: TypeAlias = MixtureOfLogits | LateInteraction | DotProduct
"""Similarities whose sides are computed here."""
NONE, SILU, SWIGLU, GEGLU, RESIDUAL = range(5)
"""Activations, as layers.h numbers them."""
PLAIN_MODULES = {
    MixtureOfLogits, LateInteraction, DotProduct, ComponentProjections, Gate, GatedLinearUnit, Residual, Temperature,
    UserTable, nn.Dropout, nn.Embedding, nn.GELU, nn.Identity, nn.Linear, nn.Sequential, nn.SiLU,
}  # fmt: skip

_known: "weakref.WeakKeyDictionary[Projected, _Sides]" = weakref.WeakKeyDictionary()


def can_project(similarity: Similarity, *inputs: Tensor) -> TypeGuard[Projected]:
    """Return whether the sides of a similarity can be computed here: in eval mode, all in fp32 on a CPU.

    A subclass, a hook or a parametrization may have changed the formula.
    """
    if not is_available() or not all(map(_is_plain, inputs)):
        return False
    if not isinstance(similarity, Projected) or similarity in _known:
        return similarity in _known
    return not any(
        module.training
        or module._forward_hooks
        or module._forward_pre_hooks
        or type(module) not in PLAIN_MODULES
        or (isinstance(module, nn.GELU) and module.approximate != "none")
        or not all(map(_is_plain, module.parameters(recurse=False)))
        for module in similarity.modules()
    )


def query_parts(similarity: Projected, queries: Tensor, user_ids: Tensor | None) -> QueryParts:
    """Return what `similarity.query_parts` does, to rounding; a query has the same bits in every batch."""
    check_rows(queries, name="queries", shape=similarity.query_shape)
    users = None
    if isinstance(similarity, MixtureOfLogits) and similarity.user_table is not None:
        if user_ids is None:
            user_ids = torch.full((len(queries),), NO_USER)  # (B,)
        users = similarity.user_table(as_user_ids(user_ids, count=len(queries)))  # (B, d)
    elif user_ids is not None:
        return similarity.query_parts(queries, user_ids=user_ids)  # raises its own error
    components, gate = _sides_of(similarity).query.apply(similarity, queries, users)
    if isinstance(similarity, LateInteraction):
        assert gate is not None
        gate = similarity.query_gate(components, gate)  # (B, 2 * Pq)
    return QueryParts(components, gate, _model(similarity))


def item_parts(similarity: Projected, items: Tensor) -> ItemParts:
    """Return what `similarity.item_parts` does, to rounding; an item has the same bits in every batch."""
    check_rows(items, name="items", shape=similarity.item_shape)
    components, gate = _sides_of(similarity).item.apply(similarity, items, None)
    if isinstance(similarity, LateInteraction):
        assert gate is not None
        gate = similarity.item_gate(components, gate)  # (N, Px)
    return ItemParts(components, gate, _model(similarity))


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer with its own copy of the weights, packed for one instruction set."""

    packed: "library.Layer"
    num_results: int

    @classmethod
    def of(cls, linear: nn.Module, activation: int = NONE) -> "_Layer":
        assert isinstance(linear, nn.Linear)
        return cls.of_weights(linear.weight, linear.bias, activation)

    @classmethod
    def of_weights(cls, weight: Tensor, bias: Tensor | None = None, activation: int = NONE) -> "_Layer":
        """Copy a weight (output, input) and a bias (output,)."""
        weight = weight.detach().contiguous()  # (output, input)
        own_bias = None if bias is None else bias.detach().contiguous()  # (output,)
        address = 0 if own_bias is None else own_bias.data_ptr()
        packed = library.Layer(chosen_isa(), activation, weight.data_ptr(), address, *weight.shape)
        return cls(packed, len(weight) // 2 if activation in {SWIGLU, GEGLU} else len(weight))

    def apply(self, inputs: Tensor, results: Tensor) -> None:
        """Write the results of inputs (B, input), which are contiguous, into the first columns of results (B, ...)."""
        self.packed.apply(
            chosen_isa(), torch.get_num_threads(), inputs.data_ptr(), len(inputs), results.data_ptr(), results.stride(0)
        )


@dataclass(frozen=True, slots=True)
class _Side:
    """The networks of one side; a side without layers takes components that are ready.

    Each of those components may have a layer of its own, in `of_components`. The gate is computed from the inputs, or
    with `gates_each` one value from each component.
    """

    layers: Sequence[_Layer]
    gate: Sequence[_Layer]
    num_components: int
    normalizes: bool
    gates_each: bool = False
    of_components: Sequence[_Layer] = ()

    def apply(self, similarity: Projected, inputs: Tensor, last: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return components (B, components, d), the last of them as given, and the gate (B, P) or None."""
        inputs = inputs.contiguous()
        count, dim = len(inputs), similarity.component_dim
        components = torch.empty(count, self.num_components, dim)  # (B, components, d)
        projected = self.num_components - (last is not None)
        if self.layers:
            _apply_all(self.layers, inputs, components.flatten(1))
        elif self.of_components:
            for place, layer in enumerate(self.of_components):
                layer.apply(inputs[:, place].contiguous(), components[:, place])
        else:
            components[:, :projected] = inputs.view(count, projected, dim)
        if last is not None:
            components[:, -1] = last
        if self.normalizes:
            library.normalize(
                chosen_isa(), torch.get_num_threads(), components.data_ptr(), count * self.num_components, dim,
                similarity.epsilon,
            )  # fmt: skip
        if not self.gate:
            return components, None
        if self.gates_each:
            values = torch.empty(count, self.num_components)  # (B, components)
            _apply_all(self.gate, components.flatten(0, 1), values.view(-1, 1))
            return components, values
        gate = torch.empty(count, self.gate[-1].num_results)  # (B, P)
        _apply_all(self.gate, inputs.flatten(1), gate)
        return components, gate


@dataclass(frozen=True, slots=True)
class _Sides:
    """Both sides of a similarity, for one instruction set."""

    isa: str
    query: _Side
    item: _Side


def _sides_of(similarity: Projected) -> _Sides:
    """Return the packed networks; those of a copy that never changes are kept."""
    known = _known.get(similarity)
    if known is not None and known.isa == chosen_isa():
        return known
    if isinstance(similarity, DotProduct):
        side = _Side((), (), 1, similarity.is_cosine)
        sides = _Sides(chosen_isa(), side, side)
    elif isinstance(similarity, LateInteraction):
        sides = _Sides(
            chosen_isa(),
            _late_side(similarity.query_projections, similarity.query_salience, similarity.num_query_components),
            _late_side(similarity.item_projections, similarity.item_salience, similarity.num_item_components),
        )
    else:
        sides = _Sides(
            chosen_isa(),
            _Side(
                _network(similarity.query_network),
                _gate(similarity.gate.query),
                similarity.num_query_components,
                similarity.normalizes,
            ),
            _Side(
                _network(similarity.item_network),
                _gate(similarity.gate.item),
                similarity.num_item_components,
                similarity.normalizes,
            ),
        )
    if is_unnamed(similarity):
        _known[similarity] = sides
    return sides


def _network(network: nn.Sequential) -> tuple[_Layer, ...]:
    """Pack a network that `build_projection` built."""
    layers = []
    for module in network:
        if isinstance(module, GatedLinearUnit):
            layers.append(_Layer.of(module.hidden, SWIGLU if isinstance(module.activation, nn.SiLU) else GEGLU))
        elif isinstance(module, Residual):
            layers.append(_Layer.of(module.change, RESIDUAL))
        elif isinstance(module, nn.Linear):
            layers.append(_Layer.of(module))
    return tuple(layers)


def _gate(network: nn.Sequential | None) -> tuple[_Layer, ...]:
    if network is None:
        return ()
    hidden, _, output = network
    return _Layer.of(hidden, SILU), _Layer.of(output)


def _late_side(projections: nn.Module, salience: Tensor, num_components: int) -> _Side:
    """Return a side of late interaction: components, each projected, and their products with the salience (d,)."""
    of_components: tuple[_Layer, ...] = ()
    if isinstance(projections, ComponentProjections):
        of_components = tuple(_Layer.of_weights(change, activation=RESIDUAL) for change in projections.change)
    gate = (_Layer.of_weights(salience[None]),)
    return _Side((), gate, num_components, normalizes=True, gates_each=True, of_components=of_components)


def _apply_all(layers: Sequence[_Layer], inputs: Tensor, results: Tensor) -> None:
    for layer in layers[:-1]:
        hidden = torch.empty(len(inputs), layer.num_results)  # (B, hidden)
        layer.apply(inputs, hidden)
        inputs = hidden
    layers[-1].apply(inputs, results)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def _model(similarity: Projected) -> str | None:
    return remembered_fingerprint(similarity, similarity.kind, lambda: similarity.config)
