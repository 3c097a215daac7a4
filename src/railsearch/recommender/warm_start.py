"""A warm start: training continues with the weights of a trained recommender, such as one with a cosine."""

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.models import SequentialModel
from railsearch.similarity import DotProduct, MixtureOfLogits, Similarity, is_continued
from railsearch.similarity.projection import Projection

FREE = {"num_items", "dropout", "item_id_dropout"}
"""Settings of an encoder that a warm start may change: none is the size of a copied weight."""
RARE_SHARE = 0.1
"""Share of the trained items, those with the fewest events, whose mean row new items start around."""
ITEM_TABLE = "encoder.item_table."
USER_TABLE = "similarity.user_table.rows.weight"


@torch.no_grad()
def copy_weights(model: SequentialModel, start: SequentialModel, *, item_counts: Tensor | None = None) -> None:
    """Copy the weights of a trained model into a new one, whose tables begin with the same items and users.

    The new model may have more items and users than the trained one. The rows of new users keep their initial weights.
    Those of new items start around the mean of rare items: a random row has a random place in every ranking, often the
    first. With features, an item starts as its features. The similarity is copied if both have the same one. A mixture
    that starts as a cosine may follow a cosine.

    Args:
        model: the new model, with its initial weights; changed in place.
        start: the trained model.
        item_counts: (n,) training events of each item of the trained model; None if they are unknown.
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
    table = model.encoder.item_table
    table.continue_from(start.encoder.item_table, rows)
    if table.weight is not None and num_items > num_known:
        if table.feature_dim is not None:
            table.weight[num_known:] = 0
        else:
            table.weight[num_known:] += _mean_of_rare(table.weight[:num_known], item_counts)
    weights = model.state_dict()
    for name, trained in start.state_dict().items():
        if name.startswith("encoder.") and not name.startswith(ITEM_TABLE):
            weights[name].copy_(trained)
        elif is_same and name == USER_TABLE:
            weights[name][: len(trained)].copy_(trained)
        elif is_same and name.startswith("similarity."):
            weights[name].copy_(trained)


def _mean_of_rare(weight: Tensor, item_counts: Tensor | None) -> Tensor:
    """Return the mean row (D,) of the trained items with the fewest events, or of all if their events are unknown."""
    if item_counts is None:
        return weight.mean(dim=0)
    rarest = item_counts.argsort(stable=True)[: max(1, round(RARE_SHARE * len(weight)))].to(weight.device)  # (m,)
    return weight[rarest].mean(dim=0)


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
