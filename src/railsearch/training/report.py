"""The report of a training run, epoch by epoch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Losses, validation figures and times of one epoch; epoch 0 is the start, before any training."""

    epoch: int
    loss: float | None
    """Mean training loss; None for epoch 0."""
    balance_loss: float | None
    validation: dict[str, float] | None
    """Metrics on the validation data; None if there is none or this epoch was not validated."""
    seconds: float
    """Time spent on training."""
    validation_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FitReport:
    """The epochs of a run, and the epoch whose weights the model has."""

    epochs: tuple[EpochReport, ...]
    """One report per epoch; the first is epoch 0 if the start was validated."""
    best_epoch: int
    """The epoch whose weights the model has; 0 if no epoch was better than the start."""

    @property
    def best(self) -> EpochReport:
        """Report of the epoch whose weights the model has."""
        return next(report for report in self.epochs if report.epoch == self.best_epoch)

    @property
    def num_epochs(self) -> int:
        """Number of epochs that were trained."""
        return self.epochs[-1].epoch

    @property
    def seconds(self) -> float:
        """The seconds of all epochs, including validation."""
        return sum(epoch.seconds + epoch.validation_seconds for epoch in self.epochs)
