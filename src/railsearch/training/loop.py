"""The one training loop: every model, every data set, resumable at any step.

A step depends on nothing but the weights, the optimizer's state and its own number: order, negatives and dropout are
seeded anew by (seed, epoch, step, process). So a run that goes on from a checkpoint repeats one that was never
interrupted, bit for bit, on the CPU with the same number of threads.
"""

import copy
import hashlib
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Generator, Tensor, nn
from torch.optim import AdamW

from railsearch.foundation.errors import InvalidInputError, TrainingError
from railsearch.foundation.files import only_writer
from railsearch.training.checkpoints import Checkpoints, State
from railsearch.training.config import LoopConfig, Schedule
from railsearch.training.log import TrainingLog, import_tensorboard
from railsearch.training.losses import StepLosses
from railsearch.training.processes import Processes
from railsearch.training.progress import TrainingProgress
from railsearch.training.report import EpochReport, FitReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The examples of one step."""

    examples: Tensor  # (b,) all of them, whichever process they fall to
    own: Tensor  # (o,) those of this process; there may be none
    generator: Generator
    """Of everything that is drawn for this step in this process, on the CPU."""
    seed: int = 0
    """Of what all processes are to draw alike."""


class Task(Protocol):
    """What the loop trains: a model, examples, a loss, and a way to tell how good it is."""

    @property
    def model(self) -> nn.Module:
        """Everything that has weights."""
        ...

    @property
    def num_examples(self) -> int:
        """How many examples an epoch goes over."""
        ...

    def step(self, batch: Batch) -> StepLosses:
        """Run forward and backward for this process's share; over all of them losses and gradients add up."""
        ...

    def validate(self) -> dict[str, float] | None:
        """Measure the model in eval mode on what is held out for that; None where nothing is."""
        ...

    def check_alive(self) -> None:
        """Raise a TrainingError where the model can no longer score."""
        ...


