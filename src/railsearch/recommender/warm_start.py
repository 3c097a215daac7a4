"""A warm start: training continues with the weights of a trained recommender, such as one with a cosine."""

from typing import TYPE_CHECKING

import torch

from railsearch.foundation.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.recommender.requests import find_rows
from railsearch.similarity import DotProduct, MixtureOfLogits, Similarity, is_continued
from railsearch.similarity.projection import Projection

if TYPE_CHECKING:
    from polars import Series

FREE = {"num_items", "dropout", "item_id_dropout"}
"""Settings of an encoder that a warm start may change: none is the size of a copied weight."""
ITEM_TABLE = "item_table."


@torch.no_grad()
def copy_weights(
    model: SequentialModel, item_ids: "Series", start: SequentialModel, start_ids: "Series", *, has_same_users: bool
) -> None:
    """Copy the weights of a trained model into a new one; items that the trained model does not know keep theirs.

    The similarity is copied if both have the same one. A mixture that starts as a cosine may follow a cosine.

    Args:
        model: the new model, with its initial weights; changed in place.
        item_ids: ids of its items, by row.
        start: the trained model.
        start_ids: ids of the items of the trained model, by row.
        has_same_users: whether both have the same users in the same order; the rows of a user table belong to them.
    """
    _check_encoder(model, start)
    rows = find_rows(item_ids, start_ids)  # (N,) rows of the trained table, negative for new items
    if not bool((rows >= 0).any()):
        raise InvalidInputError(
            f"the start knows none of the {len(item_ids):,} items (its first is {start_ids[0]!r}, the data's first is "
            f"{item_ids[0]!r}); start from a model of the same items."
        )
    model.encoder.item_table.continue_from(start.encoder.item_table, rows)
    weights = model.encoder.state_dict()
    for name, trained in start.encoder.state_dict().items():
        if not name.startswith(ITEM_TABLE):
            weights[name].copy_(trained)
    if is_continued(model.similarity, start.similarity):
        if model.similarity.takes_user_ids and not has_same_users:
            raise InvalidInputError(
                "the start has a user table for other users, whose rows cannot be continued; give the users of the "
                "start, or omit the user table."
            )
        model.similarity.load_state_dict(start.similarity.state_dict())
    elif not _continues_cosine(model.similarity, start.similarity):
        raise InvalidInputError(
            f"the start has a {type(start.similarity).__name__}, which the recipe's {type(model.similarity).__name__} "
            "does not continue; use the same similarity settings, or a mixture with start = 'identity' after a cosine."
        )


def _check_encoder(model: SequentialModel, start: SequentialModel) -> None:
    ours, theirs = ({"kind": each.encoder.kind, **each.encoder.config} for each in (model, start))
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        if name not in FREE and theirs.get(name) != ours.get(name):
            raise InvalidInputError(
                f"encoder.{name} is {ours.get(name)!r} but the start has {theirs.get(name)!r}; use the encoder "
                "settings of the start."
            )


def _continues_cosine(similarity: Similarity, start: Similarity) -> bool:
    return (
        isinstance(start, DotProduct)
        and start.is_cosine
        and isinstance(similarity, MixtureOfLogits)
        and similarity.normalizes
        and {similarity.query_projection, similarity.item_projection} == {Projection.RESIDUAL}
    )
