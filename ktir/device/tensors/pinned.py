"""Pinned memory of the host: an emulated card reads any memory, so all that there is to it is to know which was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_ranges: dict[int, int] = {}
"""First address -> bytes, of what is pinned and in use."""


class _Pinned(np.ndarray):
    """What a storage of pinned memory holds: its end is that of the range."""

    def __del__(self) -> None:
        if self.base is None and _ranges:
            _ranges.pop(self.__array_interface__["data"][0], None)


def pin_memory(self: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy in pinned memory, with the strides of the tensor where these leave no gaps."""
    dense = torch.ops.aten.is_non_overlapping_and_dense(self)
    like = self if dense else self.contiguous()
    held = np.ndarray.__new__(_Pinned, (max(like.numel() * like.itemsize, 1),), np.uint8)
    _ranges[held.__array_interface__["data"][0]] = held.nbytes
    flat = torch.from_numpy(held)[: like.numel() * like.itemsize].view(like.dtype)
    return flat.as_strided(like.size(), like.stride()).copy_(self)


def is_pinned(self: torch.Tensor, device: torch.device | None = None) -> bool:
    """Whether a tensor lies in pinned memory."""
    at: Any = self.untyped_storage().data_ptr()
    return any(first <= at < first + size for first, size in _ranges.items())
