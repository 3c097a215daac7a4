"""A synthetic world: users with several interests, items with several aspects, and known preferences.

Every user has a few interests and every item a few aspects, all of them directions in one space of tastes. A
user likes an item if ANY of its aspects meets ANY of the user's interests: preference is (nearly) the best
of all their cosines. One embedding of each user and of each item holds all of its interests or aspects, side
by side, turned by a random rotation. There is no hidden information and no noise.

Why a dot product of that dimension D cannot express it: the scores <f(q), g(x)> of all users and items, for
any two towers f and g into D dimensions, form a matrix of rank at most D. "The best of several cosines" is
not bilinear, and its matrix has a rank far above D (`World.preference_rank` measures it). An embedding of a
user who likes both jazz and cooking must lie between the two, nearer to items that are a bit of each than
to either. A mixture keeps interests apart and lets its gate choose for each item the pair that meets.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count, check_positive, check_seed
from railsearch.similarity import GateInput, MixtureOfLogits, Projection

PAIRS_PER_BLOCK = 262_144


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Embeddings, the true similarity, and likes that were drawn from it."""

    query_embeddings: Tensor  # (U, D)
    item_embeddings: Tensor  # (N, D)
    truth: MixtureOfLogits
    """The planted similarity: likes are drawn with probability softmax(truth) over the items."""
    train_pairs: Tensor  # (U * L, 2) user row, item row
    validation_pairs: Tensor  # (U, 2)
    test_pairs: Tensor  # (U, 2)

    def __repr__(self) -> str:
        num_users, num_items = len(self.query_embeddings), len(self.item_embeddings)
        return f"World({num_users:,} users, {num_items:,} items, {len(self.train_pairs):,} likes, truth {self.truth})"

    def preference_rank(self, num_users: int = 512, num_items: int = 512, energy: float = 0.99) -> int:
        """Return how many dimensions a dot product needs for a share of the truth's sum of squares, on a sample.

        The sample bounds the result: give many times more users and items than the embeddings have dimensions.
        """
        with torch.no_grad():
            scores = self.truth(self.query_embeddings[:num_users], self.item_embeddings[:num_items])  # (B, N)
        share = torch.linalg.svdvals(scores.double()).square().cumsum(dim=0)  # (min(B, N),)
        return 1 + int((share < energy * share[-1]).sum())


def make_world(
    *,
    num_users: int = 2000,
    num_items: int = 5000,
    num_interests: int = 4,
    num_aspects: int = 4,
    taste_dim: int = 8,
    likes_per_user: int = 20,
    temperature: float = 0.05,
    seed: int = 0,
) -> World:
    """Create a world; the same seed returns the same world.

    Args:
        num_users: U.
        num_items: N, up to millions; memory grows with N * num_aspects * taste_dim.
        num_interests: interests of each user; the query embedding has num_interests * taste_dim dimensions.
        num_aspects: aspects of each item; the item embedding has num_aspects * taste_dim dimensions.
        taste_dim: dimensions of the space of interests and aspects.
        likes_per_user: training likes of each user; one more is held out for validation, one for the test.
        temperature: with a smaller one, likes follow the truth more closely.
        seed: seed of all random choices.
    """
    for name, count in (
        ("num_users", num_users),
        ("num_items", num_items),
        ("num_interests", num_interests),
        ("num_aspects", num_aspects),
        ("taste_dim", taste_dim),
        ("likes_per_user", likes_per_user),
    ):
        check_count(count, name=name)
    check_positive(temperature, name="temperature")
    if num_items < likes_per_user + 2:
        raise InvalidInputError(
            f"num_items is {num_items} but every user likes {likes_per_user} + 2 different items; "
            f"ask for num_items >= {likes_per_user + 2}."
        )
    generator = torch.Generator().manual_seed(check_seed(seed))
    interests = _directions(num_users, num_interests, taste_dim, generator)  # (U, I, t)
    aspects = _directions(num_items, num_aspects, taste_dim, generator)  # (N, A, t)
    query_rotation = _rotation(num_interests * taste_dim, generator)  # (Dq, Dq)
    item_rotation = _rotation(num_aspects * taste_dim, generator)  # (Dx, Dx)
    query_embeddings = interests.flatten(1) @ query_rotation  # (U, Dq)
    item_embeddings = aspects.flatten(1) @ item_rotation  # (N, Dx)
    truth = _planted_truth(
        num_interests=num_interests,
        num_aspects=num_aspects,
        taste_dim=taste_dim,
        temperature=temperature,
        query_rotation=query_rotation,
        item_rotation=item_rotation,
    )
    likes = _draw_likes(truth, query_embeddings, item_embeddings, likes_per_user + 2, generator)  # (U, L + 2)
    # Draws come best first; in a random order, the held-out likes are like any other.
    order = torch.rand(likes.shape, generator=generator).argsort(dim=1)  # (U, L + 2)
    likes = likes.gather(1, order)  # (U, L + 2)
    users = torch.arange(num_users)
    pairs = torch.stack([users[:, None].expand_as(likes), likes], dim=-1)  # (U, L + 2, 2)
    return World(
        query_embeddings=query_embeddings,
        item_embeddings=item_embeddings,
        truth=truth,
        train_pairs=pairs[:, 2:].flatten(0, 1),
        validation_pairs=pairs[:, 1],
        test_pairs=pairs[:, 0],
    )


