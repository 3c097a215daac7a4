"""Dropout of sequence encoders: in C++ on a CPU, where torch draws its numbers slowly, and with torch otherwise."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from railsearch.kernels import native
from railsearch.kernels.choose import uses_native


def drop(values: Tensor, share: float, *, is_training: bool) -> Tensor:
    """Return values of which a share is 0 and the others are divided by 1 - share; outside of training, all of them.

    C++ and torch draw different numbers from the same seed.
    """
    if not is_training or share == 0:
        return values
    is_traced = torch.compiler.is_compiling() or torch.onnx.is_in_onnx_export()
    if is_traced or values.dtype != torch.float32 or not (uses_native(values.device) and native.has_dropout()):
        return F.dropout(values, share)
    return native.native_dropout(values, share)
