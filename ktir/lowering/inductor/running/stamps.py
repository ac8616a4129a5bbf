"""torch's counts of writes, for the option `frozen_weights`: they miss writes through `.data` and through NumPy arrays."""

from __future__ import annotations

import weakref
from typing import Any

import torch


class _Stamp:
    """A parameter after some number of writes."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._numbers = (tensor.data_ptr(), tensor._version, tensor.dtype, tensor.shape, tensor.stride())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Stamp):
            return NotImplemented
        return self._tensor() is not None and self._tensor() is other._tensor() and self._numbers == other._numbers


class TorchStamps:
    """Counts of CPU tensors."""

    def of(self, tensor: Any) -> object | None:
        """The stamp of a parameter; None for other tensors, and in inference mode, where torch does not count."""
        if not self.is_weight(tensor) or tensor.is_inference():
            return None
        return _Stamp(tensor)

    def is_weight(self, tensor: Any) -> bool:
        """Whether it is a parameter."""
        return isinstance(tensor, torch.nn.Parameter)

    def changed(self, tensor: Any) -> None:
        """Count a write that torch has not seen."""
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
