"""Input checks that every kernel shares: parts and candidates that fit the similarity, and scores that are finite."""

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import check_count, is_finite
from railsearch.similarity import ItemParts, QueryParts, Similarity


def check_scoring(similarity: Similarity, query_parts: QueryParts, item_parts: ItemParts) -> None:
    """Check that the similarity is in eval mode and that both parts have its shape."""
    if similarity.training and next(iter(similarity.parameters()), None) is not None:
        raise InvalidInputError(
            "the similarity is in training mode, in which dropout changes its scores; call .eval() on it first."
        )
    wanted_query = (similarity.num_query_components, similarity.component_dim)
    wanted_item = (similarity.num_item_components, similarity.component_dim)
    found_query, found_item = tuple(query_parts.components.shape[1:]), tuple(item_parts.components.shape[-2:])
    if (found_query, found_item) != (wanted_query, wanted_item):
        raise InvalidInputError(
            f"query and item components are {found_query} and {found_item} but this similarity has "
            f"{wanted_query} and {wanted_item}; compute both with this similarity."
        )


def check_candidates(candidates: Tensor, *, num_queries: int, num_items: int) -> None:
    """Check that candidates (B, C) are rows of the items, one list for each query."""
    if candidates.ndim != 2 or len(candidates) != num_queries or candidates.dtype != torch.int64:
        raise InvalidInputError(
            f"candidates has shape {tuple(candidates.shape)} of {candidates.dtype} but there are {num_queries} "
            "queries; give one row of int64 candidates for each query."
        )
    if candidates.numel() and not 0 <= int(candidates.min()) <= int(candidates.max()) < num_items:
        raise InvalidInputError(
            f"candidates holds rows from {int(candidates.min())} to {int(candidates.max())} but there are "
            f"{num_items} items; rows count from 0."
        )


def check_k(k: int, num_items: int) -> None:
    """Check that there are at least k items."""
    check_count(k, name="k")
    if k > num_items:
        raise NotEnoughItemsError(f"k is {k} but there are {num_items} items; ask for k <= {num_items}.")


def check_scores(scores: Tensor) -> Tensor:
    """Return the scores, or raise if one of them is not finite."""
    if not is_finite(scores):
        raise not_finite()
    return scores


def not_finite() -> InvalidInputError:
    """Return the error of scores that are not finite."""
    return InvalidInputError(
        "some scores are NaN or infinite: embeddings or weights are too large; scale the embeddings, or train "
        "with a lower learning rate."
    )
