"""Metrics against ir-measures, the field's own oracle."""

import ir_measures
import pytest
import torch
from ir_measures import RR, Success, nDCG

from railsearch.errors import InvalidInputError
from railsearch.foundation.metrics import hit_rate, mean_reciprocal_rank, ndcg, summarize

RANKS = torch.tensor([1, 2, 2, 5, 10, 11, 40, 57])


def test_against_ir_measures() -> None:
    qrels = [ir_measures.Qrel(str(query), "right", 1) for query in range(len(RANKS))]
    run = [
        ir_measures.ScoredDoc(str(query), "right" if place == rank else f"wrong{place}", -float(place))
        for query, rank in enumerate(RANKS.tolist())
        for place in range(1, 101)
    ]
    expected = ir_measures.calc_aggregate([Success @ 1, Success @ 10, nDCG @ 10, nDCG @ 50, RR], qrels, run)
    assert hit_rate(RANKS, 1) == pytest.approx(expected[Success @ 1])
    assert hit_rate(RANKS, 10) == pytest.approx(expected[Success @ 10])
    assert ndcg(RANKS, 10) == pytest.approx(expected[nDCG @ 10])
    assert ndcg(RANKS, 50) == pytest.approx(expected[nDCG @ 50])
    assert mean_reciprocal_rank(RANKS) == pytest.approx(expected[RR])


def test_summary_names_what_it_holds() -> None:
    assert summarize(RANKS, ks=(1, 10)) == {
        "HR@1": hit_rate(RANKS, 1), "HR@10": hit_rate(RANKS, 10), "MRR": mean_reciprocal_rank(RANKS),
    }  # fmt: skip


@pytest.mark.parametrize("ranks", [torch.empty(0), torch.tensor([0, 3]), []])
def test_no_ranks(ranks: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match="at least one rank, each 1 or greater"):
        hit_rate(ranks, 1)
