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
    """The epochs of a run, and the epoch whose weights the model has.

    >>> start, first = EpochReport(0, None, None, {"MRR": 0.25}, 0.0), EpochReport(1, 1.5, 0.0, {"MRR": 0.5}, 2.0)
    >>> FitReport((start, first), best_epoch=1)
    FitReport(1 epoch in 2.0 s, best epoch 1: loss 1.5000, MRR 0.5000)
    """

    epochs: tuple[EpochReport, ...]
    """One report per epoch; the first is epoch 0 if the start was validated."""
    best_epoch: int
    """The epoch whose weights the model has; 0 if no epoch was better than the start."""

    def __repr__(self) -> str:
        known = {"loss": self.best.loss, **(self.best.validation or {})}
        figures = ", ".join(f"{name} {value:.4f}" for name, value in known.items() if value is not None)
        epochs = f"{self.num_epochs} epoch{'s' * (self.num_epochs != 1)} in {self.seconds:.1f} s"
        return f"FitReport({epochs}, best epoch {self.best_epoch}{': ' * bool(figures)}{figures})"

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
