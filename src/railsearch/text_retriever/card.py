"""The model card of a text retriever: its training data, its quality, and the protocol of the measurement."""

import json

import xxhash

from railsearch.data import QuestionPassages, Questions
from railsearch.evaluation import Evaluation
from railsearch.folders import ModelCard
from railsearch.text_retriever.recipe import TextRecipe
from railsearch.training import FitReport


def questions_digest(questions: Questions) -> str:
    """Return a digest that identifies a set of questions."""
    return xxhash.xxh3_128_hexdigest(json.dumps(sorted(questions.texts)).encode())


def describe_retriever(
    data: QuestionPassages, recipe: TextRecipe, report: FitReport, evaluation: Evaluation | None, *, num_ranked: int
) -> ModelCard:
    """Build the card when training is done; each validation ranked `num_ranked` passages."""
    training, train = recipe.training, data.train
    return ModelCard(
        title=f"{recipe.encoder.base} with {recipe.similarity.kind}",
        purpose="A text retriever by railsearch: it takes a question and ranks the passages that answer it.",
        data=f"{data.source}: {len(train.pairs):,} pairs of {len(train):,} questions to train on; "
        f"{len(data.passages):,} passages.",
        counts={"passages": len(data.passages), "questions": len(train), "pairs": len(train.pairs)},
        protocol="not tested" if evaluation is None else evaluation.protocol,
        best_epoch=report.best_epoch,
        num_epochs=report.num_epochs,
        picked_by=(
            "being the last"
            if data.validation is None
            else f"{training.metric} of {len(data.validation):,} validation questions, ranked among {num_ranked:,} of "
            "the passages"
        ),
        validation=report.best.validation,
        metrics={} if evaluation is None else evaluation.metrics,
        seed=training.seed,
        seconds=report.seconds,
        tested_on=None if data.test is None else questions_digest(data.test),
    )
