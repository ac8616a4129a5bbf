"""Tensors of PyTorch over allocations of the card, without compiled code.

NumPy's DLPack capsule of an array is patched to say "device outside of torch, this type, that many elements", and torch imports it as a
plain tensor with a storage of its own. The data pointer is a *handle*: a number in a space that no memory of the process lies in, so that
nothing reaches the bytes but by asking for them. When the storage goes, NumPy's own deleter drops the array, and with it the allocation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from ktir.runtime.device import DeviceTensor
    from ktir.runtime.memory.allocation import Allocation
    from ktir.runtime.memory.card import Card

_EXTERNAL = 12  # kDLExtDev: torch makes it PrivateUse1
_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_CODES: dict[torch.dtype, tuple[int, int]] = {  # DLPack's type code and bits
    torch.int8: (_SIGNED, 8),
    torch.int16: (_SIGNED, 16),
    torch.int32: (_SIGNED, 32),
    torch.int64: (_SIGNED, 64),
    torch.uint8: (_UNSIGNED, 8),
    torch.uint16: (_UNSIGNED, 16),
    torch.uint32: (_UNSIGNED, 32),
    torch.uint64: (_UNSIGNED, 64),
    torch.float16: (_FLOAT, 16),
    torch.float32: (_FLOAT, 32),
    torch.float64: (_FLOAT, 64),
    torch.bfloat16: (_BFLOAT, 16),
    torch.bool: (_BOOL, 8),
    torch.float8_e4m3fn: (10, 8),
    torch.float8_e4m3fnuz: (11, 8),
    torch.float8_e5m2: (12, 8),
    torch.float8_e5m2fnuz: (13, 8),
}
_PACKED = {dtype: code | bits << 8 | 1 << 16 for dtype, (code, bits) in _CODES.items()}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_int64 = ctypes.c_int64.from_address
_words = (ctypes.c_int64 * 5).from_address
"""Of DLPack's description of a tensor: its data; device and number; dimensions and type; where the sizes are, and the strides."""


Parts = Callable[[torch.Tensor], Sequence[torch.Tensor]]

MOST_DIMS = 64
"""Of NumPy's arrays, and of what programs take. PyTorch's tensors have any number; some of its kernels refuse more than these."""

before_first: list[Callable[[], None]] = []
"""What is to be done before there is a tensor on the device."""


class _Held(np.ndarray):
    """What a storage of torch holds: its end is that of the allocation."""

    __slots__ = ("allocation", "handle")

    allocation: Allocation
    handle: int
    """That the allocation has, or will have."""


def allocate(elements: int, dtype: torch.dtype, device: int) -> torch.Tensor:
    """A new one-dimensional tensor. Raises TypeError for a type that the device does not hold."""
    return empty_strided((elements,), (1,), dtype, device)


