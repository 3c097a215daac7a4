"""The estimate of a run from a few of its steps: time, memory and disk space; nothing is written."""

import resource
import statistics
import sys
import time
from dataclasses import dataclass

import torch
from torch.optim import AdamW

from railsearch.training.annealing import make_annealing
from railsearch.training.checkpoints import NUM_KEPT, checkpoint_size
from railsearch.training.config import LoopConfig
from railsearch.training.processes import Processes
from railsearch.training.seeds import derive_generator, derive_seed, seed_torch
from railsearch.training.task import Batch, FirstPhase, Task

NUM_STEPS = 4
"""Steps that are timed in each phase, after one to warm up."""


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """What a run will take on this machine, if nothing else runs on it and patience does not end it earlier."""

    epochs: int
    cosine_epochs: int
    """The first epochs, in which a mixture is trained as the cosine that it starts as."""
    steps_per_epoch: int
    num_weights: int
    seconds_per_epoch: float
    cosine_seconds_per_epoch: float | None
    """The same for the first epochs; None if there are none."""
    validation_seconds: float
    """Seconds of one validation."""
    total_seconds: float
    peak_memory_bytes: int
    """The most memory that this process has used, with the data."""
    checkpoint_bytes: int
    disk_bytes: int
    """The most space that the checkpoints of the run take."""


def estimate_run(
    task: Task,
    config: LoopConfig,
    *,
    first_phase: FirstPhase | None = None,
    validation_share: float = 1.0,
    num_steps: int = NUM_STEPS,
) -> RunEstimate:
    """Run a few steps of each phase and one validation, and return what the complete run will take.

    The weights of the task's model change.

    Args:
        task: the model, its examples and its loss.
        config: settings of the loop.
        first_phase: as in `train`.
        validation_share: share of the work of a validation that `task.validate` does.
        num_steps: steps to time in each phase.

    Raises:
        InvalidInputError: the temperature cannot be annealed.
    """
    make_annealing(task.model, config)  # the same errors as in the run; the cost does not depend on the temperature
    first_epochs = 0 if first_phase is None else min(first_phase.epochs, config.epochs)
    device = next(task.model.parameters()).device
    with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
        first = _seconds_per_step(task, config, num_steps, is_first_phase=True) if first_epochs else None
        later = None
        if first is None or first_epochs < config.epochs:
            later = _seconds_per_step(task, config, num_steps, is_first_phase=False)
        task.model.train(False)
        started = time.perf_counter()
        task.validate()
        validation = (time.perf_counter() - started) / validation_share
    steps = -(-task.num_examples // config.batch_size)
    validations = -(-config.epochs // config.validate_every)
    later_epoch = steps * (later if later is not None else first or 0.0)
    first_epoch = None if first is None else steps * first
    size = checkpoint_size(task.model, has_averages=config.ema_decay is not None)
    return RunEstimate(
        epochs=config.epochs,
        cosine_epochs=first_epochs,
        steps_per_epoch=steps,
        num_weights=sum(weight.numel() for weight in task.model.parameters()),
        seconds_per_epoch=later_epoch,
        cosine_seconds_per_epoch=first_epoch,
        validation_seconds=validation,
        total_seconds=first_epochs * (first_epoch or 0.0)
        + (config.epochs - first_epochs) * later_epoch
        + validations * validation,
        peak_memory_bytes=_peak_memory(),
        checkpoint_bytes=size,
        disk_bytes=(NUM_KEPT + 1) * size,
    )


def _seconds_per_step(task: Task, config: LoopConfig, num_steps: int, *, is_first_phase: bool) -> float:
    """Return the mean time of steps that are spread over an epoch."""
    weights = [weight for weight in task.model.parameters() if weight.requires_grad]
    optimizer = AdamW(weights, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay)
    order = torch.randperm(task.num_examples, generator=derive_generator(config.seed, "order", 1))
    batches = torch.split(order, config.batch_size)
    task.model.train(True)
    seconds = []
    for number in range(num_steps + 1):
        examples = batches[number * len(batches) // (num_steps + 1)]
        generator = derive_generator(config.seed, "step", 1, number, 0)
        seed_torch(derive_seed(config.seed, "dropout", 1, number, 0))
        started = time.perf_counter()
        optimizer.zero_grad()
        task.step(Batch(examples, Processes().own(examples), generator, is_first_phase=is_first_phase))
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    return statistics.fmean(seconds[1:])


def _peak_memory() -> int:
    """Return the largest number of bytes of memory that this process has held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
