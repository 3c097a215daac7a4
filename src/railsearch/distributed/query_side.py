"""The query side of searches over shards, computed once for all of them."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from railsearch.folders import load_similarity
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_embeddings, as_user_ids
from railsearch.index.building import check_parts, one_query, prepare_similarity
from railsearch.index.searching import QUERIES_PER_BATCH, as_query_parts, joined_parts
from railsearch.kernels import KernelName, plain_arithmetic, use_kernel
from railsearch.similarity import QueryParts, Similarity


@dataclass(frozen=True, slots=True, eq=False)
class QuerySide:
    """A similarity that computes query parts as an index does, with the same bits."""

    similarity: Similarity
    models: tuple[str, ...]
    """Fingerprints of the models whose parts are accepted."""
    form: QueryParts
    """Parts of one query, which show the shapes and types of query parts."""
    like: Tensor
    """An empty tensor with the precision and device of scores."""
    kernel: KernelName | None

    @classmethod
    def load(cls, folder: Path, *, fingerprint: str, models: tuple[str, ...], kernel: KernelName | None) -> "QuerySide":
        """Load the similarity in a folder; refuse any other model than the expected one."""
        similarity = prepare_similarity(load_similarity(folder, expected_fingerprint=fingerprint))
        weights = next(iter(similarity.parameters()), None)
        like = torch.empty(0) if weights is None else weights.detach().flatten()[:0]
        return cls(similarity, models, one_query(similarity), like, kernel)

    @plain_arithmetic()
    def parts(self, queries: ArrayLike | QueryParts, user_ids: ArrayLike | None) -> QueryParts:
        """Check queries, and compute their parts in the same batches as one index would."""
        given: Tensor | QueryParts
        if isinstance(queries, QueryParts):
            if user_ids is not None:
                raise InvalidInputError("user_ids was given with ready parts; give them to query_parts instead.")
            check_parts(queries, self.form, name="query", models=self.models)
            given = queries
        else:
            given = as_embeddings(queries, name="queries", shape=self.similarity.query_shape)
        users = None if user_ids is None else as_user_ids(user_ids, count=len(given))
        batches = []
        for first in range(0, max(1, len(given)), QUERIES_PER_BATCH):
            rows = slice(first, first + QUERIES_PER_BATCH)
            own_users = None if users is None else users[rows]
            with use_kernel(self.kernel):
                batches.append(as_query_parts(self.similarity, self.like, given[rows], own_users))
        return joined_parts(batches)
