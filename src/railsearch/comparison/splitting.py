"""Training, validation and test pairs: by query, so that no test query is known from training."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, check_seed
from railsearch.foundation.pairs import as_pairs

VALIDATION_SHARE = 0.1
TEST_SHARE = 0.2
FEWEST_QUERIES = 20
"""With fewer queries, a validation part of a tenth has no two queries."""


@dataclass(frozen=True, slots=True, eq=False)
class PairSplit:
    """Pairs to train on, to pick the epoch, and to measure."""

    train: Tensor  # (M, 2) query row, item row
    validation: Tensor  # (V, 2)
    test: Tensor  # (T, 2)
    hides_seen: bool
    """Whether a test query may have training and validation items, which are then hidden from it."""
    description: str

    @property
    def seen(self) -> Tensor | None:
        """The pairs that are hidden from test queries."""
        return torch.cat([self.train, self.validation]) if self.hides_seen else None


def split_pairs(
    pairs: ArrayLike,
    queries: Tensor,
    *,
    num_items: int,
    validation_pairs: ArrayLike | None = None,
    test_pairs: ArrayLike | None = None,
    seed: int = 0,
) -> PairSplit:
    """Hold out a fifth of the queries for the test and a tenth for validation, or take the given parts.

    Queries with the same embedding are in the same part. If only the test is given, validation queries are drawn from
    `pairs`.

    Args:
        pairs: (M, 2) query row and row of a right item.
        queries: (Q, D) query embeddings.
        num_items: number of items.
        validation_pairs: pairs that pick the epoch.
        test_pairs: pairs that are measured.
        seed: seed of the draw.
    """
    size = (len(queries), num_items)
    given = as_pairs(pairs, name="pairs", size=size).cpu()
    if validation_pairs is not None and test_pairs is None:
        raise InvalidInputError("validation_pairs was given but test_pairs is None; give both, or only test_pairs.")
    test = None if test_pairs is None else as_pairs(test_pairs, name="test_pairs", size=size).cpu()
    if test is not None and validation_pairs is not None:
        validation = as_pairs(validation_pairs, name="validation_pairs", size=size).cpu()
        return _as_given(given, validation, test)
    groups = _groups(queries, given[:, 0])  # (M,)
    num_groups = int(groups.max()) + 1
    if num_groups < FEWEST_QUERIES:
        raise InvalidInputError(
            f"pairs names {num_groups} different queries but {FEWEST_QUERIES} are needed to hold some out; give more "
            "pairs, or give validation_pairs and test_pairs."
        )
    drawn = torch.randperm(num_groups, generator=torch.Generator().manual_seed(check_seed(seed)))  # (G,)
    num_test = 0 if test is not None else round(TEST_SHARE * num_groups)
    part = torch.zeros(num_groups, dtype=torch.int64)  # (G,) 0 train, 1 validation, 2 test
    part[drawn[:num_test]] = 2
    part[drawn[num_test : num_test + round(VALIDATION_SHARE * num_groups)]] = 1
    train, validation = (given[part[groups] == number] for number in (0, 1))
    if test is not None:
        return _as_given(train, validation, test)
    test = given[part[groups] == 2]
    counts = [len(torch.unique(own[:, 0])) for own in (train, validation, test)]
    description = (
        f"{counts[0]:,} queries to train on, {counts[1]:,} for validation and {counts[2]:,} for the test, drawn with "
        f"seed {seed}; no query is in two parts"
    )
    return PairSplit(train, validation, test, hides_seen=False, description=description)


def _as_given(train: Tensor, validation: Tensor, test: Tensor) -> PairSplit:
    most = 1 + int(torch.cat([train[:, 1], validation[:, 1], test[:, 1]]).max())
    known, asked = ((pairs[:, 0] * most + pairs[:, 1]) for pairs in (torch.cat([train, validation]), test))
    num_shared = int(torch.isin(asked, known).sum())
    if num_shared:
        raise InvalidInputError(
            f"{num_shared} of {len(test)} test_pairs are also in pairs or validation_pairs, so the test would reward "
            "memory; remove them from one of the two."
        )
    counts = [len(torch.unique(own[:, 0])) for own in (train, validation, test)]
    description = (
        f"{counts[0]:,} queries to train on, {counts[1]:,} for validation and {counts[2]:,} for the test, as given; "
        "items that a test query is paired with in the other parts are hidden from it"
    )
    return PairSplit(train, validation, test, hides_seen=True, description=description)


def _groups(queries: Tensor, rows: Tensor) -> Tensor:
    """Return a number (M,) for each row, from 0; rows of equal embeddings have the same number."""
    distinct, places = torch.unique(rows, return_inverse=True)  # (n,), (M,)
    embeddings = np.ascontiguousarray(queries[distinct].cpu().float().numpy() + 0.0)  # -0 becomes 0
    as_bytes = embeddings.view(np.dtype((np.void, embeddings.shape[1] * embeddings.itemsize)))[:, 0]
    _, groups = np.unique(as_bytes, return_inverse=True)
    return torch.from_numpy(groups)[places]
