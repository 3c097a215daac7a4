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

_ISA = os.environ.get(ISA_VARIABLE)
"""The value when this module is imported: torch reads the variable once, at its first product."""


class Bf16Matmul(StrEnum):
    """Outcome of a bf16 matrix product on this CPU."""

    SAFE = "safe"
    SAFE_WITHOUT_AMX = "safe without AMX"
    UNSAFE = "unsafe"


def probe_bf16() -> Bf16Matmul:
    """Try a bf16 matrix product in a separate process, the first time that it is asked for."""
    return _probe(MATMUL_PROBE)


def check_bf16(purpose: str) -> None:
    """Check that a setting that needs bf16 matrix products does not kill this process."""
    found = probe_bf16()
    if found is not Bf16Matmul.SAFE:
        remedy = (
            f"set {ISA_VARIABLE}={ISA_WITHOUT_AMX} in the environment before Python starts"
            if found is Bf16Matmul.SAFE_WITHOUT_AMX
            else "use fp32"
        )
        raise InvalidInputError(
            f"{purpose} but matrix products in bf16 fail or kill the process on this CPU; {remedy}."
        )


def survives(code: str, *, isa: str | None = None) -> bool:
    """Return whether Python code runs to its end in a separate process; an illegal instruction there returns False.

    Args:
        code: what to run.
        isa: value of ONEDNN_MAX_CPU_ISA there; None unsets it.
    """
    others = {name: value for name, value in os.environ.items() if name != ISA_VARIABLE}
    try:
        completed = subprocess.run(  # noqa: S603  (our own interpreter, our own code, no shell)
            [sys.executable, "-c", code],
            env=others if isa is None else {**others, ISA_VARIABLE: isa},
            capture_output=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return completed.returncode == 0


@functools.cache
def _probe(code: str) -> Bf16Matmul:
    if survives(code, isa=_ISA):
        return Bf16Matmul.SAFE
    return Bf16Matmul.SAFE_WITHOUT_AMX if survives(code, isa=ISA_WITHOUT_AMX) else Bf16Matmul.UNSAFE
