"""The dot product and the cosine, under the same contract: one component, no gate."""

from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count, check_positive, check_rows
from railsearch.similarity.contract import ConfigValue
from railsearch.similarity.fingerprints import remembered_fingerprint
from railsearch.similarity.parts import Comparison, ItemParts, QueryParts, all_pairs, best_pairs, own_pairs
from railsearch.similarity.temperature import Temperature


class DotProduct(nn.Module):
    """<q, x> / temperature; with `cosine=True` both are first scaled to length 1.

    >>> cosine = DotProduct(dim=2, cosine=True, temperature=0.5)
    >>> cosine
    DotProduct(cosine, dim 2, temperature 0.5)
    >>> cosine(torch.tensor([[3.0, 0.0]]), torch.tensor([[5.0, 0.0], [0.0, 5.0]])).tolist()
    [[2.0, 0.0]]
    """

    is_certifiable = True
    kind: ClassVar[str] = "dot_product"
    num_query_components = 1
    num_item_components = 1
    takes_user_ids = False
    values_per_pair = 1

    def __init__(
        self,
        *,
        dim: int = 64,
        cosine: bool = False,
        temperature: float = 1.0,
        learns_temperature: bool = False,
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__()
        self.component_dim = check_count(dim, name="dim")
        self.is_cosine = bool(cosine)
        self.own_temperature = Temperature(temperature, is_learned=learns_temperature)
        self.epsilon = check_positive(epsilon, name="epsilon")
        self.query_shape = self.item_shape = (self.component_dim,)

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this similarity again."""
        return {
            "dim": self.component_dim,
            "cosine": self.is_cosine,
            "temperature": self.own_temperature.start,
            "epsilon": self.epsilon,
            # Omitted at its default: the fingerprints of older models stay valid.
            **({"learns_temperature": True} if self.own_temperature.is_learned else {}),
        }

    @property
    def temperature(self) -> float:
        """The present temperature, by which every dot product is divided."""
        return self.own_temperature.value

    @temperature.setter
    def temperature(self, temperature: float) -> None:
        self.own_temperature.value = temperature

    def __repr__(self) -> str:
        scaled = "cosine, " if self.is_cosine else ""
        return f"DotProduct({scaled}dim {self.component_dim}, temperature {self.temperature:g})"

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        """Compute the query side."""
        if user_ids is not None:
            raise InvalidInputError("user_ids was given but a dot product has no user table; omit them.")
        check_rows(queries, name="queries", shape=self.query_shape)
        components = self._component(queries)  # (B, 1, D)
        if self.training:
            components = self.own_temperature.with_gradient(components)
        return QueryParts(components, None, self._model())

    def item_parts(self, items: Tensor) -> ItemParts:
        """Compute the item side."""
        check_rows(items, name="items", shape=self.item_shape)
        return ItemParts(self._component(items), None, self._model())

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        """Compare every query with every item."""
        return _single(all_pairs(query_parts.components / self.temperature, item_parts.components))

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        """Compare each query with its own candidates."""
        return _single(own_pairs(query_parts.components / self.temperature, candidate_parts.components))

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component score of every query-item pair, which no score exceeds."""
        return best_pairs(query_parts.components / self.temperature, item_parts.components)  # (B, N)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the scores of every query with every item."""
        return self.compare(query_parts, item_parts).scores  # (B, N)

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        """Return the scores of each query with its own candidates."""
        return self.compare_candidates(query_parts, candidate_parts).scores  # (B, C)

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        """Return zero: there are no weights."""
        return torch.zeros((), device=user_ids.device)

    def forward(self, queries: Tensor, items: Tensor) -> Tensor:
        """Score every query with every item, from raw inputs."""
        return self.score(self.query_parts(queries), self.item_parts(items))  # (B, N)

    def _model(self) -> str | None:
        return remembered_fingerprint(self, self.kind, lambda: self.config)

    def _component(self, embeddings: Tensor) -> Tensor:
        scaled = F.normalize(embeddings, dim=-1, eps=self.epsilon) if self.is_cosine else embeddings
        return scaled[:, None]  # (rows, 1, D)


def _single(component_scores: Tensor) -> Comparison:
    """Return a mixture of one component pair, which has all the weight."""
    weight = torch.ones((), dtype=component_scores.dtype, device=component_scores.device)
    return Comparison(component_scores[..., 0], component_scores, weight.expand_as(component_scores))
