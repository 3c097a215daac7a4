"""`compare`: does a Mixture of Logits pay on this data? One call for embeddings, recommenders and texts."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from railsearch.comparison.embeddings import Budget, compare_embeddings
from railsearch.comparison.report import Comparison
from railsearch.comparison.splitting import split_pairs
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_embeddings, as_path, as_tensor, check_count

NUM_RUNS = 3
EPOCHS = 20
BATCH_SIZE = 256
NUM_COMPONENTS = 4


def compare(
    *,
    query_embeddings: ArrayLike | None = None,
    item_embeddings: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    validation_pairs: ArrayLike | None = None,
    test_pairs: ArrayLike | None = None,
    dot_product: bool = False,
    seeds: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    num_components: int | None = None,
    split_seed: int = 0,
    folder: str | Path | None = None,
    show_progress: bool | None = None,
) -> Comparison:
    """Train simple systems and a Mixture of Logits with equal budgets, measure all, and say in words which one to use.

    Give `query_embeddings`, `item_embeddings` and `pairs` to compare the cosine of the embeddings as it is, a tuned
    cosine (a learned linear map on each side), and a mixture.

    Differences are measured on the same test queries, and have confidence intervals. The verdict claims a difference
    only if its interval excludes zero.

    Args:
        query_embeddings: (Q, D), one row for each query or user.
        item_embeddings: (N, D), one row for each item.
        pairs: (M, 2) integers: row of the query, row of an item that is right for it. A query may have several.
        validation_pairs: pairs that pick the epoch; by default those of a tenth of the queries of `pairs`.
        test_pairs: pairs that are measured; by default those of a fifth of the queries of `pairs`. Items that a test
            query is paired with elsewhere are hidden from it.
        dot_product: the given system is the dot product of the embeddings; by default it is their cosine.
        seeds: number of training runs of each model; by default 3.
        epochs: the most passes over the training data; by default 20.
        batch_size: pairs in each step; by default 256.
        num_components: components of each query and of each item in the mixture; by default 4.
        split_seed: seed of the choice of test and validation queries.
        folder: folder for checkpoints and trained models. The same call continues an interrupted comparison.
        show_progress: True draws progress bars, False shows nothing; by default, bars on a terminal, and an occasional
            line elsewhere.

    >>> from railsearch.data import make_world
    >>> world = make_world(num_users=60, num_items=50, num_interests=2, num_aspects=2, taste_dim=2)
    >>> found = compare(
    ...     query_embeddings=world.query_embeddings, item_embeddings=world.item_embeddings, pairs=world.train_pairs,
    ...     seeds=1, epochs=1, show_progress=False,
    ... )
    >>> [system.name for system in found.systems]
    ['frozen cosine', 'tuned cosine', 'MoL']
    >>> found.verdict
    '12 test queries are too few for a verdict; give data with at least 50. Until then, keep the frozen cosine.'
    """
    _choose_way(
        {
            "embeddings": {
                "query_embeddings": query_embeddings, "item_embeddings": item_embeddings, "pairs": pairs,
            },
        }
    )  # fmt: skip
    budget = Budget(
        num_runs=NUM_RUNS if seeds is None else check_count(seeds, name="seeds"),
        epochs=EPOCHS if epochs is None else check_count(epochs, name="epochs"),
        batch_size=BATCH_SIZE if batch_size is None else check_count(batch_size, name="batch_size", minimum=2),
        num_components=NUM_COMPONENTS if num_components is None else check_count(num_components, name="num_components"),
        folder=None if folder is None else as_path(folder),
        show_progress=show_progress,
    )
    assert query_embeddings is not None
    assert item_embeddings is not None
    assert pairs is not None
    queries, items = as_both_sides(query_embeddings, item_embeddings)
    split = split_pairs(
        pairs,
        queries,
        num_items=len(items),
        validation_pairs=validation_pairs,
        test_pairs=test_pairs,
        seed=split_seed,
    )
    return compare_embeddings(queries, items, split, budget, is_cosine=not dot_product)


def as_both_sides(query_embeddings: ArrayLike, item_embeddings: ArrayLike) -> tuple[Tensor, Tensor]:
    """Check the embeddings of both sides, which must have the same size; return them in fp32."""
    sides = []
    for name, given in (("query_embeddings", query_embeddings), ("item_embeddings", item_embeddings)):
        tensor = as_tensor(given, name)
        if tensor.ndim != 2 or 0 in tensor.shape:
            raise InvalidInputError(f"{name} has shape {tuple(tensor.shape)}; give one embedding per row: (rows, D).")
        sides.append(as_embeddings(tensor, name=name, shape=(tensor.shape[1],)).to(torch.float32))
    queries, items = sides
    if queries.shape[1] != items.shape[1]:
        raise InvalidInputError(
            f"query_embeddings has {queries.shape[1]} values per row but item_embeddings has {items.shape[1]}; a "
            "cosine or dot product needs the same number."
        )
    return queries, items


def _choose_way(ways: Mapping[str, Mapping[str, object]]) -> str:
    """Return the way whose arguments are given; refuse none, several, and incomplete ones."""
    chosen = [way for way, given in ways.items() if any(value is not None for value in given.values())]
    choices = "; or ".join(" and ".join(given) for given in ways.values())
    if len(chosen) != 1:
        names = [name for way in chosen for name, value in ways[way].items() if value is not None]
        given_text = f"{' and '.join(names)} were given together" if names else "nothing to compare was given"
        raise InvalidInputError(f"{given_text}; give {choices}.")
    missing = [name for name, value in ways[chosen[0]].items() if value is None]
    if missing:
        raise InvalidInputError(f"{' and '.join(missing)} is missing; give {' and '.join(ways[chosen[0]])}.")
    return chosen[0]
