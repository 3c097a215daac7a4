"""The sampled softmax loss with load balance (the paper's equation 4), in bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.kernels import can_share_softmax, shared_softmax, training_scores, values_per_training_pair
from railsearch.similarity import ItemParts, QueryParts, Similarity, load_balance_loss
from railsearch.training.decorrelation import decorrelation_loss
from railsearch.training.leaves import ItemGradients, as_leaf, as_optional_leaf
from railsearch.training.negatives import Contrast

VALUES_PER_BLOCK = 2**20
"""Values that the widest layer of a block keeps for the backward pass: 4 MiB in fp32."""
MOST_PAIRS_PER_BLOCK = 2**16
MOST_CANDIDATES_PER_BLOCK = 2**14
"""The same where each example has its own negatives, whose components are copied."""


@dataclass(frozen=True, slots=True)
class StepLosses:
    """The two terms of the loss of one step."""

    softmax: float
    balance: float


def backward_sampled_softmax(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    contrast: Contrast,
    *,
    balance_weight: float,
    decorrelation_weight: float = 0.0,
    num_examples: int | None = None,
    pairs_per_block: int | None = None,
) -> StepLosses:
    """Compute the loss and add its gradient to every weight, as `loss.backward()` would.

    The loss is the mean over examples of -log(exp(phi+) / (exp(phi+) + sum over negatives of exp(phi-))), plus
    balance_weight * L_MI, plus decorrelation_weight times the decorrelation losses of queries and items. A negative
    that is right for the example does not count, and the contrast may add an offset to the score of a negative. Forward
    and backward passes run block by block over the examples, so that the activations (examples x negatives x component
    pairs) are never all in memory, and those of a block stay in the cache. The networks of each side run forward and
    backward once. A dot product over negatives that all examples share takes one native function on a CPU.

    Args:
        similarity: the similarity that computed the parts.
        query_parts: query side of the batch's E examples.
        item_parts: item side of every item in the contrast.
        contrast: the right item and the negatives of each example, as rows of `item_parts`.
        balance_weight: alpha, the weight of the load-balance loss over the positive query-item pairs.
        decorrelation_weight: weight of the decorrelation losses, over the components of the examples and of the items.
        num_examples: divisor of the sum over examples if other processes have more examples; E by default.
        pairs_per_block: (example, negative) pairs in memory at once; by default as many as fit the cache.
    """
    share = 1.0 if num_examples is None else len(query_parts) / num_examples
    positive_parts = item_parts[contrast.positives[:, None]]  # one candidate for each example
    positive = similarity.compare_candidates(query_parts, positive_parts)
    balance = load_balance_loss(positive.gate_weights)

    weight = share / len(query_parts)
    contrast = contrast.merged()
    if _is_fused(similarity, query_parts, item_parts, contrast):
        total, reached = _shared_softmax(
            similarity, query_parts, item_parts, contrast, positive=positive.scores, weight=weight
        )
    else:
        total, reached = _softmax_in_blocks(
            similarity, query_parts, item_parts, contrast,
            positive=positive.scores, weight=weight, pairs_per_block=pairs_per_block,
        )  # fmt: skip
    reached.append((balance, torch.full_like(balance, balance_weight * share)))
    if decorrelation_weight:
        likeness = decorrelation_loss(query_parts.components) + decorrelation_loss(item_parts.components)  # ()
        reached.append((likeness, torch.full_like(likeness, decorrelation_weight * share)))
    trained = [(output, gradient) for output, gradient in reached if output is not None and output.requires_grad]
    torch.autograd.backward([output for output, _ in trained], [gradient for _, gradient in trained])
    return StepLosses(softmax=total, balance=balance.item() * share)


Reached: TypeAlias = list[tuple[Tensor | None, Tensor | None]]
"""Tensors that the loss depends on, and its gradients with respect to them."""


def _is_fused(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts, contrast: Contrast) -> bool:
    """Return whether one native function computes the loss and its gradient: a dot product over shared negatives."""
    return len(contrast.negatives) == 1 and can_share_softmax(similarity, query_parts, item_parts)


def _shared_softmax(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    contrast: Contrast,
    *,
    positive: Tensor,
    weight: float,
) -> tuple[float, Reached]:
    """Compute the loss of negatives that all examples share, without (examples x negatives) in memory."""
    negatives = contrast.negatives[0]  # (n,)
    queries = query_parts.components[:, 0] / similarity.temperature  # (E, d)
    column = negatives.new_full((len(item_parts),), -1)  # (U,)
    column[negatives] = torch.arange(len(negatives), device=negatives.device)
    found = shared_softmax(
        queries,
        item_parts.components[negatives, 0],
        positive[:, 0],
        weight=weight,
        own=column[contrast.positives],
        excluded=contrast.excluded,
        excluded_rows=contrast.excluded_rows,
        offsets=None if contrast.offsets is None else contrast.offsets[0],
    )
    to_items = torch.zeros_like(item_parts.components)  # (U, 1, d)
    to_items[negatives, 0] = found.to_items
    reached: Reached = [
        (positive, found.to_rights[:, None]),
        (queries, found.to_queries),
        (item_parts.components, to_items),
    ]
    return found.loss, reached


def _softmax_in_blocks(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    contrast: Contrast,
    *,
    positive: Tensor,
    weight: float,
    pairs_per_block: int | None,
) -> tuple[float, Reached]:
    """Compute the loss block by block, with any similarity and any negatives."""
    query_leaves = QueryParts(as_leaf(query_parts.components), as_optional_leaf(query_parts.gate))
    positive_leaf = as_leaf(positive)  # (E, 1)
    item_gradients = ItemGradients(item_parts)
    if pairs_per_block is None:
        is_shared = len(contrast.negatives) < len(contrast.positives)
        pairs_per_block = min(
            MOST_PAIRS_PER_BLOCK if is_shared else MOST_CANDIDATES_PER_BLOCK,
            VALUES_PER_BLOCK // values_per_training_pair(similarity, query_parts.components.device),
        )
    total = 0.0
    for rows, group in _blocks(contrast, pairs_per_block):
        negatives = contrast.negatives[group]  # (n,) or (e, n)
        own = item_parts[negatives]
        negative_leaves = ItemParts(as_leaf(own.components), as_optional_leaf(own.gate))
        scores = training_scores(similarity, query_leaves[rows], negative_leaves)  # (e, n)
        if contrast.offsets is not None:
            scores = scores + contrast.offsets[group].to(scores.dtype)  # (e, n)
        is_right = negatives == contrast.positives[rows, None]  # (e, n)
        excluded = contrast.excluded_of(rows)  # (e, n)
        if excluded is not None:
            is_right = is_right | excluded
        scores = scores.masked_fill(is_right, -torch.inf)
        logits = torch.cat([positive_leaf[rows], scores], dim=1)  # (e, 1 + n)
        right = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        loss = F.cross_entropy(logits, right, reduction="sum") * weight
        loss.backward()  # type: ignore[no-untyped-call]
        item_gradients.add(negatives, negative_leaves)
        total += loss.item()
    reached: Reached = [
        (positive, positive_leaf.grad),
        (query_parts.components, query_leaves.components.grad),
        (query_parts.gate, None if query_leaves.gate is None else query_leaves.gate.grad),
        (item_parts.components, item_gradients.components),
        (item_parts.gate, item_gradients.gate),
    ]
    return total, reached


def backward_user_penalty(similarity: Similarity, user_ids: Tensor, *, weight: float) -> None:
    """Add the gradient of the l2 penalty on these users' rows of a user table, times `weight`."""
    if not weight:
        return
    penalty = weight * similarity.user_penalty(user_ids)  # ()
    if penalty.requires_grad:
        penalty.backward()  # type: ignore[no-untyped-call]


def _blocks(contrast: Contrast, pairs_per_block: int) -> Iterator[tuple[slice, int | slice]]:
    """Yield blocks of examples, and the rows of their negatives: one row that the block shares, or one per example."""
    rows_per_block = max(1, pairs_per_block // max(1, contrast.negatives.shape[1]))
    if len(contrast.negatives) == len(contrast.positives):
        for first in range(0, len(contrast.positives), rows_per_block):
            rows = slice(first, min(first + rows_per_block, len(contrast.positives)))
            yield rows, rows
        return
    start = 0
    for group, size in enumerate(contrast.group_sizes):
        for first in range(start, start + size, rows_per_block):
            yield slice(first, min(first + rows_per_block, start + size)), group
        start += size
