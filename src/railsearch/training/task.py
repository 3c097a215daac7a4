"""The contract between the training loop and the tasks that it trains."""

from dataclasses import dataclass
from typing import Protocol

from torch import Generator, Tensor, nn

from railsearch.foundation.errors import InvalidInputError, TrainingError
from railsearch.foundation.inputs import is_finite
from railsearch.training.config import LoopConfig
from railsearch.training.losses import StepLosses


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The examples of one step."""

    examples: Tensor  # (b,) all examples of the batch, in all processes
    own: Tensor  # (o,) the examples of this process; may be empty
    generator: Generator
    """Source of all random numbers of this step in this process, on the CPU."""
    seed: int = 0
    """Seed of the random numbers that are equal in all processes."""
    is_first_phase: bool = False
    """Whether the step belongs to the first phase of a run that has one."""
    epoch: int = 0
    """Number of the epoch, from 1; 0 outside of a run."""


@dataclass(frozen=True, slots=True)
class FirstPhase:
    """The epochs at the start of a run in which some weights do not move.

    These weights have their own warm-up and their own course of the learning rate, which begin when the phase ends.
    The other weights have one course over all epochs. If patience runs out in this phase, the phase ends early, and
    training continues from the best weights.
    """

    epochs: int
    fixed: frozenset[str]
    """Names of the weights that do not move."""


class Task(Protocol):
    """A model, its training examples, its loss, and its validation."""

    @property
    def model(self) -> nn.Module:
        """Module that holds all weights."""
        ...

    @property
    def num_examples(self) -> int:
        """Number of examples in an epoch."""
        ...

    def order(self, generator: Generator) -> Tensor:
        """Return the examples (M,) in the order of an epoch."""
        ...

    def step(self, batch: Batch) -> StepLosses:
        """Run forward and backward for this process's examples; losses and gradients of all processes add up."""
        ...

    def validate(self) -> dict[str, float] | None:
        """Measure the model in eval mode on held-out data; return None if nothing is held out."""
        ...

    def check_alive(self) -> None:
        """Raise a TrainingError if the model can no longer score."""
        ...


def check_metric(metric: str, measured: dict[str, float]) -> None:
    """Check that validation measures the metric that picks the best epoch."""
    if metric not in measured:
        raise InvalidInputError(f"metric is {metric!r} but validation measures: {', '.join(measured)}; choose one.")


def check_weights(model: nn.Module, config: LoopConfig) -> None:
    """Raise a TrainingError if a weight is NaN or infinite: the loss does not show the effect of the last step."""
    if not all(is_finite(parameter) for parameter in model.parameters()):
        raise diverged("weights are NaN or infinite", config)


def diverged(symptom: str, config: LoopConfig) -> TrainingError:
    """Build the error of a run that diverged, with a remedy."""
    return TrainingError(f"{symptom}; lower learning_rate (it is {config.learning_rate:g}) or raise the temperature.")
