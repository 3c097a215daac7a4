"""Answers of a server: results with their certificate, explanations, items and jobs, as numpy arrays."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from railsearch.client.arrays import ItemId
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import JsonValue
from railsearch.foundation.recall import ExpectedRecall

if TYPE_CHECKING:
    from polars import DataFrame

    from railsearch.foundation.results import SearchResult

NO_ITEM = -1
"""The id of a padded place that has no item, as in `SearchResult`; its score is minus infinity."""
Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Fields = dict[str, JsonValue]


@dataclass(frozen=True, slots=True, eq=False)
class ServedExplanation:
    """The component scores and gate weights behind one score, as `Explanation` has them."""

    item_id: ItemId
    score: float
    component_scores: Floats  # (Pq, Px)
    gate_weights: Floats  # (Pq, Px)
    fields: Fields | None = None

    @property
    def contributions(self) -> Floats:
        """Weight times component score of each component pair; they sum to the score."""
        return self.gate_weights * self.component_scores  # (Pq, Px)

    def ranked(self) -> list[tuple[int, int, float]]:
        """Return (query component, item component, contribution) of each component pair, the largest first."""
        contributions = self.contributions
        order = np.argsort(-contributions, axis=None, kind="stable")  # (P,)
        rows, columns = np.unravel_index(order, contributions.shape)  # (P,)
        values = contributions[rows, columns].tolist()
        return list(zip(rows.tolist(), columns.tolist(), values, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class ServedResult:
    """The K best items of each query, best first, with a certificate: a `SearchResult` of numpy arrays.

    It has the names of `SearchResult`, and what a server adds: which version answered, how, and in what time. torch is
    not needed to read it; `to_result()` returns the same as a `SearchResult`, of tensors.

    >>> import numpy as np
    >>> result = ServedResult(
    ...     ids=np.array([[7, 3]]), scores=np.array([[1.0, 0.5]], dtype="f4"),
    ...     ceiling=np.array([0.75], dtype="f4"), num_scored=np.array([4]),
    ... )
    >>> result.gap.tolist(), result.is_exact.tolist(), result.num_certified.tolist()
    ([0.25], [False], [1])
    """

    ids: Integers  # (B, K)
    scores: Floats  # (B, K)
    ceiling: Floats  # (B,)
    num_scored: Integers  # (B,)
    string_ids: list[list[str | None]] | None = None
    """The string ids of the items of each query; None if the ids of the index are integers."""
    fields: list[list[Fields | None]] | None = None
    """Metadata of the items of each query; None if no fields were asked for."""
    explanations: list[list[ServedExplanation]] = field(default_factory=list)
    """Explanations of the best items of each query, if they were asked for."""
    index: str = ""
    version: int = 0
    fingerprint: str = ""
    """The fingerprint of the similarity that answered."""
    strategy: str = ""
    expected_recall: ExpectedRecall | None = None
    """Measured recall of the strategy, if it was tuned; never a proof."""
    coverage: float = 1.0
    """The share of all items that were searched: below 1 if a shard of a split index did not answer."""
    queue_milliseconds: float = 0.0
    search_milliseconds: float = 0.0

    @property
    def kth_score(self) -> Floats:
        """The worst score that was returned for each query."""
        return self.scores[:, -1]  # (B,)

    @property
    def gap(self) -> Floats:
        """The most by which the true k-th score can exceed the returned one; zero means exact."""
        with np.errstate(invalid="ignore"):  # minus infinity from itself, which is not used
            difference = self.ceiling - self.kth_score  # (B,)
        return np.where(self.ceiling > self.kth_score, difference, np.float32(0.0))  # (B,)

    @property
    def is_exact(self) -> npt.NDArray[np.bool_]:
        """Whether the answer is certainly the true top K, up to ties at the k-th score."""
        return np.less_equal(self.ceiling, self.kth_score)  # (B,)

    @property
    def num_certified(self) -> Integers:
        """The number of returned items that are certainly in the true top K."""
        certain = (self.scores >= self.ceiling[:, None]) & (self.ids != NO_ITEM)  # (B, K)
        num_certified: Integers = certain.sum(axis=1, dtype=np.int64)  # (B,)
        return num_certified

    @property
    def has_keys(self) -> bool:
        """Whether the ids of the index are strings."""
        return self.string_ids is not None

    @property
    def keys(self) -> list[list[str | None]]:
        """The string ids of the items of each query, best first; None in a place that has no item.

        Raises InvalidInputError if the ids of the index are integers: these are in `ids`.
        """
        if self.string_ids is None:
            raise InvalidInputError("the ids of this index are integers; take them from result.ids.")
        return self.string_ids

    def to_frame(self) -> "DataFrame":
        """Return a table of query, rank, id and score, best first, with the fields that were asked for."""
        import polars as pl  # noqa: PLC0415  (importing railsearch.client stays cheap)

        queries, places = np.nonzero(self.ids != NO_ITEM)  # (n,)
        at = list(zip(queries.tolist(), places.tolist(), strict=True))
        ids = self.ids[queries, places] if self.string_ids is None else [self.string_ids[q][p] for q, p in at]
        frame = pl.DataFrame(
            {"query": queries, "rank": 1 + places, "id": ids, "score": self.scores[queries, places]},
            schema_overrides=None if self.string_ids is None else {"id": pl.String},
        )
        if self.fields is None:
            return frame
        rows = [{name: value for name, value in (self.fields[q][p] or {}).items() if name != "id"} for q, p in at]
        return frame.hstack(pl.DataFrame(rows, infer_schema_length=None)) if any(rows) else frame

    def to_result(self) -> "SearchResult":
        """Return the same as a `SearchResult` of tensors, without metadata; this imports torch."""
        import torch  # noqa: PLC0415

        from railsearch.foundation.results import SearchResult  # noqa: PLC0415

        parts = (self.ids, self.scores, self.ceiling, self.num_scored)
        ids, scores, ceiling, num_scored = (torch.from_numpy(np.array(part)) for part in parts)
        return SearchResult(
            ids=ids,
            scores=scores,
            ceiling=ceiling,
            num_scored=num_scored,
            expected_recall=self.expected_recall,
            coverage=self.coverage,
        )

    def __iter__(self) -> Iterator[Floats | Integers]:
        yield self.scores
        yield self.ids

    def __repr__(self) -> str:
        num_queries, k = self.ids.shape
        exact = int(self.is_exact.sum())
        return f"ServedResult({num_queries} queries, k={k}, {exact} certified exact, version {self.version})"


@dataclass(frozen=True, slots=True)
class ServedItem:
    """One item of an index with its metadata."""

    id: ItemId
    fields: Fields


@dataclass(frozen=True, slots=True)
class ServedSimilar:
    """An item that is similar to another one."""

    id: ItemId
    score: float
    """The mean cosine of their components."""
    fields: Fields


@dataclass(frozen=True, slots=True)
class Change:
    """The state of an index after a change that is durable and searched."""

    version: int
    num_items: int


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The version that is served after a refresh, and whether it is another one than before."""

    version: int
    has_changed: bool


@dataclass(frozen=True, slots=True)
class Job:
    """Long work of a server: tuning or compaction."""

    id: str
    kind: str
    index: str
    state: str
    """running, done or failed."""
    created_at: str
    finished_at: str | None
    result: dict[str, JsonValue] | None
    problem: dict[str, JsonValue] | None

    @property
    def is_running(self) -> bool:
        """Whether the job has not ended yet."""
        return self.state == "running"
