"""How much of a ranker's ranking a mixture and a cosine keep: a neural teacher on MovieLens-1M.

pip install --constraint constraints.txt scikit-learn
mkdir -p exp/ml-1m && tar -C exp/ml-1m -xf ml-1m.tar.xz   # users.dat, movies.dat, ratings.dat
OMP_NUM_THREADS=1 nice -n 5 python benchmarks/distillation.py exp/ml-1m --work exp/distillation

Users are split into 4,540 for training, 500 for validation and 1,000 for the test. The first 80 % of a user's ratings
are the history, from which all features come; ratings of 4 or 5 among the rest are the right answers. All measures rank
the movies that are not in the history. Statistics of movies come from the histories of training users.

The teacher is scikit-learn's MLPClassifier. It learns to tell held-out likes of training users from random movies; it
sees features of user and movie, and crosses of them: overlap of tastes and genres, distance of ages and years, and how
often the movie is liked together with the history and with its last five movies. Validation picks its epoch. The same
network with only the crosses of genres and ages is measured beside it.

The students see features of users and of movies, and a factorization of the likes (64 values for the history, 64 for
the movie), never the crosses. Both have the same number of values per item, and the same scored lists: the teacher's 48
best movies and 48 random ones for each training user. Settings are chosen for each student at 16 values per item, one
after the other, by NDCG@10 on validation users. The chosen settings are trained at every size with several seeds, and
then the test users are read. Each training is one line of results.jsonl: a run that was interrupted continues.

- NDCG@10: the gain of a movie is the probability that the teacher gives it; the teacher's own list has 1.
- of its ten: NDCG@10 whose gain is 10 for the teacher's best movie, 9 for the next, and 0 below the ten.
- overlap: share of the teacher's ten that are among the student's ten.
- real NDCG@10 and AUC: against the held-out likes, for users that have some.

Intervals are 95 % bootstrap intervals over users and seeds; differences are paired by user and seed.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from distillation_teacher import Floats, Rows, Teacher, World, measure_real, read_world, split_users

from railsearch import MixtureOfLogits, fit_similarity
from railsearch.similarity.gate_start import start_even

MEASURES = ("NDCG@10", "of its ten", "overlap", "real NDCG@10", "real AUC")


def measure(world: World, scores: Floats, teacher: Floats, users: Rows) -> Floats:
    """Return all measures of a student for each user (U, 5)."""
    student, truth = (np.where(world.is_seen[users], -np.inf, each) for each in (scores, teacher))
    mine, best = (np.argsort(-each, axis=1, kind="stable")[:, :10] for each in (student, truth))
    discount = 1 / np.log2(np.arange(2, 12))
    odds, ranks = 1 / (1 + np.exp(-truth)), np.zeros_like(truth)
    np.put_along_axis(ranks, best, np.arange(10, 0, -1)[None], axis=1)
    kept = [
        (np.take_along_axis(gain, mine, axis=1) @ discount) / (np.take_along_axis(gain, best, axis=1) @ discount)
        for gain in (odds, ranks)
    ]
    overlap = (np.take_along_axis(ranks, mine, axis=1) > 0).mean(axis=1)
    return np.column_stack([*kept, overlap, measure_real(world, scores, users)]).astype(np.float32)


@dataclass(frozen=True)
class Setting:
    """Everything that training a student depends on; the defaults are the start of the search."""

    student: str
    values: int = 16
    seed: int = 0
    shape: tuple[int, int] = (1, 1)
    gate: tuple[str, ...] = ()
    gate_dim: int = 64
    starts_even: bool = True
    learning_rate: float = 6e-3
    epochs: int = 8
    temperature: float = 0.1
    teacher_temperature: float = 1.0
    teacher_loss: str = "kl"
    hidden: int = 128
    dropout: float = 0.0


STARTS = {
    "cosine": Setting("cosine"),
    "mixture": Setting("mixture", shape=(8, 1), gate=("query", "pair")),
}
COMMON: list[dict[str, object]] = [
    {"learning_rate": 3e-3}, {"learning_rate": 1.2e-2}, {"temperature": 0.05}, {"teacher_temperature": 0.5},
    {"teacher_loss": "margin_mse"}, {"hidden": 256}, {"dropout": 0.1}, {"epochs": 16},
]  # fmt: skip
CHOICES: dict[str, list[dict[str, object]]] = {
    "cosine": [*COMMON, {"temperature": 0.2}, {"teacher_temperature": 2.0}, {"learning_rate": 2.4e-2}],
    "mixture": [
        {"shape": (16, 1)}, {"shape": (4, 2)}, {"shape": (4, 1), "gate": ("query", "item", "pair")},
        {"starts_even": False}, *COMMON,
    ],
}  # fmt: skip


class Laboratory:
    """Trains students and measures them; remembers what was measured in a file."""

    def __init__(self, folder: Path, work: Path) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self._file, self.world = work / "results.jsonl", read_world(folder)
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self._known = dict(map(json.loads, lines))
        self.split = split_users(len(self.world.users))
        self._inputs = [
            np.concatenate(sides, axis=1)
            for sides in ((self.world.users, self.world.user_factors), (self.world.movies, self.world.movie_factors))
        ]
        scores = work / "teacher.npz"
        if not scores.exists():
            np.savez(scores, **self._teach())
        self._scores = dict(np.load(scores))

    def _teach(self) -> dict[str, npt.NDArray[np.generic]]:
        """Train the teacher, and return scored lists and the scores of held-out users."""
        world, split, draw = self.world, self.split, np.random.default_rng(2)
        teacher = Teacher(world, has_history=True)
        teacher.fit(split["training"], split["validation"])
        found = {name: teacher.score(split[name]) for name in ("validation", "test")}
        queries, items, scores = [], [], []
        for first in range(0, len(split["training"]), 500):
            users = split["training"][first : first + 500]
            values = np.where(world.is_seen[users], -np.inf, teacher.score(users))
            drawn = draw.random(values.shape) - world.is_seen[users]
            chosen = np.concatenate([np.argsort(-each, axis=1)[:, :48] for each in (values, drawn)], axis=1)
            queries.append(np.repeat(np.arange(first, first + len(users)), 96))
            items.append(chosen.flatten())
            scores.append(np.take_along_axis(values, chosen, axis=1).flatten())
        parts = {"query": queries, "item": items, "score": scores}
        return found | {name: np.concatenate(part) for name, part in parts.items()}

    def measure(self, setting: Setting, part: str) -> Floats:
        """Train a student, and return the measures of each user of this part (U, 5)."""
        key = json.dumps([part, asdict(setting)])
        if key not in self._known:
            started, users, (queries, items) = time.process_time(), self.split[part], self._inputs
            student = make_student(setting, queries.shape[1], items.shape[1])
            lists = pl.DataFrame({name: self._scores[name] for name in ("query", "item", "score")})
            fit_similarity(
                student, queries[self.split["training"]], items, teacher=lists.unique(maintain_order=True),
                teacher_loss=setting.teacher_loss, teacher_temperature=setting.teacher_temperature,
                epochs=setting.epochs, batch_size=64, learning_rate=setting.learning_rate, weight_decay=0.01,
                patience=None, seed=setting.seed, show_progress=False,
            )  # fmt: skip
            with torch.no_grad():
                parts = student.item_parts(torch.from_numpy(items))
                blocks = torch.from_numpy(queries[users]).split(50)
                scores = torch.cat([student.score(student.query_parts(block), parts) for block in blocks]).numpy()
            found = measure(self.world, scores, self._scores[part], users)
            self._known[key] = [[round(float(value), 4) for value in row] for row in found]
            with self._file.open("a") as file:
                file.write(json.dumps([key, self._known[key]]) + "\n")
            means = " ".join(f"{value:.4f}" for value in np.nanmean(found, axis=0))
            print(f"{part} {setting} {means} ({time.process_time() - started:.0f} CPU s)", flush=True)
        return np.array(self._known[key], dtype=np.float32)

    def references(self) -> dict[str, Floats]:
        """Return the measures of the teacher, a simpler one and the most popular movies for each test user (U, 5)."""
        users, truth = self.split["test"], self._scores["test"]
        popular = np.tile(self.world.popularity, (len(users), 1))
        simple = Teacher(self.world, has_history=False)
        simple.fit(self.split["training"], self.split["validation"])
        return {
            "teacher": measure(self.world, truth, truth, users),
            "simpler teacher": measure(self.world, simple.score(users), truth, users),
            "most popular": measure(self.world, popular, truth, users),
        }


def make_student(setting: Setting, query_dim: int, item_dim: int) -> MixtureOfLogits:
    """Return a student whose items have `values` values; an item side of the gate counts as such."""
    num_query, num_item = setting.shape
    gate_values = num_query * num_item if "item" in setting.gate else 0
    student = MixtureOfLogits(
        query_dim=query_dim, item_dim=item_dim, num_query_components=num_query, num_item_components=num_item,
        component_dim=(setting.values - gate_values) // num_item, projection_dim=setting.hidden,
        temperature=setting.temperature, learns_temperature=True, item_projection="swiglu",
        item_dropout=setting.dropout, gate_inputs=setting.gate, gate_dim=setting.gate_dim, gate_dropout=0.0,
        seed=setting.seed,
    )  # fmt: skip
    if setting.starts_even:
        start_even(student)
    return student


def choose(laboratory: Laboratory, name: str) -> Setting:
    """Return the best setting on validation users: one change after the other, kept if NDCG@10 rises."""
    best = STARTS[name]
    highest = laboratory.measure(best, "validation")[:, 0].mean()
    for change in CHOICES[name]:
        changed = replace(best, **change)  # type: ignore[arg-type]
        found = laboratory.measure(changed, "validation")[:, 0].mean()
        if found > highest:
            best, highest = changed, found
    print(f"\nchosen: {best}, NDCG@10 {highest:.4f} on validation users\n", flush=True)
    return best


def interval(values: Floats) -> str:
    """Return the mean of values (S, U) and its 95 % bootstrap interval over seeds and users."""
    draw = np.random.default_rng(0)
    values = values[:, ~np.isnan(values).any(axis=0)]
    seeds, users = values.shape
    means = [values[draw.integers(seeds, size=seeds)][:, draw.integers(users, size=users)].mean() for _ in range(2000)]
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{values.mean():.4f} [{low:.4f}, {high:.4f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="users.dat, movies.dat and ratings.dat of MovieLens-1M")
    parser.add_argument("--work", type=Path, required=True, help="folder for the teacher's scores and results.jsonl")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16, 32, 64], help="values per item")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    laboratory = Laboratory(options.folder, options.work)
    chosen = {name: choose(laboratory, name) for name in STARTS}
    header = f"| {' | '.join(['values per item', 'student', *MEASURES])} |\n|{'---|' * (2 + len(MEASURES))}"
    print(header)
    for values in options.sizes:
        found = {
            name: np.stack(
                [laboratory.measure(replace(best, values=values, seed=seed), "test") for seed in options.seeds]
            )
            for name, best in chosen.items()
        }
        found["mixture - cosine"] = found["mixture"] - found["cosine"]
        for name, each in found.items():
            columns = " | ".join(interval(each[:, :, number]) for number in range(len(MEASURES)))
            print(f"| {values} | {name} | {columns} |", flush=True)
    for name, found in laboratory.references().items():
        print(f"| | {name} | {' | '.join(interval(found[None, :, each]) for each in range(found.shape[1]))} |")


if __name__ == "__main__":
    main()
