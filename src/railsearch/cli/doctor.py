"""Diagnosis of the machine: versions, device, threads, and whether bf16 products are safe."""

import importlib.metadata
import platform
from dataclasses import dataclass

import torch

import railsearch
from railsearch.foundation.bf16 import Bf16Matmul, probe_bf16
from railsearch.foundation.extras import Extra
from railsearch.kernels import native

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
        bf16_matmul=probe_bf16(),
        native_kernels=native.why_missing() or f"{native.chosen_isa()}, of {', '.join(native.usable_isas())}",
    )


def _device() -> str:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if accelerator is None else str(accelerator)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
