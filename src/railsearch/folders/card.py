"""The model card: training data, settings, quality, and the protocol by which the quality was measured."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from railsearch.foundation.settings import Config


def current_versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {"python": platform.python_version(), "torch": torch.__version__}


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Facts to know before using a model; plain values that config.json keeps."""

    title: str
    purpose: str
    """One sentence about what the model takes and what it ranks."""
    data: str
    """One sentence about the data, with its numbers."""
    counts: dict[str, int]
    """The numbers of the data by name, such as "events"."""
    protocol: str
    best_epoch: int
    num_epochs: int
    picked_by: str
    validation: dict[str, float] | None
    metrics: dict[str, float]
    """Test figures with the weights of the best epoch; empty if there was no test."""
    seed: int
    seconds: float
    tested_on: str | None = None
    """Digest of the test queries, which identifies them; None if the data itself defines them."""
    versions: dict[str, str] = field(default_factory=current_versions)

    def to_markdown(self, recipe: Config) -> str:
        """Return the card as Markdown text."""
        settings = "\n".join(
            f"- {section}: " + ", ".join(f"{name} {value}" for name, value in values.items())
            for section, values in recipe.model_dump(mode="json").items()
        )
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"""# {self.title}

{self.purpose}

## Data
{self.data}

## Quality
Protocol: {self.protocol}.
Epoch {self.best_epoch} of {self.num_epochs}, picked by {self.picked_by}.{_table(self.metrics)}

## Training
{self.seconds:,.0f} seconds; seed {self.seed}; {versions}.

{settings}
"""


def _table(metrics: Mapping[str, float]) -> str:
    figures = "\n".join(f"| {name} | {value:.4f} |" for name, value in metrics.items())
    return f" With its weights:\n\n| metric | test |\n|---|---|\n{figures}" if figures else ""
