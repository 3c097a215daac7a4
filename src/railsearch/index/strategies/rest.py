"""The rest of a corpus: one pass that scores every item whose bound reaches the k-th score found so far."""

import torch
from torch import Tensor

from railsearch.index.certificate import Certificate
from railsearch.index.strategies.contract import Found
from railsearch.index.strategies.keeping import merge
from railsearch.kernels import RowFilter

ROWS_PER_STRETCH = 32768
"""Items that the pass decides on at once, with a full batch of queries; more with few queries."""
PAIRS_PER_STRETCH = 2**16


def scan_rest(
    certificate: Certificate,
    found: Found,
    rest: RowFilter,
    *,
    max_gap: float = 0.0,
    floor: Tensor | None = None,
) -> Found:
    """Read the corpus once, stretch by stretch; the k-th score rises on the way.

    Args:
        certificate: of a search that has skipped no item yet, under a certifiable similarity.
        found: the best of the items that were scored before.
        rest: hides what was scored before, and what the user's filter hides.
        max_gap: items whose bound exceeds the k-th score by no more than this are skipped too.
        floor: a score (B,) that k items elsewhere reach: it counts where the k-th score is below it.
    """
    corpus, query_parts = certificate.corpus, certificate.query_parts
    scores, rows, num_scored = found.scores, found.rows, found.num_scored
    k = scores.shape[1]
    lowest = torch.full_like(scores[:, -1], -torch.inf) if floor is None else floor  # (B,)
    for stretch in corpus.stretches(max(ROWS_PER_STRETCH, PAIRS_PER_STRETCH // max(1, len(query_parts)))):
        first, last = stretch.first_row, stretch.first_row + len(stretch)
        above = corpus.kernel.top_k_above(
            query_parts,
            stretch.parts,
            min(k, len(stretch)),
            certificate.thresholds(torch.maximum(scores[:, -1], lowest), max_gap=max_gap),
            rest.of_rows(first, last),
        )
        certificate = certificate.skip(above.best_skipped[:, None])
        num_scored = num_scored + above.num_scored
        scores, rows = merge(corpus, scores, rows, above.scores, above.rows + first)  # (B, K)
    if max_gap == 0:
        certificate = certificate.at_most(torch.maximum(scores[:, -1], lowest))
    return Found(rows, scores, certificate.ceiling, num_scored)
