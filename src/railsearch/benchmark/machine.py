"""The machine that a benchmark runs on: its description, the peak memory of work, and the load of other processes."""

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

Result = TypeVar("Result")

RESET_PEAK = "5"
"""Value that makes Linux reset the peak memory of a process."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware and versions that figures depend on."""

    processor: str
    num_threads: int
    cpu_capability: str
    torch_version: str

    def __str__(self) -> str:
        return f"{self.processor}, {self.num_threads} threads, {self.cpu_capability}, torch {self.torch_version}"


def describe_machine() -> Machine:
    """Return the description of this machine."""
    return Machine(
        processor=_processor(),
        num_threads=torch.get_num_threads(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        torch_version=torch.__version__,
    )


def measure_peak(work: Callable[[], Result]) -> tuple[Result, int | None]:
    """Run the work, and return its result and the bytes of its peak memory beyond what was resident before.

    The bytes are None if the system does not report them: this needs Linux and write access to /proc/self/clear_refs.
    """
    _return_free_memory()
    try:
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        before = _resident_bytes("VmRSS")
    except (OSError, LookupError):
        return work(), None
    result = work()
    return result, max(0, _resident_bytes("VmHWM") - before)


@contextmanager
def watch_others() -> Iterator[Callable[[], float | None]]:
    """Yield a function that returns, after the block, how many cores other processes kept busy during it.

    The value is near 0 on a quiet machine, and None if the system does not report it. Other work on the same cores
    makes a measurement slower, most of all work in many small steps.
    """
    before, started = _other_cpu_seconds(), time.perf_counter()
    after, ended = before, started

    def cores() -> float | None:
        if before is None or after is None:
            return None
        return max(0.0, after - before) / max(ended - started, 1e-9)

    yield cores
    after, ended = _other_cpu_seconds(), time.perf_counter()


def _other_cpu_seconds() -> float | None:
    """Return the processor time that other processes have used since the machine was started."""
    try:
        first_line = Path("/proc/stat").read_text().partition("\n")[0]
        user, nice, system, _, _, *interrupts_and_stolen = map(int, first_line.split()[1:9])
        busy = (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None
    return busy - time.process_time()


def _return_free_memory() -> None:
    """Return freed memory to the system, so that its reuse counts as new memory."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return  # not the GNU C library


def _resident_bytes(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), flags=re.MULTILINE)
    if found is None:
        raise LookupError(name)
    return 1024 * int(found[1])


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
