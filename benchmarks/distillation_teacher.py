"""The teacher of `distillation.py`: features of MovieLens-1M, and a network that ranks movies for users."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse
from scipy.sparse.linalg import svds
from sklearn.neural_network import MLPClassifier

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
NUM_VALIDATION, NUM_TEST, NUM_FACTORS, TEACHER_EPOCHS = 500, 1000, 64, 4


@dataclass(frozen=True)
class World:
    """Features of users and movies, histories, and the held-out likes."""

    users: Floats  # (U, F) plain features, scaled
    movies: Floats  # (N, G)
    user_factors: Floats  # (U, f)
    movie_factors: Floats  # (N, f)
    tastes: Floats  # (U, g) share of each genre among the likes
    moods: Floats  # (U, g) mean rating of each genre, less the user's mean
    genres: Floats  # (N, g)
    ages: Floats  # (U,)
    audience: Floats  # (N,) mean age of those who like a movie
    tastes_in_years: Floats  # (U,) mean year of the likes
    years: Floats  # (N,)
    likes: sparse.csr_matrix  # (U, N) of the history
    last_likes: sparse.csr_matrix  # (U, N) the last five of them
    together: Floats  # (N, N) how often two movies are liked by the same training user
    is_seen: npt.NDArray[np.bool_]  # (U, N)
    is_right: npt.NDArray[np.bool_]  # (U, N) held-out likes
    popularity: Floats  # (N,)


def split_users(num_users: int) -> dict[str, Rows]:
    """Return the users of training, validation and test, drawn once."""
    order, last = np.random.default_rng(0).permutation(num_users), 3000 + NUM_VALIDATION
    return {
        "training": np.concatenate([order[:3000], order[last + NUM_TEST :]]),
        "validation": order[3000:last],
        "test": order[last : last + NUM_TEST],
    }


def read_world(folder: Path) -> World:
    """Read the original files, and compute features from histories."""
    rows = {
        name: [line.split("::") for line in (folder / f"{name}.dat").read_text(encoding="latin-1").splitlines()]
        for name in ("users", "movies", "ratings")
    }
    place = {int(row[0]): number for number, row in enumerate(rows["movies"])}
    ratings = (
        pl.DataFrame(rows["ratings"], schema=["user", "movie", "stars", "time"], orient="row")
        .cast(pl.Int64)
        .with_columns(user=pl.col("user") - 1, movie=pl.col("movie").replace_strict(place))
        .sort("user", "time", "movie")
        .with_columns(is_history=pl.int_range(pl.len()).over("user") < (pl.len().over("user") * 0.8).floor())
    )
    names = sorted({genre for row in rows["movies"] for genre in row[2].split("|")})
    genres = np.array([[genre in row[2].split("|") for genre in names] for row in rows["movies"]], dtype=np.float32)
    years = np.array([int(row[1][-5:-1]) for row in rows["movies"]], dtype=np.float32)
    ages = np.array([int(row[2]) for row in rows["users"]], dtype=np.float32)
    shape = num_users, num_movies = len(ages), len(years)

    def table(part: pl.DataFrame) -> sparse.csr_matrix:
        places = (part["user"].to_numpy(), part["movie"].to_numpy())
        return sparse.csr_matrix((np.ones(len(part), np.float32), places), shape=shape)

    def mean(keys: Rows, values: npt.ArrayLike, count: int, prior: float) -> Floats:
        sums, counts = np.bincount(keys, np.asarray(values), count), np.bincount(keys, minlength=count)
        return ((sums + 5 * prior) / (counts + 5)).astype(np.float32)

    history = ratings.filter("is_history")
    liked = history.filter(pl.col("stars") >= 4)
    likes, last_likes = table(liked), table(liked.group_by("user", maintain_order=True).tail(5))
    user, movie, stars = (history[name].to_numpy() for name in ("user", "movie", "stars"))
    likes_user, likes_movie = (liked[name].to_numpy() for name in ("user", "movie"))
    overall, training = float(stars.mean()), split_users(num_users)["training"]
    is_training, is_training_like = np.isin(user, training), np.isin(likes_user, training)
    own = mean(user, stars, num_users, overall)
    moods = np.zeros((num_users, len(names)), dtype=np.float32)
    for number in range(len(names)):
        has = genres[movie, number] > 0
        moods[:, number] = mean(user[has], (stars - own[user])[has], num_users, 0.0)
    tastes = np.asarray(likes @ genres)
    tastes /= np.maximum(tastes.sum(axis=1, keepdims=True), 1)
    tastes_in_years = mean(likes_user, years[likes_movie], num_users, float(years[movie].mean()))
    popularity = np.bincount(likes_movie[is_training_like], minlength=num_movies).astype(np.float32)
    quality = mean(movie[is_training], stars[is_training], num_movies, overall)
    old = mean(likes_movie[is_training_like], ages[likes_user[is_training_like]], num_movies, float(ages.mean()))
    both = (likes[training].T @ likes[training]).toarray()  # (N, N)
    root = np.sqrt(np.maximum(np.diag(both), 1))
    np.fill_diagonal(both, 0)
    together = (both / np.outer(root, root) * both / (both + 10)).astype(np.float32)
    weighted = likes[training].multiply(1 / np.sqrt(root)[None]).tocsr()
    factors = svds(weighted, k=NUM_FACTORS, random_state=0)[2].T.astype(np.float32)  # (N, f)
    lengths = np.sqrt(np.maximum(np.asarray(likes.sum(axis=1)), 1))  # (U, 1)
    sex = np.array([[row[1] == "F"] for row in rows["users"]], dtype=np.float32)
    groups = (ages[:, None] == np.unique(ages)).astype(np.float32)
    jobs = np.eye(21, dtype=np.float32)[[int(row[3]) for row in rows["users"]]]
    count = np.log1p(np.bincount(user, minlength=num_users))
    known = mean(user, np.log1p(popularity)[movie], num_users, 4.0)
    facts = np.stack([own, count, tastes_in_years, known], axis=1)
    return World(
        users=_scaled(np.concatenate([sex, groups, jobs, facts, tastes, moods], axis=1)),
        movies=_scaled(np.concatenate([np.stack([years, np.log1p(popularity), quality, old], axis=1), genres], axis=1)),
        user_factors=_scaled(np.asarray(likes @ factors) / lengths), movie_factors=_scaled(factors),
        tastes=tastes, moods=moods, genres=genres, ages=ages, audience=old, tastes_in_years=tastes_in_years,
        years=years, likes=likes, last_likes=last_likes, together=together, is_seen=table(history).toarray() > 0,
        is_right=table(ratings.filter(~pl.col("is_history") & (pl.col("stars") >= 4))).toarray() > 0,
        popularity=popularity,
    )  # fmt: skip


def _scaled(features: npt.NDArray[np.floating]) -> Floats:
    spread = features.std(axis=0)
    scaled: Floats = ((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)).astype(np.float32)
    return scaled


class Teacher:
    """A network that ranks (user, movie) pairs by features of both and by crosses."""

    def __init__(self, world: World, *, has_history: bool) -> None:
        self._world, self._has_history = world, has_history

    def fit(self, users: Rows, validation: Rows) -> None:
        """Train on held-out likes and five random movies for each; keep the epoch that ranks validation users best."""
        world, draw, features, labels = self._world, np.random.default_rng(1), [], []
        for first in range(0, len(users), 100):
            block = users[first : first + 100]
            is_right = world.is_right[block] & ~world.is_seen[block]
            right = np.argwhere(is_right)
            others = np.stack([np.repeat(right[:, 0], 5), draw.integers(len(world.movies), size=5 * len(right))], 1)
            others = others[~(is_right | world.is_seen[block])[others[:, 0], others[:, 1]]]
            row, movie = np.concatenate([right, others]).T
            sides = [world.users[block[row]], world.movies[movie], self._crosses(block)[row, movie]]
            features.append(np.concatenate(sides, axis=1))
            labels.append(np.arange(len(row)) < len(right))
        inputs, targets = np.concatenate(features), np.concatenate(labels)
        self._center, self._scale = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), 1e-6)
        inputs = ((inputs - self._center) / self._scale).astype(np.float32)
        network = MLPClassifier((128, 64), alpha=1e-3, batch_size=512, random_state=0)
        epochs = []
        for _ in range(TEACHER_EPOCHS):
            network.partial_fit(inputs, targets, classes=[False, True])
            layers = zip(network.coefs_, network.intercepts_, strict=True)
            self._layers = [(weights.copy(), bias.copy()) for weights, bias in layers]
            quality = np.nanmean(measure_real(world, self.score(validation), validation)[:, 0])
            epochs.append((quality, self._layers))
        print("NDCG@10 of the teacher on validation users:", *(f"{quality:.4f}" for quality, _ in epochs), flush=True)
        self._layers = max(epochs, key=lambda epoch: epoch[0])[1]

    def score(self, users: Rows) -> Floats:
        """Return the log-odds that each user likes each movie (B, N)."""
        world, (first, second, last) = self._world, self._layers
        middle = world.users.shape[1]
        end = middle + world.movies.shape[1]
        by_movie = ((world.movies - self._center[middle:end]) / self._scale[middle:end]) @ first[0][middle:end]
        scores = []
        for start in range(0, len(users), 20):
            block = users[start : start + 20]
            by_user = ((world.users[block] - self._center[:middle]) / self._scale[:middle]) @ first[0][:middle]
            crosses = ((self._crosses(block) - self._center[end:]) / self._scale[end:]) @ first[0][end:]
            hidden = np.maximum(by_user[:, None] + by_movie[None] + crosses + first[1], 0)  # (b, N, 128)
            scores.append(np.maximum(hidden @ second[0] + second[1], 0) @ last[0][:, 0] + last[1][0])  # (b, N)
        return np.concatenate(scores).astype(np.float32)

    def _crosses(self, users: Rows) -> Floats:
        world = self._world
        crosses = [
            world.tastes[users] @ world.genres.T,
            world.moods[users] @ world.genres.T,
            np.abs(world.ages[users][:, None] - world.audience),
        ]
        if self._has_history:
            lengths = np.sqrt(np.maximum(np.asarray(world.likes[users].sum(axis=1)), 1))
            crosses += [
                np.abs(world.years - world.tastes_in_years[users][:, None]),
                np.log1p(10 * np.asarray(world.likes[users] @ world.together) / lengths),
                np.log1p(10 * np.asarray(world.last_likes[users] @ world.together)),
                world.user_factors[users] @ world.movie_factors.T,
            ]
        return np.stack(crosses, axis=2).astype(np.float32)  # (B, N, c)


def measure_real(world: World, scores: Floats, users: Rows) -> Floats:
    """Return NDCG@10 and AUC of the held-out likes (U, 2); NaN for users without any."""
    discount, found = 1 / np.log2(np.arange(2, 12)), np.full((len(users), 2), np.nan, dtype=np.float32)
    for number, user in enumerate(users):
        is_open = ~world.is_seen[user]
        is_right = world.is_right[user][is_open]
        count = int(is_right.sum())
        if count:
            order = np.argsort(-scores[number][is_open], kind="stable")
            ranked = is_right[order]
            places = np.flatnonzero(ranked)
            above = (places - np.arange(count)).sum()  # wrong movies above right ones
            gain = ranked[:10] @ discount / discount[: min(10, count)].sum()
            found[number] = gain, 1 - above / (count * (len(order) - count))
    return found
