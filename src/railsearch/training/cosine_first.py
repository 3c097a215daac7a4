"""The cosine phase: a mixture that starts as a cosine is first trained as that cosine, which is much cheaper."""

import torch
from torch import Generator, Tensor, nn

from railsearch.data import Split
from railsearch.models import SequentialModel
from railsearch.similarity import DotProduct, MixtureOfLogits, Similarity
from railsearch.similarity.projection import Projection
from railsearch.training.config import TrainingConfig
from railsearch.training.losses import StepLosses
from railsearch.training.task import Batch
from railsearch.training.tasks.histories import NextItemTask


class CosineFirstTask:
    """The task of a recommender whose mixture is trained as a plain cosine in the first phase.

    The weights of the mixture do not move in this phase, so the mixture equals the cosine until the phase ends.
    Validation always ranks with the mixture.
    """

    def __init__(self, model: SequentialModel, plain: DotProduct, split: Split, config: TrainingConfig) -> None:
        self._mixture = NextItemTask(model, split, config)
        self._cosine = NextItemTask(SequentialModel(encoder=model.encoder, similarity=plain), split, config)

    @property
    def model(self) -> nn.Module:
        """The model with its mixture."""
        return self._mixture.model

    @property
    def num_examples(self) -> int:
        """Number of users."""
        return self._mixture.num_examples

    def order(self, generator: Generator) -> Tensor:
        """Return the users in random order."""
        return self._mixture.order(generator)

    def step(self, batch: Batch) -> StepLosses:
        """Run one forward and backward pass, of the cosine in the first phase and of the mixture after it."""
        return (self._cosine if batch.is_first_phase else self._mixture).step(batch)

    def validate(self) -> dict[str, float] | None:
        """Rank the held-out items with the mixture."""
        return self._mixture.validate()

    def check_alive(self) -> None:
        """Raise a TrainingError if a weight is not finite."""
        self._mixture.check_alive()


@torch.no_grad()
def plain_similarity(similarity: Similarity) -> DotProduct | None:
    """Return the cosine or dot product that a mixture equals with its present weights, or None; they share temperature.

    >>> plain_similarity(MixtureOfLogits.around(dim=4, cosine=True, temperature=0.1))
    DotProduct(cosine, dim 4, temperature 0.1)
    """
    if not isinstance(similarity, MixtureOfLogits) or similarity.takes_user_ids:
        return None
    if {similarity.query_projection, similarity.item_projection} != {Projection.RESIDUAL}:
        return None
    networks = (similarity.query_network, similarity.item_network)
    if any(bool(weight.any()) for network in networks for weight in network.parameters()):
        return None
    plain = DotProduct(
        dim=similarity.component_dim,
        cosine=similarity.normalizes,
        temperature=similarity.temperature,
        epsilon=similarity.epsilon,
    )
    plain.own_temperature = similarity.own_temperature
    return plain
