"""The paper's workloads as synthetic worlds: their sizes, their costs, and a structure like that of a trained model."""

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
"""Where strategies differ as they do in the paper: the average finds most of the top 100, but not all."""
NUM_TOPICS = 200
COHERENCE = 0.6
"""Share of a row's tastes that lie around its main topic; the others lie around topics of their own."""
SPREAD = 0.8
"""Length of what sets a taste apart from its topic, which has length 1."""
SIDE_SHARE = 0.5
"""How much the query's and the item's gate sway the weights, measured in component scores."""
ROWS_PER_CHUNK = 32_768


class ShapeName(StrEnum):
    """Workloads of the paper's Table 3."""

    ML_20M = "ml-20m"
    BOOKS = "books"
    NQ320K = "nq320k"


@dataclass(frozen=True, slots=True)
class ShapeSizes:
    """What a workload's search costs depend on (FACTS section 4)."""

    num_items: int
    num_query_components: int
    num_item_components: int
    component_dim: int
    item_dim: int | None
    """Size of a raw item embedding; None where items come as components that are ready."""
    taste_dim: int
    """Dimensions that components really fill."""
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

    White noise would be a poor stand-in for a trained model: every item would be about as far from every query, no
    bound would ever be tight, and no first stage would find anything. Here tastes lie around shared topics, as a
    trained model's components do. An item is mostly about one topic and touches others, and so is a user.

    Items are raw embeddings from which a real linear projection makes components, so that computing the item side
    costs what it costs the paper's model. Such a projection from D to Px * d > D dimensions cannot give components
    that are free of each other in all d dimensions. So tastes fill D / Px dimensions, an orthonormal basis carries
    them into the d dimensions of a component, and the raw embedding holds an item's Px tastes side by side, rotated.

    The planted gate follows the best pairs, by `sharpness`: at 0 all weights are equal and the average component
    score IS the score; the greater it is, the nearer is the score to the best component score, which is where
    bounds are tight and the average tells little. Where the gate looks at the query and the item too, their share is
    random and small, and grows with the sharpness.

    >>> shape = make_shape("ml-20m", num_items=100, num_queries=3)
    >>> tuple(shape.item_embeddings.shape), tuple(shape.query_components.shape)
    ((100, 256), (3, 8, 128))
    """

    name: ShapeName
    similarity: MixtureOfLogits
    item_embeddings: Tensor  # (N, D), or (N, Px, d) where components are ready
    query_components: Tensor  # (B, Pq, d)
    sharpness: float


def make_shape(
    name: ShapeName | str,
    *,
    num_items: int | None = None,
    num_queries: int = 64,
    sharpness: float = DEFAULT_SHARPNESS,
    seed: int = 0,
) -> Shape:
    """Make the world of a workload; the same seed gives the same world.

    Args:
        name: ml-20m, books or nq320k.
        num_items: fewer or more items than the workload has.
        num_queries: B.
        sharpness: how closely the gate follows the best pairs; 0 makes its weights uniform.
        seed: of everything random.
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
    """A matrix whose columns have length 1 and stand at right angles."""
    columns: Tensor = torch.linalg.qr(torch.randn(num_rows, num_columns, generator=generator)).Q
    return columns.contiguous()  # (rows, columns)


def _tastes(count: int, num_each: int, topics: Tensor, generator: Generator) -> Tensor:
    """Directions (count, each, t) around topics, many of a row around the same one."""
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
    """Let the item side turn the rotation back and carry each taste into its component."""
    by_component = torch.kron(torch.eye(similarity.num_item_components), basis)  # (Px * d, D), a basis for each taste
    similarity.state_dict()["item_network.output.weight"].copy_(by_component @ rotation)


def _plant_gate(similarity: MixtureOfLogits, queries: Tensor, items: Tensor, sharpness: float) -> None:
    """Let the weights follow the component scores; the queries and items show how strong the sides' gates are."""
    num_pairs = similarity.num_query_components * similarity.num_item_components
    weights = similarity.state_dict()
    one_to_one = torch.eye(num_pairs, GATE_DIM)  # (P, H) the first P hidden values are one pair's each
    weights["gate.pair.hidden.weight"].copy_(sharpness * one_to_one.T)
    weights["gate.pair.output.weight"].copy_(one_to_one)
    by_query, by_item = similarity.query_parts(queries).gate, similarity.item_parts(items).gate
    if by_query is not None and by_item is not None:
        strength = float(by_query.square().mean().sqrt() * by_item.square().mean().sqrt())
        weights["gate.query.output.weight"].mul_(SIDE_SHARE * sharpness / strength)
