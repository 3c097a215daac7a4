"""The arithmetic that certificates are about: full precision, whatever the caller has switched on for training."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def plain_arithmetic() -> Iterator[None]:
    """No gradients, and no autocast, which would round every product to 8 bits without anybody noticing."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices = {"cpu"} if accelerator is None else {"cpu", accelerator.type}
    with torch.no_grad(), contextlib.ExitStack() as stack:
        for device in sorted(devices):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield
