"""Which component of an item matched a query: the one that contributed most to the score."""

import torch
from torch import Tensor

from railsearch.index.corpus import Corpus
from railsearch.similarity import QueryParts, Similarity
from railsearch.similarity.parts import Comparison

PAIRS_PER_BLOCK = 256
"""Query-item pairs whose item components are gathered at once."""


@torch.no_grad()
def matched_components(corpus: Corpus, parts: QueryParts, queries: Tensor, ids: Tensor) -> Tensor:
    """Return the item component (n,) that contributed most to the score of each query-item pair.

    Args:
        corpus: items that include all of `ids`.
        parts: the query side of all queries.
        queries: rows of queries (n,).
        ids: integer ids of live items (n,).
    """
    rows = corpus.rows[torch.searchsorted(corpus.ids, ids.to(corpus.ids))]  # (n,)
    found = [torch.empty(0, dtype=torch.int64)]
    for first in range(0, len(rows), PAIRS_PER_BLOCK):
        chosen = queries[first : first + PAIRS_PER_BLOCK].to(parts.components.device)  # (b,)
        own = QueryParts(parts.components[chosen], None if parts.gate is None else parts.gate[chosen])
        items = corpus[rows[first : first + PAIRS_PER_BLOCK, None]].to(corpus.like.dtype)  # (b, 1, Px, d)
        compared = corpus.similarity.compare_candidates(own, items)
        found.append(best_item_component(corpus.similarity, compared).cpu())
    return torch.cat(found)


def best_item_component(similarity: Similarity, compared: Comparison) -> Tensor:
    """Return the item component (b,) with the largest weight times score, for comparisons with one candidate each.

    Scores count from the lowest of the item, so that a large weight on a negative score does not count against it.
    """
    shape = (-1, similarity.num_query_components, similarity.num_item_components)
    scores, weights = compared.component_scores[:, 0].view(shape), compared.gate_weights[:, 0].view(shape)
    above = scores - scores.amin(dim=(1, 2), keepdim=True)  # (b, Pq, Px)
    return (weights * above).sum(dim=1).argmax(dim=1)  # (b,)
