"""Replies as answers: every value that a server sent is checked before it is passed on."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from railsearch.client.answers import (
    Change,
    Fields,
    Floats,
    Job,
    Refreshed,
    ServedExplanation,
    ServedItem,
    ServedResult,
    ServedSimilar,
)
from railsearch.client.arrays import SAFETENSORS, Array, ItemId, decode
from railsearch.client.problems import Reply, foreign, read_json
from railsearch.foundation.errors import ServerError
from railsearch.foundation.json_values import JsonValue
from railsearch.foundation.recall import ExpectedRecall

Value = TypeVar("Value")
Object = dict[str, JsonValue]


def result(reply: Reply, url: str) -> ServedResult:
    """Read the answer of a search."""
    if reply.media_type != SAFETENSORS:
        raise foreign(reply, url=url)
    arrays, answer = decode(reply.body, member="answer")
    ids, scores = _array(arrays, "ids", "i8", 2), _array(arrays, "scores", "f4", 2)
    ceiling, num_scored = _array(arrays, "ceiling", "f4", 1), _array(arrays, "num_scored", "i8", 1)
    if not (ids.shape == scores.shape and len(ids) == len(ceiling) == len(num_scored)) or not ids.shape[1]:
        raise ServerError(f"the answer has ids of shape {ids.shape} but scores of shape {scores.shape}.")
    about, spent = _object(answer, "index"), _object(answer, "milliseconds")
    string_ids = _rows(answer.get("keys"), ids.shape, "keys", str)
    return ServedResult(
        ids=ids,
        scores=scores,
        ceiling=ceiling,
        num_scored=num_scored,
        string_ids=string_ids,
        fields=_rows(answer.get("fields"), ids.shape, "fields", dict),
        explanations=_best_explained(arrays, ids, scores, string_ids),
        index=str(about.get("name")),
        version=_member(about, "version", int),
        fingerprint=str(about.get("fingerprint")),
        strategy=str(answer.get("strategy")),
        expected_recall=_expected_recall(answer.get("expected_recall")),
        coverage=_number(answer, "coverage") if "coverage" in answer else 1.0,
        queue_milliseconds=_number(spent, "queue"),
        search_milliseconds=_number(spent, "search"),
    )


def explanations(reply: Reply, url: str) -> list[ServedExplanation]:
    """Read explanations of items."""
    return [
        ServedExplanation(
            item_id=_item_id(each),
            score=_number(each, "score"),
            component_scores=_matrix(each, "component_scores"),
            gate_weights=_matrix(each, "gate_weights"),
            fields=each.get("fields"),  # type: ignore[arg-type]
        )
        for each in _objects(read_json(reply, url=url), "explanations")
    ]


def similar(reply: Reply, url: str) -> list[list[ServedSimilar]]:
    """Read the similar items of each item."""
    return [
        [
            ServedSimilar(id=_item_id(hit), score=_number(hit, "score"), fields=_fields(hit))
            for hit in _objects(each, "hits")
        ]
        for each in _objects(read_json(reply, url=url), "results")
    ]


def item(reply: Reply, url: str) -> ServedItem:
    """Read one item."""
    return _item(read_json(reply, url=url))


def items(reply: Reply, url: str) -> list[ServedItem]:
    """Read a list of items."""
    return [_item(each) for each in _objects(read_json(reply, url=url), "items")]


def indexes(reply: Reply, url: str) -> list[Object]:
    """Read the descriptions of all indexes."""
    return _objects(read_json(reply, url=url), "indexes")


def described(reply: Reply, url: str) -> Object:
    """Read the description of one index."""
    value = read_json(reply, url=url)
    _member(value, "version", int)
    return value


def change(reply: Reply, url: str) -> Change:
    """Read the answer of a write."""
    value = read_json(reply, url=url)
    return Change(version=_member(value, "version", int), num_items=_member(value, "items", int))


def refreshed(reply: Reply, url: str) -> Refreshed:
    """Read the answer of a refresh."""
    value = read_json(reply, url=url)
    return Refreshed(version=_member(value, "version", int), has_changed=_member(value, "changed", bool))


def job(reply: Reply, url: str) -> Job:
    """Read one job."""
    return _job(read_json(reply, url=url))


def jobs(reply: Reply, url: str) -> list[Job]:
    """Read a list of jobs."""
    return [_job(each) for each in _objects(read_json(reply, url=url), "jobs")]


def _best_explained(
    arrays: Mapping[str, Array], ids: Array, scores: Array, keys: list[list[str | None]] | None
) -> list[list[ServedExplanation]]:
    if "component_scores" not in arrays:
        return []
    component_scores = _array(arrays, "component_scores", "f4", 4)  # (B, E, Pq, Px)
    gate_weights = _array(arrays, "gate_weights", "f4", 4)
    if component_scores.shape != gate_weights.shape or len(gate_weights) != len(ids):
        raise ServerError("the answer has explanations of another shape than its results.")
    num_explained = min(component_scores.shape[1], ids.shape[1])
    return [
        [
            ServedExplanation(
                item_id=int(ids[query, place]) if keys is None else str(keys[query][place]),
                score=float(scores[query, place]),
                component_scores=component_scores[query, place],
                gate_weights=gate_weights[query, place],
            )
            for place in range(num_explained)
            if ids[query, place] >= 0
        ]
        for query in range(len(ids))
    ]


def _array(arrays: Mapping[str, Array], name: str, kind: str, num_dims: int) -> Any:
    array = arrays.get(name)
    if array is None or array.dtype != np.dtype(kind) or array.ndim != num_dims:
        raise ServerError(f"the answer has no array {name!r} of type {kind} with {num_dims} dimensions.")
    return array


def _rows(value: JsonValue, shape: tuple[int, ...], name: str, kind: type[Value]) -> list[list[Value | None]] | None:
    """Check a list for each query with a value of one kind, or null, for each place; None if there is none."""
    if value is None:
        return None
    rows = [row for row in value if isinstance(row, list)] if isinstance(value, list) else []
    places = [[each for each in row if each is None or isinstance(each, kind)] for row in rows]
    if rows != value or [len(row) for row in places] != [shape[1]] * shape[0] or places != rows:
        raise ServerError(f"the answer has {name} that do not fit its ids of shape {shape}.")
    return places


def _matrix(value: Object, name: str) -> Floats:
    try:
        matrix = np.array(value.get(name), dtype=np.float32)  # (Pq, Px)
    except (ValueError, TypeError):
        matrix = np.zeros(0, dtype=np.float32)
    if matrix.ndim != 2:
        raise ServerError(f"the answer has no matrix {name!r}.")
    return matrix


def _expected_recall(value: JsonValue) -> ExpectedRecall | None:
    if not isinstance(value, dict):
        return None
    return ExpectedRecall(_number(value, "recall"), _number(value, "confidence"), _member(value, "version", int))


def _item(value: Object) -> ServedItem:
    return ServedItem(id=_item_id(value), fields=_fields(value))


def _item_id(value: Object) -> ItemId:
    found = value.get("id")
    if isinstance(found, bool) or not isinstance(found, (int, str)):
        raise ServerError(f"the answer has the item id {found!r}.")
    return found


def _fields(value: Object) -> Fields:
    found = value.get("fields")
    return found if isinstance(found, dict) else {}


def _job(value: Object) -> Job:
    finished, report, problem = value.get("finished_at"), value.get("result"), value.get("problem")
    return Job(
        id=_member(value, "id", str),
        kind=str(value.get("kind")),
        index=str(value.get("index")),
        state=_member(value, "state", str),
        created_at=str(value.get("created_at")),
        finished_at=finished if isinstance(finished, str) else None,
        result=report if isinstance(report, dict) else None,
        problem=problem if isinstance(problem, dict) else None,
    )


def _objects(value: Object, name: str) -> list[Object]:
    found = value.get(name)
    if not isinstance(found, list):
        raise ServerError(f"the answer has no list {name!r}.")
    return [each for each in found if isinstance(each, dict)]


def _object(value: Object, name: str) -> Object:
    found = value.get(name)
    if not isinstance(found, dict):
        raise ServerError(f"the answer has no object {name!r}.")
    return found


def _number(value: Object, name: str) -> float:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ServerError(f"the answer has no number {name!r}.")
    return float(found)


def _member(value: Object, name: str, kind: type[Value]) -> Value:
    found = value.get(name)
    if not isinstance(found, kind):
        raise ServerError(f"the answer has no member {name!r} of the expected type.")
    return found
