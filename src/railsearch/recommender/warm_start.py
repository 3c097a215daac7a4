"""A warm start: training continues with the weights of a trained recommender, such as one with a cosine."""

import torch

from railsearch.foundation.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.similarity import DotProduct, MixtureOfLogits, Similarity, is_continued
from railsearch.similarity.projection import Projection

FREE = {"num_items", "dropout", "item_id_dropout"}
"""Settings of an encoder that a warm start may change: none is the size of a copied weight."""
ITEM_TABLE = "encoder.item_table."
USER_TABLE = "similarity.user_table.rows.weight"


@torch.no_grad()
def copy_weights(model: SequentialModel, start: SequentialModel) -> None:
    """Copy the weights of a trained model into a new one, whose tables begin with the same items and users.

    The new model may have more items and users than the trained one; their rows keep their initial weights. The
    similarity is copied if both have the same one. A mixture that starts as a cosine may follow a cosine.

    Args:
        model: the new model, with its initial weights; changed in place.
        start: the trained model.
    """
    _check_encoder(model, start)
    is_same = is_continued(model.similarity, start.similarity)
    if not is_same and not _continues_cosine(model.similarity, start.similarity):
        raise InvalidInputError(
            f"the start has a {type(start.similarity).__name__}, which the recipe's {type(model.similarity).__name__} "
            "does not continue; use the same similarity settings, or a mixture with start = 'identity' after a cosine."
        )
    num_items, num_known = model.encoder.num_items, start.encoder.num_items
    rows = torch.arange(num_items).masked_fill(torch.arange(num_items) >= num_known, -1)  # (N,)
    model.encoder.item_table.continue_from(start.encoder.item_table, rows)
    weights = model.state_dict()
    for name, trained in start.state_dict().items():
        if name.startswith("encoder.") and not name.startswith(ITEM_TABLE):
            weights[name].copy_(trained)
        elif is_same and name == USER_TABLE:
            weights[name][: len(trained)].copy_(trained)
        elif is_same and name.startswith("similarity."):
            weights[name].copy_(trained)


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
