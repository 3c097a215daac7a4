"""Small frozen results that every layer shares."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, ArrowTable
from railsearch.foundation.matched_parts import ENDS, STARTS, has_parts, show_matched
from railsearch.foundation.recall import ExpectedRecall

if TYPE_CHECKING:
    from polars import DataFrame

NO_ITEM = -1
"""The id of a padded place that has no item; its score is minus infinity."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The K best items of each query, best first, with a certificate (the paper's section 3).

    `ceiling` is the best score that an unscored item can have. The rest of the certificate follows from it. A result
    unpacks as `scores, ids`, as users of FAISS expect.

    >>> import torch
    >>> result = SearchResult(
    ...     ids=torch.tensor([[7, 3]]), scores=torch.tensor([[1.0, 0.5]]),
    ...     ceiling=torch.tensor([0.75]), num_scored=torch.tensor([4]),
    ... )
    >>> result.gap.tolist(), result.is_exact.tolist(), result.num_certified.tolist()
    ([0.25], [False], [1])
    """

    ids: Tensor  # (B, K) int64
    scores: Tensor  # (B, K) float32
    ceiling: Tensor  # (B,) float32
    num_scored: Tensor  # (B,) int64
    lookup: "Callable[[Tensor], DataFrame] | None" = None
    """Returns the metadata of ids (n,), one row for each; None if the index has no metadata."""
    has_keys: bool = False
    """Whether the ids of the index are strings. They are then the column `id` of its metadata, and `ids` are integers
    that the index has given to its items in the order of addition."""
    expected_recall: ExpectedRecall | None = None
    """The recall that `tune` measured for this k and strategy without filters. It is not a proof, and None if nothing
    was measured or if the strategy is exact."""
    coverage: float = 1.0
    """The share of all items that were searched: below 1 if a shard of a split index did not answer."""
    locate: Callable[[Tensor, Tensor], Tensor] | None = None
    """Returns the item component (n,) that contributed most to the score, for rows of queries (n,) and ids (n,)."""
    questions: Sequence[str] | None = None
    """The text of each query, if queries are texts: snippets show where its words are."""

    @property
    def kth_score(self) -> Tensor:
        """The worst score that was returned for each query."""
        return self.scores[:, -1]  # (B,)

    @property
    def gap(self) -> Tensor:
        """The most by which the true k-th score can exceed the returned one; zero means exact."""
        difference = self.ceiling - self.kth_score  # (B,)
        return difference.where(self.ceiling > self.kth_score, 0.0)  # (B,)

    @property
    def is_exact(self) -> Tensor:
        """Whether the answer is certainly the true top K, up to ties at the k-th score."""
        return self.ceiling <= self.kth_score  # (B,)

    @property
    def num_certified(self) -> Tensor:
        """The number of returned items that are certainly in the true top K."""
        certain = (self.scores >= self.ceiling[:, None]) & (self.ids != NO_ITEM)  # (B, K)
        return certain.sum(dim=1)  # (B,)

    @property
    def keys(self) -> list[list[str | None]]:
        """The string ids of the items of each query, best first; None in a place that has no item.

        Raises InvalidInputError if the ids of the index are integers: these are in `ids`.
        """
        if not self.has_keys or self.lookup is None:
            raise InvalidInputError("the ids of this index are integers; take them from result.ids.")
        is_item = self.ids != NO_ITEM  # (B, K)
        found = iter(self.lookup(self.ids[is_item])["id"].to_list())
        return [[next(found) if is_there else None for is_there in row] for row in is_item.tolist()]

    def to_frame(self) -> "DataFrame":
        """Return a table of query, rank, id and score, best first, with the metadata of the items if there is any.

        The column id holds strings if these are the ids of the index. In an index of long texts, the columns
        passage_start, passage_end and snippet show the part of the passage that matched.
        """
        import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

        is_item = self.ids != NO_ITEM  # (B, K)
        queries, places = is_item.nonzero(as_tuple=True)  # (n,)
        ids = self.ids[is_item]  # (n,)
        frame = pl.DataFrame(
            {
                "query": queries.numpy(force=True),
                "rank": 1 + places.numpy(force=True),
                "id": ids.numpy(force=True),
                "score": self.scores[is_item].numpy(force=True),
            }
        )
        metadata = self.look_up()
        return frame if metadata is None else frame.with_columns(metadata.get_columns())

    def look_up(self) -> "DataFrame | None":
        """Return the metadata of all items that were found, query by query, best first; None if there are none.

        In an index of long texts, the columns passage_start and passage_end say which characters of the passage matched
        best, and snippet shows some of them.
        """
        if self.lookup is None:
            return None
        is_item = self.ids != NO_ITEM  # (B, K)
        ids = self.ids[is_item]  # (n,)
        frame = self.lookup(ids)
        if not has_parts(frame.columns):
            return frame
        if self.locate is None:  # similar items: no part of the passage matched a question
            return frame.drop(STARTS, ENDS)
        queries = is_item.nonzero(as_tuple=True)[0]  # (n,)
        texts = [None if self.questions is None else self.questions[query] for query in queries.tolist()]
        return show_matched(frame, self.locate(queries, ids), texts)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the result with its string ids, but without other metadata; `to_frame()` includes that."""
        values = (self.ids, self.scores, self.ceiling, self.num_scored)
        if not self.has_keys or self.lookup is None:
            return type(self), (*values, None, False, self.expected_recall, self.coverage)
        ids = torch.unique(self.ids[self.ids != NO_ITEM])  # (n,)
        keys = self.lookup(ids)["id"].to_list()
        lookup = _KeptKeys(dict(zip(ids.tolist(), keys, strict=True)))
        return type(self), (*values, lookup, True, self.expected_recall, self.coverage)

    def __iter__(self) -> Iterator[Tensor]:
        yield self.scores
        yield self.ids

    def __repr__(self) -> str:
        num_queries, k = self.ids.shape
        covered = "" if self.coverage == 1 else f", {self.coverage:.1%} of the items searched"
        return f"SearchResult({num_queries} queries, k={k}, {int(self.is_exact.sum())} certified exact{covered})"


