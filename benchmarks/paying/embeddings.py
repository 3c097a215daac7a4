"""Comparison of the own score of given embeddings, that score tuned, and a mixture; one line of JSON for each fit."""

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paying.results import ResultsFile
from railsearch import DotProduct, MixtureOfLogits, evaluate, fit_similarity, widen
from railsearch.foundation.metrics import summarize
from railsearch.similarity import Similarity
from railsearch.training import FitReport

MODELS = ("frozen", "tuned", "tuned twice", "mixture", "widened")
"""A widened mixture continues the tuned score. Tuned twice is the tuned score with the same second training."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Embeddings with pairs to train on, to pick the epoch, and to measure."""

    name: str
    queries: Tensor  # (Q, D)
    items: Tensor  # (N, D)
    pairs: Tensor  # (M, 2)
    validation_pairs: Tensor  # (V, 2)
    test_pairs: Tensor  # (T, 2)
    seen_pairs: Tensor | None = None
    """Pairs whose items are no candidates for their query in the test."""
    known_pairs: Tensor | None = None
    """Further right pairs, which training neither uses nor counts as wrong; validation hides their items."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a comparison; the options are those of `fit_similarity`, whose defaults hold otherwise."""

    score: str
    components: tuple[int, int]
    seed: int
    options: dict[str, int | float | str]


def split_by_query(folder: Path, *, num_splits: int, num_held_out: int) -> Iterator[Part]:
    """Return random splits of the queries; no query is in the test of two splits. Validation has as many queries."""
    queries, items, pairs = (
        torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("queries", "items", "pairs")
    )
    if num_splits * num_held_out > len(queries):
        raise SystemExit(f"{num_splits} tests of {num_held_out} queries need more than the {len(queries)} there are.")
    order = torch.randperm(len(queries), generator=torch.Generator().manual_seed(0))  # (Q,)
    for split in range(num_splits):
        turned = order.roll(-split * num_held_out)  # (Q,)
        part_of = torch.zeros(len(queries), dtype=torch.int64)  # (Q,) 0 train, 1 validation, 2 test
        part_of[turned[:num_held_out]] = 2
        part_of[turned[num_held_out : 2 * num_held_out]] = 1
        train, validation, test = (pairs[part_of[pairs[:, 0]] == part] for part in range(3))
        yield Part(f"split {split}", queries, items, train, validation, test)


def read_factors(folder: Path) -> Part:
    """Read factors of matrix factorisation with pairs to train on and pairs that are held out."""
    queries, items, pairs, validation_pairs, test_pairs = (
        torch.from_numpy(np.load(folder / f"{name}.npy"))
        for name in ("queries", "items", "pairs", "validation_pairs", "test_pairs")
    )
    file = folder / "seen_pairs.npy"
    known = torch.from_numpy(np.load(file)) if file.is_file() else None
    seen = torch.cat([pairs if known is None else known, validation_pairs])
    return Part("last item", queries, items, pairs, validation_pairs, test_pairs, seen, known)


def compare(part: Part, settings: Settings, results: ResultsFile, *, command: str, data: str, label: str) -> None:
    """Fit and measure each model that the results do not hold yet."""
    for model in MODELS:
        about = {"command": command, "data": data, "label": label, "part": part.name, "model": model}
        about |= dataclasses.asdict(settings)
        if results.has(about):
            continue
        found = fit(part, model, settings)
        results.append({**about, **found})
        figures = "  ".join(f"{name} {value:.4f}" for name, value in summarize(found["ranks"], ks=(1, 10)).items())
        print(f"{data}, {part.name}, seed {settings.seed}, {model}: {figures}  ({found['seconds']:.0f} s)", flush=True)


def build(model: str, dim: int, settings: Settings) -> Similarity:
    """Return a similarity that scores as the embeddings' own cosine or dot product until it is trained."""
    is_cosine = settings.score == "cosine"
    if model == "frozen":
        return DotProduct(dim=dim, cosine=is_cosine)
    num_query, num_item = (1, 1) if model == "tuned" else settings.components
    own_score = {"cosine": True} if is_cosine else {"dot_product": True}
    return MixtureOfLogits.around(
        dim=dim, num_query_components=num_query, num_item_components=num_item, seed=settings.seed, **own_score
    )


def fit(part: Part, model: str, settings: Settings) -> dict[str, Any]:
    """Train one model and rank the right items of the test queries."""
    is_second = model in {"tuned twice", "widened"}
    similarity = build("tuned" if is_second else model, part.queries.shape[1], settings)
    started = time.perf_counter()
    found: dict[str, Any] = {}
    if model != "frozen":
        report = train(similarity, part, settings)
        if model == "widened":
            num_query, num_item = settings.components
            similarity = widen(
                similarity, num_query_components=num_query, num_item_components=num_item, seed=settings.seed
            )
        if is_second:
            report = train(similarity, part, settings)
        found = {
            "best_epoch": report.best_epoch,
            "epochs": [[epoch.epoch, (epoch.validation or {}).get("MRR")] for epoch in report.epochs],
            "training_seconds": report.seconds,
        }
    ranks = evaluate(similarity, part.queries, part.items, part.test_pairs, seen_pairs=part.seen_pairs).ranks  # (T,)
    return {
        **found,
        "seconds": time.perf_counter() - started,
        "ranks": ranks.tolist(),
        "num_items": len(part.items),
        "num_pairs": len(part.pairs),
    }


def train(similarity: Similarity, part: Part, settings: Settings) -> FitReport:
    """Train a similarity on the pairs of a part."""
    return fit_similarity(
        similarity,
        part.queries,
        part.items,
        part.pairs,
        validation_pairs=part.validation_pairs,
        seen_pairs=part.known_pairs,
        seed=settings.seed,
        show_progress=False,
        **settings.options,
    )
