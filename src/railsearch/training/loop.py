"""The training loop of every model and every data set; a run can resume at any step.

A step depends only on the weights, the optimizer's state and the step's number: order, negatives and dropout are seeded
for each step by (seed, epoch, step, process). So a run that resumes from a checkpoint equals an uninterrupted run, bit
for bit, on the CPU with the same number of threads.
"""

import copy
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from railsearch.foundation.errors import InvalidInputError, TrainingError
from railsearch.foundation.files import only_writer
from railsearch.training.annealing import AnnealedTemperature, make_annealing
from railsearch.training.averaging import WeightAverage
from railsearch.training.checkpoints import Checkpoints, State
from railsearch.training.config import LoopConfig
from railsearch.training.log import TrainingLog, import_tensorboard
from railsearch.training.losses import StepLosses
from railsearch.training.processes import Processes
from railsearch.training.progress import TrainingProgress
from railsearch.training.report import EpochReport, FitReport
from railsearch.training.schedule import learning_rate
from railsearch.training.seeds import derive_generator, derive_seed, seed_torch
from railsearch.training.task import Batch, FirstPhase, Task, check_metric, diverged

logger = logging.getLogger(__name__)


def train(
    task: Task,
    config: LoopConfig,
    *,
    folder: Path | None = None,
    about: Mapping[str, object] | None = None,
    processes: Processes | None = None,
    rate_factors: Mapping[str, float] | None = None,
    first_phase: FirstPhase | None = None,
    validates_start: bool = False,
    unit: str = "examples",
    show_progress: bool | None = None,
) -> FitReport:
    """Train the task's model in place, and leave it in eval mode with the weights of the best epoch.

    Args:
        task: the model, its examples and its loss.
        config: settings of the loop.
        folder: folder for checkpoints and log.jsonl; an interrupted run in it continues. None writes nothing.
        about: everything else that the run depends on, such as model and data, as JSON values; a folder that holds a
            run with other values is refused.
        processes: the processes that train together, each with a model of the same initial weights.
        rate_factors: names of weights, and the factors by which their learning rates differ from the config's.
        first_phase: the epochs at the start in which some weights do not move; none by default.
        validates_start: validate the initial weights as epoch 0, which can be the best epoch; always true if there are
            no epochs to train.
        unit: name of the examples in the progress bar.
        show_progress: True draws a progress bar, False shows nothing; by default, a bar on a terminal, and an
            occasional line elsewhere.

    Raises:
        TrainingError: the loss was no longer finite; the best weights so far are restored.
        InvalidInputError: the folder holds another run, or the temperature cannot be annealed.
        StorageError: the disk has no space for the checkpoints.
        MissingExtraError: config.tensorboard is true but TensorBoard is not installed.
    """
    if config.tensorboard:
        import_tensorboard()
        if folder is None:
            raise InvalidInputError("tensorboard is true but folder is None; give a folder for the curves.")
    processes = processes or Processes()
    model = task.model
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    groups: dict[tuple[float, bool], list[str]] = {}
    for name in trained:
        is_fixed = first_phase is not None and name in first_phase.fixed
        groups.setdefault(((rate_factors or {}).get(name, 1.0), is_fixed), []).append(name)
    names = [name for group in groups.values() for name in group]
    device = trained[names[0]].device
    optimizer = AdamW(
        [
            {"params": [trained[name] for name in group], "factor": factor, "is_fixed": is_fixed}
            for (factor, is_fixed), group in groups.items()
        ],
        lr=config.learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=device.type in {"cpu", "cuda"},
    )
    steps_per_epoch = math.ceil(task.num_examples / config.batch_size)
    annealing = make_annealing(model, config)
    average = None if config.ema_decay is None else WeightAverage(model, decay=config.ema_decay)
    checkpoints = None
    if folder is not None:
        checkpoints = Checkpoints(
            folder,
            model=model,
            optimizer=optimizer,
            names=names,
            averages=None if average is None else average.weights,
            config=config,
            about=about or {},
        )
    with ExitStack() as stack:
        if folder is not None and processes.is_first:
            stack.enter_context(_alone_in(folder))
        if checkpoints is not None and processes.is_first:
            checkpoints.check_space()
        state = (None if checkpoints is None else checkpoints.restore()) or State()
        best = copy.deepcopy(model.state_dict()) if state.best is None else state.best
        stack.enter_context(torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type))
        log = TrainingLog(
            folder if processes.is_first else None, num_lines=state.num_log_lines, has_curves=config.tensorboard
        )
        progress = TrainingProgress(
            config.epochs,
            steps_per_epoch,
            metric=config.metric,
            unit=unit,
            is_shown=show_progress if processes.is_first else False,
        )
        stack.enter_context(log)
        stack.enter_context(progress)
        run = _Run(
            task,
            config,
            optimizer,
            first_phase,
            annealing,
            average,
            processes,
            checkpoints,
            log,
            progress,
            best,
            state,
        )
        progress.resume(state.epoch, state.step, state.last_validation)
        try:
            if (validates_start or config.epochs == 0) and not state.reports and state.step == 0:
                run.validate_start()
            run.go()
        finally:
            model.load_state_dict(run.best)
            model.train(False)
    return FitReport(tuple(run.state.reports), run.state.best_epoch)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock the folder, so that no other process trains in it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(only_writer(folder))
        except BlockingIOError:
            raise InvalidInputError(
                f"another process is training in {folder}; wait until it ends, or choose another folder."
            ) from None
        except OSError as error:
            raise InvalidInputError(f"{folder} cannot be written ({error}); choose another folder.") from error
        yield


