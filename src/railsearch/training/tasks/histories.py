"""Training on histories: every position of a history is an example whose right item is the next item."""

from dataclasses import replace

import torch
from torch import Generator, Tensor, nn

from railsearch.data import HeldOut, Split
from railsearch.encoders import Histories
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.metrics import summarize
from railsearch.models.ranking import ITEM_CUTOFFS, rank_held_out
from railsearch.models.sequential import SequentialModel, consecutive_rows, histories_between
from railsearch.training.config import TrainingConfig
from railsearch.training.hard import find_hard_items
from railsearch.training.losses import StepLosses, backward_sampled_softmax, backward_user_penalty
from railsearch.training.negatives import (
    Contrast,
    Negatives,
    RightPairs,
    draw_contrast,
    mixed_offsets,
    num_other_negatives,
)
from railsearch.training.task import Batch, check_metric, check_weights


class NextItemTask:
    """The task of a recommender: the training events of a split are the examples."""

    def __init__(self, model: SequentialModel, split: Split, config: TrainingConfig) -> None:
        self.model: nn.Module = model
        self._model = model
        self._split = split
        self._config = config
        self._device = model.device
        self._starts = split.interactions.offsets[:-1]  # (U,)
        self._num_targets = split.train_ends - split.first_targets  # (U,) not positive without a history and a target
        self._users = (self._num_targets > 0).nonzero().flatten()  # (u,)
        if not len(self._users):
            raise InvalidInputError("no user has two events to train on; give longer histories.")
        if split.interactions.num_items < 2:
            raise InvalidInputError("there is only 1 item, so there are no negatives; give at least 2 items.")
        self._offsets = (
            mixed_offsets(
                self._targets(), num_items=split.interactions.num_items, num_negatives=config.num_negatives
            ).to(self._device)
            if config.negatives is Negatives.MIXED
            else None
        )
        self._seen = self._find_seen() if config.negatives is Negatives.HARD else None
        check_metric(config.metric, summarize([1], ks=ITEM_CUTOFFS))
        self._held_out = draw_held_out(split.validation or split.test, config.validation_users, seed=config.seed)

    @property
    def num_examples(self) -> int:
        """Number of users: a batch consists of complete histories."""
        return len(self._users)

    def order(self, generator: Generator) -> Tensor:
        """Return the examples (M,) in random order."""
        return torch.randperm(self.num_examples, generator=generator)

    def step(self, batch: Batch) -> StepLosses:
        """Run one forward and backward pass, which adds the gradient to the weights."""
        config, similarity = self._config, self._model.similarity
        if not len(batch.own):
            return StepLosses(0.0, 0.0)
        users = self._users[batch.own]  # (B,)
        histories, targets = self._histories(users)
        queries = self._model.encoder(histories)  # (E, D)
        lengths = histories.lengths  # (B,)
        if self._split.train_starts is not None:  # the first positions are only histories
            ends, lengths = lengths.cumsum(dim=0), self._lengths(users).to(self._device)  # (B,)
            late = consecutive_rows((ends - lengths).cpu(), lengths.cpu()).to(self._device)
            queries, targets = queries[late], targets[late]
        if config.positions_per_history is not None:
            chosen = draw_positions(lengths.cpu(), config.positions_per_history, batch.generator).to(self._device)
            queries, targets = queries[chosen], targets[chosen]
            lengths = lengths.clamp(max=config.positions_per_history)  # (B,)
        owners = users.to(self._device).repeat_interleave(lengths)  # (E,)
        contrast = draw_contrast(
            config.negatives,
            targets,
            lengths,
            pool=self._pool(batch.examples),
            num_items=self._split.interactions.num_items,
            num_negatives=config.num_negatives,
            generator=batch.generator,
        )
        if self._offsets is not None:
            contrast = replace(contrast, offsets=self._offsets[contrast.negatives])
        if self._seen is not None:
            contrast = self._add_hard(contrast, queries.detach(), users.to(self._device), lengths, batch.generator)
        rows, contrast = contrast.distinct_items()
        losses = backward_sampled_softmax(
            similarity,
            similarity.query_parts(queries, user_ids=owners if similarity.takes_user_ids else None),
            similarity.item_parts(self._model.encoder.embed_items(rows)),
            contrast,
            balance_weight=config.balance_weight,
            decorrelation_weight=config.decorrelation_weight,
            num_examples=self._num_positions(self._users[batch.examples]),
        )
        if similarity.takes_user_ids:
            share = len(batch.own) / len(batch.examples)
            backward_user_penalty(similarity, users.to(self._device), weight=config.user_penalty_weight * share)
        return losses

    def validate(self) -> dict[str, float] | None:
        """Rank the validation items; if the split has none, rank the test items."""
        return summarize(rank_held_out(self._model, self._split.interactions, self._held_out), ks=ITEM_CUTOFFS)

    def check_alive(self) -> None:
        """Raise a TrainingError if a weight is not finite."""
        check_weights(self.model, self._config)

    def _histories(self, users: Tensor) -> tuple[Histories, Tensor]:
        """Return the training histories of these users, and the next item of each position (E,)."""
        interactions = self._split.interactions
        ends = self._split.train_ends[users] - 1  # (B,) the last item is only a target
        histories = histories_between(
            interactions, self._starts[users], ends, max_length=self._model.encoder.max_length
        )
        targets = interactions.items[consecutive_rows(ends - histories.lengths, histories.lengths) + 1]  # (E,)
        return histories.to(self._device), targets.to(self._device)

    def _pool(self, examples: Tensor) -> Tensor:
        """Return the targets of the batch in all processes (E,), from which in-batch negatives are drawn."""
        users = self._users[examples]  # (b,)
        lengths = self._lengths(users)  # (b,)
        places = consecutive_rows(self._split.train_ends[users] - lengths, lengths)  # (E,)
        return self._split.interactions.items[places].to(self._device)

    def _add_hard(
        self, contrast: Contrast, queries: Tensor, users: Tensor, lengths: Tensor, generator: Generator
    ) -> Contrast:
        """Return the contrast with hard negatives as well; items of an example's own history do not count."""
        assert self._seen is not None
        similarity, config = self._model.similarity, self._config
        owners = users.repeat_interleave(lengths)  # (E,)
        hard = find_hard_items(
            similarity, queries, self._model.encoder.embed_items().detach(),
            count=num_other_negatives(config.negatives, config.num_negatives), right=self._seen, owners=owners,
            user_ids=owners if similarity.takes_user_ids else None, generator=generator,
        )  # fmt: skip
        negatives = torch.cat([contrast.negatives, hard[None]], dim=1)  # (1, n)
        return replace(
            contrast,
            negatives=negatives,
            excluded=self._seen.among(users, negatives),  # (B, n)
            excluded_rows=torch.arange(len(users), device=users.device).repeat_interleave(lengths),  # (E,)
        )

    def _find_seen(self) -> RightPairs:
        """Return the training items of every user."""
        counts = self._split.train_ends - self._starts  # (U,)
        users = torch.arange(len(counts)).repeat_interleave(counts)  # (M,)
        items = self._split.interactions.items[consecutive_rows(self._starts, counts)]  # (M,)
        pairs = torch.stack([users, items], dim=1).to(self._device)  # (M, 2)
        return RightPairs(pairs, num_items=self._split.interactions.num_items)

    def _targets(self) -> Tensor:
        """Return the right items of all examples (M,)."""
        counts = self._lengths(self._users)  # (u,)
        return self._split.interactions.items[consecutive_rows(self._split.train_ends[self._users] - counts, counts)]

    def _lengths(self, users: Tensor) -> Tensor:
        """Return the number of positions with a target in each of these users' training histories (B,)."""
        return self._num_targets[users].clamp(max=self._model.encoder.max_length)

    def _num_positions(self, users: Tensor) -> int:
        """Return how many positions of these users are trained in a step."""
        most = self._config.positions_per_history
        return int((self._lengths(users) if most is None else self._lengths(users).clamp(max=most)).sum())


def draw_held_out(held_out: HeldOut, count: int, *, seed: int) -> HeldOut:
    """Draw the held-out items of `count` users, the same ones for the same seed; all if there are no more."""
    if count >= len(held_out.users):
        return held_out
    rows = torch.randperm(len(held_out.users), generator=Generator().manual_seed(seed))[:count].sort().values  # (n,)
    return HeldOut(held_out.users[rows], held_out.items[rows], held_out.history_ends[rows])


def draw_positions(lengths: Tensor, num_positions: int, generator: Generator) -> Tensor:
    """Draw positions of every history, or take all if it has no more; return them ascending among all events."""
    history = torch.arange(len(lengths)).repeat_interleave(lengths)  # (E,)
    order = (history + torch.rand(len(history), generator=generator, dtype=torch.float64)).argsort()  # (E,)
    starts = lengths.cumsum(dim=0) - lengths  # (B,)
    is_drawn = torch.arange(len(history)) - starts[history] < num_positions  # (E,)
    return order[is_drawn].sort().values
