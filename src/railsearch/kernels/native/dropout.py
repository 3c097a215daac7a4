"""Dropout in C++: draws are computed again in the backward pass, so that no mask is kept."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from railsearch.kernels.native.library import chosen_isa, is_available, library


def has_dropout() -> bool:
    """Return whether the native kernels were compiled with dropout, which an older build lacks."""
    return is_available() and hasattr(library, "drop")


def native_dropout(values: Tensor, share: float) -> Tensor:
    """Return fp32 values on a CPU, of which a share is 0 and the others are divided by 1 - share.

    The seed comes from torch's generator. The draws do not depend on the number of threads.
    """
    dropped = min(round(share * 2**16), 2**16 - 1)
    if dropped == 0:
        return values
    kept: Tensor = _NativeDropout.apply(values, int(torch.randint(2**63 - 1, ())), dropped)  # type: ignore[no-untyped-call]
    return kept


class _NativeDropout(torch.autograd.Function):
    """A product with a mask that the seed determines."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, seed: int, dropped: int) -> Tensor:
        """Return the values that stay, and zeros."""
        ctx.seed, ctx.dropped = seed, dropped
        return _drop(values, seed, dropped)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of the values."""
        return _drop(upstream, ctx.seed, ctx.dropped), None, None


def _drop(values: Tensor, seed: int, dropped: int) -> Tensor:
    own = values.detach().contiguous()
    assert own.dtype == torch.float32
    assert own.device.type == "cpu"
    results = torch.empty_like(own)
    library.drop(
        chosen_isa(), torch.get_num_threads(), own.data_ptr(), own.numel(), seed, dropped, results.data_ptr()
    )  # fmt: skip
    return results
