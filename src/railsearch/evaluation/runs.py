"""The ranked lists of an evaluation, for TREC files and for measures that count every right item."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.evaluation.graded import measure_lists
from railsearch.evaluation.trec import check_ids, check_tag, check_targets, write_lines
from railsearch.foundation.inputs import as_path

if TYPE_CHECKING:
    from polars import DataFrame

TAG = "railsearch"


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The best items of each query with their scores, and the right items of each query with their grades.

    >>> run = Run(("q1",), ("a", "b"), torch.tensor([[1, 0]]), torch.tensor([[0.5, 0.25]]), torch.tensor([[0, 0, 1]]))
    >>> run.measure(["RR@10"])
    {'RR@10': 0.5}
    """

    query_ids: tuple[str, ...]  # (Q,)
    """The ids of users or questions, as text."""
    item_ids: tuple[str, ...]  # (N,)
    """The ids of items or passages by row, as text."""
    rows: Tensor  # (Q, K)
    """Rows of the best items, best first; -1 if a query has fewer than K."""
    scores: Tensor  # (Q, K)
    right: Tensor  # (M, 3)
    """Query row, row of a right item, and its grade, 1 or more."""

    @property
    def depth(self) -> int:
        """The length K of the lists."""
        return int(self.rows.shape[1])

    def measure(self, names: Iterable[str] | None = None) -> dict[str, float]:
        """Return measures that count every right item, with grades: nDCG@10, R@100, RR@10, AP@100, P@10 and the like.

        They are those of trec_eval, BEIR and ir-measures: nDCG has linear gains, and queries without right items do
        not count.

        Args:
            names: measures with cutoffs; by default nDCG@10, R@100, RR@10 and AP@100, as far as the lists are long
                enough.
        """
        return measure_lists(self.rows, self.right, names, num_items=len(self.item_ids))

    def to_frame(self) -> "DataFrame":
        """Return one row for each listed item: query, item, rank, score."""
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        queries, ranks = (self.rows >= 0).nonzero(as_tuple=True)  # (L,)
        return pl.DataFrame(
            {
                "query": [self.query_ids[row] for row in queries.tolist()],
                "item": [self.item_ids[row] for row in self.rows[queries, ranks].tolist()],
                "rank": (ranks + 1).numpy(),
                "score": self.scores[queries, ranks].numpy(),
            }
        )

    def save(self, path: str | Path, *, tag: str = TAG, overwrite: bool = False) -> None:
        """Write the lists in the TREC run format: query, Q0, item, rank, score and tag on each line.

        Args:
            path: a file to create.
            tag: the name of the system, without white space.
            overwrite: replace a file that is there.
        """
        check_tag(tag)
        target = as_path(path)
        check_targets([target], overwrite=overwrite)
        self.check_ids()
        queries, ranks = (self.rows >= 0).nonzero(as_tuple=True)  # (L,)
        items, scores = self.rows[queries, ranks], self.scores[queries, ranks]  # (L,)
        columns = (queries.tolist(), items.tolist(), (ranks + 1).tolist(), scores.tolist())
        lines = (
            f"{self.query_ids[query]} Q0 {self.item_ids[item]} {rank} {score:.9g} {tag}"
            for query, item, rank, score in zip(*columns, strict=True)
        )
        write_lines(target, lines)

    def save_qrels(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the right items in the TREC qrels format: query, 0, item and grade on each line."""
        target = as_path(path)
        check_targets([target], overwrite=overwrite)
        self.check_ids()
        write_lines(
            target,
            (f"{self.query_ids[query]} 0 {self.item_ids[item]} {grade}" for query, item, grade in self.right.tolist()),
        )

    def check_ids(self) -> None:
        """Refuse ids that a TREC file cannot hold, because they have white space or are empty."""
        check_ids(self.query_ids, "query")
        check_ids(self.item_ids, "item")


def right_items(pairs: Tensor, grades: Tensor | None) -> Tensor:
    """Return query row, item row and grade (M, 3) from pairs (M, 2) and grades (M,); by default, all grades are 1."""
    given = torch.ones(len(pairs), dtype=torch.int64) if grades is None else grades
    return torch.cat([pairs, given[:, None]], dim=1)
