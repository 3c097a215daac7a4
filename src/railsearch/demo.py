"""The demo: why a dot product is not enough, in chapters, on a synthetic world with a known truth."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from railsearch.data import World, make_world
from railsearch.foundation.metrics import summarize
from railsearch.index import BruteForce, Index
from railsearch.models import rank_pairs
from railsearch.similarity import MixtureOfLogits, Projection, Similarity
from railsearch.training import fit_similarity

NUM_INTERESTS = 2
NUM_ASPECTS = 2
TASTE_DIM = 4
TEMPERATURE = 0.1
NUM_ANSWERED = 3
"""Users whose answers are shown."""


@dataclass(frozen=True, slots=True)
class WorldChapter:
    """The world, and the number of dimensions that a dot product would need for it."""

    num_users: int
    num_items: int
    num_likes: int
    num_interests: int
    num_aspects: int
    query_dim: int
    item_dim: int
    preference_rank: int
    """Dimensions that a dot product needs for 99 % of the truth's sum of squares."""


@dataclass(frozen=True, slots=True)
class QualityChapter:
    """The quality of one similarity: ranks of each user's held-out like among all items."""

    name: str
    metrics: dict[str, float]
    seconds: float
    """Time of the training; 0 for the truth."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One item that the index returned for a user."""

    item: int
    score: float
    true_rank: int
    """Rank of the item for this user under the planted truth, among the same items."""
    is_held_out_like: bool


@dataclass(frozen=True, slots=True)
class SearchChapter:
    """The answers of the index for a user, without the items liked in training."""

    user: int
    answers: list[Answer]
    is_exact: bool


@dataclass(frozen=True, slots=True)
class GateChapter:
    """The gate weights of one user and one item, and the component pair that the truth prefers."""

    user: int
    item: int
    score: float
    component_scores: list[list[float]]  # (Pq, Px)
    gate_weights: list[list[float]]  # (Pq, Px)
    true_interest: int
    true_aspect: int


Chapter: TypeAlias = WorldChapter | QualityChapter | SearchChapter | GateChapter


def run_demo(
    *,
    seed: int = 0,
    epochs: int = 10,
    num_users: int = 2000,
    num_items: int = 2000,
    show_progress: bool | None = None,
) -> Iterator[Chapter]:
    """Run the demo, and yield each chapter as soon as it is ready.

    Both models see the same embeddings, likes, negatives, epochs and validation.
    """
    world = make_world(
        num_users=num_users,
        num_items=num_items,
        num_interests=NUM_INTERESTS,
        num_aspects=NUM_ASPECTS,
        taste_dim=TASTE_DIM,
        temperature=0.01,
        seed=seed,
    )
    query_dim, item_dim = world.query_embeddings.shape[1], world.item_embeddings.shape[1]
    yield WorldChapter(
        num_users=num_users,
        num_items=num_items,
        num_likes=len(world.train_pairs),
        num_interests=NUM_INTERESTS,
        num_aspects=NUM_ASPECTS,
        query_dim=query_dim,
        item_dim=item_dim,
        preference_rank=world.preference_rank(),
    )
    cosine, mixture = _cosine(world, seed), _mixture(world, seed)
    for name, similarity in (("cosine", cosine), ("Mixture of Logits", mixture)):
        started = time.perf_counter()
        fit_similarity(
            similarity,
            world.query_embeddings,
            world.item_embeddings,
            world.train_pairs,
            validation_pairs=world.validation_pairs,
            negatives="uniform",
            num_negatives=128,
            epochs=epochs,
            learning_rate=0.01,  # random initial weights; the default is for a start at the user's own system
            weight_decay=0.0,
            warmup_share=0.0,
            schedule="constant",
            patience=None,
            seed=seed,
            show_progress=show_progress,
        )
        seconds = time.perf_counter() - started
        yield QualityChapter(name, _evaluate(similarity, world), seconds)
    yield QualityChapter("planted truth", _evaluate(world.truth, world), 0.0)

    index = Index.build(mixture, world.item_embeddings)
    users = torch.arange(min(NUM_ANSWERED, num_users))
    yield from _answer(index, world, users)
    yield from _explain(index, world)


