"""Whether matrix products in bf16 are safe on this CPU: some announce instructions that kill the process."""

import functools
import os
import subprocess
import sys
from enum import StrEnum

from railsearch.foundation.errors import InvalidInputError

ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"
ISA_WITHOUT_AMX = "AVX512_CORE_BF16"
MATMUL_PROBE = """
import torch
left = torch.ones(256, 256, dtype=torch.bfloat16)
assert bool(((left @ left).float() == 256.0).all())
"""


class Bf16Matmul(StrEnum):
    """Outcome of a bf16 matrix product on this CPU."""

    SAFE = "safe"
    SAFE_WITHOUT_AMX = "safe without AMX"
    UNSAFE = "unsafe"


def probe_bf16() -> Bf16Matmul:
    """Try a bf16 matrix product in a separate process."""
    if survives(MATMUL_PROBE):
        return Bf16Matmul.SAFE
    is_rescued = survives(MATMUL_PROBE, {ISA_VARIABLE: ISA_WITHOUT_AMX})
    return Bf16Matmul.SAFE_WITHOUT_AMX if is_rescued else Bf16Matmul.UNSAFE


def check_bf16(purpose: str) -> None:
    """Check that a setting that needs bf16 matrix products does not kill this process."""
    found = _remembered_probe(MATMUL_PROBE)
    if found is not Bf16Matmul.SAFE:
        remedy = (
            f"set {ISA_VARIABLE}={ISA_WITHOUT_AMX} in the environment"
            if found is Bf16Matmul.SAFE_WITHOUT_AMX
            else "use fp32"
        )
        raise InvalidInputError(f"{purpose} but matrix products in bf16 kill the process on this CPU; {remedy}.")


def survives(code: str, environment: dict[str, str] | None = None) -> bool:
    """Return whether Python code runs to its end in a separate process; an illegal instruction there returns False."""
    try:
        completed = subprocess.run(  # noqa: S603  (our own interpreter, our own code, no shell)
            [sys.executable, "-c", code],
            env={**os.environ, **(environment or {})},
            capture_output=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return completed.returncode == 0


@functools.cache
def _remembered_probe(_code: str) -> Bf16Matmul:
    return probe_bf16()
