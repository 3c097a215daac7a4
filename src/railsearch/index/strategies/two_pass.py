"""The exact two-pass search (the paper's Algorithm 1)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.index.certificate import Certificate
from railsearch.index.corpus import Corpus
from railsearch.index.first_stage import best_by_average, reaches
from railsearch.index.strategies.brute_force import BruteForce
from railsearch.index.strategies.contract import Found
from railsearch.index.strategies.keeping import keep_ascending, merge, score_rows
from railsearch.index.strategies.rest import scan_rest
from railsearch.kernels import RowFilter, pack, unite
from railsearch.similarity import QueryParts

COMPLETE_SHARE = 0.4
"""If the engine finds more than this share of all items, it is cheaper to score all of them."""


@dataclass(frozen=True, slots=True)
class TwoPass:
    """Exact: a first pass finds a k-th score, a second scores every item whose best component reaches it (Algorithm 1).

    The second pass reads the corpus once, stretch by stretch, and the k-th score rises on the way. Where bounds do not
    pay off, because most items have to be scored, it costs little more than brute force.
    """

    def memory_needed(self, corpus: Corpus, num_queries: int, k: int) -> int:
        """Return the least bytes of a search: tables that are not built yet, and which items an engine has found."""
        if not corpus.similarity.is_certifiable:
            return 0
        needed = corpus.engine_bytes()
        if corpus.engine.is_exact and corpus.engine.supports_threshold:
            num_copies = 1 if len(corpus.segments) == 1 else 2
            needed += corpus.engine_bytes(by_component=True) + num_copies * num_queries * len(corpus)
        return needed

    def find_rows(
        self,
        corpus: Corpus,
        query_parts: QueryParts,
        k: int,
        row_filter: RowFilter | None,
        *,
        floor: Tensor | None = None,
    ) -> Found:
        """Find the k best rows of each query; with a floor (B,), rows below it may be missing."""
        certificate = Certificate.start(corpus, query_parts)
        if not certificate.is_certifiable:
            return BruteForce().find_rows(corpus, query_parts, k, row_filter)
        is_by_engine = corpus.engine.is_exact and corpus.engine.supports_threshold
        if floor is not None:
            nothing = certificate.slack.new_full((len(query_parts), k), -torch.inf)  # (B, K)
            rows = torch.zeros_like(nothing, dtype=torch.int64)  # (B, K)
            first_pass = Found(rows, nothing, certificate.ceiling, rows[:, 0])
            rest = RowFilter.nothing(device=rows.device) if row_filter is None else row_filter
            if is_by_engine:
                return _second_pass_by_engine(certificate, first_pass, rest, row_filter, floor)
            return scan_rest(certificate, first_pass, rest, floor=floor)
        num_seeds = max(2 * k, 128)
        if corpus.engine.max_n is not None:
            num_seeds = min(num_seeds, corpus.engine.max_n)
        seeds = best_by_average(corpus, query_parts, num_seeds, row_filter)  # (B, n)
        candidates, is_real = unite([seeds], len(corpus))  # (B, C)
        seed_scores = score_rows(corpus, query_parts, candidates, is_real)  # (B, C)
        scores, rows = keep_ascending(corpus, seed_scores, candidates, k)  # (B, K)
        first_pass = Found(rows, scores, certificate.ceiling, is_real.sum(dim=1))
        rest = (RowFilter.nothing(device=seeds.device) if row_filter is None else row_filter).plus(seeds)
        if is_by_engine:
            return _second_pass_by_engine(certificate, first_pass, rest, row_filter, scores[:, -1])
        return scan_rest(certificate, first_pass, rest)


def _second_pass_by_engine(
    certificate: Certificate, first_pass: Found, rest: RowFilter, row_filter: RowFilter | None, floor: Tensor
) -> Found:
    """Ask the engine for every item that reaches the floor (B,), the k-th score of a first pass, and score those."""
    corpus, query_parts = certificate.corpus, certificate.query_parts
    scores, rows = first_pass.scores, first_pass.rows  # (B, K)
    is_candidate = reaches(corpus, query_parts, certificate.thresholds(floor), rest)  # (B, N)
    candidates, is_real = pack(is_candidate)  # (B, C)
    if candidates.shape[1] > COMPLETE_SHARE * len(corpus):
        return BruteForce().find_rows(corpus, query_parts, scores.shape[1], row_filter)
    certificate = certificate.skip_below(floor)
    new_scores = score_rows(corpus, query_parts, candidates, is_real)  # (B, C)
    scores, rows = merge(corpus, scores, rows, new_scores, candidates)  # (B, K)
    return Found(rows, scores, certificate.ceiling, first_pass.num_scored + is_real.sum(dim=1))