def _cosine(world: World, seed: int) -> MixtureOfLogits:
    """Build a cosine of two learned towers: a mixture of 1 x 1 components with a network on each side."""
    dim = world.query_embeddings.shape[1]
    return MixtureOfLogits(
        query_dim=dim,
        item_dim=world.item_embeddings.shape[1],
        num_query_components=1,
        num_item_components=1,
        component_dim=dim,
        temperature=TEMPERATURE,
        item_projection=Projection.SWIGLU,
        item_dropout=0.0,
        gate_inputs=[],
        gate_dropout=0.0,
        seed=seed,
    )


def _mixture(world: World, seed: int) -> MixtureOfLogits:
    """Build a mixture of 4 x 4 components."""
    return MixtureOfLogits(
        query_dim=world.query_embeddings.shape[1],
        item_dim=world.item_embeddings.shape[1],
        num_query_components=4,
        num_item_components=4,
        component_dim=8,
        temperature=TEMPERATURE,
        item_dropout=0.0,
        gate_dim=32,
        gate_dropout=0.0,
        seed=seed,
    )


@torch.no_grad()
def _evaluate(similarity: Similarity, world: World) -> dict[str, float]:
    """Rank each user's test item among all items except those liked in training."""
    ranks = rank_pairs(
        similarity, world.query_embeddings, world.item_embeddings, world.test_pairs, seen=world.train_pairs
    )
    return summarize(ranks)


@torch.no_grad()
def _answer(index: Index, world: World, users: Tensor) -> Iterator[SearchChapter]:
    """Search for these users, and compare the answers with the truth."""
    seen = [world.train_pairs[world.train_pairs[:, 0] == user, 1] for user in users]
    result = index.search(world.query_embeddings[users], k=5, strategy=BruteForce(), exclude=seen)
    true_scores = world.truth(world.query_embeddings[users], world.item_embeddings)  # (B, N)
    for place, items in enumerate(seen):
        true_scores[place, items] = -torch.inf
    true_ranks = 1 + true_scores.argsort(dim=1, descending=True).argsort(dim=1)  # (B, N)
    for place, user in enumerate(users.tolist()):
        held_out = {int(world.validation_pairs[user, 1]), int(world.test_pairs[user, 1])}
        yield SearchChapter(
            user=user,
            answers=[
                Answer(item, score, int(true_ranks[place, item]), item in held_out)
                for item, score in zip(result.ids[place].tolist(), result.scores[place].tolist(), strict=True)
            ],
            is_exact=bool(result.is_exact[place]),
        )


@torch.no_grad()
def _explain(index: Index, world: World) -> Iterator[GateChapter]:
    """Explain two items of one user for which the gate prefers different component pairs."""
    ids = index.search(world.query_embeddings[:64], k=10).ids  # (B, K)
    for user in range(len(ids)):
        found = [index.explain(world.query_embeddings[user], int(item)) for item in ids[user]]
        others = [other for other in found if other.ranked()[0][0] != found[0].ranked()[0][0]]
        if others or user == len(ids) - 1:
            break
    for explanation in [found[0], *others[:1]]:
        item = int(explanation.item_id)
        embedding = world.item_embeddings[item : item + 1]  # (1, D)
        true = world.truth.compare(
            world.truth.query_parts(world.query_embeddings[user : user + 1]), world.truth.item_parts(embedding)
        )
        best_pair = int(true.gate_weights.argmax())
        yield GateChapter(
            user=user,
            item=item,
            score=explanation.score,
            component_scores=explanation.component_scores.tolist(),
            gate_weights=explanation.gate_weights.tolist(),
            true_interest=best_pair // world.truth.num_item_components,
            true_aspect=best_pair % world.truth.num_item_components,
        )
