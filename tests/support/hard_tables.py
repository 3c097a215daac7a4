"""Tables and vectors that are hard to round to int8."""

from collections.abc import Callable

import torch
from torch import Tensor


def make_rows(kind: str, num_rows: int, dim: int, seed: int) -> Tensor:
    """Return rows (num_rows, dim) in fp32, which fp16 and bf16 hold without infinity."""
    generator = torch.Generator().manual_seed(seed)
    return _MAKERS[kind](torch.randn(num_rows, dim, generator=generator), generator)


def _with_one_great_value(rows: Tensor, generator: torch.Generator) -> Tensor:
    rows[:, -1] = 3e4
    return rows * 10.0 ** -torch.randint(0, 5, rows.shape, generator=generator)


def _halfway_between_digits(rows: Tensor, generator: torch.Generator) -> Tensor:
    halves = torch.randint(-254, 255, rows.shape, generator=generator) / 2
    halves[:, 0] = 127.0  # so that the scale is 1 / 64
    return halves / 64


def _mostly_zero(rows: Tensor, generator: torch.Generator) -> Tensor:
    rows[torch.rand(len(rows), generator=generator) < 0.7] = 0.0
    return rows * (torch.rand(rows.shape, generator=generator) < 0.3)


_MAKERS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    "normal": lambda rows, generator: rows,
    "equal": lambda rows, generator: rows[:1].repeat(len(rows), 1),
    "nearly equal": lambda rows, generator: rows[:1] + 1e-6 * rows,
    "many scales": lambda rows, generator: (
        rows * 10.0 ** torch.randint(-30, 4, (len(rows), 1), generator=generator).float()
    ),
    "one great value": _with_one_great_value,
    "halfway": _halfway_between_digits,
    "zeros": _mostly_zero,
    "subnormal": lambda rows, generator: rows * 1e-41,
    "few values": lambda rows, generator: torch.randint(-1, 2, rows.shape, generator=generator).float(),
    # The best rows stand last, so that thresholds rise until the end.
    "sorted": lambda rows, generator: rows * torch.arange(1, len(rows) + 1)[:, None] / max(1, len(rows)),
}
KINDS = list(_MAKERS)
