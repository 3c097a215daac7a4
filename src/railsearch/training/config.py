"""Settings of the training loop and of the losses, as recipes and `fit` calls take them."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import LARGEST_SEED
from railsearch.foundation.settings import Config
from railsearch.training.distillation import TeacherLoss
from railsearch.training.negatives import Negatives


class Schedule(StrEnum):
    """The course of the learning rate after the warm-up."""

    CONSTANT = "constant"
    LINEAR = "linear"
    """Falls linearly to zero at the last step."""
    COSINE = "cosine"
    """Falls along half a cosine to zero at the last step."""


Beta = Annotated[float, Field(ge=0, lt=1)]


class LoopConfig(Config):
    """Settings of the training loop for every task."""

    epochs: int = Field(default=20, ge=0, description="passes over the data; 0 only validates the start")
    batch_size: int = Field(
        default=128,
        ge=1,
        description="examples in each step: users of a recommender, pairs of a similarity or a text model",
    )
    learning_rate: float = Field(default=1e-3, gt=0, description="of AdamW")
    weight_decay: float = Field(default=0.0, ge=0, description="of AdamW")
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.98), description="of AdamW")
    schedule: Schedule = Field(default=Schedule.CONSTANT, description="course of the learning rate after the warm-up")
    warmup_share: float = Field(
        default=0.0, ge=0, lt=1, description="share of all steps in which the learning rate rises"
    )
    max_gradient_norm: float | None = Field(
        default=None, gt=0, description="longest gradient; longer ones are scaled down to it"
    )
    temperature_start: float | None = Field(
        default=None,
        gt=0,
        description="temperature of the first step, from which training goes to the similarity's own temperature by "
        "equal factors; by default every step has the similarity's own",
    )
    temperature_share: float = Field(
        default=0.5, gt=0, le=1, description="share of all steps after which the similarity has its own temperature"
    )
    ema_decay: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="decay of a running average of the weights, which is then validated and saved, such as 0.999; by "
        "default the weights themselves are",
    )
    balance_weight: float = Field(default=0.001, ge=0, description="alpha, the weight of the load-balance loss")
    decorrelation_weight: float = Field(
        default=0.0,
        ge=0,
        description="weight of the mean squared cosine between the components of one query, item or text, which "
        "keeps them apart",
    )
    teacher: str | None = Field(
        default=None,
        description="a Parquet, Arrow or CSV file with scores of a teacher to follow, in the columns query (user, "
        "question), item (passage) and score",
    )
    teacher_loss: TeacherLoss = Field(
        default=TeacherLoss.KL,
        description="kl: divergence of the softmax over a list of items from the teacher's; margin_mse: squared error "
        "of the margin between two items",
    )
    teacher_weight: float = Field(
        default=0.5, gt=0, le=1, description="share of the teacher's loss in the loss; 1 follows the teacher alone"
    )
    teacher_temperature: float | None = Field(
        default=None,
        gt=0,
        description="divides the teacher's scores; by default their standard deviation within a query (the median)",
    )
    teacher_items: int = Field(
        default=32,
        ge=2,
        description="most scored items of a query in a step, drawn again in each; a teacher that is a function scores "
        "four times as many",
    )
    patience: int | None = Field(
        default=None, ge=1, description="stop after this many validations without a better one"
    )
    validate_every: int = Field(default=1, ge=1, description="epochs from one validation to the next")
    metric: str = Field(default="MRR", description="validation metric that picks the best epoch")
    checkpoint_minutes: float = Field(
        default=5.0, ge=0, description="minutes from one checkpoint to the next within an epoch"
    )
    tensorboard: bool = Field(
        default=False, description="write curves for TensorBoard beside log.jsonl; needs the extra `train`"
    )
    seed: int = Field(
        default=0, ge=0, le=LARGEST_SEED, description="seed of everything random: weights, order, negatives, dropout"
    )


class TrainingConfig(LoopConfig):
    """Settings of a training run of a recommender or a similarity.

    >>> TrainingConfig(epochs=5, schedule="linear", warmup_share=0.1).learning_rate
    0.001
    """

    negatives: Negatives = Field(
        default=Negatives.PER_HISTORY, description="source of the negatives, and which examples share them"
    )
    num_negatives: int = Field(
        default=128, ge=1, description="negatives of each group of examples; ignored if negatives are all items"
    )
    positions_per_history: int | None = Field(
        default=None, ge=1, description="positions drawn from each history in each epoch; all by default"
    )
    cosine_epochs: int | None = Field(
        default=None,
        ge=0,
        description="first epochs, in which a mixture that starts as a cosine is trained as that cosine; by default "
        "two thirds of the epochs, and 0 for other similarities and with a start; a run that resumes keeps its number",
    )
    similarity_rate: float | None = Field(
        default=None,
        gt=0,
        description="learning rate of the similarity's weights, as a multiple of learning_rate; by default 0.1 if the "
        "similarity starts as a cosine, else 1",
    )
    gate_rate: float | None = Field(
        default=None,
        gt=0,
        description="learning rate of the gate, as a multiple of learning_rate; by default as similarity_rate",
    )
    projection_rate: float | None = Field(
        default=None,
        gt=0,
        description="learning rate of the projections to components, as a multiple of learning_rate; by default as "
        "similarity_rate",
    )
    validation_users: int = Field(
        default=3000, ge=1, description="most users that validation ranks, drawn once; the test ranks all users"
    )
    user_penalty_weight: float = Field(
        default=0.1, ge=0, description="weight of the l2 penalty on the rows of a user table"
    )


class TextTrainingConfig(LoopConfig):
    """Settings of a training run of a text model; the negatives are the other passages of the batch.

    >>> TextTrainingConfig(epochs=1, micro_batch_size=16).schedule.value
    'linear'
    """

    epochs: int = Field(default=3, ge=0, description="passes over the pairs; 0 only validates the start")
    batch_size: int = Field(
        default=64, ge=2, description="pairs in each step, whose passages are each other's negatives"
    )
    learning_rate: float = Field(default=5e-5, gt=0, description="of AdamW, for pretrained weights")
    new_learning_rate: float = Field(
        default=1e-3, gt=0, description="of AdamW, for new weights: gate, aggregation tokens, pooling"
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.999), description="of AdamW")
    weight_decay: float = Field(default=0.01, ge=0, description="of AdamW")
    schedule: Schedule = Field(default=Schedule.LINEAR, description="course of the learning rate after the warm-up")
    warmup_share: float = Field(
        default=0.1, ge=0, lt=1, description="share of all steps in which the learning rate rises"
    )
    max_gradient_norm: float | None = Field(
        default=1.0, gt=0, description="longest gradient; longer ones are scaled down to it"
    )
    trained_layers: int | None = Field(
        default=None,
        ge=0,
        description="top layers of the pretrained model that are trained; the outputs of the frozen ones below are "
        "computed once for each text, so that a step takes less time. 0 trains only pooling and similarity; by default "
        "all layers are trained",
    )
    kept_outputs_gib: float = Field(
        default=4.0,
        ge=0,
        description="memory for the outputs of frozen layers, in GiB; those of further texts are computed each time",
    )
    mixed_precision: bool = Field(
        default=False,
        description="run the language model in bf16 while training, which is faster on GPUs and on CPUs with bf16 "
        "instructions; weights, pooling, similarity and loss stay in fp32",
    )
    micro_batch_size: int | None = Field(
        default=None,
        ge=1,
        description="texts or windows whose activations are in memory at once, by default all texts, or 64 windows; "
        "fewer take less memory and a third more time, with the same gradient",
    )
    training_windows: int = Field(
        default=32,
        ge=1,
        description="windows of a passage that a step uses, if passages are cut into windows; those of a longer "
        "passage are drawn at random in each step",
    )
    similar_questions: int = Field(
        default=1,
        ge=1,
        description="questions of a batch that come together because the encoder finds them similar, so that their "
        "passages are about one subject and hard to tell apart; 1 draws all questions at random. Before training, "
        "every question is compared with all others, of very many with 65,536",
    )
    num_hard_negatives: int = Field(
        default=0, ge=0, description="hard negatives that are added for each question of a batch"
    )
    mine_negatives: int = Field(
        default=0,
        ge=0,
        description="mined negatives that are added for each question of a batch: before each epoch, the model "
        "searches the passages for each training question",
    )
    mine_depth: int = Field(
        default=50, ge=1, description="best passages of a question from which its mined negatives are drawn"
    )
    mine_margin: float = Field(
        default=0.05,
        ge=0,
        description="skip passages whose score is above that of the best right passage less this share of it: they are "
        "often right too",
    )
    mine_passages: int | None = Field(
        default=None,
        ge=1,
        description="random passages that mining searches besides the right ones; all passages by default",
    )
    validation_passages: int | None = Field(
        default=None,
        ge=1,
        description="random passages that validation ranks besides the right ones; all passages by default",
    )

    @model_validator(mode="after")
    def _check_similar(self) -> Self:
        if self.batch_size % self.similar_questions:
            raise InvalidInputError(
                f"similar_questions is {self.similar_questions} but a batch has batch_size = {self.batch_size} pairs, "
                "which is not a multiple of it; set batch_size to a multiple"
            )
        return self

    @model_validator(mode="after")
    def _check_mining(self) -> Self:
        if self.mine_negatives > self.mine_depth:
            raise InvalidInputError(
                f"mine_negatives is {self.mine_negatives} but they are drawn from mine_depth = {self.mine_depth} "
                "passages of a question; set mine_depth to as many or more"
            )
        return self
