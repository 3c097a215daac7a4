"""A similarity of a user's own: the weighted sum of two cosines, one for each half of an embedding."""

from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from railsearch import register_similarity
from railsearch.similarity import Comparison, ConfigValue, ItemParts, QueryParts, all_pairs, best_pairs, own_pairs


@register_similarity
class Halves(nn.Module):
    """w <q_1, x_1> + (1 - w) <q_2, x_2> with a learned w."""

    kind: ClassVar[str] = "halves"
    num_query_components = num_item_components = 2
    values_per_pair = 4
    is_certifiable = True
    takes_user_ids = False

    def __init__(self, *, dim: int, temperature: float = 0.05, seed: int | None = None) -> None:
        super().__init__()
        self.temperature = temperature
        self.component_dim = dim // 2
        self.query_shape = self.item_shape = (dim,)
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        self.logit = nn.Parameter(torch.empty(()).normal_(generator=generator))

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Return the keyword arguments."""
        return {"dim": self.query_shape[0], "temperature": self.temperature}

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        """Compute the query side."""
        return QueryParts(self.halves(queries), None)

    def item_parts(self, items: Tensor) -> ItemParts:
        """Compute the item side."""
        return ItemParts(self.halves(items), None)

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        """Compare every query with every item."""
        return self.mix(all_pairs(query_parts.components / self.temperature, item_parts.components))

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        """Compare each query with its own candidates."""
        return self.mix(own_pairs(query_parts.components / self.temperature, candidate_parts.components))

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component scores."""
        return best_pairs(query_parts.components / self.temperature, item_parts.components)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Score every query with every item."""
        return self.compare(query_parts, item_parts).scores

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        """Score each query with its own candidates."""
        return self.compare_candidates(query_parts, candidate_parts).scores

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        """Return zero."""
        return torch.zeros(())

    def halves(self, embeddings: Tensor) -> Tensor:
        """Return the two components (rows, 2, d)."""
        return F.normalize(embeddings.view(-1, 2, self.component_dim), dim=-1)

    def mix(self, component_scores: Tensor) -> Comparison:
        """Weigh the pairs first-first and second-second."""
        first = torch.sigmoid(self.logit)
        weights = torch.stack([first, first * 0, first * 0, 1 - first]).expand_as(component_scores)
        return Comparison((weights * component_scores).sum(dim=-1), component_scores, weights)
