"""The temperature of a mixture around a dot product: embeddings have any scale, and training needs the right one."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch.similarity import MixtureOfLogits, Similarity
from railsearch.similarity.projection import Projection

PAIRS_TO_TRY = 1024
NEGATIVES_TO_TRY = 512
FACTORS = tuple(2.0**power for power in range(-20, 21))


@torch.no_grad()
def calibrate_temperature(similarity: Similarity, queries: Tensor, items: Tensor, pairs: Tensor, *, seed: int) -> None:
    """Set the temperature of an untrained mixture around a dot product; leave other similarities alone.

    The new temperature is the one for which the loss of the dot product is lowest, on some pairs with random negatives.
    The choice is among powers of two times the present temperature. It does not change the order of scores at the
    start: all are divided by the same number.

    Args:
        similarity: its temperature is changed if it is such a mixture.
        queries: (Q, D) query embeddings.
        items: (N, D) item embeddings.
        pairs: (M, 2) query row, row of a right item.
        seed: seed of the choice of pairs and negatives.
    """
    if not isinstance(similarity, MixtureOfLogits) or not _is_dot_product(similarity):
        return
    generator = Generator().manual_seed(seed)
    chosen = pairs[torch.randperm(len(pairs), generator=generator)[:PAIRS_TO_TRY].to(pairs.device)]  # (E, 2)
    negatives = torch.randint(len(items), (NEGATIVES_TO_TRY,), generator=generator).to(pairs.device)  # (n,)
    embedded, right = queries[chosen[:, 0]].double(), items[chosen[:, 1]].double()  # (E, D)
    scores = torch.cat([(embedded * right).sum(dim=1, keepdim=True), embedded @ items[negatives].double().T], dim=1)
    first = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)  # (E,)
    losses = [float(F.cross_entropy(scores / (similarity.temperature * factor), first)) for factor in FACTORS]
    similarity.temperature *= FACTORS[losses.index(min(losses))]


def _is_dot_product(similarity: MixtureOfLogits) -> bool:
    """Return True for a mixture around a dot product that is not trained yet: all components are the embeddings."""
    networks = (similarity.query_network, similarity.item_network)
    return (
        not similarity.normalizes
        and {similarity.query_projection, similarity.item_projection} == {Projection.RESIDUAL}
        and not any(bool(weight.any()) for network in networks for weight in network.parameters())
    )
