"""The choice of a kernel: the fastest one that can run a similarity on a device."""

import torch

from railsearch.kernels.contract import Kernel, Scan
from railsearch.kernels.torch_kernel import TorchKernel
from railsearch.kernels.torch_scan import scan
from railsearch.similarity import Similarity


def choose_kernel(similarity: Similarity, device: torch.device) -> Kernel:
    """Return the kernel for a similarity whose parts are on this device.

    The torch kernel runs every similarity on every device. A faster kernel is added here, before it, with the
    similarities and devices that it supports.

    >>> from railsearch import DotProduct
    >>> choose_kernel(DotProduct(dim=2), torch.device("cpu")).is_bit_stable
    False
    """
    return TorchKernel(similarity, device)


def choose_scan(device: torch.device) -> Scan:
    """Return the scan by dot product for tables on this device; it depends on no similarity."""
    return scan
