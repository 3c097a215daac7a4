"""The report of a comparison: figures with intervals, differences, costs and the verdict, to print, store and plot."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from railsearch.benchmark import Machine, check_plot, plot_intervals
from railsearch.comparison.verdict import Pairing, judge
from railsearch.evaluation import Evaluation, Interval, paired_difference
from railsearch.evaluation.intervals import bootstrap_intervals
from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

METRIC = "MRR"
"""The metric that differences and the verdict are about; it also picks the epoch."""


SHOWN = ("HR@1", "HR@10", "NDCG@10", "MRR")
"""Metrics of the table and the plot; `to_dict` has all."""


@dataclass(frozen=True, slots=True)
class System:
    """One of the systems that were compared."""

    name: str
    evaluations: tuple[Evaluation, ...] = field(repr=False)
    """One for each training run; a single one if nothing is trained."""
    training_seconds: float | None = None
    """Mean over the runs, validation included; None if nothing is trained."""
    best_epochs: tuple[int, ...] = ()
    """The epoch that validation picked in each run; 0 is the start."""
    search_milliseconds: float | None = None
    """Time of one query, by brute force over all items; None if it was not measured."""
    bytes_per_item: int | None = None
    """Memory of one item in an index; None if the system has no index."""

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics on the test queries, averaged over the runs."""
        runs = self.evaluations
        return {name: sum(run.metrics[name] for run in runs) / len(runs) for name in runs[0].metrics}

    @property
    def intervals(self) -> dict[str, Interval]:
        """The confidence interval of each metric: 95 %, by a bootstrap over queries and runs."""
        names = list(self.evaluations[0].metrics)
        values = torch.stack([torch.stack([run.values(name) for name in names]) for run in self.evaluations])
        return dict(zip(names, bootstrap_intervals(values), strict=True))  # values: (S, M, Q)

    def to_dict(self) -> dict[str, object]:
        """Return everything except ranks as JSON values."""
        return {
            "name": self.name,
            "metrics": self.metrics,
            "intervals": {name: [bounds.low, bounds.high] for name, bounds in self.intervals.items()},
            "runs": [dict(run.metrics) for run in self.evaluations],
            "best_epochs": list(self.best_epochs),
            "training_seconds": self.training_seconds,
            "search_milliseconds": self.search_milliseconds,
            "bytes_per_item": self.bytes_per_item,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `compare`: the systems, simplest first, how they differ, and a verdict in words."""

    systems: tuple[System, ...]
    pairings: tuple[Pairing, ...]
    """The difference of every later system to every earlier one, by MRR, with its confidence interval."""
    choice: str
    """The name of the system to use: the simplest one that no later one is clearly ahead of."""
    verdict: str
    protocol: str
    notes: tuple[str, ...]
    """Conditions of the figures: the split, the budget of training, the search that was timed."""
    machine: Machine

    @classmethod
    def of_systems(
        cls,
        systems: "Sequence[System]",
        *,
        unit: str,
        protocol: str,
        notes: "Sequence[str]",
        machine: Machine,
    ) -> "Comparison":
        """Compare the systems, simplest first, on their common test queries."""
        pairings = tuple(
            Pairing(
                later.name,
                earlier.name,
                METRIC,
                paired_difference(later.evaluations, earlier.evaluations, metric=METRIC),
            )
            for place, later in enumerate(systems)
            for earlier in systems[:place]
        )
        verdict = judge(
            [system.name for system in systems],
            pairings,
            unit=unit,
            num_runs=max(len(system.evaluations) for system in systems),
        )
        return cls(tuple(systems), pairings, verdict.choice, verdict.text, protocol, tuple(notes), machine)

    def system(self, name: str) -> System:
        """Return the system of this name."""
        for system in self.systems:
            if system.name == name:
                return system
        known = ", ".join(system.name for system in self.systems)
        raise InvalidInputError(f"name is {name!r}; choose from: {known}.")

    def to_dict(self) -> dict[str, object]:
        """Return everything as JSON values."""
        return {
            "verdict": self.verdict,
            "choice": self.choice,
            "systems": [system.to_dict() for system in self.systems],
            "differences": [
                {
                    "first": pairing.first,
                    "second": pairing.second,
                    "metric": pairing.metric,
                    "mean": pairing.difference.mean,
                    "low": pairing.difference.low,
                    "high": pairing.difference.high,
                    "num_queries": pairing.difference.num_queries,
                    "num_different": pairing.difference.num_different,
                    "is_clear": pairing.difference.is_clear,
                }
                for pairing in self.pairings
            ],
            "protocol": self.protocol,
            "notes": list(self.notes),
            "machine": str(self.machine),
        }

    def to_rows(self) -> list[list[str]]:
        """Return the table as text: a header, then one row for each system; intervals of 95 % as half their width."""
        names = [name for name in SHOWN if name in self.systems[0].metrics]
        header = ["", *names, "training", "search", "memory"]
        return [header, *([system.name, *_figures(system, names), *_costs(system)] for system in self.systems)]

    def to_markdown(self) -> str:
        """Return a report in Markdown: verdict, table, differences and protocol."""
        header, *rows = self.to_rows()
        table = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
        lines = [
            "# Comparison",
            "",
            f"**{self.verdict}**",
            "",
            *("| " + " | ".join(row) + " |" for row in table),
            "",
            "Figures with intervals of 95 %; training per run; search per query; memory per item.",
            "",
            *(f"- {pairing}" for pairing in self.pairings),
            "",
            *(f"- {note}" for note in (self.protocol, *self.notes, str(self.machine))),
            "",
        ]
        return "\n".join(lines)

    def plot(self, file: str | Path) -> None:
        """Draw the metrics of every system with their intervals, into a .png, .svg or .pdf file."""
        path = Path(file)
        check_plot(path)
        names = [name for name in SHOWN if name in self.systems[0].metrics]
        plot_intervals(
            {system.name: [system.metrics[name] for name in names] for system in self.systems},
            {
                system.name: [(bounds.low, bounds.high) for bounds in map(system.intervals.__getitem__, names)]
                for system in self.systems
            },
            names=names,
            title=self.verdict,
            path=path,
        )

    def __str__(self) -> str:
        rows = self.to_rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = [
            "  ".join(
                [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        facts = (self.protocol, *self.notes, str(self.machine))
        return "\n".join([*table, "", *map(str, self.pairings), "", *facts, "", self.verdict])


def _figures(system: System, names: "Sequence[str]") -> list[str]:
    metrics, intervals = system.metrics, system.intervals
    return [f"{metrics[name]:.3f} +- {intervals[name].margin:.3f}" for name in names]


def _costs(system: System) -> list[str]:
    seconds, milliseconds, size = system.training_seconds, system.search_milliseconds, system.bytes_per_item
    return [
        "-" if seconds is None else f"{seconds:.1f} s",
        "-" if milliseconds is None else f"{milliseconds:.3g} ms",
        "-" if size is None else f"{size:,} B",
    ]
