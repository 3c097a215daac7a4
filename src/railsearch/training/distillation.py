"""Losses of distillation: the scores of a student follow those of a teacher, list by list, in bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from railsearch.kernels import training_scores, values_per_training_pair
from railsearch.similarity import ItemParts, QueryParts, Similarity, load_balance_loss
from railsearch.training.decorrelation import decorrelation_loss
from railsearch.training.leaves import ItemGradients, as_leaf, as_optional_leaf
from railsearch.training.losses import MOST_CANDIDATES_PER_BLOCK, VALUES_PER_BLOCK, StepLosses


class TeacherLoss(StrEnum):
    """The way in which a student follows a teacher."""

    KL = "kl"
    """Listwise: the divergence of the student's softmax over the items of a query from the teacher's."""
    MARGIN_MSE = "margin_mse"
    """Pairwise: squared difference of the margin between two items of a query, over all pairs of its items."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredLists:
    """Some items of each of E queries, with the teacher's scores; shorter lists are padded."""

    items: Tensor  # (E, L) item rows
    scores: Tensor  # (E, L) of the teacher, less the mean of the list, divided by its temperature
    is_given: Tensor  # (E, L) False for padding; every list has at least one item

    def best_items(self) -> Tensor:
        """Return the item that the teacher scores highest in each list (E,)."""
        best = self.scores.masked_fill(~self.is_given, -torch.inf).argmax(dim=1, keepdim=True)  # (E, 1)
        return self.items.gather(1, best)[:, 0]


def kl_of_lists(student: Tensor, teacher: Tensor, is_given: Tensor) -> Tensor:
    """Return KL(softmax(teacher) || softmax(student)) of each list (E,), from scores (E, L) of the given items.

    >>> scores, everything = torch.tensor([[0.0, 1.0, 2.0]]), torch.ones(1, 3, dtype=torch.bool)
    >>> kl_of_lists(scores + 5, scores, everything).abs().max().item() < 1e-6
    True
    """
    target = teacher.masked_fill(~is_given, -torch.inf).log_softmax(dim=1).masked_fill(~is_given, 0)  # (E, L)
    found = student.masked_fill(~is_given, -torch.inf).log_softmax(dim=1).masked_fill(~is_given, 0)  # (E, L)
    divergence: Tensor = (target.exp() * is_given * (target - found)).sum(dim=1)
    return divergence


def margin_mse_of_lists(student: Tensor, teacher: Tensor, is_given: Tensor) -> Tensor:
    """Return the mean over all pairs (i, j) of a list of ((s_i - s_j) - (t_i - t_j))^2, for each list (E,).

    With d = s - t, the mean over the pairs of n items equals 2 / (n - 1) times the sum of (d - mean of d)^2. A list of
    one item has no pairs, and the loss 0.

    >>> everything = torch.ones(1, 2, dtype=torch.bool)
    >>> margin_mse_of_lists(torch.tensor([[3.0, 1.0]]), torch.tensor([[1.0, 0.0]]), everything).tolist()
    [1.0]
    """
    counts = is_given.sum(dim=1)  # (E,)
    difference = (student - teacher).masked_fill(~is_given, 0)  # (E, L)
    centered = (difference - difference.sum(dim=1, keepdim=True) / counts[:, None]).masked_fill(~is_given, 0)
    errors: Tensor = 2 * centered.square().sum(dim=1) / (counts - 1).clamp(min=1)
    return errors


LOSSES: dict[TeacherLoss, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    TeacherLoss.KL: kl_of_lists,
    TeacherLoss.MARGIN_MSE: margin_mse_of_lists,
}


def backward_distillation(
    similarity: Similarity,
    query_parts: QueryParts,
    item_parts: ItemParts,
    lists: ScoredLists,
    *,
    loss: TeacherLoss,
    balance_weight: float,
    decorrelation_weight: float = 0.0,
    num_examples: int | None = None,
    weight: float = 1.0,
    pairs_per_block: int | None = None,
) -> StepLosses:
    """Compute the loss of the lists and add its gradient, as `loss.backward()` would.

    The loss is the mean over lists, plus balance_weight * L_MI over each query with the teacher's best item. Lists are
    scored block by block, so that the activations of all query-item pairs are never in memory at once.

    Args:
        similarity: the student, which computed the parts.
        query_parts: query side of the E queries.
        item_parts: item side of every item in the lists.
        lists: items as rows of `item_parts`, and the teacher's scores.
        loss: how the student follows the teacher.
        balance_weight: alpha, the weight of the load-balance loss.
        decorrelation_weight: weight of the decorrelation losses, over the components of the queries and of the items.
        num_examples: divisor of the sum over lists if other processes have more lists; E by default.
        weight: factor of everything.
        pairs_per_block: query-item pairs in memory at once; by default as many as fit the cache.
    """
    count, length = lists.items.shape
    share = weight * (1.0 if num_examples is None else count / num_examples)
    compared = similarity.compare_candidates(query_parts, item_parts[lists.best_items()[:, None]])
    balance = load_balance_loss(compared.gate_weights)
    query_leaves = QueryParts(as_leaf(query_parts.components), as_optional_leaf(query_parts.gate))
    item_gradients = ItemGradients(item_parts)
    if pairs_per_block is None:
        values = values_per_training_pair(similarity, query_parts.components.device)
        pairs_per_block = min(MOST_CANDIDATES_PER_BLOCK, VALUES_PER_BLOCK // values)
    lists_per_block = max(1, pairs_per_block // length)
    total = 0.0
    for first in range(0, count, lists_per_block):
        block = slice(first, first + lists_per_block)
        own = item_parts[lists.items[block]]
        item_leaves = ItemParts(as_leaf(own.components), as_optional_leaf(own.gate))  # (e, L, Px, d)
        scores = training_scores(similarity, query_leaves[block], item_leaves)  # (e, L)
        losses = LOSSES[loss](scores, lists.scores[block].to(scores.dtype), lists.is_given[block])  # (e,)
        part = losses.sum() * (share / count)
        part.backward()  # type: ignore[no-untyped-call]
        item_gradients.add(lists.items[block], item_leaves)
        total += part.item()
    reached = [
        (query_parts.components, query_leaves.components.grad),
        (query_parts.gate, None if query_leaves.gate is None else query_leaves.gate.grad),
        (item_parts.components, item_gradients.components),
        (item_parts.gate, item_gradients.gate),
        (balance, torch.full_like(balance, balance_weight * share)),
    ]
    if decorrelation_weight:
        likeness = decorrelation_loss(query_parts.components) + decorrelation_loss(item_parts.components)  # ()
        reached.append((likeness, torch.full_like(likeness, decorrelation_weight * share)))
    trained = [(output, gradient) for output, gradient in reached if output is not None and output.requires_grad]
    torch.autograd.backward([output for output, _ in trained], [gradient for _, gradient in trained])
    return StepLosses(softmax=total, balance=balance.item() * share)
