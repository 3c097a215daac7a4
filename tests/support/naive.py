"""MoL written as slowly and plainly as possible, in Python floats (fp64): the reference for every other way."""

import math

from railsearch import MixtureOfLogits

Matrix = list[list[float]]


def silu(value: float) -> float:
    return value / (1.0 + math.exp(-value)) if value > -700 else 0.0


def gelu(value: float) -> float:
    return 0.5 * value * (1.0 + math.erf(value / math.sqrt(2.0)))


def linear(weights: dict[str, list], name: str, inputs: list[float]) -> list[float]:
    rows = weights[f"{name}.weight"]
    bias = weights.get(f"{name}.bias", [0.0] * len(rows))
    return [sum(w * x for w, x in zip(row, inputs, strict=True)) + b for row, b in zip(rows, bias, strict=True)]


def unit_length(vector: list[float], epsilon: float) -> list[float]:
    length = max(math.sqrt(sum(x * x for x in vector)), epsilon)
    return [x / length for x in vector]


def project(weights: dict[str, list], side: str, kind: str, inputs: list[float]) -> list[float]:
    if kind != "linear":
        hidden = linear(weights, f"{side}_network.unit.hidden", inputs)
        half = len(hidden) // 2
        activate = silu if kind == "swiglu" else gelu
        inputs = [activate(a) * b for a, b in zip(hidden[:half], hidden[half:], strict=True)]
    return linear(weights, f"{side}_network.output", inputs)


def side_gate(weights: dict[str, list], side: str, inputs: list[float]) -> list[float] | None:
    if f"gate.{side}.hidden.weight" not in weights:
        return None
    return linear(weights, f"gate.{side}.output", [silu(h) for h in linear(weights, f"gate.{side}.hidden", inputs)])


def naive_scores(mol: MixtureOfLogits, queries: Matrix, items: Matrix, users: list[int] | None = None) -> Matrix:
    """phi of every pair, by a loop over queries, items and component pairs."""
    config = mol.config
    weights = {name: tensor.double().tolist() for name, tensor in mol.state_dict().items()}
    dim = mol.component_dim

    def components(flat: list[float]) -> Matrix:
        return [unit_length(flat[start : start + dim], mol.epsilon) for start in range(0, len(flat), dim)]

    scores = []
    for row, query in enumerate(queries):
        f = components(project(weights, "query", config["query_projection"], query))
        if config["user_table_size"] is not None:
            place = 0 if users is None or users[row] < 0 else users[row] % config["user_table_size"] + 1
            f.append(unit_length(weights["user_table.rows.weight"][place], mol.epsilon))
        query_gate = side_gate(weights, "query", query)
        scores.append([])
        for item in items:
            g = components(project(weights, "item", config["item_projection"], item))
            item_gate = side_gate(weights, "item", item)
            logits = [sum(a * b for a, b in zip(fi, gj, strict=True)) / mol.temperature for fi in f for gj in g]
            z = side_gate(weights, "pair", logits) or [0.0] * len(logits)
            if query_gate is not None and item_gate is not None:
                z = [a + b * c for a, b, c in zip(z, query_gate, item_gate, strict=True)]
            elif query_gate is not None or item_gate is not None:
                z = [a + b for a, b in zip(z, query_gate or item_gate, strict=True)]
            if config["gate_activation"] == "silu":
                z = [silu(value) for value in z]
            top = max(z)
            powers = [math.exp(value - top) for value in z]
            scores[-1].append(sum(p * score for p, score in zip(powers, logits, strict=True)) / sum(powers))
    return scores
