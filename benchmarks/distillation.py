"""How much of a ranker's ranking a mixture and a cosine keep: a gradient-boosted teacher on MovieLens-1M.

pip install --constraint constraints.txt scikit-learn
mkdir -p exp/ml-1m && tar -C exp/ml-1m -xf ml-1m.tar.xz   # users.dat, movies.dat, ratings.dat
OMP_NUM_THREADS=1 nice -n 10 python benchmarks/distillation.py exp/ml-1m

The teacher is scikit-learn's HistGradientBoostingClassifier. It is trained on the ratings of 2,000 users to tell the
movies that a user rated 4 or 5 from random movies. Its features are those of the user (age, gender, occupation, mean
rating, number of ratings, share and mean rating of each genre), those of the movie (year, genres, popularity, mean
rating), and three crosses: the overlap of tastes and genres, and the difference of ages. A teacher like this scores one
query-item pair at a time, so it cannot be searched.

The students see the plain features of users and movies, never the crosses. All have the same number of values per item,
the same networks up to the last layer, the same scored lists, and the same number of steps; no epoch is
picked. On 200 held-out users, all 3,883 movies are ranked by teacher and students:

- NDCG@10: the gain of a movie is the probability that the teacher gives it; the teacher's own list has 1.
- NDCG@10 of its top 10: the gain is 10 for the teacher's best movie, 9 for the next, and 0 below the ten.
- overlap: share of the teacher's ten that are among the student's ten.

Intervals are 95 % bootstrap intervals over users, of the mean of two seeds.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from railsearch import MixtureOfLogits, fit_similarity

Floats = npt.NDArray[np.float32]
NUM_TRAIN, NUM_TEST = 2000, 200
ITEMS_PER_USER = 96
STUDENTS = ("cosine", "dot product", "mixture of cosines", "mixture of dot products")
AGES, NUM_JOBS = (1, 18, 25, 35, 45, 50, 56), 21


@dataclass(frozen=True)
class World:
    """Features of users and movies, and ratings as (user row, movie row, stars)."""

    users: Floats  # (U, F)
    movies: Floats  # (N, G)
    genres: Floats  # (N, g)
    tastes: Floats  # (U, g) share of each genre among the movies that a user rated 4 or 5
    moods: Floats  # (U, g) mean rating of each genre, less the user's mean
    ages: Floats  # (U,)
    audience: Floats  # (N,) mean age of those who like a movie
    ratings: npt.NDArray[np.int64]  # (R, 3)
    popularity: Floats  # (N,) share of the likes of training users


def read_world(folder: Path) -> World:
    """Read the original files, and compute features; those of movies from training users only."""
    rows = {
        name: [line.split("::") for line in (folder / f"{name}.dat").read_text(encoding="latin-1").splitlines()]
        for name in ("users", "movies", "ratings")
    }
    ratings = pl.DataFrame(rows["ratings"], schema=["user", "movie", "stars", "time"], orient="row").cast(pl.Int64)
    place = {int(row[0]): number for number, row in enumerate(rows["movies"])}
    triples = np.stack(
        [
            ratings["user"].to_numpy() - 1,
            ratings["movie"].replace_strict(place).to_numpy(),
            ratings["stars"].to_numpy(),
        ],
        axis=1,
    )
    names = sorted({genre for row in rows["movies"] for genre in row[2].split("|")})
    genres = np.array([[genre in row[2].split("|") for genre in names] for row in rows["movies"]], dtype=np.float32)
    years = np.array([int(row[1][-5:-1]) for row in rows["movies"]], dtype=np.float32)
    ages = np.array([int(row[2]) for row in rows["users"]], dtype=np.float32)
    num_users, num_movies = len(ages), len(years)
    user, movie, stars = triples.T
    likes = stars >= 4

    def mean(keys: npt.NDArray[np.int64], values: Floats, count: int, prior: float) -> Floats:
        sums, counts = np.bincount(keys, values, count), np.bincount(keys, minlength=count)
        return ((sums + 5 * prior) / (counts + 5)).astype(np.float32)

    overall = float(stars.mean())
    own = mean(user, stars.astype(np.float32), num_users, overall)
    tastes, moods = np.zeros((2, num_users, len(names)), dtype=np.float32)
    for number in range(len(names)):
        has = genres[movie, number] > 0
        tastes[:, number] = np.bincount(user[has & likes], minlength=num_users)
        moods[:, number] = mean(user[has], (stars - own[user])[has].astype(np.float32), num_users, 0.0)
    tastes /= np.maximum(tastes.sum(axis=1, keepdims=True), 1)
    is_train = np.isin(user, split_users(num_users)[0])
    popularity = np.bincount(movie[is_train & likes], minlength=num_movies).astype(np.float32)
    audience = mean(movie[is_train & likes], ages[user[is_train & likes]], num_movies, float(ages.mean()))
    jobs = np.eye(NUM_JOBS, dtype=np.float32)[[int(row[3]) for row in rows["users"]]]
    groups = (ages[:, None] == np.array(AGES)).astype(np.float32)
    sex = np.array([[row[1] == "F"] for row in rows["users"]], dtype=np.float32)
    count = np.log1p(np.bincount(user, minlength=num_users)).astype(np.float32)
    users = np.concatenate([sex, groups, jobs, own[:, None], count[:, None], 5 * tastes, moods], axis=1)
    quality = mean(movie[is_train], stars[is_train].astype(np.float32), num_movies, overall)
    facts = np.stack([(years - 1980) / 20, np.log1p(popularity), quality, audience / 20], axis=1)
    movies = np.concatenate([facts, genres], axis=1)
    return World(
        _scaled(users), _scaled(movies), genres, tastes, moods, ages, audience, triples, popularity / popularity.sum()
    )


def _scaled(features: Floats) -> Floats:
    spread = features.std(axis=0)
    scaled: Floats = ((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)).astype(np.float32)
    return scaled


def split_users(num_users: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return training users and test users, drawn once."""
    order = np.random.default_rng(0).permutation(num_users)
    return order[:NUM_TRAIN], order[NUM_TRAIN : NUM_TRAIN + NUM_TEST]


