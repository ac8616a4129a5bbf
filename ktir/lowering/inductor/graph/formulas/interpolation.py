"""Interpolation of bytes is left to PyTorch: its kernels for uint8 count in fixed point, on each CPU in another way.

torch takes the operators with a list of scales apart before any table of decompositions is asked (`early`), and Inductor counts on it: its
table lacks the others, which come where an operator is compiled by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._decomp.decompositions import upsample_compute_output_size

aten = torch.ops.aten

PACKETS = (aten.upsample_bilinear2d, aten.upsample_bicubic2d)


def not_of_bytes(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves bytes alone."""
    return lambda x, *options, **named: NotImplemented if x.dtype == torch.uint8 else theirs(x, *options, **named)


def before(theirs: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Entries of a table of decompositions, in front of `theirs`."""
    alone = get_decompositions([*(packet.default for packet in PACKETS), aten.upsample_linear1d.default, aten.upsample_trilinear3d.default])
    return {op: not_of_bytes(theirs.get(op, decomposition)) for op, decomposition in alone.items()}


def whole(packet: Any, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """An interpolation with a list of scales, which stays one operator for bytes."""

    def interpolated(x: torch.Tensor, size: Sequence[int] | None, corners: bool, scales: Sequence[float] | None) -> Any:
        if x.dtype != torch.uint8:
            return theirs(x, size, corners, scales)
        sizes = upsample_compute_output_size(x.size(), size, scales)
        with torch._C._AutoDispatchBelowAutograd():  # bytes have no gradients
            return packet.default(x, sizes, corners, *(scales or (None, None)))

    return interpolated
