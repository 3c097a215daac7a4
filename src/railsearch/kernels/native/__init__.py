"""Kernels in C++ for CPUs: compiled when railsearch is installed, if there is a compiler."""

from railsearch.kernels.native.forms import can_compute
from railsearch.kernels.native.kernel import NativeKernel
from railsearch.kernels.native.library import ISA_VARIABLE, chosen_isa, is_available, usable_isas, why_missing
from railsearch.kernels.native.scan import scan

__all__ = [
    "ISA_VARIABLE",
    "NativeKernel",
    "can_compute",
    "chosen_isa",
    "is_available",
    "scan",
    "usable_isas",
    "why_missing",
]
