"""The model card of a text retriever: what it was trained on and how, and how good it was by which protocol."""

import json
import platform
from dataclasses import dataclass, field

import torch
import xxhash

from railsearch.data import QuestionPassages, Questions
from railsearch.evaluation import Evaluation
from railsearch.text_retriever.recipe import TextRecipe
from railsearch.training import FitReport


def questions_digest(questions: Questions) -> str:
    """The name of a set of questions."""
    return xxhash.xxh3_128_hexdigest(json.dumps(sorted(questions.texts)).encode())


@dataclass(frozen=True, slots=True)
class TextCard:
    """What to know before using a model; plain values, which config.json keeps."""

    source: str
    num_passages: int
    num_questions: int
    num_pairs: int
    tested_on: str | None
    """A digest of the test questions, by which they are known again; None where there are none."""
    best_epoch: int
    num_epochs: int
    picked_by: str
    validation: dict[str, float] | None
    metrics: dict[str, float]
    """On the test questions, with the weights of the best epoch; empty where there are none."""
    protocol: str
    seed: int
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        data: QuestionPassages,
        recipe: TextRecipe,
        report: FitReport,
        evaluation: Evaluation | None,
        *,
        num_ranked: int,
    ) -> "TextCard":
        """Gather what is known when training is done; `num_ranked` passages were ranked by each validation."""
        training = recipe.training
        return cls(
            source=data.source,
            num_passages=len(data.passages),
            num_questions=len(data.train),
            num_pairs=len(data.train.pairs),
            tested_on=None if data.test is None else questions_digest(data.test),
            best_epoch=report.best_epoch,
            num_epochs=len(report.epochs),
            picked_by=(
                "being the last"
                if data.validation is None
                else f"{training.metric} of {len(data.validation):,} validation questions, ranked among "
                f"{num_ranked:,} of the passages"
            ),
            validation=report.best.validation,
            metrics={} if evaluation is None else evaluation.metrics,
            protocol="not tested" if evaluation is None else evaluation.protocol,
            seed=training.seed,
            seconds=sum(epoch.seconds + epoch.validation_seconds for epoch in report.epochs),
            versions={"python": platform.python_version(), "torch": torch.__version__},
        )

    def to_markdown(self, recipe: TextRecipe) -> str:
        """The card as people read it."""
        settings = "\n".join(
            f"- {section}: " + ", ".join(f"{name} {value}" for name, value in values.items())
            for section, values in recipe.model_dump(mode="json").items()
        )
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        figures = "\n".join(f"| {name} | {value:.4f} |" for name, value in self.metrics.items())
        table = f" With its weights:\n\n| metric | test |\n|---|---|\n{figures}" if figures else ""
        return f"""# {recipe.encoder.base} with {recipe.similarity.kind}

A text retriever by railsearch: it takes a question and ranks the passages that answer it.

## Data
{self.source}: {self.num_pairs:,} pairs of {self.num_questions:,} questions to train on; {self.num_passages:,} passages.

## Quality
Protocol: {self.protocol}.
Epoch {self.best_epoch} of {self.num_epochs}, picked by {self.picked_by}.{table}

## Training
{self.seconds:,.0f} seconds; seed {self.seed}; {versions}.

{settings}
"""
