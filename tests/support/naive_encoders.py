"""Sequence encoders as their formulas read: one history, loops over plain Python numbers, no tensors inside."""

import math
from collections.abc import Callable, Sequence

from railsearch.encoders import HSTU, SASRec

Row = list[float]
Matrix = list[Row]


def silu(value: float) -> float:
    return value / (1 + math.exp(-value))


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def linear(row: Row, weights: Matrix, bias: Row | None = None) -> Row:
    return [dot(row, weights[i]) + (bias[i] if bias else 0.0) for i in range(len(weights))]


def layer_norm(row: Row, epsilon: float) -> Row:
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    return [(value - mean) / math.sqrt(variance + epsilon) for value in row]


def scaled_layer_norm(row: Row, scale: Row, shift: Row) -> Row:
    return [value * a + b for value, a, b in zip(layer_norm(row, 1e-5), scale, shift, strict=True)]


def add(left: Row, right: Row) -> Row:
    return [a + b for a, b in zip(left, right, strict=True)]


def input_embeddings(encoder: HSTU | SASRec, items: list[int]) -> Matrix:
    rows, positions = encoder.item_table.weight.tolist(), encoder.position_table.weight.tolist()
    return [
        [value * math.sqrt(encoder.dim) + positions[place][i] for i, value in enumerate(rows[item])]
        for place, item in enumerate(items)
    ]


def hstu_attention(
    queries: Matrix, keys: Matrix, values: Matrix, bias: Callable[[int, int], float], divisor: int
) -> Matrix:
    """One head: a_i = sum over j <= i of SiLU(<q_i, k_j> + bias(i, j)) / divisor * v_j."""
    attended = []
    for i in range(len(queries)):
        total = [0.0] * len(values[0])
        for j in range(i + 1):
            weight = silu(dot(queries[i], keys[j]) + bias(i, j)) / divisor
            total = [a + weight * v for a, v in zip(total, values[j], strict=True)]
        attended.append(total)
    return attended


def hstu_block(block: object, events: Matrix, times: list[int], next_times: list[int]) -> Matrix:
    weights = {name: weight.tolist() for name, weight in block.state_dict().items()}  # type: ignore[attr-defined]
    heads: int = block.num_heads  # type: ignore[attr-defined]
    size = len(weights["input.weight"]) // 4
    head_dim = size // heads

    def bias(i: int, j: int) -> float:
        seconds = max(1, abs(next_times[i] - times[j]))
        bucket = min(128, math.floor(math.log(seconds) / 0.301))
        return weights["distance_bias"][i - j] + weights["time_bias"][bucket]

    inputs = [[silu(value) for value in linear(layer_norm(row, 1e-6), weights["input.weight"])] for row in events]
    attended: Matrix = [[] for _ in events]
    for head in range(heads):
        part = slice(head * head_dim, (head + 1) * head_dim)
        values = [row[size : 2 * size][part] for row in inputs]
        queries = [row[2 * size : 3 * size][part] for row in inputs]
        keys = [row[3 * size :][part] for row in inputs]
        divisor = len(weights["distance_bias"]) + 11
        for row, own in zip(attended, hstu_attention(queries, keys, values, bias, divisor), strict=True):
            row.extend(own)
    outputs = []
    for row, gate, own in zip(events, inputs, attended, strict=True):
        gated = [u * a for u, a in zip(gate[:size], layer_norm(own, 1e-6), strict=True)]
        outputs.append(add(linear(gated, weights["output.weight"], weights["output.bias"]), row))
    return outputs


def hstu(encoder: HSTU, items: list[int], times: list[int], next_times: list[int]) -> Matrix:
    events = input_embeddings(encoder, items)
    for block in encoder.blocks:
        events = hstu_block(block, events, times, next_times)
    return [layer_norm(row, 1e-6) for row in events] if encoder.normalizes_output else events


def softmax_attention(queries: Matrix, keys: Matrix, values: Matrix) -> Matrix:
    """One head: a_i = sum over j <= i of softmax over j of <q_i, k_j> / sqrt(d), times v_j."""
    attended = []
    for i in range(len(queries)):
        weights = [math.exp(dot(queries[i], keys[j]) / math.sqrt(len(queries[i]))) for j in range(i + 1)]
        total = [0.0] * len(values[0])
        for j in range(i + 1):
            total = [a + weights[j] / sum(weights) * v for a, v in zip(total, values[j], strict=True)]
        attended.append(total)
    return attended


def sasrec_block(block: object, events: Matrix) -> Matrix:
    weights = {name: weight.tolist() for name, weight in block.state_dict().items()}  # type: ignore[attr-defined]
    heads: int = block.num_heads  # type: ignore[attr-defined]
    size = len(events[0])
    head_dim = size // heads

    def norm(name: str, row: Row) -> Row:
        return scaled_layer_norm(row, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def layer(name: str, row: Row) -> Row:
        return linear(row, weights[f"{name}.weight"], weights[f"{name}.bias"])

    inputs = [layer("attention_input", norm("attention_norm", row)) for row in events]
    attended: Matrix = [[] for _ in events]
    for head in range(heads):
        part = slice(head * head_dim, (head + 1) * head_dim)
        queries = [row[:size][part] for row in inputs]
        keys = [row[size : 2 * size][part] for row in inputs]
        values = [row[2 * size :][part] for row in inputs]
        for row, own in zip(attended, softmax_attention(queries, keys, values), strict=True):
            row.extend(own)
    outputs = []
    for row, own in zip(events, attended, strict=True):
        middle = add(row, layer("attention_output", own))
        hidden = [max(0.0, value) for value in layer("hidden", norm("feed_forward_norm", middle))]
        outputs.append(add(middle, layer("output", hidden)))
    return outputs


def sasrec(encoder: SASRec, items: list[int]) -> Matrix:
    events = input_embeddings(encoder, items)
    for block in encoder.blocks:
        events = sasrec_block(block, events)
    return [layer_norm(row, 1e-5) for row in events] if encoder.normalizes_output else events
