"""A folder in which the commands of the pages find what they name: models, indexes, data and queries, all tiny."""

import io
import json
import shutil
import tarfile
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
WEEK_1, WEEK_2 = 975_000_000, 976_000_000
"""Seconds of 23 November and 5 December 2000: before and after the day that a page names."""
MOVIES = [1, 260, 1196, 1210, 1240, *range(300, 450)]
GENRES = ["Drama", "Crime", "Drama|Crime", "Comedy", "War", "Western|War", "Horror", "Musical"]
PASSAGES = {f"w{row}": f"it is w{row} w{(3 * row) % 40} end" for row in range(12)}

RECIPE = """
[encoder]
kind = "sasrec"
dim = 8

[similarity]
kind = "mixture_of_logits"
num_query_components = 2
num_item_components = 2
"""


def make_shell_world(folder: Path) -> None:
    """Write everything that the pages name into a folder."""
    rng = np.random.default_rng(0)
    _write_recommenders(folder, rng)
    _write_arrays(folder, rng)
    _write_texts(folder)
    _write_questions(folder)
    _write_teachers(folder)
    _write_shop(folder, rng)
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
        (user, int(movie), WEEK_1 + 1000 * user + step)
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
    recommender.save(folder / "runs" / "week-1" / "model")
    later = [
        (user, movie, WEEK_2 + 100 * user + step) for user in range(1, 61) for step, movie in enumerate(MOVIES[:4])
    ]
    week = pl.concat([table, pl.DataFrame(later, schema=table.schema, orient="row")])
    week.write_csv(folder / "log.csv")


def _write_arrays(folder: Path, rng: np.random.Generator) -> None:
    queries = rng.normal(size=(6, DIM)).astype("float32")
    for name in ("users", "sample", "queries"):
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
        data={"layout": "insuranceqa"},
        encoder=TextEncoderConfig(
            base=str(make_base(folder / "tiny", num_layers=2)), max_query_length=16, max_passage_length=16
        ),
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
    own = folder / "pages" / "long-documents"
    retriever.save(own / "my-model")
    (own / "documents.jsonl").write_text("".join(lines))
    retriever.save(folder / "pages" / "documents" / "my-model")


def _write_questions(folder: Path) -> None:
    """Write InsuranceQA with twelve answers, as an archive and as a folder, and questions with their passages."""
    questions = [
        {"id": str(row), "q": f"who {name} w{row % 7}", "pos": [name]}
        for row, name in enumerate(name for name in PASSAGES for _ in range(6))
    ]
    files = {
        "docs": [{"id": name, "text": text} for name, text in PASSAGES.items()],
        "train": questions[::2], "valid": questions[1::4], "test": questions[3::4],
    }  # fmt: skip
    data = folder / "data" / "insuranceqa"
    data.mkdir(parents=True)
    with tarfile.open(folder / "insuranceqa-en.tar.xz", "w:xz") as archive:
        for name, records in files.items():
            content = "".join(json.dumps(record) + "\n" for record in records).encode()
            (data / f"{name}.en.jsonl").write_bytes(content)
            member = tarfile.TarInfo(f"{name}.en.jsonl")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    asked = [{"question": record["q"], "passage_ids": record["pos"]} for record in questions]
    (folder / "questions.jsonl").write_text("".join(json.dumps(record) + "\n" for record in asked))
    make_base(folder / "models" / "minilm")


def _write_teachers(folder: Path) -> None:
    """Write the scores of teachers: of users with movies, and of questions with passages."""
    scores = [(user, movie, (user * movie) % 7 / 7) for user in range(1, 61) for movie in MOVIES[:20]]
    pl.DataFrame(scores, schema=["user", "item", "score"], orient="row").write_parquet(folder / "scores.parquet")
    asked = [(name, f"who {name} w{row % 7}") for row, name in enumerate(name for name in PASSAGES for _ in range(6))]
    texts = [
        (question, passage, float(passage == PASSAGES[name]) + 0.01 * place)
        for name, question in asked[::2]  # the training questions of `_write_questions`
        for place, passage in enumerate(PASSAGES.values())
    ]
    table = pl.DataFrame(texts, schema=["question", "passage", "score"], orient="row")
    table.unique(["question", "passage"], maintain_order=True).write_parquet(folder / "cross-encoder.parquet")


def _write_shop(folder: Path, rng: np.random.Generator) -> None:
    """Write a shop with features of its items, a recipe for it, and embeddings to compare systems on."""
    features = [row.tolist() for row in rng.normal(size=(40, 4)).astype("float32")]
    own = folder / "pages" / "new-items"
    own.mkdir(parents=True)
    catalogue = pl.DataFrame({"item": range(40), "embedding": features})
    catalogue.head(36).write_parquet(own / "catalogue.parquet")
    catalogue.tail(4).write_parquet(own / "new.parquet")
    events = [(user, (5 * user + step * step) % 36, 1000 * user + step) for user in range(40) for step in range(6)]
    table = pl.DataFrame(events, schema=["user", "item", "timestamp"], orient="row")
    table.write_parquet(own / "events.parquet")
    own = folder / "pages" / "comparing"
    write_prepared(Interactions.from_frame(table), own / "data" / "shop", name="shop")
    (own / "recipe.toml").write_text(RECIPE)
    queries, items = (rng.normal(size=(size, DIM)).astype("float32") for size in (300, 50))
    np.save(own / "q.npy", queries)
    np.save(own / "x.npy", items)
    rows = pl.DataFrame({"query": range(300), "item": [row % 50 for row in range(300)]})
    rows.write_csv(own / "pairs.csv")
