"""The choice of a kernel: the fastest one that can run a similarity on a device."""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from enum import StrEnum

import torch
from torch import Tensor

from railsearch.foundation.errors import InvalidInputError
from railsearch.foundation.inputs import as_choice
from railsearch.kernels import native
from railsearch.kernels.contract import Kernel, Scan
from railsearch.kernels.torch_kernel import TorchKernel
from railsearch.kernels.torch_scan import scan
from railsearch.similarity import Similarity

KERNEL_VARIABLE = "RAILSEARCH_KERNEL"


class KernelName(StrEnum):
    """The kernels that a user can ask for."""

    TORCH = "torch"
    NATIVE = "native"


_wanted: ContextVar[KernelName | None] = ContextVar("railsearch_kernel", default=None)


def choose_kernel(similarity: Similarity, device: torch.device) -> Kernel:
    """Return the kernel for a similarity whose parts are on this device.

    The native kernel runs MixtureOfLogits, LateInteraction and DotProduct on a CPU, if it was compiled. The torch
    kernel runs every similarity on every device. A user can choose with `use_kernel`, or for all with the environment
    variable RAILSEARCH_KERNEL.

    >>> from railsearch import DotProduct
    >>> with use_kernel(KernelName.TORCH):
    ...     choose_kernel(DotProduct(dim=2), torch.device("cpu")).is_bit_stable
    False
    """
    if uses_native(device) and native.can_compute(similarity):
        return native.NativeKernel(similarity)
    if _wanted.get() is KernelName.NATIVE:
        raise InvalidInputError(
            f"kernel is 'native' but the similarity is {type(similarity).__name__} on {device.type}; the native kernel "
            "computes MixtureOfLogits, LateInteraction and DotProduct in fp32 on a CPU, others need the kernel 'torch'."
        )
    return TorchKernel(similarity, device)


def choose_scan(device: torch.device, int8: native.Int8Table | None = None) -> Scan:
    """Return the scan by dot product for tables on this device; it depends on no similarity.

    If the table that will be scanned has an int8 copy, the native scan reads that first.
    """
    if not uses_native(device):
        return scan
    return native.scan if int8 is None else int8


def make_int8_table(table: Tensor) -> native.Int8Table | None:
    """Return an int8 copy of a table (N, d), or None if the native kernels do not scan such a table."""
    return native.Int8Table(table) if uses_native(table.device) and native.can_use_int8(table) else None


def int8_table_bytes(table: Tensor) -> int:
    """Return the least memory that `make_int8_table` takes for a table (N, d); reads no values."""
    return table.numel() if uses_native(table.device) and native.can_use_int8(table) else 0


@contextlib.contextmanager
def use_kernel(wanted: KernelName | None) -> Iterator[None]:
    """Choose this kernel until the end of the block, in this thread or task; None for the fastest."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def uses_native(device: torch.device) -> bool:
    """Return whether the native kernels are wanted and can run on this device."""
    wanted = _wanted.get()
    if wanted is None:
        named = os.environ.get(KERNEL_VARIABLE)
        name = KernelName.NATIVE if named is None else as_choice(KernelName, named, name=KERNEL_VARIABLE)
        return name is KernelName.NATIVE and device.type == "cpu" and native.is_available()
    if wanted is KernelName.NATIVE and not native.is_available():
        raise InvalidInputError(f"kernel is 'native' but {native.why_missing()}.")
    return wanted is KernelName.NATIVE and device.type == "cpu"
