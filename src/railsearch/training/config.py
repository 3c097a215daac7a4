"""How to train: the settings of the one loop and of the loss, as recipes and front doors take them."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import Config
from railsearch.training.negatives import Negatives


class Schedule(StrEnum):
    """How the learning rate moves after the warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    """Falls evenly to zero at the last step."""
    COSINE = "cosine"
    """Falls along half a cosine to zero at the last step."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class LoopConfig(Config):
    """Settings of the training loop, whatever it trains; what they are set to is recorded with its results."""

    epochs: int = Field(default=20, ge=1, description="passes over the data")
    batch_size: int = Field(
        default=128, ge=1, description="examples a step: users of a recommender, pairs of a similarity or a text model"
    )
    learning_rate: float = Field(default=1e-3, gt=0, description="of AdamW")
    weight_decay: float = Field(default=0.0, ge=0, description="of AdamW")
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.98), description="of AdamW")
    schedule: Schedule = Field(default=Schedule.CONSTANT, description="how the learning rate moves after the warm-up")
    warmup_share: float = Field(
        default=0.0, ge=0, lt=1, description="share of all steps in which the learning rate rises"
    )
    max_gradient_norm: float | None = Field(
        default=None, gt=0, description="length that longer gradients are scaled to"
    )
    balance_weight: float = Field(default=0.001, ge=0, description="alpha, the weight of the load-balance loss")
    patience: int | None = Field(default=None, ge=1, description="stop after so many validations without a better one")
    validate_every: int = Field(default=1, ge=1, description="epochs from one validation to the next")
    metric: str = Field(default="MRR", description="the validation metric that picks the epoch")
    checkpoint_minutes: float = Field(
        default=5.0, ge=0, description="minutes from one checkpoint to the next within an epoch"
    )
    tensorboard: bool = Field(
        default=False, description="curves for TensorBoard beside log.jsonl; pip install 'railsearch[train]'"
    )
    seed: int = Field(
        default=0, ge=0, le=LARGEST_SEED, description="of everything random: weights, order, negatives, dropout"
    )


class TrainingConfig(LoopConfig):
    """Settings of a training run of a recommender or a similarity.

    >>> TrainingConfig(epochs=5, schedule="linear", warmup_share=0.1).learning_rate
    0.001
    """

    negatives: Negatives = Field(
        default=Negatives.PER_HISTORY, description="where negatives come from, and who shares them"
    )
    num_negatives: int = Field(default=128, ge=1, description="negatives that each group of examples gets")
    positions_per_history: int | None = Field(
        default=None, ge=1, description="positions drawn from each history in each epoch; all by default"
    )
    user_penalty_weight: float = Field(default=0.1, ge=0, description="of the l2 penalty on the rows of a user table")


class TextTrainingConfig(LoopConfig):
    """Settings of a training run of a text model, whose negatives are the passages of the batch's other questions.

    >>> TextTrainingConfig(epochs=1, micro_batch_size=16).schedule.value
    'linear'
    """

    epochs: int = Field(default=3, ge=1, description="passes over the pairs")
    batch_size: int = Field(default=64, ge=2, description="pairs a step, and so the passages to tell apart")
    learning_rate: float = Field(default=5e-5, gt=0, description="of AdamW, for weights that were pretrained")
    new_learning_rate: float = Field(
        default=1e-3, gt=0, description="for weights that were not: gate, aggregation tokens, pooling"
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), description="of AdamW")
    weight_decay: float = Field(default=0.01, ge=0, description="of AdamW")
    schedule: Schedule = Field(default=Schedule.LINEAR, description="how the learning rate moves after the warm-up")
    warmup_share: float = Field(default=0.1, ge=0, lt=1, description="share of all steps in which it rises")
    max_gradient_norm: float | None = Field(default=1.0, gt=0, description="length that longer gradients are scaled to")
    micro_batch_size: int | None = Field(
        default=None,
        ge=1,
        description="texts that are held with their activations at once; fewer take less memory and a third more time, "
        "and the gradient is the same: that of the whole batch; all by default",
    )
    num_hard_negatives: int = Field(
        default=0, ge=0, description="passages that each question of a batch brings along, of those the data name"
    )
    validation_passages: int | None = Field(
        default=None,
        ge=1,
        description="passages drawn once that validation ranks the right ones among; the whole corpus by default",
    )
