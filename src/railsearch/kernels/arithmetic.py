"""Plain arithmetic for scores and certificates: full fp32, even if the caller has enabled faster modes for training."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Protocol

import torch

ROUNDOFF = {"ieee": 2.0**-24, "none": 2.0**-24, "tf32": 2.0**-11, "bf16": 2.0**-8}
"""The relative error of one operation, by the precision that torch uses for fp32 matrix products."""


class _Setting(Protocol):
    """A precision setting of torch.backends: ieee, tf32, bf16, or none to follow the setting above it."""

    fp32_precision: str


_CPU: _Setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # torch adds it at run time
_CUDA: _Setting = torch.backends.cuda.matmul


@contextlib.contextmanager
def plain_arithmetic() -> Iterator[None]:
    """Disable gradients, inference mode, autocast and reduced precision of fp32 matrix products.

    Tensors that are created inside inference mode could not be written by worker threads. Autocast and reduced
    precision would round every product to 8 or 11 bits.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices = ("cpu",) if accelerator is None else ("cpu", accelerator.type)
    with contextlib.ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for device in devices:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        _full_precision.enter()
        try:
            yield
        finally:
            _full_precision.leave()


def matmul_roundoff(device: torch.device) -> float:
    """Return the relative error of one operation in a matrix product on this device, as torch is set now."""
    return ROUNDOFF[(_CUDA if device.type == "cuda" else _CPU).fp32_precision]


class _FullPrecision:
    """The precision of fp32 matrix products, which torch keeps once for all threads of the process.

    The first thread that enters sets full precision. The last one that leaves restores the caller's setting.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._has_computed = False
        self._before: tuple[str, str] | None = None

    def enter(self) -> None:
        with self._lock:
            if not self._num_inside:
                self._before = self._replace()
                self._has_computed = True
            self._num_inside += 1

    def leave(self) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside <= 0:  # below zero in a child that was forked inside
                self._num_inside = 0
                self._restore()

    def start_over(self) -> None:
        """Restore the caller's settings in a forked child, in which no other thread is inside.

        The threads of OpenMP do not run in the child, and torch would wait for them forever. A child of a process that
        has already computed therefore uses one thread.
        """
        self._lock = threading.Lock()
        self._num_inside = 0
        self._restore()
        if self._has_computed and torch.get_num_threads() > 1:
            torch.set_num_threads(1)

    def _replace(self) -> tuple[str, str] | None:
        """Set full precision; return the previous setting, or None if it was full precision already."""
        before = (_CPU.fp32_precision, _CUDA.fp32_precision)
        if all(ROUNDOFF[precision] == ROUNDOFF["ieee"] for precision in before):
            return None
        # torch reports the setting of the backend for a setting that was left at "none".
        above = (torch.backends.mkldnn.fp32_precision, torch.backends.cudnn.fp32_precision)
        _CPU.fp32_precision = _CUDA.fp32_precision = "ieee"
        return "none" if before[0] == above[0] else before[0], "none" if before[1] == above[1] else before[1]

    def _restore(self) -> None:
        if self._before is not None:
            _CPU.fp32_precision, _CUDA.fp32_precision = self._before
            self._before = None


_full_precision = _FullPrecision()
os.register_at_fork(after_in_child=_full_precision.start_over)
