"""The worked example of the paper's appendix: items a to e under given component scores and gate weights."""

import torch
from torch import Tensor, nn

from railsearch.similarity import Comparison, ItemParts, QueryParts
from railsearch.similarity.parts import all_pairs, best_pairs, own_pairs


class TableSimilarity(nn.Module):
    """Component scores and gate weights as the paper's worked example states them: items only, one query."""

    num_query_components, num_item_components, component_dim = 1, 2, 1
    temperature, is_certifiable, takes_user_ids, values_per_pair = 1.0, True, False, 2
    query_shape, item_shape, config = (1,), (4,), {}

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        return QueryParts(queries[:, None], None)

    def item_parts(self, items: Tensor) -> ItemParts:
        return ItemParts(items[:, :2, None], items[:, 2:])

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        return self._weigh(all_pairs(query_parts.components, item_parts.components), item_parts.gate)

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        return self._weigh(own_pairs(query_parts.components, candidate_parts.components), candidate_parts.gate)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return best_pairs(query_parts.components, item_parts.components)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        return self.compare(query_parts, item_parts).scores

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        return self.compare_candidates(query_parts, candidate_parts).scores

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        return torch.zeros(())

    def _weigh(self, component_scores: Tensor, gate: Tensor) -> Comparison:
        weights = gate.expand_as(component_scores)
        return Comparison((weights * component_scores).sum(-1), component_scores, weights)


def worked_example_table() -> Tensor:
    """Items a to e of the paper's appendix: two component scores and two gate weights each."""
    return torch.tensor(
        [
            [1.0, 1.0, 0.5, 0.5],
            [0.8, 0.0, 0.5, 0.5],
            [0.0, 0.8, 0.5, 0.5],
            [0.7, 0.0, 1.0, 0.0],
            [0.2, 0.2, 0.5, 0.5],
        ]
    )
