"""The item table of a sequence encoder: a learned row for each item, a projection of its features, or their sum.

Features describe the content of an item, such as an embedding of its title. Their projection is learned once for all
items, so an item that was not there in training gets an embedding from its features alone.
"""

import math
from typing import Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn

from railsearch.encoders.sequence.histories import check_item_rows
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count, check_share
from railsearch.similarity.contract import ConfigValue

INITIAL_STD = 0.02


class ItemTable(nn.Module):
    """Item embeddings (N, D): `weight[row] + projection(features[row])`, or one of the two.

    Features are standardized column by column with the mean and spread of the items that the table is built for, so
    that their scale does not matter; both are kept for items that are added later.

    Args:
        num_items: N, the number of items.
        dim: D, the size of an item embedding.
        features: (N, F) features of the items; None if there are none, or if they are loaded with the weights.
        feature_dim: F, the number of features that are loaded with the weights; the size of `features` if omitted.
        has_ids: learn a row for each item. Otherwise, an item is its features.
        id_dropout: share of lookups in training that omit the learned row, so that features alone suffice.
    """

    features: Tensor | None
    feature_mean: Tensor | None
    feature_scale: Tensor | None

    def __init__(
        self,
        *,
        num_items: int,
        dim: int,
        features: Tensor | None = None,
        feature_dim: int | None = None,
        has_ids: bool = True,
        id_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.num_items = check_count(num_items, name="num_items")
        self.dim = check_count(dim, name="dim")
        self.id_dropout = check_share(id_dropout, name="item_id_dropout")
        self.feature_dim = _feature_dim(features, feature_dim, self.num_items)
        if self.feature_dim is None and not has_ids:
            raise InvalidInputError("item_ids is False but there are no item_features; give one of the two.")
        self.weight = nn.Parameter(torch.empty(self.num_items, self.dim)) if has_ids else None
        self.projection = None
        for name, size in (("features", (self.num_items,)), ("feature_mean", ()), ("feature_scale", ())):
            self.register_buffer(name, None if self.feature_dim is None else torch.zeros(*size, self.feature_dim))
        if self.feature_dim is not None:
            self.projection = nn.Linear(self.feature_dim, self.dim)
        if features is not None:
            self._standardize(features)

    @property
    def has_ids(self) -> bool:
        """Whether the table has a learned row for each item."""
        return self.weight is not None

    @property
    def config(self) -> dict[str, ConfigValue]:
        """The settings of features, as keyword arguments of an encoder; empty without features."""
        if self.feature_dim is None:
            return {}
        return {"feature_dim": self.feature_dim, "item_ids": self.has_ids, "item_id_dropout": self.id_dropout}

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Initialize all weights again; features are kept."""
        if self.weight is not None:
            nn.init.trunc_normal_(self.weight, std=INITIAL_STD, generator=generator)
        if self.projection is not None:  # features have length 1, so embeddings start as small as learned rows
            nn.init.trunc_normal_(self.projection.weight, std=INITIAL_STD, generator=generator)
            nn.init.zeros_(self.projection.bias)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the embedding (n, D) of each of these rows (n,)."""
        by_id = None if self.weight is None else F.embedding(rows, self.weight)  # (n, D)
        if self.projection is None or self.features is None:
            assert by_id is not None
            return by_id
        if len(rows) < self.num_items:
            by_content: Tensor = self.projection(self.features[rows])  # (n, D)
        else:
            by_content = F.embedding(rows, self.projection(self.features))  # (n, D) each item is projected once
        if by_id is None:
            return by_content
        if self.training and self.id_dropout:
            is_kept = torch.rand(len(rows), 1, device=rows.device) >= self.id_dropout  # (n, 1)
            by_id = by_id * is_kept
        return by_id + by_content

    def every(self) -> Tensor:
        """Return the embeddings of all items (N, D), without dropout."""
        if self.projection is None or self.features is None:
            assert self.weight is not None
            return self.weight
        by_content: Tensor = self.projection(self.features)  # (N, D)
        return by_content if self.weight is None else self.weight + by_content

    def embed(self, rows: Tensor | None) -> Tensor:
        """Return the embeddings of checked rows (n, D), or of all items."""
        if rows is None:
            return self.every()
        check_item_rows(rows, num_items=self.num_items, name="rows")
        embedded: Tensor = self(rows)
        return embedded

    def standardize(self, features: Tensor) -> Tensor:
        """Return features (n, F) as the table keeps them."""
        if self.feature_mean is None or self.feature_scale is None:
            raise InvalidInputError("this table has no features; build the encoder with item_features.")
        if features.ndim != 2 or features.shape[1] != self.feature_dim:
            raise InvalidInputError(
                f"the features have shape {tuple(features.shape)} but the model takes {self.feature_dim} for each "
                f"item; give (n, {self.feature_dim})."
            )
        return (features.to(self.feature_mean) - self.feature_mean) * self.feature_scale  # (n, F)

    def given_features(self) -> Tensor | None:
        """Return the features (N, F) as they were given, up to rounding; None if there are none."""
        if self.features is None or self.feature_mean is None or self.feature_scale is None:
            return None
        return self.features / self.feature_scale.where(self.feature_scale > 0, 1.0) + self.feature_mean  # (N, F)

    @torch.no_grad()
    def continue_from(self, trained: "ItemTable", rows: Tensor) -> None:
        """Take over the weights of a trained table; items that it does not know keep their initial rows.

        Features stay those of this table, standardized as the trained projection expects them.

        Args:
            trained: a table with as many features for each item.
            rows: (N,) row of each item in the trained table, negative for new items.
        """
        is_known = rows >= 0  # (N,)
        if self.weight is not None and trained.weight is not None:
            self.weight[is_known] = trained.weight[rows[is_known]]
        if self.projection is None or trained.projection is None:
            return
        given = self.given_features()  # (N, F)
        assert given is not None
        assert self.features is not None
        assert self.feature_mean is not None
        assert self.feature_scale is not None
        assert trained.feature_mean is not None
        assert trained.feature_scale is not None
        self.feature_mean.copy_(trained.feature_mean)
        self.feature_scale.copy_(trained.feature_scale)
        self.features.copy_(self.standardize(given))
        self.projection.load_state_dict(trained.projection.state_dict())

    @torch.no_grad()
    def grown(self, features: Tensor) -> Self:
        """Return a table with further items after the present ones; the learned row of a new item is zero.

        Args:
            features: (n, F) features of the new items, as they were given in training.
        """
        new = self.standardize(features)  # (n, F)
        assert self.features is not None
        table = type(self)(
            num_items=self.num_items + len(new),
            dim=self.dim,
            feature_dim=self.feature_dim,
            has_ids=self.has_ids,
            id_dropout=self.id_dropout,
        )
        weights = self.state_dict() | {"features": torch.cat([self.features, new])}
        if self.weight is not None:
            weights["weight"] = torch.cat([self.weight, self.weight.new_zeros(len(new), self.dim)])  # (N + n, D)
        table.load_state_dict(weights, assign=True)
        return table.train(self.training)

    def _standardize(self, features: Tensor) -> None:
        """Keep features (N, F), and their mean and spread; a column that is the same for all items becomes zero."""
        exact = features.double()
        mean, spread = exact.mean(dim=0), exact.std(dim=0, correction=0)  # (F,)
        is_constant = spread <= 1e-6 * exact.abs().amax(dim=0)
        scale = torch.where(is_constant, 0.0, 1.0 / spread.clamp_min(torch.finfo(torch.float32).tiny))  # (F,)
        self.feature_mean = mean.float()
        self.feature_scale = (scale / math.sqrt(features.shape[1])).float()  # rows have length 1 on average
        self.features = self.standardize(features)


def _feature_dim(features: Tensor | None, feature_dim: int | None, num_items: int) -> int | None:
    """Return the number of features of each item; check that they fit the items and are finite."""
    if features is None:
        return None if feature_dim is None else check_count(feature_dim, name="feature_dim")
    if features.ndim != 2 or len(features) != num_items or not features.shape[1]:
        raise InvalidInputError(
            f"item_features has shape {tuple(features.shape)} but there are {num_items} items; give one row of "
            "features for each item."
        )
    if not features.is_floating_point() or not bool(features.isfinite().all()):
        raise InvalidInputError("item_features must hold finite floating-point numbers; correct the others.")
    if feature_dim is not None and feature_dim != features.shape[1]:
        raise InvalidInputError(
            f"feature_dim is {feature_dim} but item_features has {features.shape[1]} columns; omit feature_dim."
        )
    return features.shape[1]
