"""The sampled softmax loss with load balance (the paper's equation 4), in memory that stays bounded."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.similarity import ItemParts, QueryParts, Similarity, load_balance_loss

PAIRS_PER_BLOCK = 8192
"""(query, negative) pairs whose activations are kept for a backward pass at once."""


@dataclass(frozen=True, slots=True)
class StepLosses:
    """What one step's loss is made of."""

    softmax: float
    balance: float


def backward_sampled_softmax(
    similarity: Similarity,
    query_parts: QueryParts,
    positive_parts: ItemParts,
    negative_parts: ItemParts,
    *,
    is_masked: Tensor,
    balance_weight: float,
    pairs_per_block: int = PAIRS_PER_BLOCK,
) -> StepLosses:
    """Compute the loss and add its gradient to every weight, as `loss.backward()` would.

    -log(exp(phi+) / (exp(phi+) + sum over negatives of exp(phi-))) + balance_weight * L_MI, mean over queries.
    Forward and backward run block by block over the queries: activations of (queries x negatives x pairs)
    are never all there at once. The sides' own networks run forward and backward once.

    Args:
        similarity: the similarity that made the parts.
        query_parts: the batch's B queries.
        positive_parts: the right item of each query, B rows.
        negative_parts: n items that all queries of the batch are compared with.
        is_masked: (B, n), true where a negative is in fact the query's positive and must not count.
        balance_weight: alpha, the weight of the load-balance loss over the positive pairs.
        pairs_per_block: how many (query, negative) pairs are held at once.
    """
    num_queries, num_negatives = is_masked.shape
    own = ItemParts(
        positive_parts.components[:, None], None if positive_parts.gate is None else positive_parts.gate[:, None]
    )  # one candidate a query
    positive = similarity.compare_candidates(query_parts, own)
    balance = load_balance_loss(positive.gate_weights)

    query_leaves = QueryParts(_leaf(query_parts.components), _optional_leaf(query_parts.gate))
    negative_leaves = ItemParts(_leaf(negative_parts.components), _optional_leaf(negative_parts.gate))
    positive_leaf = _leaf(positive.scores)  # (B, 1)
    rows_per_block = max(1, pairs_per_block // max(1, num_negatives))
    total = 0.0
    for first in range(0, num_queries, rows_per_block):
        rows = slice(first, first + rows_per_block)
        scores = similarity.score(query_leaves[rows], negative_leaves)  # (b, n)
        scores = scores.masked_fill(is_masked[rows], -torch.inf)
        logits = torch.cat([positive_leaf[rows], scores], dim=1)  # (b, 1 + n)
        right = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        loss = F.cross_entropy(logits, right, reduction="sum") / num_queries
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.item()

    reached: list[tuple[Tensor | None, Tensor | None]] = [
        (positive.scores, positive_leaf.grad),
        (balance, torch.full_like(balance, balance_weight)),
        (query_parts.components, query_leaves.components.grad),
        (query_parts.gate, None if query_leaves.gate is None else query_leaves.gate.grad),
        (negative_parts.components, negative_leaves.components.grad),
        (negative_parts.gate, None if negative_leaves.gate is None else negative_leaves.gate.grad),
    ]
    trained = [(output, gradient) for output, gradient in reached if output is not None and output.requires_grad]
    torch.autograd.backward([output for output, _ in trained], [gradient for _, gradient in trained])
    return StepLosses(softmax=total, balance=balance.item())


def _leaf(part: Tensor) -> Tensor:
    return part.detach().requires_grad_()


def _optional_leaf(part: Tensor | None) -> Tensor | None:
    return None if part is None else _leaf(part)
