"""Score candidates and keep the best: the steps that all strategies share."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.index.corpus import Corpus
from railsearch.index.engines import Flat
from railsearch.index.first_stage import best_by_average
from railsearch.kernels import RowFilter, Stage, pack, select_best, timed, unite
from railsearch.similarity import QueryParts


def at_least_k(
    corpus: Corpus, query_parts: QueryParts, lists: list[Tensor], k: int, row_filter: RowFilter | None
) -> tuple[Tensor, Tensor]:
    """Unite lists of rows (B, n); if that leaves a query fewer than k rows, add the k best by average.

    Returns ascending rows (B, C), and which of them are real.
    """
    rows, is_real = unite(lists, len(corpus))  # (B, C)
    if len(rows) and int(is_real.sum(dim=1).min()) < k:
        # An engine that may miss rows may also find too few of them. A scan finds enough.
        more = best_by_average(corpus, query_parts, k, row_filter, engine=Flat())
        rows, is_real = unite([*lists, more], len(corpus))
    return rows, is_real


def score_rows(corpus: Corpus, query_parts: QueryParts, rows: Tensor, is_real: Tensor) -> Tensor:
    """Score each query's own rows (B, C); those that are not real get minus infinity."""
    return corpus.kernel.score_candidates(query_parts, corpus, rows).masked_fill(~is_real, -torch.inf)


def keep_ascending(corpus: Corpus, scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return scores and rows (B, K) of the k best of ascending rows (B, C); if C < k, the rest is minus infinity."""
    # Ascending rows settle ties by themselves, unless ids have another order.
    ties = None if corpus.places is None else corpus.tie_order(rows)
    best, columns = select_best(scores, min(k, scores.shape[1]), ties)  # (B, <= K)
    missing = k - best.shape[1]
    if not missing:
        return best, rows.gather(1, columns)
    return F.pad(best, (0, missing), value=-torch.inf), F.pad(rows.gather(1, columns), (0, missing))


@timed(Stage.SELECTION)
def keep_best(corpus: Corpus, scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k best of scores (B, n) of rows (B, n), best first; of equal scores the smaller id."""
    best, columns = select_best(scores, k, corpus.tie_order(rows))  # (B, K)
    return best, rows.gather(1, columns)


@timed(Stage.SELECTION)
def merge(corpus: Corpus, scores: Tensor, rows: Tensor, new_scores: Tensor, new_rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the K best of K (B, K) and of others (B, n), best first."""
    if new_scores.shape[1] <= 2 * scores.shape[1]:
        both = torch.cat([scores, new_scores], dim=1)  # (B, K + n)
        return keep_best(corpus, both, torch.cat([rows, new_rows], dim=1), scores.shape[1])
    columns, is_real = pack((new_scores >= scores[:, -1:]) & (new_scores > -torch.inf))  # (B, few)
    merged = torch.cat([scores, new_scores.gather(1, columns).masked_fill(~is_real, -torch.inf)], dim=1)
    return keep_best(corpus, merged, torch.cat([rows, new_rows.gather(1, columns)], dim=1), scores.shape[1])
