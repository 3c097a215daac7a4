"""Similarities as the compiled kernels take them."""

from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor, nn

from railsearch.kernels.native.library import library
from railsearch.similarity import DotProduct, LateInteraction, MixtureOfLogits, Similarity
from railsearch.similarity.gate import DROPPED, Gate, GateActivation

Computed: TypeAlias = MixtureOfLogits | LateInteraction | DotProduct
"""Similarities whose scores are computed here."""
PLAIN_MODULES = {Gate, nn.Linear, nn.SiLU, nn.Sequential}


def can_compute(similarity: Similarity) -> TypeGuard[Computed]:
    """Return whether the kernels know the formula of a similarity.

    They know MixtureOfLogits with fp32 weights, LateInteraction and DotProduct, whose weights are all in the parts. A
    subclass may have changed the formula.
    """
    if type(similarity) in {DotProduct, LateInteraction}:
        return True
    if type(similarity) is not MixtureOfLogits:
        return False
    return all(
        each.dtype == torch.float32 and each.device.type == "cpu" for each in _weights(similarity) or ()
    ) and has_plain_gate(similarity)


def has_plain_gate(similarity: MixtureOfLogits) -> bool:
    """Return whether no hook and no parametrization may change what the gate computes."""
    return not any(
        module._forward_hooks or module._forward_pre_hooks or type(module) not in PLAIN_MODULES
        for module in similarity.gate.modules()
    )


class FormCache:
    """The form of one similarity, built again if its temperature or its weights have changed."""

    def __init__(self) -> None:
        self._form: library.Form | None = None
        self._key: tuple[float, tuple[tuple[int, int], ...]] | None = None

    def form_of(self, similarity: Similarity) -> "library.Form":
        """Return the form of the similarity as it is now."""
        weights = _weights(similarity) if isinstance(similarity, MixtureOfLogits) else None
        if weights is not None and any(each.is_inference() for each in weights):
            return _build(similarity, weights)  # such a tensor does not count its changes
        key = similarity.temperature, tuple((each.data_ptr(), each._version) for each in weights or ())
        if self._form is None or self._key != key:
            self._form, self._key = _build(similarity, weights), key
        return self._form


def _build(similarity: Similarity, weights: tuple[Tensor, ...] | None) -> "library.Form":
    gate = similarity.gate if isinstance(similarity, MixtureOfLogits) else None
    is_late = isinstance(similarity, LateInteraction)
    own = [each.detach().contiguous() for each in weights or ()]
    addresses = [each.data_ptr() for each in own] or [0, 0, 0, 0]
    return library.Form(
        num_query_components=similarity.num_query_components,
        num_item_components=similarity.num_item_components,
        dim=similarity.component_dim,
        hidden_dim=len(own[1]) if own else 0,
        has_query_gate=is_late or (gate is not None and gate.query is not None),
        has_item_gate=is_late or (gate is not None and gate.item is not None),
        has_silu=gate is not None and gate.activation is GateActivation.SILU,
        is_mixture=gate is not None or is_late,
        is_late_interaction=is_late,
        absent_gate=DROPPED / 2,
        temperature=similarity.temperature,
        hidden_weight=addresses[0],
        hidden_bias=addresses[1],
        output_weight=addresses[2],
        output_bias=addresses[3],
    )


def _weights(similarity: MixtureOfLogits) -> tuple[Tensor, ...] | None:
    """Return weight and bias of both layers of the gate's network on the pair, or None if there is none."""
    if similarity.gate.pair is None:
        return None
    hidden, output = similarity.gate.pair.hidden, similarity.gate.pair.output
    assert isinstance(hidden, nn.Linear)
    assert isinstance(output, nn.Linear)
    return hidden.weight, hidden.bias, output.weight, output.bias