@dataclass(slots=True, eq=False)
class _Run:
    """A training run in progress."""

    task: Task
    config: LoopConfig
    optimizer: AdamW
    first_phase: FirstPhase | None
    annealing: AnnealedTemperature | None
    average: WeightAverage | None
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

    @property
    def _first_phase_end(self) -> int:
        """Number of epochs of the first phase; 0 without one."""
        if self.state.first_phase_end is not None:
            return self.state.first_phase_end
        return 0 if self.first_phase is None else self.first_phase.epochs

    @property
    def _is_first_phase(self) -> bool:
        """Whether the next step belongs to the first phase."""
        return self.state.epoch < self._first_phase_end

    def _end_first_phase(self) -> None:
        """End the first phase now, and continue from the best weights."""
        self.progress.end_first_phase(self.state.best_epoch)
        self.task.model.load_state_dict(self.best)
        if self.average is not None:
            self.average.reset()
        self.state = replace(self.state, first_phase_end=self.state.epoch)

    def validate_start(self) -> None:
        """Validate the initial weights, as epoch 0."""
        self._finish(0)

    def go(self) -> None:
        """Train until the last epoch, or until patience runs out."""
        while self.state.epoch < self.config.epochs:
            if self._is_out_of_patience():
                if not self._is_first_phase:
                    self.progress.stop_early(self.config.patience, self.state.best_epoch)
                    return
                self._end_first_phase()
            self._train_epoch()
            self._finish(self.state.epoch + 1)

    def _train_epoch(self) -> None:
        """Train on the rest of the epoch, from the step in the state."""
        epoch = self.state.epoch + 1
        self.task.model.train(True)
        order = self.task.order(derive_generator(self.config.seed, "order", epoch))  # (M,)
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
        """Run one step of the optimizer and return the mean losses over the examples of all processes."""
        number, is_first_phase = (epoch - 1) * self.steps_per_epoch + step, self._is_first_phase
        weights: list[nn.Parameter] = []
        for group in self.optimizer.param_groups:
            if group["is_fixed"] and is_first_phase:
                continue
            first_epoch = self._first_phase_end if group["is_fixed"] else 0
            rate = learning_rate(self.config, number, self.steps_per_epoch, first_epoch=first_epoch)
            group["lr"] = rate * group["factor"]
            weights += group["params"]
        self.optimizer.zero_grad()
        generator = derive_generator(self.config.seed, "step", epoch, step, self.processes.rank)
        # Dropout takes no generator: it draws from the global state.
        seed_torch(derive_seed(self.config.seed, "dropout", epoch, step, self.processes.rank))
        shared = derive_seed(self.config.seed, "shared", epoch, step)
        batch = Batch(examples, self.processes.own(examples), generator, shared, is_first_phase, epoch)
        num_steps = self.config.epochs * self.steps_per_epoch
        with nullcontext() if self.annealing is None else self.annealing.applied(number, num_steps):
            own = self.task.step(batch)
        losses = StepLosses(*self.processes.sum(own.softmax, own.balance))
        if not math.isfinite(losses.softmax):
            raise diverged(f"the loss is {losses.softmax}", self.config)
        self.processes.sum_gradients(weights)
        if self.config.max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(weights, self.config.max_gradient_norm)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(number)
        return losses

    def _finish(self, epoch: int) -> None:
        """Validate, keep the weights if they are the best so far, and write the log and a checkpoint."""
        self.task.model.train(False)
        self.task.check_alive()
        with nullcontext() if self.average is None else self.average.applied():
            self._validate(epoch)
        self._save()

    def _validate(self, epoch: int) -> None:
        """Validate the present weights, keep them if they are the best so far, and write the log."""
        started = time.perf_counter()
        is_due = epoch % self.config.validate_every == 0 or epoch == self.config.epochs
        measured = self.task.validate() if is_due and self.processes.is_first else None
        validation = self.processes.from_first(measured)
        report = EpochReport(
            epoch=epoch,
            loss=self.state.softmax if epoch else None,
            balance_loss=self.state.balance if epoch else None,
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
        self.progress.finish_epoch(report)
        self.state = State(
            epoch=epoch,
            reports=reports,
            best_epoch=best_epoch,
            num_log_lines=len(reports),
            first_phase_end=self.state.first_phase_end,
        )

    def _is_best(self, validation: dict[str, float] | None) -> bool:
        """Return True if these weights are the best so far; without validation, the last weights are."""
        if validation is None:
            return self.state.last_validation is None
        check_metric(self.config.metric, validation)
        best = next((report.validation for report in self.state.reports if report.epoch == self.state.best_epoch), None)
        return best is None or validation[self.config.metric] > best[self.config.metric]

    def _is_out_of_patience(self) -> bool:
        """Return True if the last `patience` validations of this phase were no better than the best one."""
        if self.config.patience is None or self.state.last_validation is None:
            return False
        last = max(self.state.best_epoch, 0 if self._is_first_phase else self._first_phase_end)
        since = [each for each in self.state.reports if each.epoch > last and each.validation]
        return len(since) >= self.config.patience

    def _save(self) -> None:
        if self.checkpoints is not None and self.processes.is_first:
            try:
                self.checkpoints.save(self.state, self.best)
            except OSError as error:
                raise TrainingError(
                    f"a checkpoint cannot be written ({error}); free some space and start the run again: it "
                    "continues from the last checkpoint."
                ) from error
        self.last_saved = time.monotonic()
