"""The sampled softmax over shared negatives and its gradient in C++: no (E, n) is kept in memory."""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.kernels.native.library import chosen_isa, is_available, library


@dataclass(frozen=True, slots=True, eq=False)
class SharedSoftmax:
    """The loss of a batch and its gradients."""

    loss: float
    to_queries: Tensor  # (E, d)
    to_rights: Tensor  # (E,)
    to_items: Tensor  # (n, d)


def can_share_softmax(*tensors: Tensor) -> bool:
    """Return whether `shared_softmax` was compiled and can compute with these tensors: all in fp32 on a CPU."""
    return (
        is_available()
        and hasattr(library, "shared_softmax")
        and all(each.dtype == torch.float32 and each.device.type == "cpu" for each in tensors)
    )


@torch.no_grad()
def shared_softmax(
    queries: Tensor,
    items: Tensor,
    rights: Tensor,
    *,
    weight: float,
    own: Tensor | None = None,
    excluded: Tensor | None = None,
    excluded_rows: Tensor | None = None,
    offsets: Tensor | None = None,
) -> SharedSoftmax:
    """Return the loss weight * sum over E examples of -log(e^right / (e^right + sum over n items of e^score)).

    The score of an item is <query, item> plus its offset. The result has the same bits on any number of threads.

    Args:
        queries: (E, d), divided by the temperature.
        items: (n, d) the negatives that all examples share.
        rights: (E,) the score of each example's right item.
        weight: factor of the loss.
        own: (E,) the column of each example's right item among the negatives, which does not count; -1 if it is not
            there.
        excluded: (E, n) or (B, n) further negatives that do not count.
        excluded_rows: (E,) the row of `excluded` of each example; by default example e has row e.
        offsets: (n,) added to the scores of the negatives.
    """
    num_queries, dim = queries.shape
    queries, items, rights = queries.contiguous(), items.contiguous(), rights.contiguous()
    own = None if own is None else own.contiguous()
    excluded = None if excluded is None else excluded.contiguous()
    excluded_rows = None if excluded_rows is None else excluded_rows.contiguous()
    offsets = None if offsets is None else offsets.float().contiguous()
    assert items.shape[1] == dim
    assert rights.shape == (num_queries,)
    assert own is None or (own.shape == (num_queries,) and own.dtype == torch.int64)
    assert excluded is None or (excluded.shape[1] == len(items) and excluded.dtype == torch.bool)
    if excluded is not None and excluded_rows is not None:
        assert excluded_rows.shape == (num_queries,)
        assert excluded_rows.dtype == torch.int64
        assert not num_queries or 0 <= int(excluded_rows.min()) <= int(excluded_rows.max()) < len(excluded)
    else:
        assert excluded is None or len(excluded) == num_queries
    assert offsets is None or offsets.shape == (len(items),)
    to_queries, to_rights, to_items = (torch.empty_like(each) for each in (queries, rights, items))
    loss = library.shared_softmax(
        isa=chosen_isa(),
        num_threads=torch.get_num_threads(),
        num_queries=num_queries,
        num_items=len(items),
        dim=dim,
        weight=weight,
        queries=queries.data_ptr(),
        rights=rights.data_ptr(),
        own=0 if own is None else own.data_ptr(),
        excluded=0 if excluded is None else excluded.data_ptr(),
        excluded_rows=0 if excluded_rows is None else excluded_rows.data_ptr(),
        items=items.data_ptr(),
        offsets=0 if offsets is None else offsets.data_ptr(),
        to_queries=to_queries.data_ptr(),
        to_rights=to_rights.data_ptr(),
        to_items=to_items.data_ptr(),
    )
    return SharedSoftmax(loss, to_queries, to_rights, to_items)
