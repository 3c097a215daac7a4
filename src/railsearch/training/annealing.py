"""The annealed temperature: steps begin at another temperature, and reach the similarity's own one geometrically."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.similarity import Similarity
from railsearch.similarity.temperature import Temperature
from railsearch.training.config import LoopConfig


class AnnealedTemperature:
    """The temperature of each training step; outside of steps the similarity always has its own.

    So validation ranks with the temperature that the saved model has, whichever epoch is the best one.
    """

    def __init__(self, similarity: Similarity, *, start: float, share: float) -> None:
        self._similarity = similarity
        self._start = start
        self._share = share

    def at(self, step: int, num_steps: int) -> float:
        """Return the temperature of a step, counted from 0.

        >>> from railsearch import DotProduct
        >>> annealed = AnnealedTemperature(DotProduct(dim=2, temperature=0.25), start=1.0, share=0.5)
        >>> [annealed.at(step, 8) for step in range(8)]  # doctest: +ELLIPSIS
        [1.0, 0.707..., 0.5, 0.353..., 0.25, 0.25, 0.25, 0.25]
        """
        own, progress = self._similarity.temperature, step / (self._share * num_steps)
        if progress >= 1:
            return own
        return float(self._start * (own / self._start) ** progress)

    @contextmanager
    def applied(self, step: int, num_steps: int) -> Iterator[None]:
        """Give the similarity the temperature of a step; after the block it has its own again."""
        own = self._similarity.temperature
        self._similarity.temperature = self.at(step, num_steps)
        try:
            yield
        finally:
            self._similarity.temperature = own


def make_annealing(model: nn.Module, config: LoopConfig) -> AnnealedTemperature | None:
    """Return the annealed temperature of a run, or None if its temperature is constant or learned.

    Raises:
        InvalidInputError: the similarity has no temperature that can be annealed.
    """
    if config.temperature_start is None:
        return None
    given = f"temperature_start is {config.temperature_start:g}"
    similarity = next((module for module in model.modules() if isinstance(module, Similarity)), None)
    if similarity is None:
        raise InvalidInputError(f"{given} but the model has no similarity; omit temperature_start.")
    if any(isinstance(module, Temperature) and module.is_learned for module in model.modules()):
        raise InvalidInputError(
            f"{given} but the similarity learns its temperature; omit temperature_start, or do not set "
            "learns_temperature."
        )
    try:
        similarity.temperature = similarity.temperature
    except AttributeError as error:
        raise InvalidInputError(
            f"{given} but the temperature of {type(similarity).__name__} cannot be set; omit temperature_start, or "
            "make its temperature an attribute."
        ) from error
    return AnnealedTemperature(similarity, start=config.temperature_start, share=config.temperature_share)
