"""The paper's workloads as synthetic data: their sizes, their costs, and the structure of a trained model."""

import os
from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_choice, check_count, check_not_negative, check_seed
from railsearch.similarity import GateInput, MixtureOfLogits, Projection

DEFAULT_SHARPNESS = 0.2
"""At this value strategies differ as in the paper: the average finds most of the top 100, but not all."""
NUM_TOPICS = 200
COHERENCE = 0.6
"""Share of a row's tastes that lie around its main topic; each of the others has its own topic."""
SPREAD = 0.8
"""Length of the difference between a taste and its topic, which has length 1."""
SIDE_SHARE = 0.5
"""Influence of the query's and the item's gate on the weights, in units of component scores."""
ROWS_PER_CHUNK = 32_768


class ShapeName(StrEnum):
    """Workloads of the paper's Table 3."""

    ML_20M = "ml-20m"
    BOOKS = "books"
    NQ320K = "nq320k"


@dataclass(frozen=True, slots=True)
class ShapeSizes:
    """The sizes that the cost of a workload's search depends on."""

    num_items: int
    num_query_components: int
    num_item_components: int
    component_dim: int
    item_dim: int | None
    """Size of a raw item embedding; None if items come as ready components."""
    taste_dim: int
    """Number of dimensions that components fill."""
    gate_inputs: tuple[GateInput, ...]


