"""Write small folders of every kind, and the answers that they gave when they were written.

It runs with the code of any commit, so that later versions can be held to what earlier ones wrote. This is how the
folders of an older commit are made (those of this one: `python -m tests.support.write_folders FOLDER`):

    git worktree add /tmp/old COMMIT
    cd /tmp/old && PYTHONPATH=src:. python /path/to/tests/support/write_folders.py /path/to/tests/fixtures/folders/NAME
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import polars as pl
import torch

import railsearch
from railsearch import Average, BruteForce, Index, MixtureOfLogits, TwoPass, save_similarity
from railsearch.data import write_prepared
from railsearch.recommender import Recommender
from tests.support.tiny_text import PAIRS, make_base, make_retriever
from tests.support.training_worlds import random_walks, small_recipe

DIM, K = 6, 5
STRATEGIES = {"BruteForce()": BruteForce(), "TwoPass()": TwoPass(), "Average(20)": Average(20)}
HISTORIES = [[1, 2, 3], [7, 30, 12, 5], [39]]
QUESTIONS = ["who w3 w21", "who w5 w35"]


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def write_similarity(folder: Path) -> dict[str, object]:
    """Write a mixture with a user table; return scores."""
    mixture = make_mixture(user_table_size=3)
    save_similarity(mixture, folder)
    queries, items, users = drawn(3, DIM, seed=1), drawn(4, DIM, seed=2), torch.arange(3)
    with torch.no_grad():
        scores = mixture.score(mixture.query_parts(queries, user_ids=users), mixture.item_parts(items))
    return {"queries": queries.tolist(), "users": users.tolist(), "items": items.tolist(), "scores": scores.tolist()}


def make_mixture(**options: int) -> MixtureOfLogits:
    return MixtureOfLogits(
        query_dim=DIM, item_dim=DIM, num_query_components=2, num_item_components=3, component_dim=4,
        projection_dim=8, gate_dim=8, seed=0, **options,
    ).eval()  # fmt: skip


def write_index(folder: Path) -> dict[str, object]:
    """Write an index of two segments with removed rows and metadata; return the results of searches."""
    items, queries = drawn(60, DIM, seed=3), drawn(4, DIM, seed=4)
    years = pl.DataFrame({"title": [f"Title {row}" for row in range(60)], "year": [1960 + row for row in range(60)]})
    index = Index.build(make_mixture(), items[:40], list(range(100, 140)), path=folder, metadata=years[:40])
    index.add(items[40:], list(range(200, 220)), metadata=years[40:])
    index.remove([103, 117, 205])
    answers = {}
    for name, strategy in STRATEGIES.items():
        result = index.search(queries, K, strategy)
        assert float((result.scores[:, :-1] - result.scores[:, 1:]).min()) > 1e-4, "no ties, please"
        answers[name] = {"ids": result.ids.tolist(), "scores": result.scores.tolist()}
    titles = index.search(queries, K).to_frame()["title"].to_list()
    index.close()
    return {"queries": queries.tolist(), "answers": answers, "titles": titles, "num_items": 57}


def write_recommender(folder: Path) -> dict[str, object]:
    """Write a trained recommender and its index; return recommendations."""
    world = random_walks(num_users=12)
    write_prepared(world, folder / "data", name="walks")
    recommender = Recommender.fit(world, small_recipe(dim=8, epochs=1, num_negatives=8), show_progress=False)
    recommender.save(folder / "model")
    recommender.build_index(folder / "index")
    found = recommender.recommend(k=K, histories=HISTORIES)
    return {"histories": HISTORIES, "items": found["item"].to_list(), "scores": found["score"].to_list()}


def write_text_retriever(folder: Path) -> dict[str, object]:
    """Write an untrained retriever and its index; return search results."""
    with tempfile.TemporaryDirectory() as base:
        retriever = make_retriever(make_base(Path(base)))
        retriever.save(folder / "model")
        retriever.build_index([passage for _, passage in PAIRS], folder / "index", show_progress=False)
        result = retriever.search(QUESTIONS, K)
    return {
        "questions": QUESTIONS, "scores": result.scores.tolist(), "passages": result.to_frame()["passage"].to_list(),
    }  # fmt: skip


def main() -> None:
    torch.set_num_threads(1)
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    writers = {
        "similarity": write_similarity, "index": write_index, "recommender": write_recommender,
        "text_retriever": write_text_retriever,
    }  # fmt: skip
    known = {name: write(target / name) for name, write in writers.items()}
    (target / "known.json").write_text(json.dumps({"railsearch": railsearch.__version__, **known}, indent=1) + "\n")
    for lock in target.rglob("LOCK"):
        lock.write_bytes(b"")


if __name__ == "__main__":
    main()
