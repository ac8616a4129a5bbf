"""Interpolation of bytes is left to PyTorch: its kernels for uint8 count in fixed point, on each CPU in another way.

torch takes the operators with a list of scales apart before any table of decompositions is asked, so what does that is exchanged while a
graph is compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp.decompositions import upsample_compute_output_size

aten = torch.ops.aten

_PACKETS = (aten.upsample_bilinear2d, aten.upsample_bicubic2d)
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


def not_of_bytes(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves bytes alone."""
    return lambda x, *options, **named: NotImplemented if x.dtype == torch.uint8 else theirs(x, *options, **named)


def before(theirs: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Entries of a table of decompositions, in front of `theirs`."""
    return {packet.default: not_of_bytes(theirs[packet.default]) for packet in _PACKETS if packet.default in theirs}


def _whole(packet: Any, theirs: Callable[..., Any], thread: int) -> Callable[..., Any]:
    def interpolated(x: torch.Tensor, size: Sequence[int] | None, corners: bool, scales: Sequence[float] | None) -> Any:
        if x.dtype != torch.uint8 or threading.get_ident() != thread:
            return theirs(x, size, corners, scales)
        sizes = upsample_compute_output_size(x.size(), size, scales)
        with torch._C._AutoDispatchBelowAutograd():  # bytes have no gradients
            return packet.default(x, sizes, corners, *(scales or (None, None)))

    return interpolated


@contextmanager
def bytes_left_whole() -> Iterator[None]:
    """Inside the block interpolations of bytes that this thread traces stay one operator."""
    saved = {packet.vec: dict(packet.vec.py_kernels) for packet in _PACKETS}
    for packet in _PACKETS:
        for key in _KEYS:
            packet.vec.py_kernels[key] = _whole(packet, saved[packet.vec][key], threading.get_ident())
        packet.vec._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in saved.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
