"""The learning rate of each step: a linear warm-up, then a schedule."""

import math

from railsearch.training.config import LoopConfig, Schedule


def learning_rate(config: LoopConfig, step: int, steps_per_epoch: int, *, first_epoch: int = 0) -> float:
    """Return the learning rate of a step, counted from 0 over all epochs.

    Args:
        config: settings of the loop.
        step: the number of the step.
        steps_per_epoch: the number of steps in each epoch.
        first_epoch: finished epochs before warm-up and schedule begin, for weights that start to move later.

    >>> config = LoopConfig(epochs=1, learning_rate=1.0, schedule="linear", warmup_share=0.5)
    >>> [learning_rate(config, step, 4) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    num_steps = (config.epochs - first_epoch) * steps_per_epoch
    step -= first_epoch * steps_per_epoch
    num_warmup = round(config.warmup_share * num_steps)
    if step < num_warmup:
        return config.learning_rate * (step + 1) / num_warmup
    progress = (step - num_warmup) / max(1, num_steps - num_warmup)  # 0 <= progress < 1
    if config.schedule is Schedule.LINEAR:
        return config.learning_rate * (1 - progress)
    if config.schedule is Schedule.COSINE:
        return config.learning_rate * (1 + math.cos(math.pi * progress)) / 2
    return config.learning_rate
