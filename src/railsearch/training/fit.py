"""Trains a similarity on embeddings that somebody already has: any two-tower model, any text encoder."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import (
    ArrayLike,
    as_choice,
    as_embeddings,
    as_user_ids,
    check_count,
    check_not_negative,
    check_positive,
    check_seed,
    is_finite,
)
from railsearch.foundation.metrics import summarize
from railsearch.kernels import RowFilter, compute_item_parts, compute_query_parts, target_ranks
from railsearch.similarity import Similarity, check_similarity
from railsearch.training.config import TrainingConfig
from railsearch.training.loop import Batch, diverged, train
from railsearch.training.losses import StepLosses, backward_sampled_softmax
from railsearch.training.negatives import Negatives, draw_contrast
from railsearch.training.pairs import as_pairs, seen_items
from railsearch.training.report import FitReport


def fit_similarity(
    similarity: Similarity,
    query_embeddings: ArrayLike,
    item_embeddings: ArrayLike,
    pairs: ArrayLike,
    *,
    validation_pairs: ArrayLike | None = None,
    user_ids: ArrayLike | None = None,
    negatives: Negatives | str = Negatives.UNIFORM,
    num_negatives: int = 256,
    epochs: int = 20,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.0,
    balance_weight: float = 0.001,
    user_penalty_weight: float = 0.1,
    patience: int | None = None,
    seed: int = 0,
    show_progress: bool | None = None,
) -> FitReport:
    """Train a similarity in place from (query, right item) pairs, with a sampled softmax loss.

    The embeddings stay as they are. With validation pairs, the weights of the epoch with the best validation
    MRR are kept; otherwise those of the last. The similarity is left in eval mode, ready for `Index.build`.
    On the CPU the same first weights (see the similarity's own seed), seed and number of threads give the same
    weights, bit for bit.

    Args:
        similarity: what to train, such as a MixtureOfLogits; changed in place.
        query_embeddings: (Q, D), one row a query or user.
        item_embeddings: (N, D), one row an item.
        pairs: (M, 2) integers: row of the query, row of an item that is right for it.
        validation_pairs: the same, held out. Each is ranked against the whole corpus, the query's training
            items left out.
        user_ids: (Q,), for a similarity with a user table; see MixtureOfLogits.
        negatives: "uniform" over the corpus, the same for all pairs of a batch; "per_example", each pair its own;
            or "in_batch". A negative that is the positive does not count.
        num_negatives: how many uniform negatives the examples of a batch share; in-batch ones come by themselves.
        epochs: passes over the pairs.
        batch_size: pairs a step.
        learning_rate: of AdamW. If the loss hardly falls, try 1e-2, or a temperature of 0.1 or 0.2.
        weight_decay: of AdamW.
        balance_weight: alpha, the weight of the load-balance loss.
        user_penalty_weight: weight of the l2 penalty on the looked-up rows of a user table.
        patience: stop after so many epochs without a better validation MRR; None never stops early.
        seed: of everything random: order, negatives, dropout.
        show_progress: draw a progress bar; by default only on a terminal.

    Raises:
        InvalidInputError: an argument that cannot work; nothing was trained.
        TrainingError: the loss was no longer finite; the best weights so far are restored.
    """
    check_similarity(similarity)
    if not isinstance(similarity, nn.Module):
        raise InvalidInputError(f"this {type(similarity).__name__} is no torch module; give a MixtureOfLogits.")
    config = TrainingConfig(
        epochs=check_count(epochs, name="epochs"),
        batch_size=check_count(batch_size, name="batch_size"),
        learning_rate=check_positive(learning_rate, name="learning_rate"),
        weight_decay=check_not_negative(weight_decay, name="weight_decay"),
        negatives=as_choice(Negatives, negatives, name="negatives"),
        num_negatives=check_count(num_negatives, name="num_negatives"),
        balance_weight=check_not_negative(balance_weight, name="balance_weight"),
        user_penalty_weight=check_not_negative(user_penalty_weight, name="user_penalty_weight"),
        patience=None if patience is None else check_count(patience, name="patience"),
        seed=check_seed(seed),
    )
    if patience is not None and validation_pairs is None:
        raise InvalidInputError("patience was given without validation_pairs; give both or neither.")
    weights = [parameter for parameter in similarity.parameters() if parameter.requires_grad]
    if not weights:
        raise InvalidInputError(
            f"this {type(similarity).__name__} has no weights to train, or they are frozen (those of an index are); "
            "give a MixtureOfLogits (with 1 x 1 components it is a cosine of two learned towers)."
        )
    data = check_data(similarity, query_embeddings, item_embeddings, pairs, validation_pairs, user_ids, like=weights[0])
    _check_negatives(config, data)
    return train(PairTask(similarity, data, config), config, unit="pairs", show_progress=show_progress)


@dataclass(frozen=True, slots=True, eq=False)
class _Data:
    """Checked inputs, on the similarity's device and in its precision."""

    queries: Tensor  # (Q, D)
    items: Tensor  # (N, D)
    user_ids: Tensor | None  # (Q,)
    pairs: Tensor  # (M, 2)
    validation: tuple[Tensor, RowFilter] | None
    """Held-out pairs (V, 2), and the training items of their queries."""

    def users_of(self, rows: Tensor) -> Tensor | None:
        return None if self.user_ids is None else self.user_ids[rows]


class PairTask:
    """(query, right item) pairs of given embeddings, for the training loop."""

    def __init__(self, similarity: Similarity, data: _Data, config: TrainingConfig) -> None:
        assert isinstance(similarity, nn.Module)
        self.model: nn.Module = similarity
        self._similarity = similarity
        self._data = data
        self._config = config

    @property
    def num_examples(self) -> int:
        """One a pair."""
        return len(self._data.pairs)

    def step(self, batch: Batch) -> StepLosses:
        """One forward and backward pass; the gradient is left in the weights."""
        data, config = self._data, self._config
        if not len(batch.own):
            return StepLosses(0.0, 0.0)
        queries, positives = data.pairs[batch.own.to(data.pairs.device)].unbind(dim=1)  # (E,)
        users = data.users_of(queries)
        contrast = draw_contrast(
            config.negatives,
            positives,
            None,
            pool=data.pairs[batch.examples.to(data.pairs.device), 1],
            num_items=len(data.items),
            num_negatives=config.num_negatives,
            generator=batch.generator,
        )
        rows, contrast = contrast.distinct_items()
        losses = backward_sampled_softmax(
            self._similarity,
            self._similarity.query_parts(data.queries[queries], user_ids=users),
            self._similarity.item_parts(data.items[rows]),
            contrast,
            balance_weight=config.balance_weight,
            num_examples=len(batch.examples),
        )
        if users is not None and config.user_penalty_weight:
            share = len(batch.own) / len(batch.examples)
            penalty = config.user_penalty_weight * share * self._similarity.user_penalty(users)  # ()
            if penalty.requires_grad:
                penalty.backward()  # type: ignore[no-untyped-call]
        return losses

    @torch.no_grad()
    def validate(self) -> dict[str, float] | None:
        """Rank each held-out pair's item against the whole corpus."""
        data = self._data
        if data.validation is None:
            return None
        pairs, seen = data.validation
        queries, targets = pairs.unbind(dim=1)  # (V,)
        query_parts = compute_query_parts(self._similarity, data.queries[queries], data.users_of(queries))
        item_parts = compute_item_parts(self._similarity, data.items)
        return summarize(target_ranks(self._similarity, query_parts, item_parts, targets, row_filter=seen))

    @torch.no_grad()
    def check_alive(self) -> None:
        """Stop before weights that can no longer score are kept: the last step's damage shows in no loss."""
        data = self._data
        queries, items = data.pairs[:256].unbind(dim=1)  # (E,)
        scores = self._similarity.score(
            self._similarity.query_parts(data.queries[queries], user_ids=data.users_of(queries)),
            self._similarity.item_parts(data.items[items]),
        )  # (E, E)
        if not is_finite(scores):
            raise diverged("scores are NaN or infinite", self._config)


def check_data(  # noqa: PLR0917  (the public call's own arguments, in its order)
    similarity: Similarity,
    query_embeddings: ArrayLike,
    item_embeddings: ArrayLike,
    pairs: ArrayLike,
    validation_pairs: ArrayLike | None,
    user_ids: ArrayLike | None,
    *,
    like: Tensor,
) -> _Data:
    """Check all that `fit_similarity` was given, and bring it to the weights' device and precision."""
    queries = as_embeddings(query_embeddings, name="query_embeddings", shape=similarity.query_shape).to(like)
    items = as_embeddings(item_embeddings, name="item_embeddings", shape=similarity.item_shape).to(like)
    size = (len(queries), len(items))
    training = as_pairs(pairs, name="pairs", size=size).to(like.device)
    if similarity.takes_user_ids and user_ids is None:
        raise InvalidInputError("the similarity has a user table but user_ids is None; give one id for each query.")
    if user_ids is not None and not similarity.takes_user_ids:
        raise InvalidInputError("user_ids was given but the similarity has no user table; leave them out.")
    users = None if user_ids is None else as_user_ids(user_ids, count=len(queries)).to(like.device)
    validation = None
    if validation_pairs is not None:
        held_out = as_pairs(validation_pairs, name="validation_pairs", size=size).to(like.device)
        validation = (held_out, seen_items(training, held_out[:, 0]))
    return _Data(queries, items, users, training, validation)


def _check_negatives(config: TrainingConfig, data: _Data) -> None:
    """Check that there is anything to tell a positive from."""
    if config.negatives is Negatives.PER_HISTORY:
        raise InvalidInputError("pairs belong to no history; choose negatives from: uniform, per_example, in_batch.")
    if config.negatives is Negatives.IN_BATCH:
        if min(config.batch_size, len(data.pairs)) < 2:
            raise InvalidInputError("in-batch negatives need at least 2 pairs in a batch; raise batch_size.")
        if len(torch.unique(data.pairs[:, 1])) < 2:
            raise InvalidInputError("all pairs name the same item, so there are no in-batch negatives; use 'uniform'.")
    elif len(data.items) < 2:
        raise InvalidInputError("there is only 1 item, so there are no negatives; give at least 2 items.")
