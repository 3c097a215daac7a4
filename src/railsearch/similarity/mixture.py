"""Mixture of Logits: a similarity that can express any preference (the paper's equations 1 and 2)."""

import math
from collections.abc import Collection
from typing import ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Generator, Tensor, nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import (
    as_choice,
    as_user_ids,
    check_count,
    check_positive,
    check_rows,
    check_seed,
    check_share,
)
from railsearch.similarity.contract import ConfigValue
from railsearch.similarity.fingerprints import remembered_fingerprint
from railsearch.similarity.gate import Gate, GateActivation, GateInput, as_gate_inputs
from railsearch.similarity.parts import (
    IN_TRAINING,
    Comparison,
    ItemParts,
    QueryParts,
    all_pairs,
    best_pairs,
    own_pairs,
)
from railsearch.similarity.projection import Projection, build_projection, drop_components, initialize, input_shape
from railsearch.similarity.temperature import Temperature
from railsearch.similarity.user_table import NO_USER, UserTable

MOST_PAIRS = 2**14
"""Component pairs of one query and one item. The gate's weights grow with them, and so does the work of every score."""
LARGEST_DIM = 2**20


class MixtureOfLogits(nn.Module):
    """phi(q, x) = sum over pairs p = (i, j) of pi_p(q, x) * <f_i(q), g_j(x)> / temperature.

    A query has Pq components f_i and an item Px components g_j, all of length 1. Their P = Pq * Px dot
    products are weighted by a gate pi that depends on the query, the item and the dot products themselves. The
    weights sum to 1, so phi is never above the best of the dot products.

    Args:
        query_dim: size of a query embedding; not used when query components are ready.
        item_dim: size of an item embedding; not used when item components are ready.
        num_query_components: Pq, including the user component if there is one.
        num_item_components: Px.
        component_dim: d, the size of one component.
        temperature: divides every dot product; smaller makes scores and gate sharper.
        learns_temperature: let training change the temperature, which starts as given.
        query_projection: how components come from a query: linear, residual (each component starts as the embedding),
            swiglu, geglu or ready.
        item_projection: the same for items.
        projection_dim: hidden size of swiglu and geglu.
        item_dropout: share of item embedding values dropped while training.
        gate_inputs: inputs of the gate, any of query, item, pair; without any, the gate is uniform.
        gate_dim: hidden size of the gate's networks.
        gate_activation: silu or identity before the softmax. By default identity if pair is the only input
            (the paper's text models), silu otherwise (its recommenders).
        gate_dropout: share of gate weights dropped while training; the rest is scaled to sum to 1.
        component_dropout: share of query components dropped while training, each as a whole; the rest is scaled up.
        user_table_size: rows of a table of user components, the last of the Pq; None for no such table.
        user_dropout: share of user component values dropped while training.
        normalizes: scale every component to length 1; without it, components keep their lengths.
        epsilon: components shorter than this are not scaled up to length 1.
        seed: seed of the initial weights; None draws them from torch's global generator.

    >>> mol = MixtureOfLogits(query_dim=16, item_dim=16, num_query_components=2, num_item_components=2, seed=0).eval()
    >>> mol
    MixtureOfLogits(2 x 2 components of 32, gate query+item+pair, 57,860 weights)
    >>> queries, items = mol.query_parts(torch.randn(3, 16)), mol.item_parts(torch.randn(5, 16))
    >>> mol.score(queries, items).shape
    torch.Size([3, 5])
    """

    is_certifiable = True
    kind: ClassVar[str] = "mixture_of_logits"

    def __init__(
        self,
        *,
        query_dim: int | None = 64,
        item_dim: int | None = 64,
        num_query_components: int = 8,
        num_item_components: int = 4,
        component_dim: int = 32,
        temperature: float = 0.05,
        learns_temperature: bool = False,
        query_projection: Projection | str = Projection.SWIGLU,
        item_projection: Projection | str = Projection.LINEAR,
        projection_dim: int = 512,
        item_dropout: float = 0.1,
        gate_inputs: Collection[GateInput | str] = tuple(GateInput),
        gate_dim: int = 128,
        gate_activation: GateActivation | str | None = None,
        gate_dropout: float = 0.2,
        component_dropout: float = 0.0,
        user_table_size: int | None = None,
        user_dropout: float = 0.5,
        normalizes: bool = True,
        epsilon: float = 1e-6,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.num_query_components = check_count(num_query_components, name="num_query_components")
        self.num_item_components = check_count(num_item_components, name="num_item_components")
        num_pairs = self.num_query_components * self.num_item_components
        check_count(num_pairs, name="num_query_components * num_item_components", maximum=MOST_PAIRS)
        self.component_dim = check_count(component_dim, name="component_dim", maximum=LARGEST_DIM)
        self.own_temperature = Temperature(temperature, is_learned=learns_temperature)
        self.component_dropout = check_share(component_dropout, name="component_dropout")
        self.normalizes = bool(normalizes)
        self.epsilon = check_positive(epsilon, name="epsilon")
        self.user_table_size = None if user_table_size is None else check_count(user_table_size, name="user_table_size")
        if self.takes_user_ids:
            check_count(self.num_query_components, name="num_query_components with a user table", minimum=2)
        self.num_projected = self.num_query_components - self.takes_user_ids
        self.query_projection = as_choice(Projection, query_projection, name="query_projection")
        self.item_projection = as_choice(Projection, item_projection, name="item_projection")
        self.projection_dim = check_count(projection_dim, name="projection_dim")
        self.query_shape = input_shape(
            "query", self.query_projection, query_dim, (self.num_projected, self.component_dim)
        )
        self.item_shape = input_shape(
            "item", self.item_projection, item_dim, (self.num_item_components, self.component_dim)
        )
        self.item_dropout = check_share(item_dropout, name="item_dropout")
        self.user_dropout = check_share(user_dropout, name="user_dropout")
        self.gate_inputs = as_gate_inputs(gate_inputs)
        self.gate_dim = check_count(gate_dim, name="gate_dim")
        if gate_activation is None:
            is_pair_alone = self.gate_inputs == {GateInput.PAIR}
            gate_activation = GateActivation.IDENTITY if is_pair_alone else GateActivation.SILU

        self.query_network = build_projection(
            self.query_projection,
            input_dim=math.prod(self.query_shape),
            hidden_dim=self.projection_dim,
            output_dim=self.num_projected * self.component_dim,
            dropout=0.0,
        )
        self.item_network = build_projection(
            self.item_projection,
            input_dim=math.prod(self.item_shape),
            hidden_dim=self.projection_dim,
            output_dim=self.num_item_components * self.component_dim,
            dropout=self.item_dropout,
        )
        self.user_table = (
            None
            if self.user_table_size is None
            else UserTable(size=self.user_table_size, dim=self.component_dim, dropout=self.user_dropout)
        )
        self.gate = Gate(
            num_pairs=num_pairs,
            query_dim=math.prod(self.query_shape),
            item_dim=math.prod(self.item_shape),
            inputs=self.gate_inputs,
            hidden_dim=self.gate_dim,
            activation=as_choice(GateActivation, gate_activation, name="gate_activation"),
            dropout=check_share(gate_dropout, name="gate_dropout"),
        )
        self.reset_parameters(None if seed is None else Generator().manual_seed(check_seed(seed)))

    @classmethod
    def around(
        cls,
        *,
        dim: int,
        cosine: bool = False,
        dot_product: bool = False,
        num_query_components: int = 4,
        num_item_components: int = 4,
        temperature: float | None = None,
        item_dropout: float = 0.1,
        gate_inputs: Collection[GateInput | str] = tuple(GateInput),
        gate_dim: int = 64,
        gate_dropout: float = 0.2,
        seed: int | None = None,
    ) -> Self:
        """Build a mixture that starts as the cosine or the dot product of the given embeddings, divided by temperature.

        Every component begins as the embedding itself, so all component scores are equal, and so is their mixture
        under any gate. Training moves the components apart. With 1 x 1 components and no gate, the result is a cosine
        of two learned linear maps that starts at identity. Arguments that are not described here are as in the
        constructor.

        Args:
            dim: size of query and item embeddings, and of the components.
            cosine: start as their cosine; components are scaled to length 1.
            dot_product: start as their dot product; components keep their lengths.
            temperature: divides every component score; by default 0.05 for a cosine and 1 for a dot product.

        >>> mol = MixtureOfLogits.around(dim=16, cosine=True, seed=0).eval()
        >>> queries, items = torch.randn(3, 16), torch.randn(5, 16)
        >>> cosines = F.cosine_similarity(queries[:, None], items[None], dim=-1)
        >>> bool(torch.allclose(mol(queries, items), cosines / 0.05, atol=1e-4))
        True
        """
        if cosine == dot_product:
            raise InvalidInputError(
                f"cosine is {cosine} and dot_product is {dot_product}; choose one of them: set exactly one to True."
            )
        if temperature is None:
            temperature = 0.05 if cosine else 1.0
        return cls(
            query_dim=dim, item_dim=dim, component_dim=dim, normalizes=cosine, temperature=temperature,
            num_query_components=num_query_components, num_item_components=num_item_components,
            query_projection=Projection.RESIDUAL, item_projection=Projection.RESIDUAL, item_dropout=item_dropout,
            gate_inputs=gate_inputs, gate_dim=gate_dim, gate_dropout=gate_dropout, seed=seed,
        )  # fmt: skip

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this similarity again."""
        return {
            "query_dim": None if self.query_projection is Projection.READY else self.query_shape[0],
            "item_dim": None if self.item_projection is Projection.READY else self.item_shape[0],
            "num_query_components": self.num_query_components,
            "num_item_components": self.num_item_components,
            "component_dim": self.component_dim,
            "temperature": self.own_temperature.start,
            "query_projection": self.query_projection.value,
            "item_projection": self.item_projection.value,
            "projection_dim": self.projection_dim,
            "item_dropout": self.item_dropout,
            "gate_inputs": sorted(name.value for name in self.gate_inputs),
            "gate_dim": self.gate_dim,
            "gate_activation": self.gate.activation.value,
            "gate_dropout": self.gate.dropout,
            "user_table_size": self.user_table_size,
            "user_dropout": self.user_dropout,
            "normalizes": self.normalizes,
            "epsilon": self.epsilon,
            # Omitted at their defaults: the fingerprints of older models stay valid.
            **({"learns_temperature": True} if self.own_temperature.is_learned else {}),
            **({"component_dropout": self.component_dropout} if self.component_dropout else {}),
        }

    def __repr__(self) -> str:
        counts = f"{self.num_query_components} x {self.num_item_components} components of {self.component_dim}"
        gate = "+".join(name.value for name in GateInput if name in self.gate_inputs) or "uniform"
        users = "" if self.user_table_size is None else f", {self.user_table_size:,} users"
        num_weights = sum(weight.numel() for weight in self.parameters())
        return f"MixtureOfLogits({counts}, gate {gate}{users}, {num_weights:,} weights)"

    @property
    def temperature(self) -> float:
        """The present temperature, by which every dot product is divided."""
        return self.own_temperature.value

    @temperature.setter
    def temperature(self, temperature: float) -> None:
        self.own_temperature.value = temperature

    @property
    def takes_user_ids(self) -> bool:
        """Whether one query component comes from a table of users."""
        return self.user_table_size is not None

    @property
    def values_per_pair(self) -> int:
        """Values that scoring holds for one query-item pair: the component pairs, or the gate's hidden layer."""
        num_pairs = self.num_query_components * self.num_item_components
        return max(num_pairs, self.gate_dim) if GateInput.PAIR in self.gate_inputs else num_pairs

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Initialize all weights again, from the generator if one is given."""
        initialize(self, generator)
        self.own_temperature.reset()
        if self.user_table is not None:
            self.user_table.initialize(generator)

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        """Compute the query side; unknown users have a negative id, or no id."""
        check_rows(queries, name="queries", shape=self.query_shape)
        components = self.query_network(queries).view(-1, self.num_projected, self.component_dim)  # (B, Pq, d)
        if self.user_table is not None:
            if user_ids is None:
                user_ids = torch.full((len(queries),), NO_USER, device=queries.device)  # (B,)
            own = self.user_table(as_user_ids(user_ids, count=queries.shape[0]))[:, None]  # (B, 1, d)
            components = torch.cat([components, own], dim=1)  # (B, Pq, d)
        elif user_ids is not None:
            raise InvalidInputError("user_ids was given but user_table_size is None; set it or omit the ids.")
        gate = None if self.gate.query is None else self.gate.query(queries.flatten(1))  # (B, P)
        components = self._normalize(components)  # (B, Pq, d)
        if self.training:
            components = self.own_temperature.with_gradient(drop_components(components, self.component_dropout))
        return QueryParts(components, gate, self._model())

    def item_parts(self, items: Tensor) -> ItemParts:
        """Compute the item side; done once for each item, when it is indexed."""
        check_rows(items, name="items", shape=self.item_shape)
        components = self.item_network(items).view(-1, self.num_item_components, self.component_dim)  # (N, Px, d)
        gate = None if self.gate.item is None else self.gate.item(items.flatten(1))  # (N, P)
        return ItemParts(self._normalize(components), gate, self._model())

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        """Compare every query with every item."""
        component_scores = all_pairs(query_parts.components / self.temperature, item_parts.components)
        return self._mix(component_scores, query_parts.gate, item_parts.gate)

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        """Compare each query with its own candidates, components (B, C, Px, d)."""
        component_scores = own_pairs(query_parts.components / self.temperature, candidate_parts.components)
        return self._mix(component_scores, query_parts.gate, candidate_parts.gate)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component score of every query-item pair, which no score exceeds."""
        return best_pairs(query_parts.components / self.temperature, item_parts.components)  # (B, N)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the scores of every query with every item."""
        return self.compare(query_parts, item_parts).scores  # (B, N)

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        """Return the scores of each query with its own candidates."""
        return self.compare_candidates(query_parts, candidate_parts).scores  # (B, C)

    def forward(self, queries: Tensor, items: Tensor, *, user_ids: Tensor | None = None) -> Tensor:
        """Score every query with every item, from raw inputs."""
        return self.score(self.query_parts(queries, user_ids=user_ids), self.item_parts(items))  # (B, N)

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        """Return the mean squared length of these users' rows; zero if there is no user table."""
        if self.user_table is None:
            return torch.zeros((), device=user_ids.device)
        return self.user_table.penalty(user_ids)

    def _model(self) -> str | None:
        """Return the fingerprint for parts; in training mode a mark that no index accepts."""
        return IN_TRAINING if self.training else remembered_fingerprint(self, self.kind, lambda: self.config)

    def _normalize(self, components: Tensor) -> Tensor:
        return F.normalize(components, dim=-1, eps=self.epsilon) if self.normalizes else components

    def _mix(self, component_scores: Tensor, query_gate: Tensor | None, item_gate: Tensor | None) -> Comparison:
        by_query = None if query_gate is None else query_gate[:, None]  # (B, 1, P)
        gate_weights = self.gate(component_scores, by_query, item_gate)  # (B, N, P)
        scores = torch.linalg.vecdot(gate_weights, component_scores)  # (B, N)
        return Comparison(scores, component_scores, gate_weights)
