"""Mixtures and late interactions of any shape, their scores in fp64, and ways to force instruction sets and threads."""

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from railsearch import MixtureOfLogits
from railsearch.kernels import native
from railsearch.similarity import ItemParts, LateInteraction, QueryParts

needs_native = pytest.mark.skipif(not native.is_available(), reason="the native kernels are not compiled")
ISAS = native.usable_isas() or ["portable"]
PRECISIONS = [torch.float32, torch.float16, torch.bfloat16]
GATES = [[], ["query"], ["item"], ["pair"], ["query", "item"], ["query", "pair"], ["item", "pair"]]
GATES.append(["query", "item", "pair"])
LATE = ["late interaction"]
FORMS = [*GATES, LATE]
"""Every way to mix component scores that the kernels know, as `make_similarity` takes it."""
SHARPNESS = [0.0, 1.0, 30.0, 1e4]


@dataclass(frozen=True)
class Pieces:
    """Items in several pieces, as an index with several segments has them."""

    pieces: Sequence[ItemParts]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def pieces_of(self, rows: Tensor) -> Sequence[ItemParts]:
        return self.pieces

    def __getitem__(self, rows: Tensor) -> ItemParts:
        raise AssertionError("rows are read in place")


def make_mixture(
    num_query_components: int,
    num_item_components: int,
    dim: int,
    gate_dim: int,
    gate_inputs: Sequence[str],
    *,
    activation: str = "silu",
    seed: int = 0,
) -> MixtureOfLogits:
    """Return a mixture with weights far from zero, in eval mode."""
    generator = torch.Generator().manual_seed(seed)
    mixture = MixtureOfLogits(
        query_dim=6,
        item_dim=6,
        num_query_components=num_query_components,
        num_item_components=num_item_components,
        component_dim=dim,
        projection_dim=8,
        gate_dim=gate_dim,
        gate_inputs=gate_inputs,
        gate_activation=activation,
        seed=seed,
    )
    with torch.no_grad():
        for parameter in mixture.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
    return mixture.eval()


def make_late(
    num_query_components: int,
    num_item_components: int,
    dim: int,
    *,
    sharpness: float | None = None,
    projects_components: bool = False,
    seed: int = 0,
) -> LateInteraction:
    """Return a late interaction with weights far from zero, in eval mode; its sharpness depends on the seed."""
    generator = torch.Generator().manual_seed(seed)
    late = LateInteraction(
        num_query_components=num_query_components,
        num_item_components=num_item_components,
        component_dim=dim,
        sharpness=SHARPNESS[seed % len(SHARPNESS)] if sharpness is None else sharpness,
        projects_components=projects_components,
    )
    with torch.no_grad():
        for parameter in late.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))
    return late.eval()


def make_similarity(
    num_query_components: int,
    num_item_components: int,
    dim: int,
    gate_dim: int,
    gate_inputs: Sequence[str],
    *,
    activation: str = "silu",
    seed: int = 0,
) -> MixtureOfLogits | LateInteraction:
    """Return a late interaction if the gate inputs are LATE, and a mixture with these inputs otherwise."""
    if gate_inputs == LATE:
        return make_late(num_query_components, num_item_components, dim, seed=seed)
    return make_mixture(
        num_query_components, num_item_components, dim, gate_dim, gate_inputs, activation=activation, seed=seed
    )


@torch.no_grad()
def make_parts(
    similarity: MixtureOfLogits | LateInteraction,
    num_queries: int,
    num_items: int,
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[QueryParts, ItemParts]:
    """Return parts of random queries and items, the items in a given precision.

    Of late interaction, a fifth of the components is absent.
    """
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(num_queries, *similarity.query_shape, generator=generator)
    items = torch.randn(num_items, *similarity.item_shape, generator=generator)
    if isinstance(similarity, LateInteraction):
        for components in (queries, items):
            components[torch.rand(components.shape[:2], generator=generator) < 0.2] = 0.0
    return similarity.query_parts(queries), similarity.item_parts(items).to(dtype)


@torch.no_grad()
def fp64_scores(mixture: MixtureOfLogits | LateInteraction, queries: QueryParts, items: ItemParts) -> Tensor:
    """Return the scores (B, N) of the same parts, computed by the similarity itself in fp64."""
    own = QueryParts(queries.components.double(), None if queries.gate is None else queries.gate.double())
    return copy.deepcopy(mixture).double().score(own, items.to(torch.float64))


@contextlib.contextmanager
def forced(isa: str | None = None, num_threads: int | None = None) -> Iterator[None]:
    """Compute with this instruction set and number of threads."""
    isa_before, threads_before = os.environ.get(native.ISA_VARIABLE), torch.get_num_threads()
    try:
        if isa is not None:
            os.environ[native.ISA_VARIABLE] = isa
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        yield
    finally:
        os.environ.pop(native.ISA_VARIABLE, None)
        if isa_before is not None:
            os.environ[native.ISA_VARIABLE] = isa_before
        torch.set_num_threads(threads_before)


def bits(scores: Tensor) -> Tensor:
    """Return the 32 bits of each score."""
    return scores.contiguous().view(torch.int32)
