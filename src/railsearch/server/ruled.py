"""Searches with rules: the rankings of a batch of queries, of an index that is whole or split."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from railsearch.foundation.errors import NotEnoughItemsError
from railsearch.foundation.results import NO_ITEM, SearchResult
from railsearch.index import Allow, Strategy
from railsearch.index.rules import Rules, apply_rules, widened
from railsearch.index.searching import check_enough
from railsearch.server.limits import Limits
from railsearch.server.searched import Searched
from railsearch.similarity import QueryParts


class Question(Protocol):
    """What all queries of a batch have in common."""

    @property
    def k(self) -> int:
        """The number of items for each query."""
        ...

    @property
    def rules(self) -> Rules:
        """Rules of the answers."""
        ...

    @property
    def pad(self) -> bool:
        """Whether fewer than k items are accepted."""
        ...

    @property
    def partial(self) -> str:
        """Whether the answer of some shards is accepted."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RuledSearch:
    """A search for a batch of queries; `best` returns any stretch of their rankings from the top."""

    index: Searched
    parts: QueryParts
    strategy: Strategy
    exclude: list[object] | None
    allow: Allow
    limits: Limits
    question: Question

    @property
    def vector_dim(self) -> int:
        """The dimension of `vectors`."""
        similarity = self.index.similarity
        return similarity.num_item_components * similarity.component_dim

    def vectors(self, ids: Tensor) -> Tensor:
        """Return vectors (n, D) of items whose dot product is the similarity of two of them."""
        return self.index.item_vectors(ids)

    def best(self, queries: Tensor, n: int) -> SearchResult:
        """Return the n best items of some queries (A,)."""
        self.limits.check("max_pool", n, "the pool that the rules need")
        if self.question.rules.diversity:
            self.limits.check("max_compared", len(queries) * self.question.k * n, "queries times k times pool")
        exclude = None if self.exclude is None else [self.exclude[query] for query in queries.tolist()]
        strategy = widened(self.strategy, n, self.index.engine)
        return self.index.search(
            self.parts[queries], n, strategy, exclude, self.allow, pad=True, partial=self.question.partial
        )

    def answer(self) -> SearchResult:
        """Return the answers of all queries by the rules; refuse fewer than k items, unless padding is asked for."""
        question, num_queries = self.question, len(self.parts)
        k = question.k
        question.rules.check(k, self.index.metadata_schema())
        check_enough(k, len(self.index))
        found = apply_rules(question.rules, self, num_queries=num_queries, num_items=len(self.index), k=k)
        num_found = (found.ids != NO_ITEM).sum(dim=1)  # (B,)
        if not question.pad and int(num_found.min()) < k:
            query = int(num_found.argmin())
            raise NotEnoughItemsError(
                f"k is {k} but the rules leave query {query} only {int(num_found[query])} items; ask for a smaller k, "
                "raise max_per, or set pad."
            )
        return found
