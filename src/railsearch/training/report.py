"""The report of a training run, epoch by epoch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Losses, validation figures and times of one epoch."""

    epoch: int
    loss: float
    balance_loss: float
    validation: dict[str, float] | None
    """Metrics on the validation data; None if there is none or this epoch was not validated."""
    seconds: float
    """Time spent on training."""
    validation_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FitReport:
    """The epochs of a run, and the epoch whose weights the model has."""

    epochs: tuple[EpochReport, ...]
    best_epoch: int

    @property
    def best(self) -> EpochReport:
        """Report of the epoch whose weights the model has."""
        return self.epochs[self.best_epoch - 1]

    @property
    def seconds(self) -> float:
        """The seconds of all epochs, including validation."""
        return sum(epoch.seconds + epoch.validation_seconds for epoch in self.epochs)
