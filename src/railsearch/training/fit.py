"""Trains a similarity on embeddings that somebody already has: any two-tower model, any text encoder."""

import copy
import logging
import math
import time
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.optim import AdamW, Optimizer

from railsearch.errors import InvalidInputError, TrainingError
from railsearch.inputs import (
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
from railsearch.metrics import summarize
from railsearch.scoring import Hidden, compute_item_parts, compute_query_parts, target_ranks
from railsearch.similarity import Similarity, check_similarity
from railsearch.training.losses import StepLosses, backward_sampled_softmax
from railsearch.training.negatives import Negatives, draw_negatives
from railsearch.training.pairs import as_pairs, seen_items
from railsearch.training.progress import TrainingProgress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What one epoch of training gave."""

    epoch: int
    loss: float
    balance_loss: float
    validation: dict[str, float] | None
    """HR@1, HR@10, HR@50 and MRR on the validation pairs, where there are any."""
    seconds: float


@dataclass(frozen=True, slots=True)
class FitReport:
    """How training went, and which epoch's weights the similarity was left with."""

    epochs: tuple[EpochReport, ...]
    best_epoch: int

    @property
    def best(self) -> EpochReport:
        """The epoch whose weights were kept."""
        return self.epochs[self.best_epoch - 1]


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
        negatives: "uniform" over the corpus, or "in_batch". A negative that is the positive does not count.
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
    for name, count in (("num_negatives", num_negatives), ("epochs", epochs), ("batch_size", batch_size)):
        check_count(count, name=name)
    check_positive(learning_rate, name="learning_rate")
    check_not_negative(weight_decay, name="weight_decay")
    if patience is not None:
        check_count(patience, name="patience")
        if validation_pairs is None:
            raise InvalidInputError("patience was given without validation_pairs; give both or neither.")
    weights = [parameter for parameter in similarity.parameters() if parameter.requires_grad]
    if not weights:
        raise InvalidInputError(
            f"this {type(similarity).__name__} has no weights to train, or they are frozen (those of an index are); "
            "give a MixtureOfLogits (with 1 x 1 components it is a cosine of two learned towers)."
        )
    objective = _Objective(
        negatives=as_choice(Negatives, negatives, name="negatives"),
        num_negatives=num_negatives,
        balance_weight=check_not_negative(balance_weight, name="balance_weight"),
        user_penalty_weight=check_not_negative(user_penalty_weight, name="user_penalty_weight"),
        generator=Generator().manual_seed(check_seed(seed)),
    )
    data = _check_data(
        similarity, query_embeddings, item_embeddings, pairs, validation_pairs, user_ids, like=weights[0]
    )
    _check_negatives(objective, data, batch_size)

    optimizer = AdamW(weights, lr=learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay)
    device = weights[0].device
    reports: list[EpochReport] = []
    best_weights, best_epoch = copy.deepcopy(similarity.state_dict()), 0
    num_steps = epochs * math.ceil(len(data.pairs) / batch_size)
    with (
        # Dropout knows no generator of its own, so the global one is seeded; fork_rng gives the caller's back.
        torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type),
        TrainingProgress(num_steps, is_shown=show_progress) as progress,
    ):
        torch.default_generator.manual_seed(seed)
        if device.type != "cpu":
            torch.get_device_module(device).manual_seed(seed)
        try:
            for epoch in range(1, epochs + 1):
                started = time.perf_counter()
                losses = _train_epoch(similarity, optimizer, data, objective, batch_size, progress)
                _check_alive(similarity, data, learning_rate)
                validation = _validate(similarity, data)
                reports.append(
                    EpochReport(epoch, losses.softmax, losses.balance, validation, time.perf_counter() - started)
                )
                logger.info("%s", reports[-1])
                if best_epoch == 0 or _is_better(validation, reports[best_epoch - 1].validation):
                    best_weights, best_epoch = copy.deepcopy(similarity.state_dict()), epoch
                progress.finish_epoch(epoch, validation)
                if patience is not None and epoch - best_epoch >= patience:
                    break
        finally:
            similarity.load_state_dict(best_weights)
            similarity.train(False)
    return FitReport(tuple(reports), best_epoch)


@dataclass(frozen=True, slots=True, eq=False)
class _Objective:
    """What every step minimises."""

    negatives: Negatives
    num_negatives: int
    balance_weight: float
    user_penalty_weight: float
    generator: Generator


@dataclass(frozen=True, slots=True, eq=False)
class _Data:
    """Checked inputs, on the similarity's device and in its precision."""

    queries: Tensor  # (Q, D)
    items: Tensor  # (N, D)
    user_ids: Tensor | None  # (Q,)
    pairs: Tensor  # (M, 2)
    validation: tuple[Tensor, Hidden] | None
    """Held-out pairs (V, 2), and the training items of their queries."""

    def users_of(self, rows: Tensor) -> Tensor | None:
        return None if self.user_ids is None else self.user_ids[rows]


