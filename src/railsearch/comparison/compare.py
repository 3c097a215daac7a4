"""`compare`: does a Mixture of Logits pay on this data? One call for embeddings, recommenders and texts."""

from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path

import torch
from torch import Tensor

from railsearch.comparison.embeddings import Budget, compare_embeddings
from railsearch.comparison.recommenders import compare_recommenders
from railsearch.comparison.report import Comparison
from railsearch.comparison.splitting import split_pairs
from railsearch.comparison.texts import compare_texts
from railsearch.data import PairsLike, QuestionPassages, Split
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import ArrayLike, as_embeddings, as_path, as_tensor, check_count
from railsearch.recommender import Recipe
from railsearch.recommender.events import InteractionsLike, as_split
from railsearch.similarity import MixtureConfig

NUM_RUNS = 3
EPOCHS = 20
BATCH_SIZE = 256
NUM_COMPONENTS = 4
FEWEST_COMPONENTS = 2
"""A mixture of 1 x 1 components is the tuned cosine."""


class Way(Enum):
    """The three kinds of data that can be compared on."""

    EMBEDDINGS = auto()
    RECOMMENDERS = auto()
    TEXTS = auto()


def compare(
    *,
    query_embeddings: ArrayLike | None = None,
    item_embeddings: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    validation_pairs: ArrayLike | None = None,
    test_pairs: ArrayLike | None = None,
    dot_product: bool = False,
    interactions: Split | InteractionsLike | str | Path | None = None,
    recipe: Recipe | None = None,
    questions: QuestionPassages | PairsLike | None = None,
    model: str | Path | None = None,
    allow_download: bool = False,
    seeds: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    num_components: int | None = None,
    split_seed: int = 0,
    folder: str | Path | None = None,
    show_progress: bool | None = None,
) -> Comparison:
    """Train simple systems and a Mixture of Logits with equal budgets, measure all, and say in words which one to use.

    There are three ways in:

    - `query_embeddings`, `item_embeddings` and `pairs`: the cosine of your embeddings as it is, a tuned cosine (a
      learned linear map on each side), and a mixture;
    - `interactions` and `recipe`: popularity, ItemKNN, and the recipe's encoder with a cosine and with a mixture;
    - `questions` and `model`: BM25, and frozen embeddings of a language model as in the first way.

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
        interactions: a split with validation items; or interactions, a table, or a folder of prepared data, of which
            each user's last two items are held out.
        recipe: encoder, mixture and training of a recommender; by default SASRec with its defaults.
        questions: passages, and questions with their right passages: `QuestionPassages`, or pairs of a question and a
            passage. If the data hold out no questions, some are drawn.
        model: a folder with a Hugging Face model, whose mean output is the embedding of a text.
        allow_download: download the model by its name if it is not in the local cache.
        seeds: number of training runs of each model; by default 3, and 1 for recommenders.
        epochs: the most passes over the training data; by default 20, or the recipe's.
        batch_size: pairs in each step, or users; by default 256, or the recipe's.
        num_components: components of each query and of each item in the mixture; by default 4, or the recipe's.
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
    way = _choose_way(
        {
            Way.EMBEDDINGS: {
                "query_embeddings": query_embeddings, "item_embeddings": item_embeddings, "pairs": pairs,
            },
            Way.RECOMMENDERS: {"interactions": interactions},
            Way.TEXTS: {"questions": questions, "model": model},
        },
        {
            "validation_pairs": (validation_pairs is not None, Way.EMBEDDINGS),
            "test_pairs": (test_pairs is not None, Way.EMBEDDINGS),
            "dot_product": (dot_product, Way.EMBEDDINGS),
            "recipe": (recipe is not None, Way.RECOMMENDERS),
            "allow_download": (allow_download, Way.TEXTS),
        },
    )  # fmt: skip
    num_runs = (1 if way is Way.RECOMMENDERS else NUM_RUNS) if seeds is None else check_count(seeds, name="seeds")
    known_folder = None if folder is None else as_path(folder)
    if interactions is not None:
        if not isinstance(recipe, Recipe | None):
            raise InvalidInputError(f"recipe is a {type(recipe).__name__}; give the recipe of a recommender.")
        return compare_recommenders(
            _changed(recipe or Recipe(), epochs=epochs, batch_size=batch_size, num_components=num_components),
            as_split(interactions, has_validation=True),
            num_runs=num_runs,
            folder=known_folder,
            show_progress=show_progress,
        )
    budget = Budget(
        num_runs=num_runs,
        epochs=EPOCHS if epochs is None else check_count(epochs, name="epochs"),
        batch_size=BATCH_SIZE if batch_size is None else check_count(batch_size, name="batch_size", minimum=2),
        num_components=NUM_COMPONENTS
        if num_components is None
        else check_count(num_components, name="num_components", minimum=FEWEST_COMPONENTS),
        folder=known_folder,
        show_progress=show_progress,
    )
    if questions is not None and model is not None:
        data = questions if isinstance(questions, QuestionPassages) else QuestionPassages.from_pairs(questions)
        return compare_texts(data, model, budget, split_seed=split_seed, allow_download=allow_download)
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


def _choose_way(ways: Mapping[Way, Mapping[str, object]], options: Mapping[str, tuple[bool, Way]]) -> Way:
    """Return the way whose arguments are given; refuse none, several, incomplete ones, and options of others.

    Args:
        ways: the arguments that each way needs.
        options: whether each option is given, and the way that it belongs to.
    """
    given = {way: [name for name, value in needed.items() if value is not None] for way, needed in ways.items()}
    chosen = [way for way, names in given.items() if names]
    choices = "; or ".join(" and ".join(needed) for needed in ways.values())
    if len(chosen) != 1:
        names = [given[way][0] for way in chosen]
        found = f"{' and '.join(names)} do not go together" if names else "there is nothing to compare"
        raise InvalidInputError(f"{found}; give {choices}.")
    way = chosen[0]
    missing = [name for name in ways[way] if name not in given[way]]
    if missing:
        raise InvalidInputError(f"{' and '.join(missing)} is missing; give {' and '.join(ways[way])}.")
    for name, (is_given, own_way) in options.items():
        if is_given and own_way is not way:
            raise InvalidInputError(
                f"{name} was given but {given[way][0]} too; {name} belongs to {' and '.join(ways[own_way])}: omit it."
            )
    return way


def _changed(recipe: Recipe, *, epochs: int | None, batch_size: int | None, num_components: int | None) -> Recipe:
    """Return the recipe with the changes that the caller asks for."""
    training = {
        name: check_count(value, name=name)
        for name, value in (("epochs", epochs), ("batch_size", batch_size))
        if value is not None
    }
    similarity = recipe.similarity
    if num_components is not None:
        if not isinstance(similarity, MixtureConfig):
            raise InvalidInputError(
                f"num_components is {num_components} but the recipe's similarity is {similarity.kind}; omit it, or "
                "give a recipe with a mixture."
            )
        count = check_count(num_components, name="num_components", minimum=FEWEST_COMPONENTS)
        similarity = similarity.model_copy(update={"num_query_components": count, "num_item_components": count})
    return recipe.model_copy(update={"training": recipe.training.model_copy(update=training), "similarity": similarity})
