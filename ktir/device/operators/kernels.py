"""What the device does by itself: new tensors, views, copies and numbers. Everything else is compiled (`eager`) or left to the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from ktir.device.tensors import current
from ktir.device.tensors.pinned import is_pinned, pin_memory
from ktir.device.tensors.storage import allocate, allocation_of, contiguous_strides, empty_strided, in_turn, on_host, record
from ktir.device.tensors.storage import resize as resize_storage
from ktir.device.tensors.streams import current_stream

aten = torch.ops.aten
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
"""The keys of kernels that read and write metadata alone, and serve all devices."""
_NESTED_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.NestedTensorCPU)
"""The same for nested tensors: their kernels are made of operators on the tensor that holds all parts."""
_APART = torch._C.DispatchKey.CompositeExplicitAutograd
"""The key of kernels that take an operator apart."""


def is_ours(value: Any) -> bool:
    """Whether it is a tensor on the device."""
    return isinstance(value, torch.Tensor) and value.device.type == "spyre"


# ------------------------------------------------------------------------------------------------------------------------ factories


def _empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    if layout not in (None, torch.strided):
        raise NotImplementedError(f"the device 'spyre' holds strided tensors only, but got layout {layout}")
    if memory_format in (None, torch.contiguous_format, torch.preserve_format):
        stride: Sequence[int] = contiguous_strides(size)
    else:
        stride = torch.empty(size, device="meta", memory_format=memory_format).stride()
    return _empty_strided(size, stride, dtype=dtype, device=device, pin_memory=pin_memory)


def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    if pin_memory:
        raise RuntimeError("only tensors on the host can be pinned, but got device 'spyre'")
    return _filled(empty_strided(size, stride, dtype, current.index_of(device)))


def _filled(new: torch.Tensor) -> torch.Tensor:
    """A new tensor, of which the host may read nothing by chance where only deterministic algorithms are wanted."""
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory and new.numel():  # type: ignore[attr-defined]
        floats = new.dtype.is_floating_point
        _fill(new, math.nan if floats else True if new.dtype == torch.bool else torch.iinfo(new.dtype).max)
    return new


# ---------------------------------------------------------------------------------------------------------------------------- views


def _as_strided(self: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> torch.Tensor:
    return aten.as_strided.default.redispatch(_CPU, self, size, stride, storage_offset)


def _view(self: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return aten.view.default.redispatch(_CPU, self, size)


def _reshape_alias(self: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    return aten._reshape_alias.default.redispatch(_CPU, self, size, stride)


def _unfold(self: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    return aten.unfold.default.redispatch(_CPU, self, dimension, size, step)


def _set_part(self: torch.Tensor, source: Any, offset: Any, size: Sequence[int], stride: Sequence[int] = ()) -> torch.Tensor:
    if source.device != self.device:
        raise RuntimeError(f"expected a storage on '{self.device}', but got one on '{source.device}'")
    stride = stride or contiguous_strides(size)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if len(size) != len(stride):
        raise RuntimeError(f"unequal size length ({len(size)}) and stride length ({len(stride)})")
    reach = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    if min(size, default=1) > 0 and reach * self.dtype.itemsize > source.nbytes():  # as on the host, the storage grows
        resize_storage(source, reach * self.dtype.itemsize)
    return aten.set_.source_Storage_storage_offset.redispatch(_CPU, self, source, offset, size, stride)


def _set_storage(self: torch.Tensor, source: Any) -> torch.Tensor:
    return _set_part(self, source, 0, [source.nbytes() // self.dtype.itemsize], [1])


def _set_tensor(self: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _set_part(self, source.untyped_storage(), source.storage_offset(), source.size(), source.stride())


def _set_nothing(self: torch.Tensor) -> torch.Tensor:
    return _set_tensor(self, allocate(0, self.dtype, self.device.index))


def resize(self: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    """Change the size of a tensor, keeping the elements in their places; its storage grows where it is too small, also for others in it.
    One of this size stays as it lies, unless a format is asked for: PyTorch's kernels with `out=` rely on that.
    """
    if memory_format is None and self.size() == torch.Size(size):
        return self
    if memory_format in (None, torch.contiguous_format):
        stride: Sequence[int] = contiguous_strides(size)
    elif memory_format is torch.preserve_format:
        raise RuntimeError("Unsupported memory format Preserve")
    else:
        stride = torch.empty(size, device="meta", memory_format=memory_format).stride()
    offset, held = int(self.storage_offset()), self.untyped_storage().nbytes() // self.dtype.itemsize
    if offset + prod(size) <= held:
        return aten.as_strided_.default(self, size, stride, offset)
    resize_storage(self.untyped_storage(), (offset + prod(size)) * self.dtype.itemsize)
    _filled(_as_strided(self, [offset + prod(size) - held], [1], held))
    return aten.as_strided_.default(self, size, stride, offset)


# --------------------------------------------------------------------------------------------------------------- copies and numbers


def _converted(self: torch.Tensor, dtype: torch.dtype, memory_format: torch.memory_format | None = None) -> torch.Tensor | None:
    """A tensor of the device in another type, computed on the chip; None where there is no program for it."""
    from ktir.device.operators import eager

    options = {"dtype": dtype} if memory_format is None else {"dtype": dtype, "memory_format": memory_format}
    if dtype not in eager.ON_CHIP or not self.numel() or self.is_neg():
        return None
    try:
        return eager.run(aten._to_copy.default, (self,), options)
    except eager.NoProgram:
        return None


def _to_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    memory_format: torch.memory_format | None = None,
    **options: Any,
) -> torch.Tensor:
    if dtype not in (None, self.dtype) and device in (None, self.device):
        found = _converted(self, dtype, memory_format)
        if found is not None:
            return found
    return aten._to_copy.default._op_dk(_APART, self, dtype=dtype, device=device, memory_format=memory_format, **options)


def _copy_from(self: torch.Tensor | complex, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if not isinstance(self, torch.Tensor):  # where torch makes a tensor of a number, it comes here as a number again
        self = torch.scalar_tensor(self, dtype=torch.int64 if type(self) is int else torch.float64 if type(self) is float else torch.bool)
    if is_ours(self) and is_ours(dst) and _partly_shared(self, dst):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    if self.dtype != dst.dtype and self.device == dst.device and (found := _converted(self, dst.dtype)) is not None:
        self = found
    with in_turn(self, dst):
        if _same_places(self, dst):
            allocation_of(dst).copy(allocation_of(self))
        else:
            source = on_host(self) if is_ours(self) else self
            target = on_host(dst, write=True) if is_ours(dst) else dst
            target.copy_(source)
    if not is_ours(dst):
        record(self, "D2H", wait=not non_blocking)
    elif not is_ours(self):
        record(dst, "H2D", wait=not non_blocking)
    elif self.device == dst.device:
        record(dst, "D2D")
    else:  # of both cards
        here, there = current_stream(self.device), current_stream(dst.device)
        there.wait_stream(here)
        record(dst, "D2D")
        here.wait_stream(there)
    return dst


def _same_places(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of a card are each all of a memory of their own, and have their elements in the same places."""
    if not (is_ours(a) and is_ours(b)) or (a.device, a.dtype, a.shape, a.stride()) != (b.device, b.dtype, b.shape, b.stride()):
        return False
    here, there, nbytes = allocation_of(a), allocation_of(b), a.numel() * a.dtype.itemsize
    alone = here is not there and here.nbytes == there.nbytes == nbytes and not (a.is_neg() or b.is_neg())
    return alone and _dense(a)