@dataclass(frozen=True, slots=True, eq=False)
class _KeptKeys:
    """The lookup of a result that was pickled: it holds the string ids of its own items only."""

    keys: dict[int, str]

    def __call__(self, ids: Tensor) -> "DataFrame":
        import polars as pl  # noqa: PLC0415

        return pl.DataFrame({"id": [self.keys[item] for item in ids.tolist()]}, schema={"id": pl.String})


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The component scores and gate weights behind one score."""

    item_id: int | str
    score: float
    component_scores: Tensor  # (Pq, Px)
    gate_weights: Tensor  # (Pq, Px)

    @property
    def contributions(self) -> Tensor:
        """Weight times component score of each component pair; they sum to the score."""
        return self.gate_weights * self.component_scores  # (Pq, Px)

    def ranked(self) -> list[tuple[int, int, float]]:
        """Return (query component, item component, contribution) of each component pair, the largest first."""
        contributions = self.contributions
        order = contributions.flatten().sort(descending=True, stable=True).indices  # (P,)
        rows, columns = torch.unravel_index(order, contributions.shape)  # (P,)
        values = contributions[rows, columns].tolist()
        return list(zip(rows.tolist(), columns.tolist(), values, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class ItemBatch:
    """One batch of items for an index that is built or extended batch by batch."""

    items: object
    """Embeddings (n, D), ready components (n, Px, d), or item parts."""
    ids: ArrayLike | None = None
    """One integer or string per row; if all batches omit them, ids continue from the greatest integer."""
    metadata: ArrowTable | None = None
    """A table with one row for each item."""


@dataclass(frozen=True, slots=True, eq=False)
class ItemBatches:
    """Batches that can be read once, and the number of their items, for a progress bar."""

    batches: Iterator[ItemBatch]
    num_items: int

    def __iter__(self) -> Iterator[ItemBatch]:
        return self.batches