SIZES = {
    ShapeName.ML_20M: ShapeSizes(24_186, 8, 4, 128, 256, 64, tuple(GateInput)),
    ShapeName.BOOKS: ShapeSizes(674_044, 8, 8, 32, 64, 8, tuple(GateInput)),
    ShapeName.NQ320K: ShapeSizes(109_739, 4, 4, 768, None, 128, (GateInput.PAIR,)),
}
GATE_DIM = 128
BYTES_PER_VALUE = 4


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A corpus, queries and a similarity with the sizes of a workload, and with structure.

    White noise does not resemble a trained model: every item would be about as far from every query, no bound would be
    tight, and no first stage would find anything. Here, tastes lie around shared topics, like the components of a
    trained model. An item is mostly about one topic and partly about others, and so is a user.

    Items are raw embeddings, and a linear projection computes their components, so the item side costs as much as in
    the paper's model. Such a projection from D to Px * d > D dimensions cannot produce components that are independent
    of each other in all d dimensions. So tastes fill D / Px dimensions, an orthonormal basis carries
    them into the d dimensions of a component, and the raw embedding holds an item's Px tastes side by side, rotated.

    The planted gate follows the best pairs, by `sharpness`: at 0 all weights are equal and the average component score
    is the score itself. With a larger value, the score is nearer to the best component score, bounds are tighter and
    the average is less informative. If the gate also sees the query and the item, their share is random and small, and
    grows with the sharpness.

    >>> shape = make_shape("ml-20m", num_items=100, num_queries=3)
    >>> tuple(shape.item_embeddings.shape), tuple(shape.query_components.shape)
    ((100, 256), (3, 8, 128))
    """

    name: ShapeName
    similarity: MixtureOfLogits
    item_embeddings: Tensor  # (N, D), or (N, Px, d) for ready components
    query_components: Tensor  # (B, Pq, d)
    sharpness: float

    def __repr__(self) -> str:
        counts = f"{len(self.item_embeddings):,} items, {len(self.query_components):,} queries"
        return f"Shape({self.name.value}, {counts}, sharpness {self.sharpness:g}, {self.similarity})"


def make_shape(
    name: ShapeName | str,
    *,
    num_items: int | None = None,
    num_queries: int = 64,
    sharpness: float = DEFAULT_SHARPNESS,
    seed: int = 0,
) -> Shape:
    """Create the data of a workload; the same seed returns the same data.

    Args:
        name: ml-20m, books or nq320k.
        num_items: N, instead of the workload's own number.
        num_queries: B.
        sharpness: how closely the gate follows the best component pairs; 0 makes its weights uniform.
        seed: seed of all random choices.
    """
    name = as_choice(ShapeName, name, name="shape")
    sizes = SIZES[name]
    num_items = sizes.num_items if num_items is None else check_count(num_items, name="num_items")
    check_count(num_queries, name="num_queries")
    check_not_negative(sharpness, name="sharpness")
    _check_memory(num_items, sizes)
    generator = torch.Generator().manual_seed(check_seed(seed))
    topics = F.normalize(torch.randn(NUM_TOPICS, sizes.taste_dim, generator=generator), dim=-1)  # (topics, t)
    basis = _orthonormal(sizes.component_dim, sizes.taste_dim, generator)  # (d, t)
    interests = _tastes(num_queries, sizes.num_query_components, topics, generator)  # (B, Pq, t)
    queries = interests @ basis.T  # (B, Pq, d)
    similarity = _bare_similarity(sizes, generator)
    if sizes.item_dim is None:
        items = torch.empty(num_items, sizes.num_item_components, sizes.component_dim)  # (N, Px, d)
    else:
        items = torch.empty(num_items, sizes.item_dim)  # (N, D)
        rotation = _orthonormal(sizes.item_dim, sizes.item_dim, generator)  # (D, D)
        _plant_projection(similarity, basis, rotation)
    for first in range(0, num_items, ROWS_PER_CHUNK):
        chunk = items[first : first + ROWS_PER_CHUNK]
        aspects = _tastes(len(chunk), sizes.num_item_components, topics, generator)  # (n, Px, t)
        chunk.copy_(aspects @ basis.T if sizes.item_dim is None else aspects.flatten(1) @ rotation)
    _plant_gate(similarity, queries, items[:ROWS_PER_CHUNK], sharpness)
    return Shape(name, similarity, items, queries, float(sharpness))


def _check_memory(num_items: int, sizes: ShapeSizes) -> None:
    """Refuse a corpus that is larger than the memory of the machine."""
    num_values = num_items * (sizes.item_dim or sizes.num_item_components * sizes.component_dim)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_values * BYTES_PER_VALUE > present:
        raise InvalidInputError(
            f"num_items is {num_items}, which takes {num_values * BYTES_PER_VALUE / 1e9:,.0f} GB but this machine has "
            f"{present / 1e9:,.0f} GB; ask for fewer items."
        )


def _orthonormal(num_rows: int, num_columns: int, generator: Generator) -> Tensor:
    """Return a matrix with orthonormal columns."""
    columns: Tensor = torch.linalg.qr(torch.randn(num_rows, num_columns, generator=generator)).Q
    return columns.contiguous()  # (rows, columns)


def _tastes(count: int, num_each: int, topics: Tensor, generator: Generator) -> Tensor:
    """Return directions (count, each, t) around topics; many of one row lie around the same topic."""
    main = torch.randint(len(topics), (count, 1), generator=generator)  # (count, 1)
    own = torch.randint(len(topics), (count, num_each), generator=generator)  # (count, each)
    is_main = torch.rand(count, num_each, generator=generator) < COHERENCE  # (count, each)
    centres = topics[torch.where(is_main, main, own)]  # (count, each, t)
    apart = F.normalize(torch.randn(centres.shape, generator=generator), dim=-1)  # (count, each, t)
    return F.normalize(centres + SPREAD * apart, dim=-1)


def _bare_similarity(sizes: ShapeSizes, generator: Generator) -> MixtureOfLogits:
    similarity = MixtureOfLogits(
        item_dim=sizes.item_dim,
        num_query_components=sizes.num_query_components,
        num_item_components=sizes.num_item_components,
        component_dim=sizes.component_dim,
        query_projection=Projection.READY,
        item_projection=Projection.READY if sizes.item_dim is None else Projection.LINEAR,
        gate_inputs=sizes.gate_inputs,
        gate_dim=GATE_DIM,
    )
    similarity.reset_parameters(generator)
    return similarity.eval().requires_grad_(False)


def _plant_projection(similarity: MixtureOfLogits, basis: Tensor, rotation: Tensor) -> None:
    """Set the item projection to invert the rotation and to map each taste into its component."""
    by_component = torch.kron(torch.eye(similarity.num_item_components), basis)  # (Px * d, D), a basis for each taste
    similarity.state_dict()["item_network.output.weight"].copy_(by_component @ rotation)


def _plant_gate(similarity: MixtureOfLogits, queries: Tensor, items: Tensor, sharpness: float) -> None:
    """Set the gate to follow the component scores; queries and items calibrate the gates of the two sides."""
    num_pairs = similarity.num_query_components * similarity.num_item_components
    weights = similarity.state_dict()
    one_to_one = torch.eye(
        num_pairs, GATE_DIM
    )  # (P, H) each of the first P hidden values belongs to one component pair
    weights["gate.pair.hidden.weight"].copy_(sharpness * one_to_one.T)
    weights["gate.pair.output.weight"].copy_(one_to_one)
    by_query, by_item = similarity.query_parts(queries).gate, similarity.item_parts(items).gate
    if by_query is not None and by_item is not None:
        strength = float(by_query.square().mean().sqrt() * by_item.square().mean().sqrt())
        weights["gate.query.output.weight"].mul_(SIDE_SHARE * sharpness / strength)