def _directions(count: int, num_each: int, dim: int, generator: Generator) -> Tensor:
    return F.normalize(torch.randn(count, num_each, dim, generator=generator), dim=-1)  # (count, num_each, dim)


def _rotation(dim: int, generator: Generator) -> Tensor:
    rotation: Tensor = torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q  # (dim, dim)
    return rotation


def _planted_truth(
    *,
    num_interests: int,
    num_aspects: int,
    taste_dim: int,
    temperature: float,
    query_rotation: Tensor,
    item_rotation: Tensor,
) -> MixtureOfLogits:
    """Return a mixture that inverts the rotations and whose gate follows the best component pair."""
    num_pairs = num_interests * num_aspects
    truth = MixtureOfLogits(
        query_dim=len(query_rotation),
        item_dim=len(item_rotation),
        num_query_components=num_interests,
        num_item_components=num_aspects,
        component_dim=taste_dim,
        temperature=temperature,
        query_projection=Projection.LINEAR,
        item_projection=Projection.LINEAR,
        gate_inputs=[GateInput.PAIR],
        gate_dim=num_pairs,
    )
    weights = truth.state_dict()
    weights["query_network.output.weight"] = query_rotation
    weights["item_network.output.weight"] = item_rotation
    weights["gate.pair.hidden.weight"] = torch.eye(num_pairs)
    weights["gate.pair.output.weight"] = torch.eye(num_pairs)
    truth.load_state_dict(weights)
    return truth.eval().requires_grad_(False)


@torch.no_grad()
def _draw_likes(
    truth: MixtureOfLogits, query_embeddings: Tensor, item_embeddings: Tensor, count: int, generator: Generator
) -> Tensor:
    """Draw different items for each user, one after the other, with probability softmax(truth).

    The items with the largest score plus Gumbel noise are such a draw, so one pass in blocks is enough.
    """
    likes = []
    item_parts = truth.item_parts(item_embeddings)
    queries_per_block = max(1, min(64, PAIRS_PER_BLOCK // len(item_embeddings)))
    items_per_block = PAIRS_PER_BLOCK // queries_per_block
    for first in range(0, len(query_embeddings), queries_per_block):
        query_parts = truth.query_parts(query_embeddings[first : first + queries_per_block])
        best = torch.full((len(query_parts), count), -torch.inf)  # (b, L)
        rows = torch.zeros_like(best, dtype=torch.int64)  # (b, L)
        for start in range(0, len(item_embeddings), items_per_block):
            scores = truth.score(query_parts, item_parts[start : start + items_per_block])  # (b, n)
            noise = torch.rand(scores.shape, generator=generator).clamp_min(1e-12).log().neg().log().neg()  # (b, n)
            found = torch.arange(start, start + scores.shape[1]).expand_as(scores)  # (b, n)
            best, columns = torch.cat([best, scores + noise], dim=1).topk(count, dim=1)  # (b, L)
            rows = torch.cat([rows, found], dim=1).gather(1, columns)  # (b, L)
        likes.append(rows)
    return torch.cat(likes)
