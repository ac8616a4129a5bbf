"""Element types, numbers of them in text, conversions between them, and the functions of NumPy as ops of scalar bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake

ELEMENTS = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "i1",
}
"""NumPy's types, and those of ml_dtypes, by name."""

_BITS = {"f16": np.uint16, "f32": np.uint32, "f64": np.uint64, "bf16": np.uint16}


@cache
def _element(dtype: Any) -> str | None:
    return ELEMENTS.get(np.dtype(dtype).name)


def element_of(dtype: Any) -> str:
    """The element type of a NumPy type. Raises Mistake for one that KTIR does not have."""
    try:
        found = _element(dtype)
    except TypeError:
        raise Mistake(f"expects a type of NumPy, but got {dtype!r:.60}") from None
    if not np.dtype(dtype).isnative:
        raise Mistake(f"expects numbers in the order of bytes of this machine, but got {np.dtype(dtype).str!r}; '.astype' gives them it")
    if found is None:
        raise Mistake(f"expects one of the types {', '.join(ELEMENTS)}, but got {np.dtype(dtype).name}")
    return found


def is_float(element: str) -> bool:
    """Whether numbers of this type are floats."""
    return element in _BITS


def family(element: str) -> str:
    """`f`, `i` or `b`, by which ops differ."""
    return "f" if is_float(element) else "b" if element == "i1" else "i"


def width(element: str) -> int:
    """Bits of an element."""
    return int(element.lstrip("bfi"))


def tensor(shape: tuple[int, ...], element: str) -> str:
    """The type of a tensor."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def literal(value: Any, dtype: Any) -> str:
    """A number as an attribute of its type, to the bit."""
    element = element_of(dtype)
    if element == "i1":
        return "true" if value else "false"
    if not is_float(element):
        limits = np.iinfo(dtype)
        if not limits.min <= int(value) <= limits.max:
            holds = f"{np.dtype(dtype).name}, which holds {limits.min} to {limits.max}"
            raise Mistake(f"{int(value)} is beyond {holds}; a wider tile takes it, by 'astype'")
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = np.asarray(value).astype(dtype)
    if (
        np.isfinite(number := float(rounded))
        and number == round(number)
        and abs(number) < 1e6
        and not (number == 0 and np.signbit(rounded))
    ):
        return f"{number:.1f}"
    return f"0x{int(rounded.view(_BITS[element])):0{width(element) // 4}X}"


def conversion(value: str, source: str, target: str, name: str) -> list[str]:
    """Ops of a scalar body that make `name`, of type `target`, of a value of type `source`: as NumPy's `astype`."""
    if is_float(source) and is_float(target):
        if width(source) == width(target):  # f16 and bf16
            return [f"{name}_f32 = arith.extf {value} : {source} to f32", f"{name} = arith.truncf {name}_f32 : f32 to {target}"]
        return [f"{name} = arith.{'extf' if width(source) < width(target) else 'truncf'} {value} : {source} to {target}"]
    if target == "i1":
        zero, op = ("0.0", "cmpf une") if is_float(source) else ("0", "cmpi ne")
        return [f"{name}_0 = arith.constant {zero} : {source}", f"{name} = arith.{op}, {value}, {name}_0 : {source}"]
    if is_float(target):
        op = "uitofp" if source == "i1" else "sitofp"
    elif is_float(source):
        op = "fptosi"
    else:
        op = "extui" if source == "i1" else "extsi" if width(source) < width(target) else "trunci"
    return [f"{name} = arith.{op} {value} : {source} to {target}"]
