"""Pinned memory of the host: an emulated card reads any memory, so all that there is to it is to know which was asked for."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import torch

from ktir.device.tensors import tables
from ktir.device.tensors.tables import Pointer

_ranges: dict[int, int] = {}
"""First address -> bytes, of what is pinned and in use."""


class _Pinned(np.ndarray):
    """What a storage of pinned memory holds: its end is that of the range."""

    _ending = staticmethod(sys.is_finalizing)  # then nothing need be given back

    def __del__(self) -> None:
        if not self._ending() and self.base is None and _ranges:
            _ranges.pop(self.__array_interface__["data"][0], None)


def pin_memory(self: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy in pinned memory, with the strides of the tensor where these leave no gaps."""
    dense = torch.ops.aten.is_non_overlapping_and_dense(self)
    like = self if dense else self.contiguous()
    flat = _bytes(like.numel() * like.itemsize)[: like.numel() * like.itemsize].view(like.dtype)
    return flat.as_strided(like.size(), like.stride()).copy_(self)


def _bytes(count: int) -> torch.Tensor:
    held = np.ndarray.__new__(_Pinned, (max(count, 1),), np.uint8)
    _ranges[held.__array_interface__["data"][0]] = held.nbytes
    return torch.from_numpy(held)


def is_pinned(self: torch.Tensor, device: torch.device | None = None) -> bool:
    """Whether a tensor lies in pinned memory."""
    at: Any = self.untyped_storage().data_ptr()
    return any(first <= at < first + size for first, size in _ranges.items())


_HOOKS_SLOTS, _IS_PINNED, _ALLOCATOR = 17, 11, 12
_ALLOCATOR_SLOTS, _ALLOCATE = 6, 2
"""Places in the tables of at::PrivateUse1HooksInterface and c10::Allocator of torch 2.13, in the order of their headers."""
_DATA = 2
"""The word of a storage's object at which its pointer stands, then what frees it, and its device: what an allocator gives."""


def install() -> str | None:
    """Let `pin_memory=True` of new tensors find an allocator; why that cannot be, or None.

    torch asks the hooks of the device for it, which in Python have none. Ours is that of the host, but for what it allocates.
    """
    try:
        hooks = tables.library("libtorch_cpu.so")["_ZN2at6detail19getPrivateUse1HooksEv"]
        host = tables.library("libc10.so")["_ZN3c1022GetDefaultCPUAllocatorEv"]
    except (OSError, AttributeError) as error:
        return f"torch has no hooks: {error}"
    hooks.restype = host.restype = Pointer
    if tables.function_at(hooks(), _IS_PINNED, ctypes.CFUNCTYPE(ctypes.c_bool, Pointer, Pointer))(hooks(), None):
        return "the hooks' table is not the one that is known"
    tables.replace(host(), _ALLOCATOR_SLOTS, {_ALLOCATE: _allocate}, to=ctypes.addressof(_allocator))
    tables.replace(hooks(), _HOOKS_SLOTS, {_ALLOCATOR: _its_allocator})
    return None


_allocator = Pointer()


@ctypes.CFUNCTYPE(Pointer, Pointer)
def _its_allocator(_: Any) -> int:
    return ctypes.addressof(_allocator)


@ctypes.CFUNCTYPE(Pointer, Pointer, Pointer, ctypes.c_size_t)
def _allocate(result: int, _: Any, count: int) -> int:
    """What compiled code allocates pinned memory by: a storage is made, and gives what it holds away."""
    given = (ctypes.c_int64 * 4).from_address(result)
    given[:] = 0, 0, 0, 0
    storage = _bytes(count).untyped_storage()
    held = (ctypes.c_int64 * 4).from_address(storage._cdata + 8 * _DATA)
    if held[0] == storage.data_ptr():
        given[:] = held[:]
        held[:3] = 0, 0, 0
    return result
