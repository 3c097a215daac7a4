"""Relations that hold between the values of a segment, checked when it is opened.

Checksums prove only that files match their manifest. An attacker can seal any values, and searches and
certificates rely on all of these relations.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from railsearch.foundation.inputs import is_finite
from railsearch.index.corpus import Precision
from railsearch.index.segment import Segment, lengths
from railsearch.kernels import for_each_block
from railsearch.similarity import ItemParts

VALUES_PER_BLOCK = 2**17
"""Components that are checked at once: few enough to stay in the cache."""
ORDER_OF_SUMS = 1e-12
"""How far lengths may differ, relative to their size: both are fp64, from the same function, in any order of a sum."""
ROUNDOFF = 2.0**-22
"""How far a sum of fp32 values may differ from another order of summation, relative to each term, with room."""


@dataclass(frozen=True, slots=True)
class ItemForm:
    """Shapes and type of the item side under one similarity."""

    components: tuple[int, ...]
    """(Px, d)"""
    gate: tuple[int, ...] | None
    """(P,)"""
    dtype: torch.dtype

    @classmethod
    def of(cls, example: ItemParts, precision: str) -> "ItemForm":
        """Return the form of items like the example; raises ValueError if the precision is unknown."""
        kept = Precision(precision)
        return cls(
            components=tuple(example.components.shape[1:]),
            gate=None if example.gate is None else tuple(example.gate.shape[1:]),
            dtype=example.components.dtype if kept is Precision.FP32 else kept.dtype,
        )


def check_segment(segment: Segment, form: ItemForm) -> None:
    """Check types, shapes, order of ids and every value; raises ValueError for the first that is wrong.

    One pass over all values: lengths and sums are recomputed, since certificates depend on the longest component.
    """
    check_form(segment, form)
    gate = segment.stored_parts.gate
    if gate is not None and not is_finite(gate):
        raise ValueError("its gate has NaN or infinite values")
    check_relations(segment)


def check_form(segment: Segment, form: ItemForm) -> None:
    """Check types, shapes and the order of ids; reads no other values."""
    parts, count = segment.stored_parts, len(segment)
    _check_tensor("ids", segment.ids, torch.int64, (count,))
    _check_tensor("components", parts.components, form.dtype, (count, *form.components))
    if (parts.gate is None) != (form.gate is None):
        raise ValueError("it has a gate but the similarity has none, or the reverse")
    if parts.gate is not None and form.gate is not None:
        _check_tensor("gate", parts.gate, form.dtype, (count, *form.gate))
    dtype = torch.promote_types(form.dtype, torch.float32)
    _check_tensor("sums", segment.stored_sums, dtype, (count, form.components[-1]))
    if count and (int(segment.ids[0]) < 0 or not bool((segment.ids[1:] > segment.ids[:-1]).all())):
        raise ValueError("its ids are not ascending, or negative")


def check_components(components: Tensor, stated: float) -> None:
    """Check that components (n, Px, d) are finite, and none is longer than the manifest states."""
    longest = float(lengths(components).max()) if len(components) else 0.0
    if not longest < torch.inf:  # also if it is NaN
        raise ValueError("its components have NaN or infinite values")
    if longest > stated * (1 + ORDER_OF_SUMS):
        raise ValueError(f"its longest component has length {longest} but the manifest states {stated}")


def _check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, but {dtype} {shape} is needed")


def check_relations(segment: Segment) -> None:
    """Check that components are finite, and that `longest` and the sums are theirs."""
    components, sums = segment.stored_parts.components, segment.stored_sums  # (n, Px, d), (n, d)
    dtype = sums.dtype
    if not len(segment):
        return
    found: list[tuple[float, float]] = []  # of each block: the longest component, and how far sums are off

    def check_block(first: int, last: int) -> None:
        block = components[first:last].to(dtype)  # (b, Px, d)
        difference = torch.aminmax(block.sum(dim=1).sub_(sums[first:last]))
        found.append((float(lengths(block).max()), max(-float(difference.min), float(difference.max))))

    rows_per_block = max(1, VALUES_PER_BLOCK // components[0].numel())
    for_each_block(len(segment), rows_per_block, check_block, device=components.device)
    # NaN and infinity show in every extreme; a comparison with NaN is false.
    if not all(longest < torch.inf for longest, _ in found):
        raise ValueError("its components have NaN or infinite values")
    if not all(off < torch.inf for _, off in found):
        raise ValueError("its sums have NaN or infinite values")
    longest, off = max(longest for longest, _ in found), max(off for _, off in found)
    if abs(longest - segment.longest) > ORDER_OF_SUMS * longest:
        raise ValueError(f"its longest component has length {longest} but the manifest states {segment.longest}")
    if off > components.shape[1] ** 2 * ROUNDOFF * longest:
        raise ValueError(f"its sums are off by {off}")
