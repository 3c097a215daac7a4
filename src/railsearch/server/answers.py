"""Answers of searches: results with their certificates, as JSON values or as tensors."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import JsonValue, rows_as_json
from railsearch.foundation.results import NO_ITEM, Explanation, SearchResult
from railsearch.server.batching import Outcome
from railsearch.server.queries import SearchBody
from railsearch.server.searched import Searched
from railsearch.server.tensors import write_result

if TYPE_CHECKING:
    from polars import DataFrame

Hit = dict[str, object]


def describe_version(name: str, index: Searched) -> dict[str, JsonValue]:
    """Return which version of which index answered."""
    return {"name": name, "version": index.version, "fingerprint": index.fingerprint}


def answer_json(name: str, body: SearchBody, outcome: Outcome) -> dict[str, object]:
    """Return the answer to a search as JSON values."""
    result, index = outcome.result, outcome.index
    keys: Sequence[Sequence[object]] = _shown_ids(outcome, is_text=body.ids == "string")
    fields = _fields(outcome, body)
    explained = explain_hits(outcome, body.explain)
    scores, ids = result.scores.tolist(), result.ids.tolist()
    certificate = zip(
        result.ceiling.tolist(),
        result.gap.tolist(),
        result.is_exact.tolist(),
        result.num_certified.tolist(),
        result.num_scored.tolist(),
        strict=True,
    )
    results = []
    for query, (ceiling, gap, is_exact, num_certified, num_scored) in enumerate(certificate):
        hits: list[Hit] = []
        for place, score in enumerate(scores[query]):
            if ids[query][place] == NO_ITEM:
                break
            hit: Hit = {"id": keys[query][place], "score": score}
            if fields is not None:
                hit["fields"] = fields[query][place]
            if place < body.explain:
                hit["explanation"] = explanation_json(explained[query][place])
            hits.append(hit)
        results.append(
            {
                "hits": hits,
                "kth_score": scores[query][-1],
                "ceiling": ceiling,
                "gap": gap,
                "is_exact": is_exact,
                "num_certified": num_certified,
                "num_scored": num_scored,
            }
        )
    return {"results": results, **_common(name, index, outcome)}


def answer_tensors(name: str, body: SearchBody, outcome: Outcome) -> bytes:
    """Return the answer to a search as a safetensors file."""
    result, index = outcome.result, outcome.index
    component_scores, gate_weights = _stacked(outcome, body.explain)
    answer: dict[str, object] = {
        **_common(name, index, outcome),
        "keys": result.keys if result.has_keys else None,
        "fields": _fields(outcome, body),
    }
    return write_result(result, answer, component_scores, gate_weights)


def explanation_json(explanation: Explanation) -> dict[str, object]:
    """Return an explanation as JSON values."""
    return {
        "score": explanation.score,
        "component_scores": explanation.component_scores.tolist(),
        "gate_weights": explanation.gate_weights.tolist(),
        "contributions": explanation.contributions.tolist(),
    }


def explain_hits(outcome: Outcome, count: int) -> list[list[Explanation]]:
    """Explain the first hits of each query, by the version that found them."""
    if not count:
        return [[] for _ in outcome.result.ids]
    names = _shown_ids(outcome, is_text=False)
    users = outcome.encoded.user_ids
    explained = []
    for query, embedding in enumerate(outcome.encoded.queries):
        user = None if users is None else int(users[query])
        real = outcome.result.ids[query, :count] != NO_ITEM
        own = [name for name, is_real in zip(names[query][:count], real.tolist(), strict=True) if is_real]
        explained.append([outcome.index.explain(embedding, item, user_id=user) for item in own])  # type: ignore[arg-type]
    return explained


def item_json(frame: "DataFrame", *, is_text: bool, columns: Sequence[str] | None = None) -> list[dict[str, object]]:
    """Return rows of items, with the column id first, as objects with id and fields."""
    rows = rows_as_json(frame if columns is None else frame.select(["id", *columns]))
    return [
        {"id": str(row["id"]) if is_text else row["id"], "fields": {name: row[name] for name in row if name != "id"}}
        for row in rows
    ]


def similar_json(found: SearchResult, *, is_text: bool, columns: Sequence[str] | None) -> list[list[dict[str, object]]]:
    """Return the similar items of each item as objects with id and score, and fields if columns are asked for."""
    frame = found.to_frame()
    empty: list[dict[str, JsonValue]] = [{} for _ in range(len(frame))]  # a table without columns has no rows
    fields = rows_as_json(frame.select(columns)) if columns else empty
    hits: list[list[dict[str, object]]] = [[] for _ in found.ids]
    for query, item, score, own in zip(frame["query"], frame["id"], frame["score"], fields, strict=True):
        hit = {"id": str(item) if is_text else item, "score": score}
        hits[query].append(hit if columns is None else {**hit, "fields": own})
    return hits


def checked_columns(fields: list[str] | str | None, known: Sequence[str]) -> list[str] | None:
    """Return the columns that a request asks for; None if it asks for none."""
    if fields is None or isinstance(fields, str):
        return None if fields is None else list(known)
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise InvalidInputError(
            f"fields names {unknown[0]!r:.80}, which is not a column of the index; choose from: "
            f"{', '.join(known) or 'none'}."
        )
    return list(dict.fromkeys(fields))


def _common(name: str, index: Searched, outcome: Outcome) -> dict[str, object]:
    measured = outcome.expected_recall
    return {
        "index": describe_version(name, index),
        "strategy": outcome.strategy,
        "coverage": outcome.result.coverage,
        "expected_recall": None if measured is None else dataclasses.asdict(measured),
        "milliseconds": {
            "queue": round(1000 * outcome.queue_seconds, 3),
            "search": round(1000 * outcome.search_seconds, 3),
        },
    }


def _shown_ids(outcome: Outcome, *, is_text: bool) -> list[list[int]] | list[list[str]] | list[list[str | None]]:
    result = outcome.result
    if result.has_keys:
        return result.keys
    ids: list[list[int]] = result.ids.tolist()
    return [[str(item) for item in row] for row in ids] if is_text else ids


def _fields(outcome: Outcome, body: SearchBody) -> list[list[dict[str, JsonValue] | None]] | None:
    """Return the metadata of each hit; None in a place that has no item."""
    wanted = body.fields
    if wanted is None:
        return None
    result = dataclasses.replace(outcome.result, questions=body.texts)
    is_item = result.ids != NO_ITEM  # (B, K)
    frame = result.look_up()
    names = [] if frame is None else [name for name in frame.columns if name != "id"]
    columns = checked_columns(wanted, names) or []
    rows = iter([{}] * int(is_item.sum()) if frame is None else rows_as_json(frame.select(columns)))
    return [[next(rows, {}) if is_there else None for is_there in row] for row in is_item.tolist()]


def _stacked(outcome: Outcome, count: int) -> tuple[Tensor | None, Tensor | None]:
    """Return component scores and gate weights (B, E, Pq, Px), NaN where there is no hit; None if none are wanted."""
    if not count:
        return None, None
    similarity = outcome.index.similarity
    count = min(count, outcome.result.ids.shape[1])
    shape = (len(outcome.result.ids), count, similarity.num_query_components, similarity.num_item_components)
    scores, weights = torch.full(shape, math.nan), torch.full(shape, math.nan)
    for query, own in enumerate(explain_hits(outcome, count)):
        for place, explanation in enumerate(own):
            scores[query, place], weights[query, place] = explanation.component_scores, explanation.gate_weights
    return scores, weights
