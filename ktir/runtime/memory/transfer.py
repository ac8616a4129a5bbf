"""Host arrays <-> device sticks, by the views and layouts of a launch spec."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from ktir.arithmetic.carriers import BF16, bits_of
from ktir.arithmetic.numerics import decode, encode, f16_to_f32, f32_to_f16, round_to
from ktir.arithmetic.pairs import view_of_pairs
from ktir.diagnostics import KtirError, OutOfRange
from ktir.layout import Copy, Layout
from ktir.package import HostTensor, ValueRange
from ktir.target import TWOS, held, is_byte, is_byte_float, is_two

E4M3, E5M2 = (np.dtype([(name, np.uint8)]) for name in ("float8_e4m3fn", "float8_e5m2"))
"""Likewise of the floats of one byte."""
_OWN = {"bf16": BF16, "f8E4M3FN": E4M3, "f8E5M2": E5M2}
"""Type of KTIR -> that of its elements."""
CODES = {E4M3: "f8E4M3FN", E5M2: "f8E5M2"}
"""Type of the elements of a float of one byte -> type of KTIR."""
OWN = {name: dtype for dtype in _OWN.values() for name in dtype.names or ()}
"""What PyTorch calls a type that NumPy lacks -> that of its elements."""
_FLOATS = (*(np.dtype(name) for name in "float16 float32".split()), BF16)
_INTEGERS = tuple(np.dtype(name) for name in "int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool".split())
_I32, _I8 = ValueRange(-(2**31), 2**31 - 1), ValueRange(-128, 127)
_FEW = 64
"""Integers that are compared in less time than NumPy takes to begin."""


def number(value: float, dtype: Any) -> np.ndarray:
    """A number as an array of rank 0. One beyond the type is an infinity, as in PyTorch."""
    with np.errstate(over="ignore"):
        return np.array(value, dtype)


def dtype_name(array: np.ndarray) -> str:
    """What PyTorch calls the type of the elements."""
    return array.dtype.names[0] if array.dtype.names else array.dtype.name


def array_of(tensor: Any) -> np.ndarray:
    """A NumPy array on the memory of a tensor of PyTorch on the host; types that NumPy lacks have elements of their own, as `BF16`."""
    if (own := OWN.get(str(tensor.dtype).removeprefix("torch."))) is not None:
        torch = sys.modules["torch"]
        return tensor.detach().view(torch.int16 if own.itemsize == 2 else torch.uint8).numpy().view(own)
    return tensor.detach().numpy()


def as_array(tensor: Any, name: str, element: str = "f16") -> np.ndarray:
    """A NumPy array on the same memory; takes arrays, anything with torch's `detach().numpy()`, and Python's numbers.

    element: the type of KTIR that is expected. Arrays of types that NumPy lacks are of our own (`BF16`), of the type of that name in
    `ml_dtypes`, or, where that is what is expected, unsigned integers of as many bits. Raises KtirError for types that do not become it:
    floats come from floats, integers from integers and bool.
    """
    element = TWOS[element].hosts[0] if is_two(element) else element
    integers = element[0] == "i"
    takes, names = (_INTEGERS, "integers or bool") if integers else (_FLOATS, "float16, bfloat16 or float32")
    if is_byte(element) and not integers:
        takes, names = (_OWN[element],), held(element).dtype
    if isinstance(tensor, (int, float)):
        tensor = number(tensor, np.float32 if isinstance(tensor, float) else np.int64)
    if not isinstance(tensor, np.ndarray):
        try:
            tensor = array_of(tensor)
        except (AttributeError, TypeError) as e:
            raise KtirError(f"argument '{name}' expects a tensor of {names} in host memory, but got {tensor!r:.80}") from e
    own = OWN.get(tensor.dtype.name) if tensor.dtype.kind == "V" else None
    if element in _OWN and tensor.dtype == f"u{_OWN[element].itemsize}":
        own = _OWN[element]
    if own is not None and tensor.dtype != own:
        tensor = tensor.view(own)
    if tensor.dtype not in takes:
        raise KtirError(f"argument '{name}' expects element type {names}, but got {tensor.dtype}")
    return tensor


def host_view(array: np.ndarray, offset: int, size: Sequence[int], strides: Sequence[int], name: str, element: str = "") -> np.ndarray:
    """A strided view of the memory behind `array`; offset and strides in elements, strides may be 0.

    element: the type of KTIR that it is of; where that is two elements of the array, all counts are of such, and the result is a copy
    of them (`ktir.arithmetic.pairs`).

    Raises KtirError where the view would leave the elements that the array itself spans, and for arrays with negative strides.
    """
    item = array.itemsize
    if min(array.strides, default=0) < 0:
        raise KtirError(f"argument '{name}' expects strides that are not negative, but got {tuple(s // item for s in array.strides)}")
    spanned = 1 + sum((n - 1) * abs(s) // item for n, s in zip(array.shape, array.strides, strict=True)) if array.size else 0
    flat = np.lib.stride_tricks.as_strided(array, (spanned,), (item,))
    if is_two(element):
        try:
            return view_of_pairs(flat.view(np.uint8), 2 * offset, size, strides)
        except ValueError as error:
            raise KtirError(f"argument '{name}': {error}") from error
    last = offset + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
    if prod(size) and (offset < 0 or last >= spanned or min(strides, default=0) < 0):
        raise KtirError(f"argument '{name}' expects at least {last + 1} elements, but got shape {tuple(array.shape)} that spans {spanned}")
    return np.lib.stride_tricks.as_strided(flat[offset:], tuple(size), [s * item for s in strides])


def to_device(
    view: np.ndarray, layout: Layout, name: str = "", out: np.ndarray | None = None, allowed: ValueRange | None = None
) -> np.ndarray:
    """Pack host values into device entries of the layout's `value_type` [entries, 64]; floats of 16 bits are values on their grid.

    out: where they go, of a layout's earlier result; of an f16 layout it may be of float16. Integers of other widths and truth values
    become i32. Raises OutOfRange for values for which the program is not proved, by default integers that do not fit.
    """
    if layout.dtype == "i32":
        return layout.pack(_narrowed(view, name, allowed or _I32).reshape(layout.size), out)
    if layout.is_byte:
        bits = _one_byte(view, name)
        if allowed is not None and view.size:
            check_range(*extremes(numbers_of(bits, layout.dtype)), allowed, name)
        return layout.pack(bits.reshape(layout.size), out)
    if is_two(layout.dtype):
        return layout.pack(view.reshape(layout.size), out, _bits)
    if allowed is not None and view.size:
        check_range(*extremes(_wide(view)), allowed, name)
    values = view.reshape(layout.size)
    if out is not None and out.dtype == np.float16:
        return layout.pack(values, out, np.copyto if view.dtype == np.float16 else _narrow)
    if out is not None and out.dtype == BF16:
        return layout.pack(values, out, np.copyto)
    given = {"float16": "f16", "bfloat16": "bf16"}.get(dtype_name(view), "f32")
    if layout.dtype in (given, "f32"):
        return layout.pack(values, out, _WIDEN.get(given, np.copyto))
    return layout.pack(values, out, partial(_round, layout.dtype))


def _widen_f16(target: np.ndarray, values: np.ndarray) -> None:
    f16_to_f32(np.asarray(values, order="C"), target)


def _widen_bf16(target: np.ndarray, values: np.ndarray) -> None:
    bits = target.view(np.uint32)
    np.copyto(bits, values.view(np.uint16))
    np.left_shift(bits, np.uint32(16), out=bits)


_WIDEN: dict[str, Copy] = {"f16": _widen_f16, "bf16": _widen_bf16}
"""Float of 16 bits -> what gives its values as float32."""


def _bits(target: np.ndarray, values: np.ndarray) -> None:
    """16 bits of the host to lanes that hold them as they are."""
    np.copyto(bits_of(target), values, casting="unsafe")


def _wide(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, order="C")
    if values.dtype in CODES:
        return decode(CODES[values.dtype], values.view(np.uint8))
    return decode("bf16", values.view(np.uint16)) if values.dtype == BF16 else values.astype(np.float32, copy=False)


def _round(half: str, target: np.ndarray, values: np.ndarray) -> None:
    round_to(half, _wide(values), target)


def _narrow(target: np.ndarray, values: np.ndarray) -> None:
    f32_to_f16(_wide(values), target)


def _narrowed(values: np.ndarray, name: str, allowed: ValueRange) -> np.ndarray:
    """Integers as int32, of those that it does not hold the low bits, or what stands for them. Raises OutOfRange."""
    values = _as_signed(values, allowed)
    if values.dtype != np.bool_ and values.size and not _holds_all(allowed, values.dtype):
        some = values.reshape(-1).tolist() if values.size <= _FEW else (values.min().item(), values.max().item())
        check_range(min(some), max(some), allowed, name)
    narrowed = values.astype(np.int32)
    return narrowed if allowed.spare is None else np.where(narrowed == values, narrowed, np.int32(allowed.spare))


def _one_byte(values: np.ndarray, name: str) -> np.ndarray:
    """The bits of elements of one byte; of wider integers, which must fit. Raises OutOfRange."""
    if values.itemsize > 1:
        values = _narrowed(values, name, _I8).astype(np.int8)
    return values.view(np.uint8)


def numbers_of(bits: np.ndarray, element: str) -> np.ndarray:
    """The numbers that bytes are, of a type of KTIR of one byte."""
    return decode(element, bits) if is_byte_float(element) else bits.view(np.int8)


def extremes(values: np.ndarray) -> tuple[float, float]:
    """The least and the largest one; NaN where one is NaN."""
    return values.min().item(), values.max().item()


def _as_signed(values: np.ndarray, allowed: ValueRange) -> np.ndarray:
    """An array of the program's own width as the signed numbers that the program holds."""
    if values.dtype.kind == "u" and allowed.bits == 8 * values.itemsize:
        return values.view(f"i{values.itemsize}")
    return values