def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype | None, device: int) -> torch.Tensor:
    """A new tensor of any strides. Raises TypeError for a type that the device does not hold."""
    dtype = dtype or torch.get_default_dtype()
    if len(size) > MOST_DIMS:
        flat = allocate(_bytes(size, stride, dtype) // dtype.itemsize, dtype, device)
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.aten.as_strided_.default(flat, size, stride, 0)
    (tensor,), held = maker(size, stride, dtype, device)()
    give_memory(held, device, _bytes(size, stride, dtype))
    return tensor


def give_memory(held: _Held, device: int, nbytes: int) -> None:
    """A new tensor has memory from now on. Raises torch.OutOfMemoryError."""
    memory = _memory()
    with in_torchs_words():
        held.allocation = memory.allocation(memory.card(device), nbytes, held.handle)


@contextmanager
def in_torchs_words() -> Iterator[None]:
    """Where a card has no room, torch.OutOfMemoryError says so."""
    memory = _memory()
    try:
        yield
    except memory.no_room as error:
        raise memory.without_room(error) from None


def maker(
    size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: int, batch: int = 1, parts: Parts | None = None
) -> Callable[[], tuple[Sequence[torch.Tensor], _Held]]:
    """What makes new tensors of these strides, each with those on its memory that `parts` gives for it, and what will hold that memory.
    Raises TypeError for a type that the device does not hold, RuntimeError for sizes and strides that no tensor has.

    batch: so many are made at once; what is done once in a while takes several times as long.
    """
    packed = _PACKED.get(dtype)
    if packed is None:
        raise TypeError(f"the device 'spyre' does not hold {dtype} tensors; it holds {', '.join(str(t)[6:] for t in _CODES)}")
    nbytes, dims = _bytes(size, stride, dtype), len(size)
    ones, shape = (1,) * dims, (*size, *stride)
    kind = _EXTERNAL | device << 32, dims | packed << 32
    reserved, inference = _memory().handle, torch.is_inference_mode_enabled
    blank: tuple[list[_Blank], list[_Blank]] = [], []  # in inference mode tensors are others

    def new() -> _Blank:
        held = np.ndarray.__new__(_Held, ones, np.uint8)
        capsule = held.__dlpack__()
        words: Any = _words(_pointer(capsule, b"dltensor"))
        held.handle = reserved(nbytes)
        words[:3] = held.handle, *kind
        if dims:
            words[4] = words[3] + 8 * dims  # NumPy has room for the strides behind the sizes
            (ctypes.c_int64 * (2 * dims)).from_address(words[3])[:] = shape
        tensor = torch._C._from_dlpack(capsule)
        return (tensor, *parts(tensor)) if parts else (tensor,), held

    def make() -> _Blank:
        some = blank[inference()]
        if not some:
            some += [new() for _ in range(batch)]
        return some.pop()

    return make


_MOST = (1 << 63) - 1
"""What torch counts elements, their places and bytes with. Where it counts beyond that while it takes a tensor over, the process ends."""


def _bytes(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> int:
    """What a tensor takes. Raises RuntimeError, worded as torch words it for the host, for sizes and strides that no tensor has."""
    if len(size) != len(stride):
        raise RuntimeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})")
    if (negative := min(size, default=0)) < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {negative}: {list(size)}")
    if min(stride, default=0) < 0:
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    elements = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if 0 not in size else 0
    if max(elements * dtype.itemsize, *stride, 0) > _MOST:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(size)} and strides={list(stride)}")
    if prod(size) > _MOST:
        raise RuntimeError("numel: integer multiplication overflow")
    return elements * dtype.itemsize


_Blank = tuple[Sequence[torch.Tensor], _Held]
"""A tensor without memory and its parts, and what holds that later."""


class _Memory(NamedTuple):
    """The cards, what reserves a handle, what is memory of a card, its error where there is no room, and that in torch's words."""

    card: Callable[[int], Card]
    handle: Callable[[int], int]
    allocation: type[Allocation]
    no_room: type[Exception]
    without_room: Callable[[Any], Exception]


@cache
def _memory() -> _Memory:
    """What knows the card is imported with the first tensor on it."""
    from ktir.runtime import failures
    from ktir.runtime.memory.allocation import Allocation, reserved
    from ktir.runtime.memory.card import DeviceOutOfMemory, card

    while before_first:
        before_first.pop()()

    def without_room(error: Any) -> Exception:
        failures.capture(error)
        return torch.OutOfMemoryError(out_of_memory(error))

    return _Memory(card, reserved, Allocation, DeviceOutOfMemory, without_room)


def out_of_memory(error: Any) -> str:
    """The numbers of the moment, as CUDA words them."""
    return (
        f"Spyre out of memory. Tried to allocate {_size(error.requested)}. Card {error.card} has a total capacity of "
        f"{_size(error.capacity)} of which {_size(error.free)} is free; the largest free range has {_size(error.largest)}, and "
        f"{_size(error.used)} is allocated by PyTorch."
    )


def _size(nbytes: int) -> str:
    units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
    return next((f"{nbytes / unit:.2f} {name}" for unit, name in units if nbytes >= unit), f"{nbytes} bytes")


def dtypes() -> set[torch.dtype]:
    """The types that the device holds."""
    return set(_CODES)


def contiguous_strides(size: Sequence[int]) -> list[int]:
    """Those of elements that lie one after the other."""
    return [prod(max(n, 1) for n in size[d + 1 :]) for d in range(len(size))]


def allocation_of(tensor: torch.Tensor) -> Allocation:
    """The allocation that a tensor on the device is a view of."""
    from ktir.runtime.memory.allocation import find

    return find(tensor.untyped_storage().data_ptr())


def _begins(tensor: torch.Tensor, allocation: Allocation) -> int:
    """The byte of its allocation at which a tensor's storage begins: 0, unless that is a slice of another storage."""
    return tensor.untyped_storage().data_ptr() - allocation.handle


