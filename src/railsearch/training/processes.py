"""Several processes that train one model: each has a share of every batch, and gradients are added up."""

import datetime as dt
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

LONGEST_WAIT = dt.timedelta(days=1)
"""All processes wait for the first one's validation, which may encode many texts. A process that dies is noticed
immediately."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The rank of this process and the number of processes that train together; one by default."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """True for the process that validates, logs and writes."""
        return self.rank == 0

    def own(self, batch: Tensor) -> Tensor:
        """Return this process's share of a batch; it may be empty."""
        return batch[self.rank :: self.count]

    def sum_gradients(self, parameters: list[Parameter]) -> None:
        """Replace the gradients of every process by their sum, in one message."""
        if self.count == 1:
            return
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        for parameter, summed in zip(parameters, torch.split(flat, [each.numel() for each in parameters]), strict=True):
            parameter.grad = summed.view_as(parameter)

    def gather(self, own: Tensor, count: int) -> Tensor:
        """Return the rows of all processes (count, ...); each process contributes its share, as `own` selects it."""
        if self.count == 1:
            return own
        rows = own.new_zeros(count, *own.shape[1:])
        rows[self.rank :: self.count] = own
        dist.all_reduce(rows)
        return rows

    def sum(self, *values: float) -> list[float]:
        """Return the sums of the numbers over all processes."""
        if self.count == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed)
        return summed.tolist()

    def from_first(self, figures: dict[str, float] | None) -> dict[str, float] | None:
        """Return the figures of the first process, in every process."""
        if self.count == 1:
            return figures
        text = torch.frombuffer(bytearray(json.dumps(figures).encode()), dtype=torch.uint8)
        length = torch.tensor([len(text)])
        dist.broadcast(length, src=0)
        text = text if self.is_first else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, src=0)
        received: dict[str, float] | None = json.loads(bytes(text.tolist()))
        return received


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Join the processes that `torchrun` started, if any; they communicate by gloo, which runs on every CPU."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1 or dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Processes()
        return
    dist.init_process_group("gloo", timeout=LONGEST_WAIT)
    try:
        yield Processes(dist.get_rank(), count)
    finally:
        dist.destroy_process_group()