class Teacher:
    """A gradient-boosted ranker of (user, movie) pairs."""

    def __init__(self, world: World, users: npt.NDArray[np.int64]) -> None:
        self._world = world
        ratings = world.ratings[np.isin(world.ratings[:, 0], users) & (world.ratings[:, 2] >= 4)]
        draw = np.random.default_rng(1)
        liked = ratings[draw.permutation(len(ratings))[:20_000]]
        asked = np.concatenate([liked[:, 0], liked[:, 0], liked[:, 0]])
        others = draw.integers(len(world.movies), size=2 * len(liked))
        items = np.concatenate([liked[:, 1], others])
        labels = np.concatenate([np.ones(len(liked)), np.zeros(len(others))])
        self._model = HistGradientBoostingClassifier(max_iter=60, learning_rate=0.15, max_leaf_nodes=31, random_state=0)
        self._model.fit(self._features(asked, items), labels)

    def __call__(self, users: npt.NDArray[np.int64], movies: npt.NDArray[np.int64]) -> Floats:
        """Return the log-odds that each user likes each movie."""
        scores = [
            self._model.decision_function(self._features(users[first : first + 2**16], movies[first : first + 2**16]))
            for first in range(0, len(users), 2**16)
        ]
        return np.concatenate(scores).astype(np.float32)

    def _features(self, users: npt.NDArray[np.int64], movies: npt.NDArray[np.int64]) -> Floats:
        world = self._world
        crosses = np.stack(
            [
                (world.tastes[users] * world.genres[movies]).sum(axis=1),
                (world.moods[users] * world.genres[movies]).sum(axis=1),
                np.abs(world.ages[users] - world.audience[movies]),
            ],
            axis=1,
        )
        return np.concatenate([world.users[users], world.movies[movies], crosses], axis=1)


