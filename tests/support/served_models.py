"""A recommender and a text retriever with their indexes, as folders that a server can open."""

from dataclasses import dataclass
from pathlib import Path

from railsearch import Recommender, TextRetriever
from railsearch.data import write_prepared
from railsearch.recipes import TextEncoderConfig, TextRecipe, TextTrainingConfig
from tests.support.tiny_text import PAIRS, make_base
from tests.support.training_worlds import random_walks, small_recipe


@dataclass(frozen=True)
class ServedModel:
    """Arguments of `railsearch serve`."""

    index: Path
    model: Path
    data: Path | None = None


def make_recommender(folder: Path) -> ServedModel:
    """Train a small recommender of films with string ids, and index its items."""
    interactions = random_walks(item_name=lambda item: f"film-{item}")
    recommender = Recommender.fit(interactions, small_recipe(epochs=1))
    recommender.save(folder / "films-model")
    recommender.build_index(folder / "films.index")
    write_prepared(interactions, folder / "films-data", name="films")
    return ServedModel(folder / "films.index", folder / "films-model", folder / "films-data")


def make_text_retriever(folder: Path) -> ServedModel:
    """Train a tiny text retriever, and index its passages."""
    encoder = TextEncoderConfig(base=str(make_base(folder / "base")), max_query_length=8, max_passage_length=8)
    retriever = TextRetriever.fit(PAIRS, TextRecipe(encoder=encoder, training=TextTrainingConfig(epochs=1)))
    retriever.build_index({f"p{row}": passage for row, (_, passage) in enumerate(PAIRS)}, folder / "answers.index")
    retriever.save(folder / "answers-model")
    return ServedModel(folder / "answers.index", folder / "answers-model")
