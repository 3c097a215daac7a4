"""Next-item training: every position of a history is an example whose right item is the one that comes next."""

import torch
from torch import Generator, Tensor, nn

from railsearch.data import Split
from railsearch.encoders import Histories
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import is_finite
from railsearch.foundation.metrics import summarize
from railsearch.models.ranking import ITEM_CUTOFFS, rank_held_out
from railsearch.models.sequential import SequentialModel, consecutive_rows, histories_between
from railsearch.training.config import TrainingConfig
from railsearch.training.loop import Batch, diverged
from railsearch.training.losses import StepLosses, backward_sampled_softmax
from railsearch.training.negatives import draw_contrast


class NextItemTask:
    """What the training loop needs to train a sequential model on a split."""

    def __init__(self, model: SequentialModel, split: Split, config: TrainingConfig) -> None:
        self.model: nn.Module = model
        self._model = model
        self._split = split
        self._config = config
        self._device = model.device
        self._starts = split.interactions.offsets[:-1]  # (U,)
        events = split.train_ends - self._starts  # (U,)
        self._users = (events > 1).nonzero().flatten()  # (u,) who have an item, and one that comes next
        if not len(self._users):
            raise InvalidInputError("no user has two events to train on; give longer histories.")
        if split.interactions.num_items < 2:
            raise InvalidInputError("there is only 1 item, so there are no negatives; give at least 2 items.")
        measured = summarize([1], ks=ITEM_CUTOFFS)
        if config.metric not in measured:
            raise InvalidInputError(f"metric is {config.metric!r} but validation measures: {', '.join(measured)}.")

    @property
    def num_examples(self) -> int:
        """One a user: a batch is made of whole histories."""
        return len(self._users)

    def step(self, batch: Batch) -> StepLosses:
        """One forward and backward pass; the gradient is left in the weights."""
        config, similarity = self._config, self._model.similarity
        if not len(batch.own):
            return StepLosses(0.0, 0.0)
        users = self._users[batch.own]  # (B,)
        histories, targets = self._histories(users)
        queries = self._model.encoder(histories)  # (E, D)
        lengths = histories.lengths  # (B,)
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
        rows, contrast = contrast.distinct_items()
        losses = backward_sampled_softmax(
            similarity,
            similarity.query_parts(queries, user_ids=owners if similarity.takes_user_ids else None),
            similarity.item_parts(self._model.encoder.embed_items(rows)),
            contrast,
            balance_weight=config.balance_weight,
            num_examples=self._num_positions(self._users[batch.examples]),
        )
        if similarity.takes_user_ids and config.user_penalty_weight:
            share = len(batch.own) / len(batch.examples)
            penalty = config.user_penalty_weight * share * similarity.user_penalty(users.to(self._device))  # ()
            penalty.backward()  # type: ignore[no-untyped-call]
        return losses

    def validate(self) -> dict[str, float] | None:
        """Rank the items held out for validation; those of the test where the split has no others."""
        held_out = self._split.validation or self._split.test
        return summarize(rank_held_out(self._model, self._split.interactions, held_out), ks=ITEM_CUTOFFS)

    def check_alive(self) -> None:
        """Stop before weights that can no longer score are kept: the last step's damage shows in no loss."""
        if not all(is_finite(parameter) for parameter in self._model.parameters()):
            raise diverged("weights are NaN or infinite", self._config)

    def _histories(self, users: Tensor) -> tuple[Histories, Tensor]:
        """What these users' training events were preceded by, and the items themselves (E,)."""
        interactions = self._split.interactions
        ends = self._split.train_ends[users] - 1  # (B,) the last item is a target only
        histories = histories_between(
            interactions, self._starts[users], ends, max_length=self._model.encoder.max_length
        )
        targets = interactions.items[consecutive_rows(ends - histories.lengths, histories.lengths) + 1]  # (E,)
        return histories.to(self._device), targets.to(self._device)

    def _pool(self, examples: Tensor) -> Tensor:
        """What in-batch negatives come from: every item that the batch's histories predict, in all processes alike."""
        users = self._users[examples]  # (b,)
        lengths = self._lengths(users)  # (b,)
        places = consecutive_rows(self._split.train_ends[users] - lengths, lengths)  # (E,)
        return self._split.interactions.items[places].to(self._device)

    def _lengths(self, users: Tensor) -> Tensor:
        """How many examples each of these users has in an epoch (B,)."""
        events = self._split.train_ends[users] - self._starts[users]  # (B,)
        return (events - 1).clamp(max=self._model.encoder.max_length)

    def _num_positions(self, users: Tensor) -> int:
        most = self._config.positions_per_history
        return int((self._lengths(users) if most is None else self._lengths(users).clamp(max=most)).sum())


def draw_positions(lengths: Tensor, num_positions: int, generator: Generator) -> Tensor:
    """Draw some positions of every history, all where it has no more; ascending among all events."""
    history = torch.arange(len(lengths)).repeat_interleave(lengths)  # (E,)
    order = (history + torch.rand(len(history), generator=generator, dtype=torch.float64)).argsort()  # (E,)
    starts = lengths.cumsum(dim=0) - lengths  # (B,)
    is_drawn = torch.arange(len(history)) - starts[history] < num_positions  # (E,)
    return order[is_drawn].sort().values
