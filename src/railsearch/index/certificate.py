"""Certificates: what a search can prove about the items that it did not score, under rounding."""

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.index.corpus import Corpus, Stretch
from railsearch.index.segment import lengths
from railsearch.kernels import RowFilter, Stage, timed
from railsearch.similarity import QueryParts, Similarity

STORAGE_ROUNDOFF = {torch.float16: 3 * 2.0**-11, torch.bfloat16: 3 * 2.0**-8}
"""The relative error of a dot product with item components that are stored in this precision."""


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """A proof, for each query of a batch: no item that the search skipped has a score above `ceiling`.

    A new certificate skips no item. Each `skip` method returns another certificate, which covers more skipped items:
    its ceiling is the union of both, the greater one.
    """

    corpus: Corpus
    query_parts: QueryParts
    slack: Tensor  # (B,) the greatest difference by which rounding alone can lift a score above its bound
    largest_score: Tensor  # (B,) the greatest score that the lengths of the components allow
    ceiling: Tensor  # (B,) minus infinity if no item was skipped

    @classmethod
    def start(cls, corpus: Corpus, query_parts: QueryParts) -> "Certificate":
        """Return the certificate of a search that has skipped no item yet; refuse queries whose scores underflow."""
        roundoff = corpus.kernel.roundoff
        longest_item = max(segment.longest for segment in corpus.segments)
        longest = lengths(query_parts.components).amax(dim=1)  # (B,) fp64
        slack, largest = [], []  # of a batch of queries: plain numbers are faster than small tensors
        for length in longest.tolist():
            longest_query = length / corpus.similarity.temperature
            largest_score = longest_query * longest_item
            rounding = largest_score * roundoff.relative
            underflow = roundoff.underflow * (1 + longest_query + longest_item)  # of one operation or operand
            if corpus.similarity.is_certifiable:
                _check_underflow(longest_query, longest_item, rounding, underflow)
            slack.append(
                _slack(corpus.similarity, rounding, underflow) + _storage_slack(corpus, largest_score, longest_query)
            )
            largest.append(largest_score)
        like = query_parts.components
        return cls(
            corpus=corpus,
            query_parts=query_parts,
            slack=torch.tensor(slack, dtype=like.dtype, device=like.device),
            largest_score=torch.tensor(largest, dtype=like.dtype, device=like.device),
            ceiling=like.new_full((len(like),), -torch.inf),
        )

    @property
    def is_certifiable(self) -> bool:
        """Whether the similarity promises that no score is above its bound."""
        return self.corpus.similarity.is_certifiable

    @timed(Stage.FIRST_STAGE)
    def bounds(self, row_filter: RowFilter | None, stretch: Stretch | None = None) -> Tensor:
        """Return the best component score (B, N) of every item; of one stretch, if it is given.

        Rows that the filter hides have minus infinity. If the similarity is not certifiable, bounds are infinite, so
        that no item is ever skipped because of its bound.
        """
        if stretch is None:
            return torch.cat([self.bounds(row_filter, each) for each in self.corpus.stretches()], dim=1)  # (B, N)
        if self.is_certifiable:
            bounds = self.corpus.kernel.bounds(self.query_parts, stretch.parts)  # (B, n)
        else:
            bounds = self.slack.new_full((len(self.slack), len(stretch)), torch.inf)  # (B, n)
        if row_filter is not None:
            row_filter.hide(bounds, stretch.first_row)
        return bounds

    def thresholds(self, kth_scores: Tensor, *, max_gap: float = 0.0) -> Tensor:
        """Return the bound (B,) below which no item can reach the query's k-th score (B,).

        With a `max_gap`, an item below the bound may exceed the k-th score, but by no more than that.
        """
        if max_gap == 0:
            return kth_scores - self.slack
        reached = kth_scores + max_gap  # (B,)
        spare = 8 * torch.finfo(reached.dtype).eps * (reached.abs() + self.slack + max_gap)  # rounding of these sums
        return reached - self.slack - spare.nan_to_num(nan=0.0, posinf=0.0)

    def of_queries(self, queries: Tensor) -> "Certificate":
        """Return the certificate of some of the queries (A,)."""
        return Certificate(
            corpus=self.corpus,
            query_parts=self.query_parts[queries],
            slack=self.slack[queries],
            largest_score=self.largest_score[queries],
            ceiling=self.ceiling[queries],
        )

    def skip(self, bounds: Tensor) -> "Certificate":
        """Skip items with these bounds (B, n); minus infinity stands for no item."""
        best = bounds.amax(dim=1) if bounds.shape[1] else torch.full_like(self.ceiling, -torch.inf)  # (B,)
        if not self.is_certifiable:
            return self._union(best.masked_fill(best > -torch.inf, torch.inf))
        return self._union(best + self.slack)

    def skip_unseen(self, is_skipped: Tensor) -> "Certificate":
        """Skip items of the given queries (B,), of which nothing is known but the lengths of their components.

        Of items that were not even checked, nothing is known.
        """
        is_known = self.is_certifiable and self.corpus.is_checked
        ceiling = self.largest_score + self.slack if is_known else torch.full_like(self.slack, torch.inf)
        return self._union(ceiling.masked_fill(~is_skipped, -torch.inf))

    def skip_unknown(self) -> "Certificate":
        """Skip unknown items, as an engine that may miss rows does: the ceiling is infinite."""
        return self._union(torch.full_like(self.ceiling, torch.inf))

    def skip_below(self, scores: Tensor) -> "Certificate":
        """Skip items whose bounds are all below the thresholds of these scores (B,)."""
        return self._union(scores)

    def at_most(self, kth_scores: Tensor) -> "Certificate":
        """Return the certificate of a search that skipped only items below the thresholds of lower k-th scores.

        Such an item is below the final k-th score (B,) too. Its bound plus the slack may still be rounded up to more.
        """
        return dataclasses.replace(self, ceiling=torch.minimum(self.ceiling, kth_scores))

    def is_open(self, kth_scores: Tensor, *, max_gap: float) -> Tensor:
        """Return for which queries (B,) a skipped item may exceed the k-th score by more than `max_gap`.

        With a gap of 0, a query is open as well if a skipped item may tie with its k-th score, because that item could
        have the smaller id.
        """
        gap = self.ceiling - kth_scores  # (B,)
        return (gap >= 0 if max_gap == 0 else gap > max_gap) & (self.ceiling > -torch.inf)

    def _union(self, ceiling: Tensor) -> "Certificate":
        return dataclasses.replace(self, ceiling=torch.maximum(self.ceiling, ceiling))


