"""An argument of a program at its launches: what it wants of a tensor, whether that lies on the host or on a card."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.layout import Digit, Layout
from ktir.package import HostTensor, LaunchArgument
from ktir.runtime.memory.forms import Form
from ktir.runtime.memory.transfer import elements_of, to_device
from ktir.target import BY_DTYPE, BY_PUBLISHED


def layout_of(argument: LaunchArgument) -> Layout:
    """The layout of a launch argument: digits recovered from the published fields and the logical size."""
    published = argument.layout
    size = tuple(published.size)
    strides = [int(np.prod(size[i + 1 :], dtype=np.int64)) for i in range(len(size))]
    digits = []
    for extent, stride in zip(published.device_size, published.stride_map, strict=True):
        dim = next((d for d, s in enumerate(strides) if size[d] > 1 and stride >= s and stride % s == 0), None)
        digits.append(Digit(None, 0, extent) if stride < 0 or dim is None else Digit(dim, stride // strides[dim], extent))
    own = BY_DTYPE[argument.dtype]
    return Layout(size, tuple(digits), own.name if own.published == published.device_dtype else BY_PUBLISHED[published.device_dtype].name)


@lru_cache(maxsize=64)
def _iota(layout: Layout) -> NDArray[np.float32]:
    """The carrier of a tensor whose element i holds i."""
    values = np.arange(prod(layout.size), dtype=np.int64)
    return to_device(values, layout, "iota").view(np.float32)


@lru_cache(maxsize=1 << 12)
def _number(*_: Any) -> int:
    """Stands for a view of a host tensor in a layout, with the width of its integers and whether it has the low bits alone of those that
    have more: the same in all programs.
    """
    return next(_numbers)


_numbers = itertools.count()


class Slot:
    """A launch argument, and what its launches keep."""

    def __init__(self, argument: LaunchArgument, tensor: HostTensor | None = None) -> None:
        """tensor: what the program says of the tensor, if it says it."""
        self.argument = argument
        self._tensor = tensor
        self.reads = argument.role == "input"
        """Whether the program only reads it."""
        self.layout = layout_of(argument)
        self.entries = self.layout.entries
        self.host = -1 if argument.host is None else argument.host.arg
        """The number of its tensor; -1 where nobody gives one."""
        view, self.bits = argument.host, argument.range.bits if argument.range else None
        low_bits = argument.range is not None and argument.range.is_wide
        self.number = -1 if view is None else _number((view.offset, view.size, view.strides), self.layout, self.bits, low_bits)
        self.own: NDArray[np.float32] | None = None
        """The carrier of what the program writes to tensors of the host."""
        self.arranged = 0
        """How often a launch had to arrange it."""
        self.bindings: dict[tuple[str, int, int], Any] = {}
        """What it is of tensors of a card, by their type, offset, and the bytes of their allocation."""
        self.bound: tuple[Any, int, Any] = None, 0, None
        """What it was of the last one, whose view this is, and bytes."""

    @cached_property
    def iota(self) -> NDArray[np.float32] | None:
        """What the program gets where nobody gives a tensor; None where it has memory of its own."""
        return _iota(self.layout) if self.argument.role == "iota" else None

    @cached_property
    def owned(self) -> NDArray[np.bool_] | None:
        """Which elements of what it shows are the tensor's; None where all are."""
        view = self.argument.host
        return None if view is None else self.owned_in(view.offset, view.size, view.strides)

    def owned_in(self, offset: int, size: Sequence[int], strides: Sequence[int]) -> NDArray[np.bool_] | None:
        """Likewise of another view of the same elements; offset: from the tensor's first one on."""
        return None if self._tensor is None else elements_of(self._tensor, offset, size, strides)

    def pack(self, view: NDArray[Any], carrier: NDArray[Any]) -> None:
        """Arrange elements. Raises OutOfRange for those for which the program is not proved."""
        values = carrier.view(np.int32) if self.layout.dtype == "i32" else carrier
        to_device(view, self.layout, self.argument.name, values, self.argument.range)

    def check(self, form: Form) -> None:
        """Raises OutOfRange for a form with elements for which the program is not proved."""
        if self.argument.range is not None:
            form.check(self.argument.range, self.argument.name)
