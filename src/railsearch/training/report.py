"""What training gave, epoch by epoch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What one epoch of training gave."""

    epoch: int
    loss: float
    balance_loss: float
    validation: dict[str, float] | None
    """Metrics on what is held out for validation, where there is any and this epoch was validated."""
    seconds: float
    """Spent on training."""
    validation_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FitReport:
    """How training went, and which epoch's weights the model was left with."""

    epochs: tuple[EpochReport, ...]
    best_epoch: int

    @property
    def best(self) -> EpochReport:
        """The epoch whose weights were kept."""
        return self.epochs[self.best_epoch - 1]

    @property
    def seconds(self) -> float:
        """Return the seconds of all epochs, validation included."""
        return sum(epoch.seconds + epoch.validation_seconds for epoch in self.epochs)