def as_float32(ceiling: Tensor, kth_scores: Tensor) -> Tensor:
    """Return the ceiling (B,) in fp32, still above the k-th score (B,) in fp32 if it was above it before."""
    rounded = ceiling.to(torch.float32)  # (B,)
    if ceiling.dtype == torch.float32:
        return rounded
    above = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))  # (B,)
    return torch.where(ceiling > kth_scores, above, rounded)


def _slack(similarity: Similarity, rounding: float, underflow: float) -> float:
    """Return how far rounding can lift a score of a query above its bound.

    Bound and score come from the same components in different orders. A dot product of d terms is off by at most d
    roundings of the product of the two lengths, on either side. The mixture adds the roundings of P weights, which
    should sum to 1, and of their sum. In addition, each operation can underflow.
    """
    num_pairs = similarity.num_query_components * similarity.num_item_components
    num_roundings = 2 * similarity.component_dim + 4 * num_pairs + 16
    return num_roundings * (rounding + underflow)


def _storage_slack(corpus: Corpus, largest_score: float, longest_query: float) -> float:
    """Return how far a dot product is off because item components are stored in a lower precision."""
    dtype = corpus.segments[0].dtype
    if dtype not in STORAGE_ROUNDOFF:
        return 0.0
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # the distance of values near zero
    of_zeros = longest_query * (smallest * math.sqrt(corpus.similarity.component_dim))
    return largest_score * STORAGE_ROUNDOFF[dtype] + of_zeros


def _check_underflow(longest_query: float, longest_item: float, rounding: float, underflow: float) -> None:
    """Refuse a query whose scores are so small that underflow, not rounding, decides their order."""
    if longest_query > 0 and longest_item > 0 and rounding < underflow:
        raise InvalidInputError(
            f"the components of a query are no longer than {longest_query:.2g} (divided by the "
            f"temperature) and those of the items no longer than {longest_item:.2g}, so that their products underflow "
            "in fp32; scale the embeddings up, to a length near 1."
        )
