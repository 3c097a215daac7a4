"""The shard of every item: a stable hash of its id, or of a column of its metadata."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import xxhash
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError

if TYPE_CHECKING:
    from polars import DataFrame, Series

BYTES_PER_INTEGER = 8


def shards_of_ids(ids: Tensor | Sequence[str], num_shards: int) -> Tensor:
    """Return the shard (n,) of every id: the xxh3 hash of its bytes, modulo the number of shards.

    The bytes of an integer are its 8 bytes, the lowest first; those of a string are UTF-8.

    >>> shards_of_ids(["sku-1", "sku-2", "sku-3"], 4).tolist(), shards_of_ids(torch.arange(3), 4).tolist()
    ([3, 2, 0], [1, 2, 3])
    """
    if isinstance(ids, Tensor):
        content = memoryview(ids.cpu().numpy().astype("<i8").tobytes())
        size = BYTES_PER_INTEGER
        return _shards((content[place : place + size] for place in range(0, len(content), size)), num_shards)
    return _shards((key.encode() for key in ids), num_shards)


def shards_of_values(values: "Series", num_shards: int) -> Tensor:
    """Return the shard (n,) of every value of a column: the hash of its text; null has the text of nothing.

    >>> import polars as pl
    >>> shards_of_values(pl.Series(["jazz", "rock", "jazz"]), 4).tolist()
    [2, 1, 2]
    """
    distinct = values.unique()
    shards = _shards((b"" if value is None else str(value).encode() for value in distinct), num_shards).tolist()
    by_value = dict(zip(distinct.to_list(), shards, strict=True))
    return torch.tensor([by_value[value] for value in values], dtype=torch.int64)  # (n,)


def check_column(frame: "DataFrame | None", column: str) -> None:
    """Refuse a column that cannot decide the shard of an item."""
    import polars as pl  # noqa: PLC0415  (importing railsearch stays cheap)

    kinds = {} if frame is None else {name: kind for name, kind in frame.schema.items() if name != "id"}
    if column not in kinds:
        raise InvalidInputError(
            f"by is {column!r:.80}, which is not a column of the metadata; choose from: {', '.join(kinds) or 'none'}."
        )
    kind = kinds[column]
    if not (kind.is_integer() or isinstance(kind, (pl.String, pl.Boolean, pl.Date, pl.Categorical, pl.Enum))):
        raise InvalidInputError(
            f"by is {column!r}, a column of {kind}; choose one of text, integers, dates or true and false."
        )


def _shards(contents: Iterable[bytes | memoryview], num_shards: int) -> Tensor:
    hashes = np.fromiter((xxhash.xxh3_64_intdigest(content) for content in contents), dtype=np.uint64)
    return torch.from_numpy((hashes % np.uint64(num_shards)).astype(np.int64))  # (n,)
