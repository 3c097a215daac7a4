"""The model card: what a model was trained on and how, and how good it was by which protocol."""

import platform
from dataclasses import dataclass, field

import torch

from railsearch.data import Split
from railsearch.evaluation import Evaluation
from railsearch.recommender.recipe import HSTUConfig, Recipe
from railsearch.training import FitReport


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What to know before using a model; plain values, which config.json keeps."""

    source: str
    num_users: int
    num_items: int
    num_events: int
    num_bad_rows: int
    num_train_events: int
    protocol: str
    best_epoch: int
    num_epochs: int
    picked_by: str
    validation: dict[str, float] | None
    metrics: dict[str, float]
    """On the test items, with the weights of the best epoch."""
    seed: int
    seconds: float
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, split: Split, recipe: Recipe, report: FitReport, evaluation: Evaluation | None) -> "ModelCard":
        """Gather what is known when training is done."""
        data = split.interactions
        held_out = "validation items" if split.validation is not None else "the test items themselves, as in the paper"
        return cls(
            source=data.source,
            num_users=data.num_users,
            num_items=data.num_items,
            num_events=len(data),
            num_bad_rows=len(data.bad_rows),
            num_train_events=split.num_train_events,
            protocol=split.protocol,
            best_epoch=report.best_epoch,
            num_epochs=len(report.epochs),
            picked_by=f"{recipe.training.metric} on {held_out}",
            validation=report.best.validation,
            metrics={} if evaluation is None else evaluation.metrics,
            seed=recipe.training.seed,
            seconds=sum(epoch.seconds + epoch.validation_seconds for epoch in report.epochs),
            versions={"python": platform.python_version(), "torch": torch.__version__},
        )

    def to_markdown(self, recipe: Recipe) -> str:
        """The card as people read it."""
        settings = "\n".join(
            f"- {section}: " + ", ".join(f"{name} {value}" for name, value in values.items())
            for section, values in recipe.model_dump(mode="json").items()
        )
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        figures = "\n".join(f"| {name} | {value:.4f} |" for name, value in self.metrics.items())
        has_times = isinstance(recipe.encoder, HSTUConfig)
        moment = " The encoder is told when each held-out item was met, as a server knows when it is asked." * has_times
        return f"""# {recipe.encoder.kind} with {recipe.similarity.kind}

A recommender by railsearch: it takes a history of items and ranks the item that comes next.

## Data
{self.source}: {self.num_events:,} events of {self.num_users:,} users with {self.num_items:,} items, of which
{self.num_train_events:,} were trained on; {self.num_bad_rows} rows were left out as bad.

## Quality
Protocol: {self.protocol}.{moment}
Epoch {self.best_epoch} of {self.num_epochs}, picked by {self.picked_by}. With its weights:

| metric | test |
|---|---|
{figures}

## Training
{self.seconds:,.0f} seconds; seed {self.seed}; {versions}.

{settings}
"""
