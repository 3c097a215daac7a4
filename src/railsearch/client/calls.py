"""The calls of a server that read: search, explain, items, indexes, jobs; each becomes a `Call`."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlencode

import numpy as np

from railsearch.client import reading
from railsearch.client.answers import Job, ServedExplanation, ServedItem, ServedResult, ServedSimilar
from railsearch.client.arrays import SAFETENSORS, Array, ItemId, ItemIds, Values, as_floats, as_ids, encode, size_of
from railsearch.client.conversation import Call, Request, checked_timeout
from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.json_values import JsonValue

if TYPE_CHECKING:
    from railsearch.index.rules import MaxPer
    from railsearch.index.strategies import Strategy

LONGEST_WAIT_MS = 60_000
JSON = "application/json"


def path_of(index: str, *parts: ItemId) -> str:
    """Return the path of an index, or of something below it."""
    if not index:
        raise InvalidInputError(f"index is {index!r}; give the name of an index, such as 'movies'.")
    return "/".join(["/v1/indexes", *(_quoted(str(part)) for part in (index, *parts))])


def _quoted(part: str) -> str:
    """Return a part of a path; dots alone would mean another folder."""
    return part.replace(".", "%2E") if part in {".", ".."} else quote(part, safe="")


def json_body(values: dict[str, JsonValue]) -> bytes:
    """Return values as JSON, without those that are None."""
    try:
        present = {name: value for name, value in values.items() if value is not None}
        return json.dumps(present, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"the request is not JSON ({error}); give finite numbers, texts and lists.") from error


def one_query_input(
    *,
    embeddings: Values | None,
    texts: Sequence[str] | None,
    histories: Sequence[ItemIds] | None,
    users: Sequence[ItemId] | None,
) -> str:
    """Return the name of the one input that was given."""
    values = {"embeddings": embeddings, "texts": texts, "histories": histories, "users": users}
    given = [name for name, value in values.items() if value is not None]
    if len(given) != 1:
        raise InvalidInputError(
            f"{' and '.join(given) if given else 'no queries'} were given; give exactly one of {', '.join(values)}."
        )
    if isinstance(texts, str):
        raise InvalidInputError("texts is a str; give a list of texts, one for each query.")
    return given[0]


def query_values(
    texts: Sequence[str] | None, histories: Sequence[ItemIds] | None, users: Sequence[ItemId] | None
) -> dict[str, JsonValue]:
    """Return the queries that JSON carries; those that were not given are None."""
    return {
        "texts": None if texts is None else [str(text) for text in texts],
        "histories": None if histories is None else lists_of_ids(histories, name="histories"),
        "users": None if users is None else list(as_ids(users, name="users")),
    }


def as_whole(value: object, *, name: str) -> int:
    """Return a whole number of any type; the server knows its range."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidInputError(f"{name} is {value!r:.80}; give a whole number.")
    return int(value)


def lists_of_ids(lists: Sequence[ItemIds | None], *, name: str) -> list[JsonValue]:
    """Return one list of ids for each query; None is an empty one."""
    return [[] if ids is None else list(as_ids(ids, name=f"{name}[{row}]")) for row, ids in enumerate(lists)]


