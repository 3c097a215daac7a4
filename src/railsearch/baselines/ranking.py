"""Ranks of held-out items by the scores of a baseline, with the protocol of trained models; its recommendations."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.baselines.contract import Baseline
from railsearch.data import HeldOut, Interactions, Split
from railsearch.evaluation import Evaluation
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count
from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.kernels import RowFilter, ranks_among, select_best
from railsearch.models import ITEM_CUTOFFS
from railsearch.models.sequential import consecutive_rows
from railsearch.recommender.answers import check_enough, to_table
from railsearch.recommender.events import InteractionsLike, as_split, check_items
from railsearch.recommender.requests import Requests

if TYPE_CHECKING:
    from polars import DataFrame

SCORES_PER_BLOCK = 2**20
"""Scores that are in memory at once."""


def rank_by_scores(baseline: Baseline, interactions: Interactions, held_out: HeldOut) -> Tensor:
    """Return the rank (n,) of each held-out item, exactly as `rank_held_out` does for a trained model.

    All items are candidates except the other items of the user's history; ties go to the smaller row.

    Args:
        baseline: scores the items.
        interactions: the events that the histories are part of.
        held_out: the items to rank, each with its user and the end of its history.
    """
    num_items = baseline.split.interactions.num_items
    if interactions.num_items != num_items:
        raise InvalidInputError(
            f"the interactions have {interactions.num_items} items but the baseline was fitted on {num_items}; "
            "give interactions with the same catalogue."
        )
    offsets = interactions.offsets  # (U + 1,)
    ranks = [torch.empty(0, dtype=torch.int64)]
    for rows in torch.split(torch.arange(len(held_out.users)), _histories_per_block(baseline)):
        starts, ends = offsets[held_out.users[rows]], held_out.history_ends[rows]  # (b,)
        seen = interactions.items[consecutive_rows(starts, ends - starts)]  # (e,)
        scores = baseline.score_rows(seen, ends - starts)  # (b, N)
        queries = torch.arange(len(rows))  # (b,)
        row_filter = RowFilter(queries.repeat_interleave(ends - starts), seen)
        ranks.append(ranks_among(scores, queries, held_out.items[rows], row_filter=row_filter))
    return torch.cat(ranks)


def evaluate_baseline(baseline: Baseline, data: Split | InteractionsLike | str | Path) -> Evaluation:
    """Rank the test items of a split; interactions that are not split yet are split as those of the fit."""
    split = as_split(data, has_validation=baseline.split.validation is not None)
    check_items(split, baseline.split.interactions.item_ids)
    ranks = rank_by_scores(baseline, split.interactions, split.test)  # (n,)
    return Evaluation.of_ranks(ranks, cutoffs=ITEM_CUTOFFS, protocol=split.protocol, query_rows=split.test.users)


def score_requests(baseline: Baseline, requests: Requests) -> Tensor:
    """Return the score (B, N) of every item for each request."""
    lengths = torch.tensor([len(items) for items in requests.items])  # (B,)
    return baseline.score_rows(torch.cat(requests.items), lengths)


def recommend_best(baseline: Baseline, requests: Requests, k: int, *, filter_viewed: bool, pad: bool) -> "DataFrame":
    """Return the k best items of each request as a table: user, item, score, rank."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    check_count(k, name="k")
    item_ids = baseline.split.interactions.item_ids
    rows = torch.arange(len(item_ids))  # (N,)
    check_enough(requests, k, rows, rows, filter_viewed=filter_viewed and not pad)
    tables = []
    for batch in requests.batches(_histories_per_block(baseline)):
        scores = score_requests(baseline, batch)  # (b, N)
        if filter_viewed:
            RowFilter.from_lists(batch.items, device=scores.device).hide(scores, 0)
        best, found = select_best(scores, k)  # (b, K)
        result = SearchResult(
            ids=found.masked_fill(best == -torch.inf, NO_ITEM),
            scores=best.float(),
            ceiling=best[:, -1].float(),
            num_scored=torch.full((len(batch),), len(rows)),
        )
        tables.append(to_table(result, batch.names, item_ids, rows))
    return pl.concat(tables)


def _histories_per_block(baseline: Baseline) -> int:
    return max(1, SCORES_PER_BLOCK // baseline.split.interactions.num_items)
