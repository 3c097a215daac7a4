"""A folder in which the commands of the pages find what they name: models, indexes, data and queries, all tiny."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl

from railsearch import MixtureOfLogits, Recommender, TextRecipe, TextRetriever, save_similarity
from railsearch.data import Interactions, read_prepared, write_prepared
from railsearch.distributed import shard_index
from railsearch.recipes import TextEncoderConfig, TextTrainingConfig
from tests.support.beir_folders import make_beir
from tests.support.tiny_text import make_base
from tests.support.training_worlds import small_recipe

DIM = 16
MOVIES = [1, 260, 1196, 1210, 1240, *range(300, 450)]
GENRES = ["Drama", "Crime", "Drama|Crime", "Comedy", "War", "Western|War", "Horror", "Musical"]
PASSAGES = {f"w{row}": f"it is w{row} w{(3 * row) % 40} end" for row in range(12)}


def make_shell_world(folder: Path) -> None:
    """Write everything that the pages name into a folder."""
    rng = np.random.default_rng(0)
    _write_recommenders(folder, rng)
    _write_arrays(folder, rng)
    _write_texts(folder)
    shutil.copytree(folder / "movies.index", folder / "backup" / "movies.index")
    shutil.copytree(folder / "movies.index", folder / "large.index")
    shard_index(folder / "movies.index", folder / "shards", 2, show_progress=False)


def _write_recommenders(folder: Path, rng: np.random.Generator) -> None:
    movies = pl.DataFrame(
        {
            "item": MOVIES,
            "title": [f"movie {movie}" for movie in MOVIES],
            "year": [1980 + row % 40 for row in range(len(MOVIES))],
            "genre": [GENRES[row % 8].partition("|")[0] for row in range(len(MOVIES))],
            "genres": [GENRES[row % 8] for row in range(len(MOVIES))],
        }
    )
    events = [
        (user, int(movie), 10**9 + 1000 * user + step)
        for user in range(1, 61)
        for step, movie in enumerate(rng.permutation(MOVIES)[:8])
    ]
    table = pl.DataFrame(events, schema=["user", "item", "timestamp"], orient="row")
    write_prepared(Interactions.from_frame(table, catalogue=movies), folder / "data" / "ml-1m", name="ml-1m")
    recommender = Recommender.fit(read_prepared(folder / "data" / "ml-1m"), small_recipe(dim=DIM, epochs=1))
    for name in ("ml-1m/hstu-mol", "ml-1m/sasrec-mol", "cpu/sasrec-mol", "cpu/sasrec"):
        recommender.save(folder / "runs" / name / "model")
    Recommender.load(folder / "runs" / "ml-1m" / "hstu-mol" / "model").build_index(folder / "movies.index")
    names = {"user": "customer", "item": "product", "timestamp": "when"}
    table.rename(names).write_csv(folder / "events.csv")
    movies.rename({"item": "product"}).write_csv(folder / "products.csv")
    (folder / "sequences.txt").write_text("".join(f"{user} {item}\n" for user, item, _ in events))


def _write_arrays(folder: Path, rng: np.random.Generator) -> None:
    queries = rng.normal(size=(6, DIM)).astype("float32")
    for name in ("users", "sample"):
        np.save(folder / f"{name}.npy", queries)
    pl.DataFrame({"id": range(6), "embedding": queries.tolist()}).write_parquet(folder / "users.parquet")
    save_similarity(MixtureOfLogits(query_dim=DIM, item_dim=DIM, seed=0), folder / "my-model")
    save_similarity(MixtureOfLogits(query_dim=DIM, item_dim=DIM, seed=1), folder / "my-similarity")
    items = pl.DataFrame(
        {
            "id": range(200),
            "embedding": rng.normal(size=(200, DIM)).astype("float32").tolist(),
            "year": [1980 + row % 40 for row in range(200)],
        }
    )
    for name in ("movies", "items"):
        items.write_parquet(folder / f"{name}.parquet")
    items[:3].write_parquet(folder / "new.parquet")


def _write_texts(folder: Path) -> None:
    recipe = TextRecipe(
        encoder=TextEncoderConfig(base=str(make_base(folder / "tiny")), max_query_length=16, max_passage_length=16),
        training=TextTrainingConfig(epochs=1),
    )
    pairs = [(f"who {name}", passage) for name, passage in PASSAGES.items()]
    retriever = TextRetriever.fit(pairs, recipe)
    retriever.save(folder / "runs" / "insuranceqa" / "mol" / "model")
    retriever.save(folder / "runs" / "scifact" / "model")
    make_beir(folder / "data" / "scifact")
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in PASSAGES.items()]
    for name in ("docs", "docs.en", "answers"):
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "new.jsonl").write_text(json.dumps({"id": "emma", "text": "it is w7 end"}) + "\n")