def search(
    index: str,
    embeddings: Values | None = None,
    *,
    texts: Sequence[str] | None = None,
    histories: Sequence[ItemIds] | None = None,
    users: Sequence[ItemId] | None = None,
    k: int = 10,
    strategy: "Strategy | str | None" = None,
    allow: str | ItemIds | None = None,
    exclude: Sequence[ItemIds | None] | None = None,
    max_per: "Mapping[str, int | MaxPer | dict[str, JsonValue]] | None" = None,
    diversity: float = 0.0,
    pool: int | None = None,
    filter_viewed: bool = True,
    pad: bool = False,
    partial: Literal["refuse", "allow"] = "refuse",
    fields: Sequence[str] | Literal["all"] | None = None,
    explain: int = 0,
    timeout: float | None = None,
) -> Call[ServedResult]:
    """Find the k best items for each query, best first; ties go to the smaller id.

    Give exactly one of embeddings, texts, histories and users; `describe(index)["accepts"]` lists what an index takes.

    Args:
        index: the name of an index, such as "movies".
        embeddings: query embeddings (B, D), or ready components (B, Pq, d), as an array, a tensor or lists.
        texts: questions, if the index is served with a text model.
        histories: item ids of each query, oldest first, if the index is served with a recommender.
        users: user ids, if the recommender was given its data.
        k: the number of items to return for each query.
        strategy: how to search, such as "Average(500)" or `Average(500)`; by default the tuned strategy of this k.
        allow: search only these items: a condition such as "year >= 2000", or a list of ids.
        exclude: one list of ids for each query that it must not find.
        max_per: the most items of one value of a column, such as {"genre": 2}; a text of several values is cut
            by MaxPer(2, separator="|"), or {"limit": 2, "separator": "|"} without torch.
        diversity: from 0 to 1; re-rank the best items so that they differ more.
        pool: the best items that `max_per` and `diversity` choose from; by default 4 k, and at least 100.
        filter_viewed: exclude the items of a history; only for histories and users.
        pad: if filters leave fewer than k items, fill up with id -1; by default, this is an error.
        partial: "allow" answers from the other shards if a shard of a split index does not answer; see `coverage`.
        fields: names of metadata columns to return with each item, or "all".
        explain: explain that many of the best items of each query.
        timeout: seconds that the call may take, retries included; that of the client if omitted.
    """
    kind = one_query_input(embeddings=embeddings, texts=texts, histories=histories, users=users)
    settings: dict[str, JsonValue] = {
        "k": as_whole(k, name="k"),
        "strategy": _strategy_text(strategy),
        "filter_viewed": None if kind in {"embeddings", "texts"} else bool(filter_viewed),
        "pad": bool(pad),
        **_rules(max_per, diversity, pool),
        **({} if partial == "refuse" else {"partial": str(partial)}),
        "fields": fields if fields is None or isinstance(fields, str) else [str(name) for name in fields],
        "explain": as_whole(explain, name="explain"),
    }
    path, seconds = path_of(index, "search"), None if timeout is None else checked_timeout(timeout)

    def as_tensors(seconds: float) -> Request:
        assert embeddings is not None
        arrays: dict[str, Array] = {"embeddings": as_floats(embeddings, name="embeddings")}
        values = {**settings, **_filters(allow, exclude, arrays), **_deadline(seconds)}
        present = {name: value for name, value in values.items() if value is not None}
        return Request("POST", path, encode(arrays, present), SAFETENSORS, accept=SAFETENSORS)

    def as_json(seconds: float) -> Request:
        values = {**query_values(texts, histories, users), **settings, **_filters(allow, exclude, None)}
        return Request("POST", path, json_body({**values, **_deadline(seconds)}), JSON, accept=SAFETENSORS)

    num_bytes = sum(map(size_of, (embeddings, texts, histories, exclude, allow)))
    return Call(as_tensors if kind == "embeddings" else as_json, reading.result, num_bytes, seconds)


def explain(
    index: str,
    item_ids: ItemIds,
    *,
    embedding: Values | None = None,
    text: str | None = None,
    history: ItemIds | None = None,
    user: ItemId | None = None,
    fields: Sequence[str] | Literal["all"] | None = None,
) -> Call[list[ServedExplanation]]:
    """Return the component scores and gate weights of one query and each of up to 100 items.

    Args:
        index: the name of an index.
        item_ids: items of the index.
        embedding: one query embedding (D,), or ready components (Pq, d).
        text: one question, in place of an embedding.
        history: one history, in place of an embedding.
        user: one user, in place of an embedding.
        fields: names of metadata columns to return with each item, or "all".
    """
    given = {"embedding": embedding, "text": text, "history": history, "user": user}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        raise InvalidInputError(f"{len(names)} queries were given; give exactly one of {', '.join(given)}.")

    def encode_call(seconds: float) -> Request:
        values: dict[str, JsonValue] = {
            "embeddings": None if embedding is None else [as_floats(embedding, name="embedding").tolist()],
            **query_values(
                None if text is None else [text],
                None if history is None else [history],
                None if user is None else [user],
            ),
            "item_ids": list(as_ids(item_ids, name="item_ids")),
            "fields": fields if fields is None or isinstance(fields, str) else [str(name) for name in fields],
        }
        return Request("POST", path_of(index, "explain"), json_body(values), JSON)

    return Call(encode_call, reading.explanations)


