"""Candidates by component score, alone or together with those by average."""

from dataclasses import dataclass

from railsearch.foundation.inputs import check_count
from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.first_stage import best_by_average, best_per_component
from railsearch.index.strategies.brute_force import BruteForce
from railsearch.index.strategies.contract import Found
from railsearch.index.strategies.keeping import at_least_k, keep_ascending, score_rows
from railsearch.kernels import RowFilter
from railsearch.similarity import QueryParts


@dataclass(frozen=True, slots=True)
class PerComponent:
    """Score the n best items of each of the P component pairs, united (the paper's TopKPerEmbd).

    The ceiling is the best component score of any item that was not scored: the bound of Theorem 2, or a tighter one
    if the next best item of one pair is in the list of another. A small corpus, of at most n * P items, is scored
    completely, without a first stage.
    """

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, name="n")

    def memory_needed(self, corpus: Corpus, num_queries: int, k: int) -> int:
        """Return the least bytes of a search."""
        return _memory_needed(corpus, num_queries, self.n)

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        return _find(corpus, query_parts, k, row_filter, per_component=self.n, by_average=0)


@dataclass(frozen=True, slots=True)
class Combined:
    """Score the candidates of PerComponent(per_component) and of Average(by_average) (the paper's CombTopK).

    The ceiling is that of PerComponent. A small corpus, of at most per_component * P items, is scored completely,
    without a first stage.
    """

    per_component: int
    by_average: int

    def __post_init__(self) -> None:
        check_count(self.per_component, name="per_component")
        check_count(self.by_average, name="by_average")

    def memory_needed(self, corpus: Corpus, num_queries: int, k: int) -> int:
        """Return the least bytes of a search."""
        return _memory_needed(corpus, num_queries, self.per_component) + corpus.engine_bytes()

    def find_rows(self, corpus: Corpus, query_parts: QueryParts, k: int, row_filter: RowFilter | None) -> Found:
        """Find the k best rows of each query."""
        return _find(corpus, query_parts, k, row_filter, per_component=self.per_component, by_average=self.by_average)


def _memory_needed(corpus: Corpus, num_queries: int, per_component: int) -> int:
    """Return the bytes of the lists of all segments, one for each component pair; nothing if all items are scored."""
    num_pairs = corpus.similarity.num_query_components * corpus.similarity.num_item_components
    if per_component * num_pairs >= len(corpus.ids):
        return 0
    tables = 0 if corpus.engine.sees_every_row else corpus.engine_bytes(by_component=True)
    return num_queries * num_pairs * corpus.list_bytes(per_component) + tables


def _find(
    corpus: Corpus,
    query_parts: QueryParts,
    k: int,
    row_filter: RowFilter | None,
    *,
    per_component: int,
    by_average: int,
) -> Found:
    """Choose by component, and by average if `by_average` is not 0 or the union would be smaller than k."""
    num_pairs = corpus.similarity.num_query_components * corpus.similarity.num_item_components
    if per_component * num_pairs >= len(corpus.ids):
        return BruteForce().find_rows(corpus, query_parts, k, row_filter)
    certificate = Certificate.start(corpus, query_parts)
    # `at_least_k` adds k items if the lists are short.
    max_scored = per_component * num_pairs + by_average + k
    chosen = best_per_component(corpus, query_parts, per_component, row_filter, max_scored=max_scored)
    lists = [chosen.rows]  # (B, P * n)
    if by_average:
        lists.append(best_by_average(corpus, query_parts, by_average, row_filter))
    rows, is_real = at_least_k(corpus, query_parts, lists, k, row_filter)  # (B, C)
    scores = score_rows(corpus, query_parts, rows, is_real)  # (B, C)
    if corpus.engine.is_exact:
        certificate = certificate.skip(chosen.bounds_without(rows, is_real))
    else:
        certificate = certificate.skip_unknown()
    best, best_rows = keep_ascending(corpus, scores, rows, k)  # (B, K)
    return Found(best_rows, best, certificate.ceiling, is_real.sum(dim=1))
