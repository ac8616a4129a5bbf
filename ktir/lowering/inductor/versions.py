"""Versions of torch tensors: what tells the runtime that a weight still holds what it has arranged for the device.

torch counts the writes to a tensor (`_version`). It does not count those through `.data` or a NumPy array on the same memory; a sample of
the content shows those that change a whole tensor.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_SAMPLE = 1024
"""Elements, at most twice as many, of the sample."""


class _Version:
    """A tensor and its content at some time. Holds no memory; neither the tensor's nor the storage's place is used again meanwhile."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = weakref.ref(tensor)
        self.storage = StorageWeakRef(tensor.untyped_storage())
        self.numbers = (tensor.data_ptr(), tensor._version, tensor.dtype, tensor.shape, tensor.stride())
        flat = tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
        self.sample = flat[:: max(1, len(flat) // _SAMPLE)].contiguous().view(torch.uint8).numpy().tobytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Version):
            return NotImplemented
        same = self.tensor() is not None and self.tensor() is other.tensor() and self.storage == other.storage
        return same and self.numbers == other.numbers and self.sample == other.sample


class TorchVersions:
    """Versions of CPU tensors."""

    def of(self, tensor: Any) -> object | None:
        """The version of a tensor; None for others, and for tensors of inference mode, whose writes torch does not count."""
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu" or tensor.is_inference() or not tensor.numel():
            return None
        return _Version(tensor)

    def changed(self, tensor: Any) -> None:
        """Count a write that torch has not seen."""
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