def similar_items(
    index: str,
    item_ids: ItemIds,
    *,
    k: int = 10,
    allow: str | ItemIds | None = None,
    exclude: ItemIds | None = None,
    pad: bool = False,
    fields: Sequence[str] | Literal["all"] | None = None,
) -> Call[list[list[ServedSimilar]]]:
    """Return the k items that are most similar to each of up to 32 items, best first.

    Args:
        index: the name of an index.
        item_ids: items of the index.
        k: the number of similar items for each.
        allow: only these items: a condition such as "year >= 2000", or a list of ids.
        exclude: ids that no answer may hold.
        pad: accept fewer than k items if filters leave fewer; by default, this is an error.
        fields: names of metadata columns to return with each item, or "all".
    """

    def encode_call(seconds: float) -> Request:
        values: dict[str, JsonValue] = {
            "item_ids": list(as_ids(item_ids, name="item_ids")),
            "k": as_whole(k, name="k"),
            "allow": allow if allow is None or isinstance(allow, str) else list(as_ids(allow, name="allow")),
            "exclude": None if exclude is None else list(as_ids(exclude, name="exclude")),
            "pad": bool(pad),
            "fields": fields if fields is None or isinstance(fields, str) else [str(name) for name in fields],
        }
        return Request("POST", path_of(index, "similar"), json_body(values), JSON)

    return Call(encode_call, reading.similar)


def item(index: str, item_id: ItemId) -> Call[ServedItem]:
    """Return one item with its metadata; raises NotServedError if it is not in the index."""
    return Call(lambda _: Request("GET", path_of(index, "items", item_id)), reading.item)


def find_items(index: str, text: str = "", *, limit: int = 20, column: str | None = None) -> Call[list[ServedItem]]:
    """Return the first items, by id, that have a text within one of their text columns, in any case.

    Args:
        index: the name of an index.
        text: a text; the empty text finds the first items.
        limit: at most this many items, up to 100.
        column: look at this column only.
    """
    values = {"text": text, "limit": limit} | ({} if column is None else {"column": column})
    return Call(lambda _: Request("GET", f"{path_of(index, 'items')}?{urlencode(values)}"), reading.items)


def indexes() -> Call[list[dict[str, JsonValue]]]:
    """Return a description of every index that is served."""
    return Call(lambda _: Request("GET", "/v1/indexes"), reading.indexes)


def describe(index: str) -> Call[dict[str, JsonValue]]:
    """Return a description of an index: version, counts, accepted queries, tuned strategies, limits."""
    return Call(lambda _: Request("GET", path_of(index)), reading.described)


def jobs() -> Call[list[Job]]:
    """Return the last jobs, newest first."""
    return Call(lambda _: Request("GET", "/v1/jobs"), reading.jobs)


def job(job_id: str) -> Call[Job]:
    """Return one job."""
    return Call(lambda _: Request("GET", f"/v1/jobs/{quote(job_id, safe='')}"), reading.job)


def _deadline(seconds: float) -> dict[str, JsonValue]:
    return {"timeout_ms": max(1, min(LONGEST_WAIT_MS, int(seconds * 1000)))}


def _filters(
    allow: str | ItemIds | None, exclude: Sequence[ItemIds | None] | None, arrays: dict[str, Array] | None
) -> dict[str, JsonValue]:
    """Return the filters for JSON; lists of integers go into the arrays instead, if there are any."""
    allowed = allow if allow is None or isinstance(allow, str) else as_ids(allow, name="allow")
    excluded = None if exclude is None else lists_of_ids(exclude, name="exclude")
    if arrays is not None and isinstance(allowed, list) and not any(isinstance(item, str) for item in allowed):
        arrays["allow"] = np.array(allowed, dtype=np.int64)
        allowed = None
    if arrays is not None and excluded is not None:
        flat = [item for ids in excluded if isinstance(ids, list) for item in ids]
        if not any(isinstance(item, str) for item in flat):
            lengths = [len(ids) for ids in excluded if isinstance(ids, list)]
            arrays["exclude"] = np.array(flat, dtype=np.int64)
            arrays["exclude_offsets"] = np.cumsum([0, *lengths], dtype=np.int64)
            excluded = None
    return {"allow": allowed if allowed is None or isinstance(allowed, str) else list(allowed), "exclude": excluded}


def _rules(
    max_per: "Mapping[str, int | MaxPer | dict[str, JsonValue]] | None", diversity: float, pool: int | None
) -> dict[str, JsonValue]:
    """Return the rules that were given; the server checks them."""
    limits: dict[str, JsonValue] = {
        column: limit if isinstance(limit, (int, dict)) else {"limit": limit.limit, "separator": limit.separator}
        for column, limit in (max_per or {}).items()
    }
    given: dict[str, JsonValue] = {
        "max_per": limits or None,
        "diversity": float(diversity) if diversity else None,
        "pool": None if pool is None else as_whole(pool, name="pool"),
    }
    return {name: value for name, value in given.items() if value is not None}


def _strategy_text(strategy: "Strategy | str | None") -> str | None:
    if strategy is None or isinstance(strategy, str):
        return strategy
    from railsearch.index import format_strategy  # noqa: PLC0415  (whoever holds a strategy has imported it)

    return format_strategy(strategy)