def on_card(tensor: torch.Tensor) -> DeviceTensor:
    """The tensor as launches take it. Raises KtirError for one whose sign is not in its memory, or that begins between two elements."""
    from ktir.diagnostics import KtirError
    from ktir.runtime.device import DeviceTensor
    from ktir.runtime.memory.view import View

    if tensor.is_neg():
        raise KtirError("an argument is a view with its sign noted apart from its memory")
    allocation = allocation_of(tensor)
    before, between = divmod(_begins(tensor, allocation), tensor.dtype.itemsize)
    if between:
        raise KtirError("an argument lies in a slice of a storage that begins between two elements")
    view = View(str(tensor.dtype)[6:], before + int(tensor.storage_offset()), tuple(tensor.size()), tensor.stride())
    return DeviceTensor(allocation, view)


def bytes_on_host(tensor: torch.Tensor, *, write: bool = False) -> torch.Tensor:
    """The bytes of a tensor's storage as a tensor of the host on the same memory: to be read now, or written now with `write`."""
    allocation = allocation_of(tensor)
    return torch.from_numpy(allocation.linear(write=write)[_begins(tensor, allocation) :])


def on_host(tensor: torch.Tensor, *, write: bool = False, base: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor as one of the host, on the same memory: to be read now, or written now with `write`. base: the bytes, if given."""
    raw = bytes_on_host(tensor, write=write) if base is None else base
    whole = len(raw) - len(raw) % tensor.dtype.itemsize
    if not tensor.numel():
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    flat = raw[:whole].view(tensor.dtype) if whole else torch.empty(0, dtype=tensor.dtype)
    alias = flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
    return torch.ops.aten._neg_view.default(alias) if tensor.is_neg() else alias


def in_turn(*tensors: Any) -> AbstractContextManager[Any]:
    """What other threads do with the cards of these tensors comes before or after the block that is entered at once, and in which nothing
    may be compiled: memory that `on_host` lends may be given to others by any launch.
    """
    cards = {card.index: card for t in tensors if t.device.type == "spyre" for card in (allocation_of(t).card,)}
    if len(cards) == 1:
        return next(iter(cards.values())).compute
    held = ExitStack()
    for index in sorted(cards):
        held.enter_context(cards[index].compute)
    return held


def record(tensor: torch.Tensor, kind: Literal["H2D", "D2H", "D2D"], *, wait: bool = True) -> None:
    """Tell the card that a tensor on it travels. wait: the host does, for what comes and goes."""
    if not tensor.numel():
        return
    allocation_of(tensor).card.record(kind, tensor.numel() * tensor.dtype.itemsize, wait=wait and kind != "D2D")


def to_device(tensor: torch.Tensor, device: int) -> torch.Tensor:
    """A copy of a tensor of the host, with its strides where no two elements share a place and none is left out."""
    if tensor.layout != torch.strided:
        raise NotImplementedError(f"the device 'spyre' holds strided tensors only, but got layout {tensor.layout}")
    dense = torch.ops.aten.is_non_overlapping_and_dense(tensor)
    copy = empty_strided(tensor.size(), tensor.stride() if dense else contiguous_strides(tensor.size()), tensor.dtype, device)
    if tensor.numel():
        on_host(copy, write=True).copy_(tensor)  # which nobody else knows yet
        record(copy, "H2D")
    return copy


_DATA = 2  # the word of a storage's object at which its pointer stands, then what frees it, device and bytes, of torch 2.13


def resize(storage: torch.UntypedStorage, nbytes: int) -> None:
    """Change the bytes of a storage, for all tensors that it stands behind.

    torch has no door for it: a new storage of the size is made, and the two exchange what they hold, after it was seen that their objects
    say in these places what they are known to say. Raises RuntimeError where they do not.
    """
    new = allocate(nbytes, torch.uint8, storage.device.index)
    both = storage, new.untyped_storage()
    words = [[_int64(each._cdata + 8 * k) for k in range(_DATA, _DATA + 5)] for each in both]
    if any((w[0].value, w[4].value) != (each.data_ptr(), each.nbytes()) for w, each in zip(words, both, strict=True)):
        raise RuntimeError("a storage on the device 'spyre' cannot be resized: its object is not that of torch 2.13")
    kept = min(storage.nbytes(), nbytes)
    old = torch.ops.aten.set_.source_Storage(torch.empty(0, dtype=torch.uint8, device=storage.device), storage)
    if kept:
        with in_turn(old):
            on_host(new, write=True)[:kept].copy_(on_host(old)[:kept])
    del old
    for mine, others in zip(*words, strict=True):
        mine.value, others.value = others.value, mine.value