def _partly_shared(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors without holes share some of their places, but are not the same view: what the host refuses to copy."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or not (_dense(a) and _dense(b)):
        return False
    (first, last), (other, end) = ((t.storage_offset(), t.storage_offset() + t.numel()) for t in (a, b))
    same = (first, last, a.stride()) == (other, end, b.stride())
    return first < end and other < last and a.dtype == b.dtype and not same


def _dense(tensor: torch.Tensor) -> bool:
    return bool(tensor.numel()) and torch.ops.aten.is_non_overlapping_and_dense.default(tensor)


def _copy_from_and_resize(self: torch.Tensor | complex, dst: torch.Tensor) -> torch.Tensor:
    if isinstance(self, torch.Tensor) and dst.size() != self.size():
        dst.resize_(self.size())
    return _copy_from(self, dst)


def _local_scalar_dense(self: torch.Tensor) -> Any:
    record(self, "D2H")
    with in_turn(self):
        return aten._local_scalar_dense.default(on_host(self))


def _fill(self: torch.Tensor, value: Any) -> torch.Tensor:
    with in_turn(self):
        on_host(self, write=True).fill_(value)
    return self


def _zero(self: torch.Tensor) -> torch.Tensor:
    allocation = allocation_of(self)
    if _dense(self) and self.numel() * self.dtype.itemsize == allocation.nbytes:
        allocation.clear()
        return self
    return _fill(self, 0)


def _equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    if self.device != other.device:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found {self.device} and {other.device}")
    with in_turn(self, other):
        return torch.equal(on_host(self), on_host(other))


def _record_stream(self: torch.Tensor, stream: Any) -> None:
    """Values are computed in program order: memory is never reused early."""
    if stream.device.type != "spyre":
        raise RuntimeError(f"expected a stream of the device 'spyre', but got {stream!r}")


def _nested(name: str) -> Callable[..., Any]:
    base, _, overload = name.partition(".")
    op = getattr(getattr(aten, base), overload or "default")
    return lambda *args, **kwargs: op.redispatch(_NESTED_CPU, *args, **kwargs)


NESTED: dict[str, Callable[..., Any]] = {
    name: _nested(name)
    for name in (
        "_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets",
        "alias", "clone", "copy_", "detach", "empty_like", "_to_copy", "unbind.int", "values",
    )
}  # fmt: skip
"""Nested tensors with strides are made, moved and taken apart, as printing does."""

PINNED: dict[str, Callable[..., Any]] = {"_pin_memory": pin_memory, "is_pinned": is_pinned}
"""For tensors of the host."""

KERNELS: dict[str, Callable[..., Any]] = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "as_strided": _as_strided,
    "view": _view,
    "_reshape_alias": _reshape_alias,
    "unfold": _unfold,
    "set_": _set_nothing,
    "set_.source_Tensor": _set_tensor,
    "set_.source_Storage": _set_storage,
    "set_.source_Storage_storage_offset": _set_part,
    "resize_": resize,
    "_to_copy": _to_copy,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "_local_scalar_dense": _local_scalar_dense,
    "fill_.Scalar": _fill,
    "zero_": _zero,
    "equal": _equal,
    "record_stream": _record_stream,
}
