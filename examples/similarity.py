"""A similarity of your own in 60 lines: a user is several vectors, and the closest one counts most.

python examples/similarity.py

A user is described by the embeddings of the last four items. The usual query is their mean, and somebody who reads
about chess and baking ends up between the two. `SoftMax` compares an item with each of the four and weighs them by a
softmax. The weights are not negative and sum to 1, so no score is above its best dot product, and searches can be
certified.
"""

import os
import tempfile
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from railsearch import DotProduct, Index, TwoPass, evaluate, fit_similarity, register_similarity
from railsearch.similarity import Comparison, ConfigValue, ItemParts, QueryParts, all_pairs, best_pairs, own_pairs
from railsearch.testing import check_similarity_contract

EPOCHS = int(os.environ.get("EPOCHS", "10"))
NUM_VECTORS, DIM = 4, 16


@register_similarity
class SoftMax(nn.Module):
    """sum over i of w_i <q_i, x> / T, cosines, with w = softmax(sharpness * cosines) and a learned sharpness."""

    kind: ClassVar[str] = "soft_max"
    num_item_components = 1
    is_certifiable = True
    takes_user_ids = False

    def __init__(self, *, num_vectors: int, dim: int, temperature: float = 0.2, seed: int | None = None) -> None:
        super().__init__()
        self.num_query_components = self.values_per_pair = num_vectors
        self.component_dim, self.temperature = dim, temperature
        self.query_shape, self.item_shape = (num_vectors, dim), (dim,)
        self.sharpness = nn.Parameter(torch.tensor(5.0))

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Return the keyword arguments that build the module again."""
        return {"num_vectors": self.query_shape[0], "dim": self.component_dim, "temperature": self.temperature}

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        """Compute the query side, once per query."""
        return QueryParts(F.normalize(queries, dim=-1), None)  # (B, 4, d)

    def item_parts(self, items: Tensor) -> ItemParts:
        """Compute the item side, once, when the items are indexed."""
        return ItemParts(F.normalize(items, dim=-1).unsqueeze(1), None)  # (N, 1, d)

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        """Compare every query with every item."""
        return self.mix(all_pairs(query_parts.components / self.temperature, item_parts.components))  # (B, N, 4)

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        """Compare each query with its own candidates."""
        return self.mix(own_pairs(query_parts.components / self.temperature, candidate_parts.components))

    def mix(self, component_scores: Tensor) -> Comparison:
        """Weigh the component pairs."""
        weights = torch.softmax(self.sharpness * self.temperature * component_scores, dim=-1)
        return Comparison((weights * component_scores).sum(dim=-1), component_scores, weights)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return what no score exceeds."""
        return best_pairs(query_parts.components / self.temperature, item_parts.components)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Score every query with every item."""
        return self.compare(query_parts, item_parts).scores

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        """Score each query with its own candidates."""
        return self.compare_candidates(query_parts, candidate_parts).scores

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        """Return zero: nothing is learned for single users."""
        return torch.zeros(())


def make_users(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return last items (users, 4, d), all items (N, d), and pairs of a user and the next item."""
    generator = torch.Generator().manual_seed(0)
    topics = F.normalize(torch.randn(250, DIM, generator=generator), dim=-1)
    items = torch.cat([topics, topics])  # two items on each topic
    items = items + 0.05 * torch.randn(items.shape, generator=generator)
    interests = torch.rand(count, 250, generator=generator).topk(NUM_VECTORS).indices  # four topics for each user
    following = interests[:, 0] + 250  # the other item on the first of them
    return items[interests], items, torch.stack([torch.arange(count), following], dim=1)


if __name__ == "__main__":
    similarity = SoftMax(num_vectors=NUM_VECTORS, dim=DIM, seed=0)
    check_similarity_contract(similarity)  # an AssertionError says what is wrong
    print("the contract is kept")

    users, items, pairs = make_users(900)
    train, validation, test = pairs[:600], pairs[600:700], pairs[700:]
    fit_similarity(similarity, users, items, train, validation_pairs=validation, epochs=EPOCHS, learning_rate=0.5)
    print(f"sharpness after training: {similarity.sharpness.item():.1f}")
    mean = evaluate(DotProduct(dim=DIM, cosine=True), users.mean(dim=1), items, test)
    own = evaluate(similarity, users, items, test)
    print(f"HR@10 of the cosine of the mean: {mean.metrics['HR@10']:.2f}, of SoftMax: {own.metrics['HR@10']:.2f}")

    with tempfile.TemporaryDirectory() as folder:
        Index.build(similarity, items, path=f"{folder}/soft-max.index")
        index = Index.open(f"{folder}/soft-max.index")  # finds the class by its kind: import your module before this
        result = index.search(users[:3], k=5, strategy=TwoPass())
    print(f"ids {result.ids.tolist()}, exact: {result.is_exact.tolist()}")