@lru_cache
def _holds_all(allowed: ValueRange, dtype: np.dtype) -> bool:
    limits = np.iinfo(dtype)
    return allowed.low <= limits.min and limits.max <= allowed.high


def check_range(low: float, high: float, allowed: ValueRange, name: str) -> None:
    """Raises OutOfRange unless everything from `low` to `high` is allowed; NaN is not."""
    if low >= allowed.low and high <= allowed.high:
        return
    found = high if low >= allowed.low else low
    kind = "integers" if isinstance(low, int) else "numbers"
    why = " (beyond, 32 bits do not hold the integers that it makes of them)" if kind == "numbers" else ""
    raise OutOfRange(f"argument '{name}' expects {kind} of {allowed.low} to {allowed.high}, but has {found}{why}")


def elements_of(tensor: HostTensor, offset: int, size: Sequence[int], strides: Sequence[int]) -> np.ndarray | None:
    """Which elements of a view of the memory of a tensor are the tensor's: others lie in its gaps, and may be another tensor's. None where
    all are. All in elements from the tensor's first one on.
    """
    reach = tensor.reach
    if reach == prod(tensor.size) or 0 in size:  # no gaps, or elements that share their place
        return None
    own = np.zeros(reach, np.bool_)
    np.lib.stride_tricks.as_strided(own, tensor.size, tensor.strides)[...] = True
    found = np.lib.stride_tricks.as_strided(own[offset:], tuple(size), tuple(strides))
    return None if found.all() else found


