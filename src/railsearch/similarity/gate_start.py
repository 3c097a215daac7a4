"""The first weights of a gate: all component pairs count the same, or the best item components count most."""

import torch
from torch import nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.similarity.mixture import MixtureOfLogits


@torch.no_grad()
def start_even(similarity: MixtureOfLogits) -> None:
    """Let the scores of component pairs not change their weights at first.

    Random weights on scores as large as 1 / temperature would choose one pair permanently.
    """
    if similarity.gate.pair is not None:
        nn.init.zeros_(_layers(similarity)[1].weight)


@torch.no_grad()
def start_at_best(similarity: MixtureOfLogits, *, sharpness: float) -> None:
    """Let the gate start as a softmax over the item components: sharpness times their mean score.

    The mean is over the query components, which begin as equals. The gate's network can say this exactly, because
    silu(x) - silu(-x) = x: two hidden units for each item component are set to it, and training changes them like all
    others. A sharpness of 0 starts with even weights, a large one with the best item component alone.

    >>> mol = MixtureOfLogits.around(dim=8, cosine=True, gate_inputs=["pair"], seed=0).eval()
    >>> start_at_best(mol, sharpness=1.0)
    >>> scores = torch.randn(3, 4).repeat(1, 4)  # each item component scores the same with all query components
    >>> bool(torch.allclose(mol.gate(scores, None, None), scores.softmax(dim=-1), atol=1e-5))
    True
    """
    if similarity.gate.pair is None or not sharpness:
        start_even(similarity)
        return
    num_query, num_item = similarity.num_query_components, similarity.num_item_components
    if 2 * num_item > similarity.gate_dim:
        raise InvalidInputError(
            f"gate_dim is {similarity.gate_dim} but a gate that starts with the best of {num_item} item components "
            f"needs 2 hidden values for each; set gate_dim to {2 * num_item} or more."
        )
    hidden, output = _layers(similarity)
    mean = torch.eye(num_item).repeat(1, num_query).to(hidden.weight) / num_query  # (Px, P)
    hidden.weight[: 2 * num_item] = torch.cat([mean, -mean])
    nn.init.zeros_(hidden.bias)
    nn.init.zeros_(output.weight)
    nn.init.zeros_(output.bias)
    back = sharpness * torch.eye(num_item).repeat(num_query, 1).to(output.weight)  # (P, Px)
    output.weight[:, : 2 * num_item] = torch.cat([back, -back], dim=1)


def _layers(similarity: MixtureOfLogits) -> tuple[nn.Linear, nn.Linear]:
    assert similarity.gate.pair is not None
    hidden, output = similarity.gate.pair.hidden, similarity.gate.pair.output
    assert isinstance(hidden, nn.Linear)
    assert isinstance(output, nn.Linear)
    return hidden, output