def draw_pairs(world: World, users: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Return the pairs that the teacher scores for the students: half by popularity, half at random."""
    draw, num_movies = np.random.default_rng(2), len(world.movies)
    half = ITEMS_PER_USER // 2
    popular = draw.choice(num_movies, size=(len(users), half), p=world.popularity / world.popularity.sum())
    items = np.concatenate([popular, draw.integers(num_movies, size=(len(users), half))], axis=1)
    rows = np.repeat(np.arange(len(users)), ITEMS_PER_USER)
    return pl.DataFrame({"query": rows, "item": items.flatten()}).unique(maintain_order=True)


def make_student(world: World, name: str, *, values: int, seed: int) -> MixtureOfLogits:
    """Return a student with `values` values per item: one component, or four of a quarter each."""
    count = 4 if name.startswith("mixture") else 1
    has_length = "dot product" in name  # components of any length, not of length 1
    return MixtureOfLogits(
        query_dim=world.users.shape[1], item_dim=world.movies.shape[1], num_query_components=count,
        num_item_components=count, component_dim=values // count, projection_dim=128, gate_dim=64,
        normalizes=not has_length, temperature=1.0 if has_length else 0.1, learns_temperature=True,
        item_projection="swiglu", item_dropout=0.0, gate_inputs=("query", "pair"), gate_dropout=0.0, seed=seed,
    )  # fmt: skip


def measure(student: Floats, teacher: Floats) -> Floats:
    """Return NDCG@10 by probability, NDCG@10 of the teacher's ten, and the overlap, for each user (U, 3)."""
    mine, best = (np.argsort(-scores, axis=1, kind="stable")[:, :10] for scores in (student, teacher))
    discount = 1 / np.log2(np.arange(2, 12))
    odds = 1 / (1 + np.exp(-teacher))
    ranks = np.zeros_like(teacher)
    np.put_along_axis(ranks, best, np.arange(10, 0, -1, dtype=np.float32)[None], axis=1)
    found = [
        (np.take_along_axis(gain, mine, axis=1) @ discount) / (np.take_along_axis(gain, best, axis=1) @ discount)
        for gain in (odds, ranks)
    ]
    return np.stack([*found, (np.take_along_axis(ranks, mine, axis=1) > 0).mean(axis=1)], axis=1)


def interval(values: Floats) -> str:
    """Return the mean and the half width of its 95 % bootstrap interval."""
    draw = np.random.default_rng(0)
    means = [values[draw.integers(len(values), size=len(values))].mean() for _ in range(1000)]
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{values.mean():.3f} ± {(high - low) / 2:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="users.dat, movies.dat and ratings.dat of MovieLens-1M")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32], help="values per item")
    parser.add_argument("--students", nargs="+", choices=STUDENTS, default=list(STUDENTS))
    parser.add_argument("--losses", nargs="+", default=["kl"])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    world = read_world(options.folder)
    training, test = split_users(len(world.users))
    teacher = Teacher(world, training)
    pairs = draw_pairs(world, training)
    scores = pairs.with_columns(
        score=pl.Series(teacher(training[pairs["query"].to_numpy()], pairs["item"].to_numpy()).astype(np.float64))
    )
    num_movies = len(world.movies)
    truth = teacher(np.repeat(test, num_movies), np.tile(np.arange(num_movies), len(test))).reshape(len(test), -1)
    popular = np.tile(world.popularity, (len(test), 1))
    print(f"teacher and its scores: {time.process_time() - started:.0f} s of one core", flush=True)
    print("\n| student | values per item | loss | NDCG@10 | NDCG@10 of its top 10 | overlap | CPU s |")
    print("|---|---|---|---|---|---|---|")
    shares = measure(popular, truth)
    print(f"| most popular | 0 | | {' | '.join(interval(shares[:, each]) for each in range(3))} | |", flush=True)
    for values in options.sizes:
        for loss in options.losses:
            for name in options.students:
                found, started = [], time.process_time()
                for seed in options.seeds:
                    student = make_student(world, name, values=values, seed=seed)
                    fit_similarity(
                        student, world.users[training], world.movies, teacher=scores, teacher_loss=loss,
                        epochs=options.epochs, batch_size=64, learning_rate=2e-3, weight_decay=0.01, patience=None,
                        teacher_temperature=1.0, seed=seed, show_progress=False,
                    )  # fmt: skip
                    with torch.no_grad():
                        item_parts = student.item_parts(torch.from_numpy(world.movies))
                        ranked = [
                            student.score(
                                student.query_parts(torch.from_numpy(world.users[test[first : first + 50]])), item_parts
                            )
                            for first in range(0, len(test), 50)
                        ]
                    found.append(measure(torch.cat(ranked).numpy(), truth))
                shares = np.mean(found, axis=0)
                columns = " | ".join(interval(shares[:, each]) for each in range(3))
                seconds = time.process_time() - started
                print(f"| {name} | {values} | {loss} | {columns} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
