"""Late interaction as a mixture: each query component weighs the item components by how well they match it."""

from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import check_count, check_not_negative, check_positive, check_rows, check_share
from railsearch.similarity.contract import ConfigValue
from railsearch.similarity.fingerprints import remembered_fingerprint
from railsearch.similarity.gate import DROPPED
from railsearch.similarity.mixture import LARGEST_DIM, MOST_PAIRS
from railsearch.similarity.parts import (
    IN_TRAINING,
    Comparison,
    ItemParts,
    QueryParts,
    all_products,
    best_pairs,
    by_pair,
    own_products,
)
from railsearch.similarity.projection import ComponentProjections
from railsearch.similarity.temperature import Temperature


class LateInteraction(nn.Module):
    """phi(q, x) = sum_i w_i(q) * sum_j a_ij(q, x) * s_ij, with component scores s_ij = <f_i(q), g_j(x)> / temperature.

    The weights w are a softmax over the Pq query components, and each a_i is a softmax over the Px item components:
    a_i = softmax_j(beta_i * s_ij + b_j(x)). With beta_i = 0, a query component takes the mean over item components; as
    beta_i grows, it takes the best one: MaxSim, the late interaction of ColBERT. All weights w_i * a_ij are positive
    and sum to 1, so phi is never above the best component score, and searches certify it as they do any mixture.

    The gate has 2 * d + Px + 2 * Pq weights: a query stores 2 * Pq gate values, and an item Px. That stays small with
    hundreds of component pairs, for which the gate of MixtureOfLogits needs wide layers. All its weights start at zero:
    w is even, b is 0, and beta_i is `sharpness`. If all components of a text are equal, phi is their cosine divided by
    the temperature.

    Queries and items are ready components, (Pq, d) and (Px, d), which are scaled to length 1. A component of zeros is
    absent: it gets no weight, so texts may have fewer components than others. With `projects_components`, component p
    of a side is first multiplied by I + A_p, a matrix of its own that starts as the identity.

    Args:
        num_query_components: Pq.
        num_item_components: Px.
        component_dim: d, the size of one component.
        temperature: divides every dot product; smaller makes scores and weights sharper.
        learns_temperature: let training change the temperature, which starts as given.
        sharpness: initial beta_i; 0 starts as the mean over item components.
        component_dropout: share of the components of queries and of items that are absent while training.
        projects_components: give each component of queries and of items a projection of its own, d * d weights each,
            so that components can become different. An index stores the projected components, so an item is not larger.
        epsilon: components shorter than this are not scaled up to length 1.

    >>> late = LateInteraction(num_query_components=2, num_item_components=4, component_dim=16).eval()
    >>> late
    LateInteraction(2 x 4 components of 16, 40 weights)
    >>> queries, items = late.query_parts(torch.randn(3, 2, 16)), late.item_parts(torch.randn(5, 4, 16))
    >>> late.score(queries, items).shape
    torch.Size([3, 5])
    """

    is_certifiable = True
    kind: ClassVar[str] = "late_interaction"
    takes_user_ids = False

    def __init__(
        self,
        *,
        num_query_components: int = 8,
        num_item_components: int = 16,
        component_dim: int = 64,
        temperature: float = 0.05,
        learns_temperature: bool = False,
        sharpness: float = 1.0,
        component_dropout: float = 0.0,
        projects_components: bool = False,
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__()
        self.num_query_components = check_count(num_query_components, name="num_query_components")
        self.num_item_components = check_count(num_item_components, name="num_item_components")
        check_count(
            self.num_query_components * self.num_item_components,
            name="num_query_components * num_item_components",
            maximum=MOST_PAIRS,
        )
        self.component_dim = check_count(component_dim, name="component_dim", maximum=LARGEST_DIM)
        self.own_temperature = Temperature(temperature, is_learned=learns_temperature)
        self.sharpness = check_not_negative(sharpness, name="sharpness")
        self.component_dropout = check_share(component_dropout, name="component_dropout")
        self.projects_components = projects_components
        self.epsilon = check_positive(epsilon, name="epsilon")
        self.query_shape = (self.num_query_components, self.component_dim)
        self.item_shape = (self.num_item_components, self.component_dim)
        self.query_salience = nn.Parameter(torch.zeros(self.component_dim))
        self.query_bias = nn.Parameter(torch.zeros(self.num_query_components))
        self.item_salience = nn.Parameter(torch.zeros(self.component_dim))
        self.item_bias = nn.Parameter(torch.zeros(self.num_item_components))
        self.sharpness_change = nn.Parameter(torch.zeros(self.num_query_components))
        self.query_projections, self.item_projections = (
            ComponentProjections(dim=self.component_dim, num_components=count) if projects_components else nn.Identity()
            for count in (self.num_query_components, self.num_item_components)
        )

    @property
    def config(self) -> dict[str, ConfigValue]:
        """Keyword arguments that build this similarity again."""
        return {
            "num_query_components": self.num_query_components,
            "num_item_components": self.num_item_components,
            "component_dim": self.component_dim,
            "temperature": self.own_temperature.start,
            "learns_temperature": self.own_temperature.is_learned,
            "sharpness": self.sharpness,
            "component_dropout": self.component_dropout,
            # Fingerprints of models without projections stay as they were before there were any.
            **({"projects_components": True} if self.projects_components else {}),
            "epsilon": self.epsilon,
        }

    def __repr__(self) -> str:
        counts = f"{self.num_query_components} x {self.num_item_components} components of {self.component_dim}"
        return f"LateInteraction({counts}, {sum(weight.numel() for weight in self.parameters()):,} weights)"

    @property
    def temperature(self) -> float:
        """The present temperature, by which every dot product is divided."""
        return self.own_temperature.value

    @temperature.setter
    def temperature(self, temperature: float) -> None:
        self.own_temperature.value = temperature

    @property
    def values_per_pair(self) -> int:
        """Values that scoring holds for one query-item pair: the component pairs."""
        return self.num_query_components * self.num_item_components

    def query_parts(self, queries: Tensor, *, user_ids: Tensor | None = None) -> QueryParts:
        """Compute the query side; the gate (B, 2 * Pq) has the logits of w, then beta."""
        if user_ids is not None:
            raise InvalidInputError("user_ids was given but late interaction has no user table; omit them.")
        check_rows(queries, name="queries", shape=self.query_shape)
        components = F.normalize(self.query_projections(queries), dim=-1, eps=self.epsilon)  # (B, Pq, d)
        gate = self.query_gate(components, components @ self.query_salience)  # (B, 2 * Pq)
        if self.training:
            components = self.own_temperature.with_gradient(components)
        return QueryParts(components, gate, self._model())

    def item_parts(self, items: Tensor) -> ItemParts:
        """Compute the item side; the gate (N, Px) has b. Done once for each item, when it is indexed."""
        check_rows(items, name="items", shape=self.item_shape)
        components = F.normalize(self.item_projections(items), dim=-1, eps=self.epsilon)  # (N, Px, d)
        return ItemParts(components, self.item_gate(components, components @ self.item_salience), self._model())

    def query_gate(self, components: Tensor, salience: Tensor) -> Tensor:
        """Return the gate (B, 2 * Pq) of components (B, Pq, d) whose products with `query_salience` are (B, Pq)."""
        logits = self._hide(components, salience + self.query_bias)  # (B, Pq)
        sharpness = (self.sharpness + self.sharpness_change).expand_as(logits)  # (B, Pq)
        return torch.cat([logits, sharpness], dim=1)

    def item_gate(self, components: Tensor, salience: Tensor) -> Tensor:
        """Return the gate (N, Px) of components (N, Px, d) whose products with `item_salience` are (N, Px)."""
        return self._hide(components, salience + self.item_bias)

    def check_gates(self, query_parts: QueryParts, item_parts: ItemParts) -> None:
        """Check that the parts have gates of late interaction."""
        if query_parts.gate is None or query_parts.gate.shape[1] != 2 * self.num_query_components:
            raise InvalidInputError("the query parts have no gate of late interaction; compute them with query_parts.")
        if item_parts.gate is None or item_parts.gate.shape[-1] != self.num_item_components:
            raise InvalidInputError("the item parts have no gate of late interaction; compute them with item_parts.")

    def compare(self, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        """Compare every query with every item."""
        products = all_products(query_parts.components / self.temperature, item_parts.components)  # (B, Pq, N, Px)
        return self._compared(products, query_parts, item_parts)

    def compare_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Comparison:
        """Compare each query with its own candidates, components (B, C, Px, d)."""
        products = own_products(query_parts.components / self.temperature, candidate_parts.components)
        return self._compared(products, query_parts, candidate_parts)

    def bounds(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the best component score of every query-item pair, which no score exceeds."""
        return best_pairs(query_parts.components / self.temperature, item_parts.components)  # (B, N)

    def score(self, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return the scores of every query with every item."""
        products = all_products(query_parts.components / self.temperature, item_parts.components)  # (B, Pq, N, Px)
        return self._mixed(products, query_parts, item_parts)  # (B, N)

    def score_candidates(self, query_parts: QueryParts, candidate_parts: ItemParts) -> Tensor:
        """Return the scores of each query with its own candidates."""
        products = own_products(query_parts.components / self.temperature, candidate_parts.components)
        return self._mixed(products, query_parts, candidate_parts)  # (B, C)

    def user_penalty(self, user_ids: Tensor) -> Tensor:
        """Return zero: there are no weights of users."""
        return torch.zeros((), device=user_ids.device)

    def forward(self, queries: Tensor, items: Tensor) -> Tensor:
        """Score every query with every item, from components."""
        return self.score(self.query_parts(queries), self.item_parts(items))  # (B, N)

    def _model(self) -> str | None:
        return IN_TRAINING if self.training else remembered_fingerprint(self, self.kind, lambda: self.config)

    def _hide(self, components: Tensor, logits: Tensor) -> Tensor:
        """Give absent components (rows, P, d), and in training the dropped ones, a logit (rows, P) without weight."""
        is_absent = (components == 0).all(dim=-1)  # (rows, P)
        if self.training and self.component_dropout:
            is_absent = is_absent | (torch.rand(logits.shape, device=logits.device) < self.component_dropout)
        return logits.masked_fill(is_absent, DROPPED)

    def _item_weights(self, products: Tensor, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        """Return a (B, Pq, N, Px) for component scores of the same shape."""
        self.check_gates(query_parts, item_parts)
        assert query_parts.gate is not None
        assert item_parts.gate is not None
        sharpness = query_parts.gate[:, self.num_query_components :, None, None]  # (B, Pq, 1, 1)
        by_item = item_parts.gate if item_parts.gate.ndim == 2 else item_parts.gate[:, None]  # (N, Px) or (B, 1, C, Px)
        logits = torch.addcmul(by_item, products, sharpness)  # (B, Pq, N, Px)
        is_absent = by_item <= DROPPED / 2  # (N, Px) or (B, 1, C, Px)
        if bool(is_absent.any()):  # a large sharpness times a score can be far below DROPPED
            logits = logits.masked_fill(is_absent, torch.finfo(logits.dtype).min)
        return F.softmax(logits, dim=-1)

    def _query_weights(self, query_parts: QueryParts) -> Tensor:
        """Return w (B, Pq)."""
        assert query_parts.gate is not None
        return F.softmax(query_parts.gate[:, : self.num_query_components], dim=-1)  # (B, Pq)

    def _mixed(self, products: Tensor, query_parts: QueryParts, item_parts: ItemParts) -> Tensor:
        matches = torch.linalg.vecdot(self._item_weights(products, query_parts, item_parts), products)  # (B, Pq, N)
        return torch.bmm(self._query_weights(query_parts)[:, None], matches)[:, 0]  # (B, N)

    def _compared(self, products: Tensor, query_parts: QueryParts, item_parts: ItemParts) -> Comparison:
        by_item_component = self._item_weights(products, query_parts, item_parts)  # (B, Pq, N, Px)
        weights = self._query_weights(query_parts)[..., None, None] * by_item_component  # (B, Pq, N, Px)
        component_scores, gate_weights = by_pair(products), by_pair(weights)  # (B, N, P) each
        return Comparison(torch.linalg.vecdot(gate_weights, component_scores), component_scores, gate_weights)
