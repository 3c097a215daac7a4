"""More components for a tuned cosine or dot product: a mixture that continues it."""

from collections.abc import Collection

import torch
from torch import nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.similarity.gate import GateInput
from railsearch.similarity.mixture import MixtureOfLogits
from railsearch.similarity.projection import Projection, Residual


@torch.no_grad()
def widen(
    similarity: MixtureOfLogits,
    *,
    num_query_components: int = 4,
    num_item_components: int = 4,
    item_dropout: float = 0.1,
    gate_inputs: Collection[GateInput | str] = tuple(GateInput),
    gate_dim: int = 64,
    gate_dropout: float = 0.2,
    seed: int | None = None,
) -> MixtureOfLogits:
    """Return a mixture with more components that scores as a tuned cosine or dot product does, until it is trained.

    Every component is a copy of the tuned one, so all component scores are equal, and so is their mixture under any
    gate. `fit_similarity` keeps the best epoch on validation, the start included: the mixture is never below the tuned
    similarity there.

    Args:
        similarity: what `MixtureOfLogits.around` built with one query and one item component, trained or not. It is not
            changed.
        num_query_components: as in MixtureOfLogits.
        num_item_components: as in MixtureOfLogits.
        item_dropout: as in MixtureOfLogits.
        gate_inputs: as in MixtureOfLogits.
        gate_dim: as in MixtureOfLogits.
        gate_dropout: as in MixtureOfLogits.
        seed: seed of the gate's initial weights; None draws them from torch's global generator.

    >>> tuned = MixtureOfLogits.around(dim=16, cosine=True, num_query_components=1, num_item_components=1).eval()
    >>> wide = widen(tuned, num_query_components=4, num_item_components=2, seed=0)
    >>> queries, items = torch.randn(3, 16), torch.randn(5, 16)
    >>> bool(torch.allclose(wide(queries, items), tuned(queries, items), atol=1e-4))
    True
    """
    _check(similarity)
    wide = MixtureOfLogits.around(
        dim=similarity.component_dim,
        cosine=similarity.normalizes,
        dot_product=not similarity.normalizes,
        num_query_components=num_query_components,
        num_item_components=num_item_components,
        temperature=similarity.temperature,
        item_dropout=item_dropout,
        gate_inputs=gate_inputs,
        gate_dim=gate_dim,
        gate_dropout=gate_dropout,
        seed=seed,
    )
    weight = next(similarity.parameters())
    wide.to(device=weight.device, dtype=weight.dtype).train(similarity.training)
    for copied, own in ((wide.query_network, similarity.query_network), (wide.item_network, similarity.item_network)):
        change, tuned = _change(copied), _change(own)
        count = len(change.weight) // len(tuned.weight)
        change.weight.copy_(tuned.weight.repeat(count, 1))
        change.bias.copy_(tuned.bias.repeat(count))
    return wide


def _check(similarity: MixtureOfLogits) -> None:
    is_mixture = isinstance(similarity, MixtureOfLogits)
    if not is_mixture or {similarity.query_projection, similarity.item_projection} != {Projection.RESIDUAL}:
        raise InvalidInputError(
            f"{similarity!r} cannot be widened: its components do not start as the embedding; build it with "
            "MixtureOfLogits.around(num_query_components=1, num_item_components=1, ...)."
        )
    if (similarity.num_query_components, similarity.num_item_components) != (1, 1):
        raise InvalidInputError(
            f"the similarity has {similarity.num_query_components} x {similarity.num_item_components} components "
            "already; widen one that has 1 x 1."
        )


def _change(network: nn.Sequential) -> nn.Linear:
    output = network.get_submodule("output")
    assert isinstance(output, Residual)
    return output.change
