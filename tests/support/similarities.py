"""One small similarity of each kind."""

import torch

from railsearch import DotProduct, MixtureOfLogits
from railsearch.similarity import Similarity

KINDS = ["dot", "cosine", "mixture", "mixture-1x1", "mixture-uniform", "mixture-pair", "mixture-user"]


def make_similarity(kind: str) -> Similarity:
    """Return a similarity of this kind with 6-dimensional inputs, in eval mode, with weights far from zero."""
    sizes = {"query_dim": 6, "item_dim": 6, "component_dim": 4, "projection_dim": 8, "gate_dim": 8}
    similarity = {
        "dot": lambda: DotProduct(dim=6),
        "cosine": lambda: DotProduct(dim=6, cosine=True, temperature=0.05),
        "mixture": lambda: MixtureOfLogits(num_query_components=3, num_item_components=2, **sizes),
        "mixture-1x1": lambda: MixtureOfLogits(num_query_components=1, num_item_components=1, **sizes),
        "mixture-uniform": lambda: MixtureOfLogits(
            num_query_components=2, num_item_components=2, gate_inputs=[], **sizes
        ),
        "mixture-pair": lambda: MixtureOfLogits(
            num_query_components=2, num_item_components=3, gate_inputs=["pair"], **sizes
        ),
        "mixture-user": lambda: MixtureOfLogits(
            num_query_components=3, num_item_components=2, user_table_size=5, **sizes
        ),
    }[kind]()
    if isinstance(similarity, MixtureOfLogits):
        generator = torch.Generator().manual_seed(1)
        similarity.reset_parameters(generator)
        with torch.no_grad():
            for parameter in similarity.parameters():  # biases too, and large enough for a gate that chooses
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return similarity.train(False)
