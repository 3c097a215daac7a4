"""Distillation: any task, with a teacher whose scores the model follows, alone or besides the task's own loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Generator, Tensor, nn

from railsearch.similarity import Similarity
from railsearch.training.config import LoopConfig
from railsearch.training.distillation import backward_distillation
from railsearch.training.losses import StepLosses, backward_user_penalty
from railsearch.training.task import Batch, Task, check_weights
from railsearch.training.teacher import TeacherScores


def _nothing() -> None:
    """Do nothing after the backward pass: the graph reaches the encoder."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """The inputs of a similarity for some queries and items, with a graph or as leaves."""

    similarity: Similarity
    queries: Tensor  # (E, ...) as `similarity.query_parts` takes them
    items: Tensor  # (U, ...) as `similarity.item_parts` takes them
    user_ids: Tensor | None = None  # (E,)
    finish: Callable[[], None] = _nothing
    """Propagates the gradient of leaves into the encoder, after the backward pass of the loss."""


class Student(Protocol):
    """A model in training, as distillation sees it."""

    def embed(self, queries: Tensor, items: Tensor, batch: Batch) -> Embedded:
        """Encode queries (E,) and items (U,), given as rows, in training mode."""
        ...


class DistilledTask:
    """A task whose loss is (1 - weight) times its own and weight times the teacher's.

    If the teacher counts alone, its lists are the examples. Otherwise the task's own examples are, and each step draws
    as many lists besides.
    """

    def __init__(self, task: Task, student: Student, teacher: TeacherScores, config: LoopConfig) -> None:
        self._task = task
        self._student = student
        self._teacher = teacher
        self._config = config
        self._temperature = config.teacher_temperature or teacher.typical_spread()

    @property
    def model(self) -> nn.Module:
        """The model of the task."""
        return self._task.model

    @property
    def num_examples(self) -> int:
        """Number of examples in an epoch: lists of the teacher if it counts alone, else those of the task."""
        return len(self._teacher) if self._is_alone else self._task.num_examples

    def order(self, generator: Generator) -> Tensor:
        """Return the lists of the teacher in random order if it counts alone, else the task's order of examples."""
        if self._is_alone:
            return torch.randperm(len(self._teacher), generator=generator)
        return self._task.order(generator)

    @property
    def _is_alone(self) -> bool:
        return self._config.teacher_weight == 1

    def step(self, batch: Batch) -> StepLosses:
        """Run the forward and backward passes of both losses."""
        own = StepLosses(0.0, 0.0)
        if not self._is_alone:
            own = self._task.step(batch)
            kept = 1 - self._config.teacher_weight
            own = StepLosses(own.softmax * kept, own.balance * kept)
            for weight in self.model.parameters():
                if weight.grad is not None:
                    weight.grad.mul_(kept)
        if not len(batch.own):
            return own
        taught = self._follow(batch)
        return StepLosses(own.softmax + taught.softmax, own.balance + taught.balance)

    def _follow(self, batch: Batch) -> StepLosses:
        """Run the forward and backward pass of the teacher's loss."""
        config, places = self._config, batch.own
        if not self._is_alone:
            places = torch.randint(len(self._teacher), (len(places),), generator=batch.generator)  # (E,)
        lists = self._teacher.draw(
            places, config.teacher_items, temperature=self._temperature, generator=batch.generator
        )
        rows, at = torch.unique(lists.items, return_inverse=True)  # (U,), (E, L)
        embedded = self._student.embed(self._teacher.queries[places], rows, batch)
        similarity, device = embedded.similarity, embedded.queries.device
        lists = replace(lists, items=at.to(device), scores=lists.scores.to(device), is_given=lists.is_given.to(device))
        losses = backward_distillation(
            similarity,
            similarity.query_parts(embedded.queries, user_ids=embedded.user_ids),
            similarity.item_parts(embedded.items),
            lists,
            loss=config.teacher_loss,
            balance_weight=config.balance_weight,
            decorrelation_weight=config.decorrelation_weight,
            num_examples=len(batch.examples),
            weight=config.teacher_weight,
        )
        embedded.finish()
        if embedded.user_ids is not None and self._is_alone:
            penalty = getattr(config, "user_penalty_weight", 0.0) * len(batch.own) / len(batch.examples)
            backward_user_penalty(similarity, embedded.user_ids, weight=penalty)
        return losses

    def validate(self) -> dict[str, float] | None:
        """Validate as the task does."""
        return self._task.validate()

    def check_alive(self) -> None:
        """Raise a TrainingError if a weight is not finite, or if the task finds another reason."""
        check_weights(self.model, self._config)
        self._task.check_alive()