def _check_data(  # noqa: PLR0917  (the public call's own arguments, in its order)
    similarity: Similarity,
    query_embeddings: ArrayLike,
    item_embeddings: ArrayLike,
    pairs: ArrayLike,
    validation_pairs: ArrayLike | None,
    user_ids: ArrayLike | None,
    *,
    like: Tensor,
) -> _Data:
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


def _check_negatives(objective: _Objective, data: _Data, batch_size: int) -> None:
    """Check that there is anything to tell a positive from."""
    if objective.negatives is Negatives.IN_BATCH:
        if min(batch_size, len(data.pairs)) < 2:
            raise InvalidInputError("in-batch negatives need at least 2 pairs in a batch; raise batch_size.")
        if len(torch.unique(data.pairs[:, 1])) < 2:
            raise InvalidInputError("all pairs name the same item, so there are no in-batch negatives; use 'uniform'.")
    elif len(data.items) < 2:
        raise InvalidInputError("there is only 1 item, so there are no negatives; give at least 2 items.")


def _train_epoch(  # noqa: PLR0917  (one call, the loop's own state)
    similarity: Similarity,
    optimizer: Optimizer,
    data: _Data,
    objective: _Objective,
    batch_size: int,
    progress: TrainingProgress,
) -> StepLosses:
    """One pass over the pairs; gives the mean losses."""
    similarity.train(True)
    softmax = balance = 0.0
    order = torch.randperm(len(data.pairs), generator=objective.generator).to(data.pairs.device)  # (M,)
    for rows in torch.split(order, batch_size):
        optimizer.zero_grad()
        step = _step(similarity, data, data.pairs[rows], objective)
        if not math.isfinite(step.softmax):
            raise _diverged(f"the loss is {step.softmax}", optimizer.param_groups[0]["lr"])
        optimizer.step()
        softmax += step.softmax * len(rows) / len(order)
        balance += step.balance * len(rows) / len(order)
        progress.advance(step.softmax)
    similarity.train(False)
    return StepLosses(softmax, balance)


def _step(similarity: Similarity, data: _Data, pairs: Tensor, objective: _Objective) -> StepLosses:
    """One forward and backward pass; the gradient is left in the weights."""
    queries, positives = pairs.unbind(dim=1)  # (B,)
    users = data.users_of(queries)
    query_parts = similarity.query_parts(data.queries[queries], user_ids=users)
    positive_parts = similarity.item_parts(data.items[positives])
    drawn = draw_negatives(
        objective.negatives,
        positives,
        num_items=len(data.items),
        num_negatives=objective.num_negatives,
        generator=objective.generator,
    )  # (n,)
    is_in_batch = objective.negatives is Negatives.IN_BATCH
    losses = backward_sampled_softmax(
        similarity,
        query_parts,
        positive_parts,
        positive_parts if is_in_batch else similarity.item_parts(data.items[drawn]),
        is_masked=drawn[None, :] == positives[:, None],  # (B, n)
        balance_weight=objective.balance_weight,
    )
    if users is not None and objective.user_penalty_weight:
        penalty = objective.user_penalty_weight * similarity.user_penalty(users)  # ()
        if penalty.requires_grad:
            penalty.backward()  # type: ignore[no-untyped-call]
    return losses


@torch.no_grad()
def _check_alive(similarity: Similarity, data: _Data, learning_rate: float) -> None:
    """Stop before weights that can no longer score are kept: the last step's damage shows in no loss."""
    queries, items = data.pairs[:256].unbind(dim=1)  # (B,)
    scores = similarity.score(
        similarity.query_parts(data.queries[queries], user_ids=data.users_of(queries)),
        similarity.item_parts(data.items[items]),
    )  # (B, B)
    if not is_finite(scores):
        raise _diverged("scores are NaN or infinite", learning_rate)


def _diverged(symptom: str, learning_rate: float) -> TrainingError:
    return TrainingError(f"{symptom}; lower learning_rate (it is {learning_rate:g}) or raise the temperature.")


@torch.no_grad()
def _validate(similarity: Similarity, data: _Data) -> dict[str, float] | None:
    if data.validation is None:
        return None
    pairs, seen = data.validation
    queries, targets = pairs.unbind(dim=1)  # (V,)
    query_parts = compute_query_parts(similarity, data.queries[queries], data.users_of(queries))
    item_parts = compute_item_parts(similarity, data.items)
    return summarize(target_ranks(similarity, query_parts, item_parts, targets, hidden=seen))


def _is_better(validation: dict[str, float] | None, best: dict[str, float] | None) -> bool:
    """Whether this epoch beats the best so far; without validation the last epoch is the one to keep."""
    return validation is None or best is None or validation["MRR"] > best["MRR"]
