"""Candidates by average component score."""

from dataclasses import dataclass

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count
from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.engines import NO_ROW
from railsearch.index.first_stage import best_by_average, one_more
from railsearch.index.strategies.contract import Found
from railsearch.index.strategies.keeping import at_least_k, keep_ascending, score_rows
from railsearch.kernels import RowFilter
from railsearch.similarity import QueryParts


@dataclass(frozen=True, slots=True)
class Average:
    """Score the n items with the best average component score (the paper's TopKAvg).

    The fastest first stage: one dot product for each item. Its ceiling for the other items is only the trivial one,
    1 / temperature. Use Combined for a certificate.
    """

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, name="n")

    def memory_needed(self, corpus: Corpus, num_queries: int, k: int) -> int:
        """Return the least bytes of a search: the lists of all segments, and tables that are not built yet."""
        return num_queries * corpus.list_bytes(self.n) + corpus.engine_bytes()

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        if self.n < k:
            raise InvalidInputError(
                f"k is {k} but Average({self.n}) scores only {self.n} items; use Average({k}) or more."
            )
        certificate = Certificate.start(corpus, query_parts)
        chosen = best_by_average(corpus, query_parts, one_more(corpus.engine, self.n), row_filter)  # (B, <= n + 1)
        rows, is_real = at_least_k(corpus, query_parts, [chosen[:, : self.n]], k, row_filter)  # (B, C)
        scores = score_rows(corpus, query_parts, rows, is_real)  # (B, C)
        if not corpus.engine.is_exact:
            certificate = certificate.skip_unknown()
        else:
            # A list that ends early, or is as long as the corpus, has skipped no item.
            is_complete = (chosen == NO_ROW).any(dim=1) | (len(corpus) <= min(self.n, chosen.shape[1]))  # (B,)
            certificate = certificate.skip_unseen(~is_complete)
        best, best_rows = keep_ascending(corpus, scores, rows, k)  # (B, K)
        return Found(best_rows, best, certificate.ceiling, is_real.sum(dim=1))