def train(
    task: Task,
    config: LoopConfig,
    *,
    folder: Path | None = None,
    about: Mapping[str, object] | None = None,
    processes: Processes | None = None,
    rate_factors: Mapping[str, float] | None = None,
    unit: str = "examples",
    show_progress: bool | None = None,
) -> FitReport:
    """Train the task's model in place, and leave it in eval mode with the weights of the best epoch.

    Args:
        task: what to train.
        config: how.
        folder: where checkpoints and log.jsonl are written, and where a run that was cut short goes on from; None
            keeps nothing.
        about: what else makes the run what it is, such as model and data, as JSON values; a folder with a run that
            differs in it is refused.
        processes: those that train together, each with a model of the same first weights.
        rate_factors: by their names, weights whose learning rate is so many times the config's.
        unit: what examples are called by the progress bar.
        show_progress: draw a progress bar; by default only on a terminal.

    Raises:
        TrainingError: the loss was no longer finite; the best weights so far are restored.
        InvalidInputError: the folder holds another run.
        MissingExtraError: curves for TensorBoard are asked for, and it is not installed.
    """
    if config.tensorboard:
        import_tensorboard()
        if folder is None:
            raise InvalidInputError("tensorboard is true but the run has no folder for it; give one.")
    processes = processes or Processes()
    model = task.model
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    by_factor: dict[float, list[str]] = {}
    for name in trained:
        by_factor.setdefault((rate_factors or {}).get(name, 1.0), []).append(name)
    names = [name for group in by_factor.values() for name in group]
    weights = [trained[name] for name in names]
    optimizer = AdamW(
        [{"params": [trained[name] for name in group], "factor": factor} for factor, group in by_factor.items()],
        lr=config.learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
    )
    steps_per_epoch = math.ceil(task.num_examples / config.batch_size)
    checkpoints = None
    if folder is not None:
        checkpoints = Checkpoints(
            folder, model=model, optimizer=optimizer, names=names, config=config, about=about or {}
        )
    device = weights[0].device
    with ExitStack() as stack:
        if folder is not None and processes.is_first:
            stack.enter_context(_alone_in(folder))
        state = (None if checkpoints is None else checkpoints.restore()) or State()
        best = copy.deepcopy(model.state_dict()) if state.best is None else state.best
        stack.enter_context(torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type))
        log = TrainingLog(
            folder if processes.is_first else None, num_lines=state.num_log_lines, has_curves=config.tensorboard
        )
        progress = TrainingProgress(config.epochs, steps_per_epoch, unit=unit, is_shown=show_progress)
        stack.enter_context(log)
        stack.enter_context(progress)
        run = _Run(task, config, optimizer, weights, processes, checkpoints, log, progress, best, state)
        progress.resume(state.epoch, state.step, state.last_validation)
        try:
            run.go()
        finally:
            model.load_state_dict(run.best)
            model.train(False)
    return FitReport(tuple(run.state.reports), run.state.best_epoch)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other runs out of the folder."""
    with ExitStack() as stack:
        try:
            stack.enter_context(only_writer(folder))
        except BlockingIOError:
            raise InvalidInputError(
                f"another process is training in {folder}; wait for it, or choose another folder."
            ) from None
        except OSError as error:
            raise InvalidInputError(f"{folder} cannot be written ({error}); choose another folder.") from error
        yield


@dataclass(slots=True, eq=False)
class _Run:
    """A training run under way."""

    task: Task
    config: LoopConfig
    optimizer: AdamW
    weights: list[nn.Parameter]
    processes: Processes
    checkpoints: Checkpoints | None
    log: TrainingLog
    progress: TrainingProgress
    best: dict[str, Tensor]
    state: State
    last_saved: float = field(default_factory=time.monotonic)

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.task.num_examples / self.config.batch_size)

    def go(self) -> None:
        """Train until the last epoch, or until nothing gets better."""
        while self.state.epoch < self.config.epochs and not self._is_hopeless():
            self._train_epoch()
            self._finish_epoch()

    def _train_epoch(self) -> None:
        """Go through the rest of an epoch, from the step that the state says."""
        epoch = self.state.epoch + 1
        self.task.model.train(True)
        order = torch.randperm(self.task.num_examples, generator=_generator(self.config.seed, "order", epoch))
        batches = torch.split(order, self.config.batch_size)
        started = time.perf_counter() - self.state.seconds
        for step in range(self.state.step, len(batches)):
            losses = self._step(epoch, step, batches[step])
            share = len(batches[step]) / len(order)
            self.state = replace(
                self.state,
                step=step + 1,
                softmax=self.state.softmax + share * losses.softmax,
                balance=self.state.balance + share * losses.balance,
                seconds=time.perf_counter() - started,
            )
            self.progress.advance(losses.softmax, len(batches[step]))
            is_due = time.monotonic() - self.last_saved >= 60 * self.config.checkpoint_minutes
            if is_due and step + 1 < len(batches):
                self._save()

    def _step(self, epoch: int, step: int, examples: Tensor) -> StepLosses:
        """One step of the optimizer; what it gives is the mean over all processes' examples."""
        rate = learning_rate(self.config, (epoch - 1) * self.steps_per_epoch + step, self.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        self.optimizer.zero_grad()
        generator = _generator(self.config.seed, "step", epoch, step, self.processes.rank)
        # Dropout knows no generator of its own.
        torch.manual_seed(_seed(self.config.seed, "dropout", epoch, step, self.processes.rank))
        shared = _seed(self.config.seed, "shared", epoch, step)
        own = self.task.step(Batch(examples, self.processes.own(examples), generator, shared))
        losses = StepLosses(*self.processes.sum(own.softmax, own.balance))
        if not math.isfinite(losses.softmax):
            raise diverged(f"the loss is {losses.softmax}", self.config)
        self.processes.sum_gradients(self.weights)
        if self.config.max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(self.weights, self.config.max_gradient_norm)
        self.optimizer.step()
        return losses

    def _finish_epoch(self) -> None:
        """Validate, keep the weights if they are the best, write the log and a checkpoint."""
        epoch = self.state.epoch + 1
        self.task.model.train(False)
        self.task.check_alive()
        started = time.perf_counter()
        is_due = epoch % self.config.validate_every == 0 or epoch == self.config.epochs
        measured = self.task.validate() if is_due and self.processes.is_first else None
        validation = self.processes.from_first(measured)
        report = EpochReport(
            epoch=epoch,
            loss=self.state.softmax,
            balance_loss=self.state.balance,
            validation=validation,
            seconds=self.state.seconds,
            validation_seconds=time.perf_counter() - started,
        )
        logger.info("%s", report)
        reports = [*self.state.reports, report]
        best_epoch = self.state.best_epoch
        if self._is_best(validation):
            self.best, best_epoch = copy.deepcopy(self.task.model.state_dict()), epoch
        group = self.optimizer.param_groups[0]
        self.log.write(report, learning_rate=group["lr"] / group["factor"])
        self.progress.finish_epoch(epoch, validation)
        self.state = State(epoch=epoch, reports=reports, best_epoch=best_epoch, num_log_lines=len(reports))
        self._save()

    def _is_best(self, validation: dict[str, float] | None) -> bool:
        """Whether these weights are to be kept; without any validation the last ones are."""
        if validation is None:
            return self.state.last_validation is None
        if self.config.metric not in validation:
            raise InvalidInputError(
                f"metric is {self.config.metric!r} but validation measures: {', '.join(validation)}."
            )
        best = next((report.validation for report in self.state.reports if report.epoch == self.state.best_epoch), None)
        return best is None or validation[self.config.metric] > best[self.config.metric]

    def _is_hopeless(self) -> bool:
        """Whether as many validations as patience allows were no better than the best."""
        if self.config.patience is None or self.state.last_validation is None:
            return False
        since = [each for each in self.state.reports if each.epoch > self.state.best_epoch and each.validation]
        return len(since) >= self.config.patience

    def _save(self) -> None:
        if self.checkpoints is not None and self.processes.is_first:
            try:
                self.checkpoints.save(self.state, self.best)
            except OSError as error:
                raise TrainingError(
                    f"a checkpoint cannot be written ({error}); make room, and run the same again: it goes on from the "
                    "checkpoint before."
                ) from error
        self.last_saved = time.monotonic()


def learning_rate(config: LoopConfig, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0 over all epochs.

    >>> config = LoopConfig(epochs=1, learning_rate=1.0, schedule="linear", warmup_share=0.5)
    >>> [learning_rate(config, step, 4) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    num_steps = config.epochs * steps_per_epoch
    num_warmup = round(config.warmup_share * num_steps)
    if step < num_warmup:
        return config.learning_rate * (step + 1) / num_warmup
    done = (step - num_warmup) / max(1, num_steps - num_warmup)  # 0 up to just below 1
    if config.schedule is Schedule.LINEAR:
        return config.learning_rate * (1 - done)
    if config.schedule is Schedule.COSINE:
        return config.learning_rate * (1 + math.cos(math.pi * done)) / 2
    return config.learning_rate


def diverged(symptom: str, config: LoopConfig) -> TrainingError:
    """Say that training cannot go on, and what to try."""
    return TrainingError(f"{symptom}; lower learning_rate (it is {config.learning_rate:g}) or raise the temperature.")


def _seed(*parts: object) -> int:
    """A seed that depends on all parts; 63 bits, which every generator takes."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _generator(*parts: object) -> Generator:
    return Generator().manual_seed(_seed(*parts))
