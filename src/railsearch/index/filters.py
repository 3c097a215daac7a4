"""The filter of a search, from its `exclude` and `allow` arguments and from removed items."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeAliasType

from railsearch.foundation.errors import InvalidInputError, NotEnoughItemsError
from railsearch.foundation.inputs import ArrayLike, as_id_lists, is_mask
from railsearch.index.corpus import Corpus
from railsearch.index.keys import to_integers
from railsearch.index.metadata import evaluate_filter, is_expression
from railsearch.kernels import RowFilter

if TYPE_CHECKING:
    from polars import Expr

Exclude = TypeAliasType("Exclude", ArrayLike | Sequence[object] | None)
Allow = TypeAliasType("Allow", "ArrayLike | AbstractSet[int] | AbstractSet[str] | str | Expr | None")


def make_filter(
    corpus: Corpus, exclude: Exclude, allow: Allow, *, num_queries: int, k: int, pad: bool
) -> RowFilter | None:
    """Build the filter of a search; raise if it leaves a query fewer than k items, unless `pad` is set."""
    if exclude is None and allow is None:
        return corpus.row_filter
    allowed_rows = allowed_rows_of(allow, corpus)  # (A,)
    is_allowed = torch.zeros(len(corpus), dtype=torch.bool)  # (N,)
    is_allowed[allowed_rows.cpu()] = True
    num_allowed = len(allowed_rows)
    lists = [] if exclude is None else _id_lists(exclude, corpus, count=num_queries)
    rows = [corpus.rows_of(ids).cpu() for ids in lists]
    if not pad:
        if num_allowed < k:
            raise _too_few(k, f"allow leaves only {num_allowed} of {len(corpus.ids)} items")
        for query, own_rows in enumerate(rows):
            num_left = num_allowed - int(is_allowed[own_rows].sum())
            if num_left < k:
                raise _too_few(k, f"exclude leaves query {query} only {num_left} of {len(corpus.ids)} items")
    is_filtered = allow is not None or corpus.is_live is not None
    return RowFilter.from_lists(rows, device=corpus.like.device, is_allowed=is_allowed if is_filtered else None)


def allowed_rows_of(allow: Allow, corpus: Corpus) -> Tensor:
    """Return the allowed rows (A,): from a condition, a mask with one value for each id, or a list of ids."""
    if allow is None:
        return corpus.rows
    if is_expression(allow):
        return corpus.rows[evaluate_filter(allow, corpus.frame, corpus.rows)]  # type: ignore[arg-type]
    given: ArrayLike = list(allow) if isinstance(allow, AbstractSet) else allow  # type: ignore[assignment]
    is_text = isinstance(given, (list, tuple)) and bool(given) and isinstance(given[0], str)
    if not is_text and is_mask(given):  # numpy would give every string the room of the longest one
        mask = torch.as_tensor(np.asarray(given) if not isinstance(given, Tensor) else given).cpu()
        if tuple(mask.shape) != tuple(corpus.ids.shape):
            raise InvalidInputError(
                f"allow is a mask of shape {tuple(mask.shape)} but the index holds {len(corpus.ids)} items; "
                "give one true or false for each of index.ids."
            )
        return corpus.rows[mask.to(corpus.rows.device)]
    ids = to_integers(given, corpus.segments, name="allow")
    if ids.ndim != 1:
        raise InvalidInputError(f"allow has shape {tuple(ids.shape)}; give a mask or a flat list of ids.")
    return corpus.rows_of(ids)


def _id_lists(exclude: ArrayLike | Sequence[object], corpus: Corpus, *, count: int) -> list[Tensor]:
    """Return the integer ids that are excluded from each query."""

    def convert(ids: ArrayLike, name: str) -> Tensor:
        return to_integers(ids, corpus.segments, name=name)

    return as_id_lists(exclude, name="exclude", count=count, convert=convert)


def _too_few(k: int, cause: str) -> NotEnoughItemsError:
    return NotEnoughItemsError(f"k is {k} but {cause}; ask for a smaller k, or pass pad=True to accept fewer.")
