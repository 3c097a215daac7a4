"""The model card: training data, settings, quality, and the protocol by which the quality was measured."""

import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from railsearch.foundation.settings import Config

SEGMENTS_PLOT = "segments.png"
TRAINING_PLOT = "training.png"


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
    beyond: dict[str, float] = field(default_factory=dict)
    """Test figures beyond accuracy, such as coverage; empty if they were not measured."""
    segments: list[dict[str, Any]] = field(default_factory=list)
    """Test figures by segment of users, as `Segment.to_dict` returns them."""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """Number, training loss and validation figures of each epoch."""
    versions: dict[str, str] = field(default_factory=current_versions)

    def to_markdown(self, recipe: Config, plots: Collection[str] = ()) -> str:
        """Return the card as Markdown text, with the plots that are files beside it."""
        settings = "\n".join(
            f"- {section}: " + ", ".join(f"{name} {value}" for name, value in values.items())
            for section, values in recipe.model_dump(mode="json").items()
        )
        by_segment = _segment_table(self.segments) + _image(SEGMENTS_PLOT, "Quality by segment of users", plots)
        quality = _table(self.metrics) + _beyond_table(self.beyond) + by_segment
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"""# {self.title}

{self.purpose}

## Data
{self.data}

## Quality
Protocol: {self.protocol}.
Epoch {self.best_epoch} of {self.num_epochs}, picked by {self.picked_by}.{quality}

## Training
{self.seconds:,.0f} seconds; seed {self.seed}; {versions}.{_image(TRAINING_PLOT, "Loss and validation by epoch", plots)}

{settings}
"""


def _table(metrics: Mapping[str, float]) -> str:
    figures = "\n".join(f"| {name} | {value:.4f} |" for name, value in metrics.items())
    return f" With its weights:\n\n| metric | test |\n|---|---|\n{figures}" if figures else ""


def _beyond_table(beyond: Mapping[str, float]) -> str:
    figures = "\n".join(f"| {name} | {value:.4f} |" for name, value in beyond.items())
    return f"\n\nBeyond accuracy:\n\n| recommended lists | test |\n|---|---|\n{figures}" if figures else ""


def _segment_table(segments: Sequence[Mapping[str, Any]]) -> str:
    """Return one row for each segment, with half the width of the intervals of 95 %."""
    if not segments:
        return ""
    names = list(segments[0]["metrics"])
    rows = [
        [each["by"], each["segment"], f"{each['num_queries']:,}"]
        + [f"{each['metrics'][name]:.4f} +- {(high - low) / 2:.4f}" for name, (low, high) in each["intervals"].items()]
        for each in segments
    ]
    heading = [["by", "segment", "users", *names], ["---"] * (3 + len(names))]
    return "\n\nBy segment of users:\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in [*heading, *rows])


def _image(name: str, text: str, plots: Collection[str]) -> str:
    return f"\n\n![{text}]({name})" if name in plots else ""
