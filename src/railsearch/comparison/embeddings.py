"""A comparison on given embeddings: the system as it is, a tuned cosine or dot product, and a Mixture of Logits."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from railsearch.benchmark import describe_machine
from railsearch.comparison.cost import BATCH_SIZE, DEPTH, bytes_per_item, index_search, time_searches, timed_queries
from railsearch.comparison.report import Comparison, System
from railsearch.comparison.splitting import PairSplit
from railsearch.evaluation import Evaluation, evaluate
from railsearch.folders import save_similarity
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.progress import announce
from railsearch.similarity import DotProduct, MixtureOfLogits, Similarity, widen
from railsearch.training import FitReport, fit_similarity

MIXTURE = "MoL"


@dataclass(frozen=True, slots=True)
class Budget:
    """The training that every system gets."""

    num_runs: int
    epochs: int
    batch_size: int
    num_components: int
    """Components of queries and of items in the mixture."""
    folder: Path | None
    """Folder for checkpoints and trained similarities; None keeps nothing."""
    show_progress: bool | None

    def __str__(self) -> str:
        times = "once" if self.num_runs == 1 else f"{self.num_runs} times (seeds 0 to {self.num_runs - 1})"
        return (
            f"every model is trained {times}: at most {self.epochs} epochs with batches of {self.batch_size} pairs; "
            "validation MRR picks the epoch, and may pick the start"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The runs of one system."""

    name: str
    evaluations: tuple[Evaluation, ...]
    reports: tuple[FitReport, ...]
    similarities: tuple[MixtureOfLogits | DotProduct, ...]
    """The similarity of each run."""
    earlier_reports: tuple[FitReport, ...] = ()
    """Of the runs that these continue."""


def compare_embeddings(
    queries: Tensor,
    items: Tensor,
    split: PairSplit,
    budget: Budget,
    *,
    is_cosine: bool,
    unit: str = "queries",
    before: Sequence[System] = (),
    notes: Sequence[str] = (),
) -> Comparison:
    """Train and measure each system on the same split.

    Args:
        queries: (Q, D) query embeddings.
        items: (N, D) item embeddings.
        split: training, validation and test pairs.
        budget: the training that every system gets.
        is_cosine: whether the given system is the cosine of the embeddings; otherwise it is their dot product.
        unit: the name of queries in the verdict.
        before: systems that were measured on the same test queries before, simpler than all others.
        notes: more that the figures depend on.
    """
    num_right = len(torch.unique(split.train[:, 1]))
    if num_right < 2:
        raise InvalidInputError(
            f"the training pairs name {num_right} item, so nothing can be learned from them; give pairs of at least 2 "
            "items."
        )
    dim = queries.shape[1]
    kind = "cosine" if is_cosine else "dot product"
    frozen = DotProduct(dim=dim, cosine=is_cosine)

    def build_tuned(seed: int) -> MixtureOfLogits:
        return MixtureOfLogits.around(
            dim=dim,
            cosine=is_cosine,
            dot_product=not is_cosine,
            num_query_components=1,
            num_item_components=1,
            gate_inputs=(),
            gate_dropout=0.0,
            seed=seed,
        )

    def widen_tuned(seed: int) -> MixtureOfLogits:
        num = budget.num_components
        own = tuned.similarities[seed]
        assert isinstance(own, MixtureOfLogits)
        return widen(own, num_query_components=num, num_item_components=num, seed=seed)

    tuned = _train(f"tuned {kind}", build_tuned, queries, items, split=split, budget=budget)
    mixture = _train(MIXTURE, widen_tuned, queries, items, split=split, budget=budget)
    measured = [
        Trained(f"frozen {kind}", (_measure(frozen, queries, items, split),), (), (frozen,)),
        tuned,
        dataclasses.replace(mixture, earlier_reports=tuned.reports),
    ]
    timed = timed_queries(queries[torch.unique(split.test[:, 0])])
    searches = [index_search(own.similarities[0], items, timed) for own in measured]
    milliseconds = time_searches(searches, num_queries=len(timed))
    systems = [
        System(
            name=own.name,
            evaluations=own.evaluations,
            training_seconds=_mean_seconds(own.reports + own.earlier_reports, num_runs=budget.num_runs),
            best_epochs=tuple(report.best_epoch for report in own.reports),
            search_milliseconds=time,
            bytes_per_item=bytes_per_item(own.similarities[0], items),
        )
        for own, time in zip(measured, milliseconds, strict=True)
    ]
    return Comparison.of_systems(
        [*before, *systems],
        unit=unit,
        protocol=measured[0].evaluations[0].protocol,
        notes=(
            split.description,
            *notes,
            f"{budget}; {MIXTURE} continues the tuned {kind} with {budget.num_components} x {budget.num_components} "
            "components, and its training time is that of both",
            *idle_notes(systems),
            f"search: the {DEPTH} best of {len(items):,} items by brute force, for {len(timed)} queries in batches of "
            f"{BATCH_SIZE}",
        ),
        machine=describe_machine(),
    )


def _train(
    name: str,
    build: Callable[[int], MixtureOfLogits],
    queries: Tensor,
    items: Tensor,
    *,
    split: PairSplit,
    budget: Budget,
) -> Trained:
    evaluations, reports, similarities = [], [], []
    for seed in range(budget.num_runs):
        announce(f"training: {name}, seed {seed}", is_shown=budget.show_progress)
        similarity = build(seed)
        folder = None if budget.folder is None else budget.folder / f"{name.replace(' ', '-').lower()}-{seed}"
        report = fit_similarity(
            similarity,
            queries,
            items,
            split.train,
            validation_pairs=split.validation,
            epochs=budget.epochs,
            batch_size=min(budget.batch_size, max(2, len(split.train))),
            seed=seed,
            folder=folder,
            show_progress=budget.show_progress,
        )
        if folder is not None:
            save_similarity(similarity, folder / "model", overwrite=True)
        evaluations.append(_measure(similarity, queries, items, split))
        reports.append(report)
        similarities.append(similarity)
    return Trained(name, tuple(evaluations), tuple(reports), tuple(similarities))


def _measure(similarity: Similarity, queries: Tensor, items: Tensor, split: PairSplit) -> Evaluation:
    return evaluate(similarity, queries, items, split.test, seen_pairs=split.seen)


def idle_notes(systems: Sequence[System]) -> list[str]:
    """Return a note about each system that training did not improve in any run."""
    return [
        f"{system.name}: no epoch was better than the start on validation, in any run"
        for system in systems
        if system.best_epochs and not any(system.best_epochs)
    ]


def _mean_seconds(reports: Sequence[FitReport], *, num_runs: int) -> float | None:
    return sum(report.seconds for report in reports) / num_runs if reports else None
