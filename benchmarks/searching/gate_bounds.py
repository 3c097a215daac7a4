"""Bounds that know the range of the gate's logits, and how many items they leave.

The claim. Let phi = sum_p w_p l_p with weights w_p = exp(z_p) / sum_r exp(z_r), and lo_p <= z_p <= hi_p. Then phi
reaches a threshold t only if

    sum_p c_p (l_p - t) >= 0   with c_p = exp(hi_p) if l_p >= t, else exp(lo_p).

Proof. Multiply phi >= t by the positive sum_r exp(z_r): it holds exactly if sum_p exp(z_p) (l_p - t) >= 0. Each term is
at most c_p (l_p - t): a factor that grows makes a positive term greater, and a factor that shrinks a negative one. The
claim is sharp if nothing but the ranges is known, since the z_p may all be at those ends. If no l_p reaches t, every
term is negative, so the test refuses all that the best component refuses. The ranges are those of one query and a group
of items: two factors per component pair, and no sort.

The ranges. With the pair as an input of the gate, z = act(W2 silu(W1 l + b1) + b2 + gate_q(q) gate_x(x)) depends on the
component scores l themselves. A range for all items of a corpus needs a range of l: [-1/T, 1/T] is all that is known
before the component scores are computed, and interval arithmetic carries it through both layers.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch import MixtureOfLogits
from railsearch.similarity import ItemParts, QueryParts
from railsearch.similarity.gate import GateActivation

ITEMS_PER_PANEL = 48
"""Items that the native kernel holds in registers at once, with AVX-512."""
LOWEST_SILU = -1.2784645
"""Where silu has its minimum; it falls to the left and rises to the right."""


@dataclass(frozen=True)
class Interval:
    low: Tensor
    high: Tensor

    def plus(self, other: "Interval") -> "Interval":
        return Interval(self.low + other.low, self.high + other.high)

    def silu(self) -> "Interval":
        ends = F.silu(self.low), F.silu(self.high)
        has_minimum = (self.low < LOWEST_SILU) & (self.high > LOWEST_SILU)
        low = torch.where(has_minimum, F.silu(self.low.new_tensor(LOWEST_SILU)), torch.minimum(*ends))
        return Interval(low, torch.maximum(*ends))

    def through(self, layer: torch.nn.Linear) -> "Interval":
        rising, falling = layer.weight.clamp_min(0).T, layer.weight.clamp_max(0).T
        low = self.low @ rising + self.high @ falling + layer.bias
        return Interval(low, self.high @ rising + self.low @ falling + layer.bias)


def may_reach(component_scores: Tensor, thresholds: Tensor, logits: Interval) -> Tensor:
    """Return which items (B, N) may reach the thresholds (B,), from component scores (B, N, P) and ranges of logits."""
    above = component_scores - thresholds[:, None, None]  # (B, N, P)
    peak = logits.high.amax(dim=-1, keepdim=True)  # a common factor
    most = torch.maximum((logits.high - peak).exp() * above, (logits.low - peak).exp() * above)  # (B, N, P)
    return (most.sum(dim=-1) >= 0) & (above.amax(dim=-1) >= 0)


def surviving(
    similarity: MixtureOfLogits, query_parts: QueryParts, item_parts: ItemParts, thresholds: Tensor
) -> Iterator[tuple[str, float]]:
    """Yield the share of query-item pairs that each bound leaves at the thresholds (B,), and the bound's name."""
    gate = similarity.gate
    found = similarity.compare(query_parts, item_parts)
    scores = found.component_scores  # (B, N, P)
    yield "score itself", share(found.scores >= thresholds[:, None])
    yield "best component", share(scores.amax(dim=-1) >= thresholds[:, None])

    sides = torch.zeros_like(scores)  # (B, N, P)
    if query_parts.gate is not None and item_parts.gate is not None:
        sides = query_parts.gate[:, None] * item_parts.gate
    elif query_parts.gate is not None or item_parts.gate is not None:
        sides = sides + (query_parts.gate[:, None] if query_parts.gate is not None else item_parts.gate)
    pair = torch.zeros_like(scores) if gate.pair is None else gate.pair(scores)  # (B, N, P)
    own = Interval(sides, sides)

    def survive(logits: Interval) -> float:
        if gate.activation is GateActivation.SILU:
            logits = logits.silu()
        return share(may_reach(scores, thresholds, logits))

    yield "true range of the query's logits", survive(range_of(pair + sides))
    yield "true range of the network, each item's own gate", survive(range_of(pair).plus(own))
    for error in (0.1, 0.4):
        near = Interval(pair + sides - error, pair + sides + error)
        yield f"each item's own logits, known to ± {error}", survive(near)
    if gate.pair is None:
        return
    limit = torch.full_like(scores[:, :1], 1 / similarity.temperature)  # (B, 1, P)
    yield "proven: any component scores", survive(through(gate, Interval(-limit, limit)).plus(range_of(sides)))
    yield "proven: range of the query's component scores", survive(through(gate, range_of(scores)).plus(own))
    whole = scores.shape[1] // ITEMS_PER_PANEL * ITEMS_PER_PANEL
    panels = scores[:, :whole].unflatten(1, (-1, ITEMS_PER_PANEL))  # (B, N / 48, 48, P)
    spread = through(gate, Interval(panels.amin(dim=2), panels.amax(dim=2)))  # (B, N / 48, P)
    by_item = [each.repeat_interleave(ITEMS_PER_PANEL, dim=1) for each in (spread.low, spread.high)]  # (B, whole, P)
    logits = Interval(*by_item).plus(Interval(sides[:, :whole], sides[:, :whole]))
    logits = logits.silu() if gate.activation is GateActivation.SILU else logits
    yield "proven: range of 48 items' component scores", share(may_reach(scores[:, :whole], thresholds, logits))


def through(gate: torch.nn.Module, scores: Interval) -> Interval:
    """Carry a range of component scores through the gate's network on the pair."""
    return scores.through(gate.pair.hidden).silu().through(gate.pair.output)


def range_of(values: Tensor) -> Interval:
    """Return the range of values (B, N, P) over all items, (B, 1, P)."""
    return Interval(values.amin(dim=1, keepdim=True), values.amax(dim=1, keepdim=True))


def share(is_left: Tensor) -> float:
    return float(is_left.double().mean())
