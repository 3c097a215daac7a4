"""Run a pretrained model in bf16 for a while; its weights, and all that follows its outputs, stay in fp32."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from railsearch.foundation.bf16 import check_bf16

if TYPE_CHECKING:
    from railsearch.encoders.text.encoder import TextEncoder


@contextlib.contextmanager
def mixed_precision(encoder: "TextEncoder", *, is_used: bool = True) -> Iterator[None]:
    """Run the pretrained model of an encoder in bf16 while the context lasts, with gradients if they are asked for.

    Args:
        encoder: its weights stay in fp32, and so do the outputs that it pools.
        is_used: False changes nothing.
    """
    if not is_used:
        yield
        return
    if next(encoder.parameters()).device.type == "cpu":
        check_bf16("mixed_precision is on")
    before, encoder.is_mixed = encoder.is_mixed, True
    try:
        yield
    finally:
        encoder.is_mixed = before


def autocast(device: torch.device) -> torch.autocast:
    """Return a context in which torch runs matrix products in bf16, and what needs more precision in fp32."""
    return torch.autocast(device.type, torch.bfloat16)
