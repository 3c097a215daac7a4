"""JSON of requests and answers, by orjson: strict, and ten times as fast as the standard library for embeddings."""

import orjson

from railsearch.foundation.errors import InvalidInputError

MOST_CONTAINERS = 2**20
"""Lists and objects of one body: each may have two bytes in JSON, and takes a hundred in memory."""


class MalformedError(InvalidInputError):
    """A body that cannot be read at all."""


def read_object(content: bytes) -> dict[str, object]:
    """Read one JSON object; NaN, infinity, numbers that are too large, and nesting beyond 1,024 levels are refused.

    >>> read_object(b'{"k": 10}')
    {'k': 10}
    """
    num_containers = content.count(b"[") + content.count(b"{")  # those within texts count too
    if num_containers > MOST_CONTAINERS:
        raise InvalidInputError(
            f"the body has {num_containers} lists and objects but at most {MOST_CONTAINERS} are read; send smaller "
            "requests."
        )
    try:
        value = orjson.loads(content)
    except ValueError as error:
        raise MalformedError(f"the body is not JSON ({error}); send one JSON object in UTF-8.") from None
    if not isinstance(value, dict):
        raise MalformedError(f"the body is a JSON {_kind(value)}; send one JSON object.")
    return value


def write_json(value: object) -> bytes:
    """Write a value of dictionaries, lists, text, numbers and numpy arrays; NaN and infinity become null.

    >>> write_json({"gap": float("inf")})
    b'{"gap":null}'
    """
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def _kind(value: object) -> str:
    kinds = {list: "array", str: "string", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")
