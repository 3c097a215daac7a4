"""Train a similarity on existing embeddings, such as those of a two-tower model or a text encoder."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import (
    ArrayLike,
    as_choice,
    as_path,
    check_count,
    check_not_negative,
    check_positive,
    check_seed,
    check_share,
)
from railsearch.similarity import MixtureOfLogits, Similarity, check_similarity
from railsearch.similarity.fingerprints import compute_fingerprint
from railsearch.training.calibration import calibrate_temperature
from railsearch.training.config import Schedule, TrainingConfig
from railsearch.training.distillation import TeacherLoss
from railsearch.training.loop import train
from railsearch.training.negatives import Negatives
from railsearch.training.report import EpochReport, FitReport
from railsearch.training.task import Task
from railsearch.training.tasks.distilled import DistilledTask
from railsearch.training.tasks.pairs import PairData, PairTask, as_pair_data
from railsearch.training.tasks.students import PairStudent
from railsearch.training.tasks.taught_pairs import ask_about_rows
from railsearch.training.teacher import TeacherLike, TeacherScores


def fit_similarity(
    similarity: Similarity,
    query_embeddings: ArrayLike,
    item_embeddings: ArrayLike,
    pairs: ArrayLike | None = None,
    *,
    validation_pairs: ArrayLike | None = None,
    seen_pairs: ArrayLike | None = None,
    user_ids: ArrayLike | None = None,
    user_table_hashing: bool = False,
    negatives: str = Negatives.IN_BATCH.value,
    num_negatives: int = 256,
    epochs: int = 20,
    batch_size: int = 256,
    learning_rate: float = 3e-4,
    weight_decay: float = 0.1,
    warmup_share: float = 0.1,
    schedule: str = Schedule.COSINE.value,
    temperature_start: float | None = None,
    temperature_share: float = 0.5,
    balance_weight: float = 0.001,
    decorrelation_weight: float = 0.0,
    user_penalty_weight: float = 0.1,
    teacher: TeacherLike | None = None,
    teacher_loss: str = TeacherLoss.KL.value,
    teacher_weight: float | None = None,
    teacher_temperature: float | None = None,
    teacher_items: int = 32,
    patience: int | None = 5,
    calibrates: bool = True,
    seed: int = 0,
    folder: str | Path | None = None,
    show_progress: bool | None = None,
) -> FitReport:
    """Train a similarity in place on (query, right item) pairs, and keep the best epoch: the start is epoch 0.

    The embeddings do not change. Start from your own system: `MixtureOfLogits.around(dim=D, cosine=True)` scores as the
    cosine of the embeddings does before it is trained, and `dot_product=True` as their dot product. With validation
    pairs, the similarity keeps the weights of the epoch with the best validation MRR, so it is never below its start
    there; without them, it keeps the weights of the last epoch. The similarity is left in eval mode, ready for
    `Index.build`. A `DotProduct` has no weights: it is only validated.

    The loss is a sampled softmax. The other right items of a query are never its negatives. If a query has several
    right items in the validation pairs, the best-placed one counts. On the CPU, the same initial weights, the same seed
    and the same number of threads lead to the same weights, bit for bit, whether the run was resumed or not.

    Args:
        similarity: the similarity to train; changed in place.
        query_embeddings: (Q, D), one row for each query or user.
        item_embeddings: (N, D), one row for each item.
        pairs: (M, 2) integers: row of the query, row of an item that is right for it. A query may have several. May be
            omitted with a teacher: its best item of each query is then right.
        validation_pairs: held-out pairs of the same form. Their queries are ranked against all items except the
            query's training items.
        seen_pairs: further right pairs, which are not trained on, such as older purchases: their items are no negatives
            of their queries, and validation does not rank them.
        user_ids: (Q,), for a similarity with a user table; see MixtureOfLogits. Unknown users have a negative id.
        user_table_hashing: accept ids beyond the rows of the user table. Users whose ids differ by a multiple of the
            number of rows then share a row.
        negatives: "in_batch": the right items of the other pairs in the batch; "uniform" over all items, the same for
            all pairs of a batch; "per_example", different for each pair; "mixed", "hard" or "all": see
            docs/how-to/negatives.md.
        num_negatives: negatives that the pairs of a batch share; "in_batch" and "all" ignore it.
        epochs: passes over the pairs; 0 only validates.
        batch_size: pairs in each step.
        learning_rate: largest learning rate of AdamW. The default suits a start at your own system; a similarity with
            random initial weights needs about 1e-3.
        weight_decay: weight decay of AdamW; it pulls a mixture around your system back to its start.
        warmup_share: share of all steps in which the learning rate rises.
        schedule: course of the learning rate after the warm-up: "cosine", "linear" or "constant".
        temperature_start: temperature of the first step, from which training goes to the similarity's own temperature
            by equal factors; by default every step has the similarity's own.
        temperature_share: share of all steps after which the similarity has its own temperature.
        balance_weight: alpha, the weight of the load-balance loss.
        decorrelation_weight: weight of the mean squared cosine between the components of one query or item; it keeps
            them apart.
        user_penalty_weight: weight of the l2 penalty on the looked-up rows of a user table.
        teacher: a scorer to follow, such as a ranker that is too slow to search with: a function of query rows (n,) and
            item rows (n,) that returns scores (n,), or a table or a file with the columns query, item and score; see
            docs/how-to/distilling.md.
        teacher_loss: "kl" over lists of items, or "margin_mse" over pairs of items.
        teacher_weight: share of the teacher's loss; 1 follows the teacher alone. By default 0.5, or 1 without pairs.
        teacher_temperature: divides the teacher's scores; by default their standard deviation within a query.
        teacher_items: most scored items of a query in each step; a function scores four times as many.
        patience: stop after this many epochs without a better validation MRR; None never stops early.
        calibrates: choose the temperature of a mixture around a dot product, whose embeddings may have any scale, by
            the loss of its start. Other similarities, and trained ones, keep theirs.
        seed: seed of everything random: order, negatives, dropout.
        folder: folder for checkpoints and log.jsonl. If it holds an interrupted run, the run continues from its last
            checkpoint; give a similarity with the same initial weights, the same data and the same settings.
        show_progress: True draws a progress bar, False shows nothing; by default, a bar on a terminal, and an
            occasional line elsewhere.

    Raises:
        InvalidInputError: an argument is invalid, or the folder holds another run; nothing was trained.
        TrainingError: the loss was no longer finite; the best weights so far are restored.
    """
    check_similarity(similarity)
    if not isinstance(similarity, nn.Module):
        raise InvalidInputError(f"this {type(similarity).__name__} is not a torch module; give a MixtureOfLogits.")
    config = TrainingConfig(
        epochs=check_count(epochs, name="epochs", minimum=0),
        batch_size=check_count(batch_size, name="batch_size"),
        learning_rate=check_positive(learning_rate, name="learning_rate"),
        weight_decay=check_not_negative(weight_decay, name="weight_decay"),
        warmup_share=check_share(warmup_share, name="warmup_share"),
        schedule=as_choice(Schedule, schedule, name="schedule"),
        negatives=as_choice(Negatives, negatives, name="negatives"),
        num_negatives=check_count(num_negatives, name="num_negatives"),
        temperature_start=(
            None if temperature_start is None else check_positive(temperature_start, name="temperature_start")
        ),
        temperature_share=_check_part(temperature_share, name="temperature_share"),
        balance_weight=check_not_negative(balance_weight, name="balance_weight"),
        decorrelation_weight=check_not_negative(decorrelation_weight, name="decorrelation_weight"),
        user_penalty_weight=check_not_negative(user_penalty_weight, name="user_penalty_weight"),
        patience=None if patience is None else check_count(patience, name="patience"),
        teacher_loss=as_choice(TeacherLoss, teacher_loss, name="teacher_loss"),
        teacher_weight=_teacher_weight(teacher_weight, has_pairs=pairs is not None),
        teacher_temperature=(
            None if teacher_temperature is None else check_positive(teacher_temperature, name="teacher_temperature")
        ),
        teacher_items=check_count(teacher_items, name="teacher_items", minimum=2),
        seed=check_seed(seed),
    )
    if pairs is None and teacher is None:
        raise InvalidInputError("pairs is None and teacher is None; give the pairs, a teacher, or both.")
    weights = list(similarity.parameters())
    is_trained = any(weight.requires_grad for weight in weights)
    if weights and epochs and not is_trained:
        raise InvalidInputError(
            f"the weights of this {type(similarity).__name__} are frozen (those of an index are); load it again with "
            "load_similarity, or validate it with epochs=0."
        )
    data = as_pair_data(
        similarity,
        query_embeddings,
        item_embeddings,
        pairs,
        validation_pairs=validation_pairs,
        seen_pairs=seen_pairs,
        user_ids=user_ids,
        like=weights[0] if weights else torch.zeros(()),
    )
    if not user_table_hashing:
        _check_user_table(similarity, data)
    scores = None
    if teacher is not None:
        scores = ask_about_rows(teacher, similarity, data, config, show_progress=show_progress)
        if pairs is None:
            data = replace(data, pairs=scores.best_pairs().to(data.pairs.device))
    if calibrates:
        calibrate_temperature(similarity, data.queries, data.items, data.pairs, seed=seed)
    if not is_trained:
        validation = PairTask(similarity, data, config).validate()
        return FitReport((EpochReport(0, None, None, validation, 0.0),), 0)
    if epochs and (scores is None or config.teacher_weight < 1):
        _check_negatives(config, data)
    run_folder = None if folder is None else as_path(folder)
    task: Task = PairTask(similarity, data, config)
    if scores is not None:
        task = DistilledTask(task, PairStudent(similarity, data), scores, config)
    return train(
        task,
        config,
        folder=run_folder,
        about=None if run_folder is None else _describe_run(similarity, data, scores),
        validates_start=True,
        unit="pairs",
        show_progress=show_progress,
    )


def _teacher_weight(weight: float | None, *, has_pairs: bool) -> float:
    if weight is None:
        return 0.5 if has_pairs else 1.0
    return _check_part(weight, name="teacher_weight")


def _check_part(value: float, *, name: str) -> float:
    """Check that the value is a share above 0, which may be everything."""
    share = check_positive(value, name=name)
    if share > 1:
        raise InvalidInputError(f"{name} is {share:g}; give a share above 0 and at most 1.")
    return share


def _describe_run(similarity: Similarity, data: PairData, scores: TeacherScores | None) -> dict[str, str | None]:
    """Return everything besides the settings that a run depends on; a folder with another run is refused."""
    kind = type(similarity).__name__
    return {
        "similarity": kind,
        "first weights": compute_fingerprint(kind, similarity.config, similarity.state_dict()),
        "data": compute_fingerprint("pairs", {}, data.tensors()),
        "teacher scores": None if scores is None else scores.checksum(),
    }


def _check_user_table(similarity: Similarity, data: PairData) -> None:
    """Check that every user has a row of the user table."""
    if not isinstance(similarity, MixtureOfLogits) or similarity.user_table_size is None or data.user_ids is None:
        return
    largest = int(data.user_ids.max())
    if largest >= similarity.user_table_size:
        raise InvalidInputError(
            f"user_ids holds {largest} but user_table_size is {similarity.user_table_size}; give ids below "
            f"{similarity.user_table_size}, make the table larger, or pass user_table_hashing=True to let users share "
            "rows."
        )


def _check_negatives(config: TrainingConfig, data: PairData) -> None:
    """Check that every positive can have a negative."""
    if config.negatives is Negatives.PER_HISTORY:
        raise InvalidInputError(
            "negatives is 'per_history' but pairs have no histories; choose from: uniform, per_example, "
            "in_batch, mixed, hard, all."
        )
    if config.negatives is Negatives.IN_BATCH:
        if min(config.batch_size, len(data.pairs)) < 2:
            raise InvalidInputError("in-batch negatives need at least 2 pairs in a batch; raise batch_size.")
        if len(torch.unique(data.pairs[:, 1])) < 2:
            raise InvalidInputError("all pairs name the same item, so there are no in-batch negatives; use 'uniform'.")
    elif len(data.items) < 2:
        raise InvalidInputError("there is only 1 item, so there are no negatives; give at least 2 items.")