def from_device(
    device: np.ndarray, layout: Layout, view: np.ndarray, allowed: ValueRange | None = None, own: np.ndarray | None = None
) -> None:
    """Unpack device entries of the layout's `value_type`, or of float16, into a host view, in place.

    Of i32 a narrower integer type gets the low bits, bool whether it is not zero; elements that still hold what stands for numbers of the
    host stay as they are. own: which elements get anything, see `elements_of`; None for all.
    """
    if own is not None:
        found = view.copy()
        from_device(device, layout, found, allowed)
        np.copyto(view, found, where=own)
        return
    values = layout.unpack(device).reshape(view.shape)
    if layout.is_byte:
        np.copyto(view.view(np.uint8), values)
    elif view.dtype in CODES:
        np.copyto(view.view(np.uint8), encode(CODES[view.dtype], values))
    elif values.dtype == view.dtype and values.dtype in (np.float16, BF16):
        view[...] = values
    elif values.dtype == np.float16:
        view[...] = f16_to_f32(np.ascontiguousarray(values))
    elif view.dtype == np.float16:
        view[...] = f32_to_f16(np.ascontiguousarray(values))
    elif view.dtype == BF16:
        values = np.ascontiguousarray(values)
        bits = values.view(np.uint32) >> np.uint32(16) if layout.dtype == "bf16" else encode("bf16", values)
        np.copyto(view.view(np.uint16), bits, casting="unsafe")
    elif view.dtype == np.bool_:
        np.not_equal(values, 0, out=view)
    elif allowed is not None and allowed.spare is not None:
        np.copyto(view, values, casting="unsafe", where=values != allowed.spare)
    else:
        view[...] = values
