"""Diagnosis of the machine: versions, device, threads, and whether bf16 products are safe."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum

import torch

import railsearch
from railsearch.foundation.extras import Extra
from railsearch.kernels import native

ISA_VARIABLE = "ONEDNN_MAX_CPU_ISA"
ISA_WITHOUT_AMX = "AVX512_CORE_BF16"
EXTRAS: dict[Extra, str] = {
    "faiss": "faiss-cpu",
    "text": "transformers",
    "train": "tensorboard",
    "plot": "matplotlib",
    "onnx": "onnxscript",
    "client": "httpx",
    "serve": "fastapi",
    "milvus": "pymilvus",
    "postgres": "psycopg",
    "ray": "ray",
    "langchain": "langchain-core",
    "haystack": "haystack-ai",
}
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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Report of `railsearch doctor`."""

    versions: dict[str, str]
    extras: dict[Extra, str | None]
    """Version of each optional dependency, or None if it is not installed."""
    platform: str
    device: str
    num_threads: int
    cpu_capability: str
    bf16_matmul: Bf16Matmul
    native_kernels: str
    """The instruction set of the native kernels, or why there are none."""


def diagnose() -> Diagnosis:
    """Diagnose this machine; the one risky test runs in a separate process."""
    return Diagnosis(
        versions={
            "railsearch": railsearch.__version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "numpy", "safetensors")},
        },
        extras={extra: _version(package) for extra, package in EXTRAS.items()},
        platform=platform.platform(),
        device=_device(),
        num_threads=torch.get_num_threads(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        bf16_matmul=_bf16_matmul(),
        native_kernels=native.why_missing() or f"{native.chosen_isa()}, of {', '.join(native.usable_isas())}",
    )


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


def _bf16_matmul() -> Bf16Matmul:
    if survives(MATMUL_PROBE):
        return Bf16Matmul.SAFE
    is_rescued = survives(MATMUL_PROBE, {ISA_VARIABLE: ISA_WITHOUT_AMX})
    return Bf16Matmul.SAFE_WITHOUT_AMX if is_rescued else Bf16Matmul.UNSAFE


def _device() -> str:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else str(accelerator)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
