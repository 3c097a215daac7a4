"""Seeds that depend on the position of a run, so that a resumed run draws the same random numbers."""

import hashlib

import torch
from torch import Generator


def derive_seed(*parts: int | str) -> int:
    """Return a seed that depends on all parts; it has 63 bits, which every generator takes."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def derive_generator(*parts: int | str) -> Generator:
    """Return a new generator on the CPU, seeded with all parts."""
    return Generator().manual_seed(derive_seed(*parts))


def seed_torch(seed: int) -> None:
    """Seed torch's global generators, which dropout draws from.

    `torch.manual_seed` records the stack for each kind of device that it has no driver for, in every step; without a
    GPU, the generator of the CPU is seeded alone.
    """
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
