"""Element types, numbers of them in text, conversions between them, and the functions of NumPy as ops of scalar bodies."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake, kind_of

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


# Functions of NumPy

# A body is written as ops on {0}, {1} of type {T} that end in the op of the result; %k are numbers between.
_COMPARISONS = {"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}

BODIES: dict[str, dict[str, str]] = {
    "add": {"f": "arith.addf {0}, {1} : {T}", "i": "arith.addi {0}, {1} : {T}", "b": "arith.ori {0}, {1} : {T}"},
    "subtract": {"f": "arith.subf {0}, {1} : {T}", "i": "arith.subi {0}, {1} : {T}"},
    "multiply": {"f": "arith.mulf {0}, {1} : {T}", "i": "arith.muli {0}, {1} : {T}", "b": "arith.andi {0}, {1} : {T}"},
    "divide": {"f": "arith.divf {0}, {1} : {T}"},
    "floor_divide": {"i": "arith.floordivsi {0}, {1} : {T}", "f": "%q = arith.divf {0}, {1} : {T}; math.floor %q : {T}"},
    "remainder": {"i": "%q = arith.floordivsi {0}, {1} : {T}; %p = arith.muli %q, {1} : {T}; arith.subi {0}, %p : {T}"},
    "negative": {"f": "arith.negf {0} : {T}", "i": "%n = arith.constant 0 : {T}; arith.subi %n, {0} : {T}"},
    "positive": {"f": "%n = arith.constant 1.0 : {T}; arith.mulf {0}, %n : {T}"},
    "absolute": {"f": "math.absf {0} : {T}", "i": "math.absi {0} : {T}"},
    "maximum": {"f": "arith.maximumf {0}, {1} : {T}", "i": "arith.maxsi {0}, {1} : {T}", "b": "arith.ori {0}, {1} : {T}"},
    "minimum": {"f": "arith.minimumf {0}, {1} : {T}", "i": "arith.minsi {0}, {1} : {T}", "b": "arith.andi {0}, {1} : {T}"},
    "fmax": {"f": "arith.maxnumf {0}, {1} : {T}"},
    "fmin": {"f": "arith.minnumf {0}, {1} : {T}"},
    "square": {"f": "arith.mulf {0}, {0} : {T}", "i": "arith.muli {0}, {0} : {T}"},
    "reciprocal": {"f": "%n = arith.constant 1.0 : {T}; arith.divf %n, {0} : {T}"},
    "bitwise_and": {"i": "arith.andi {0}, {1} : {T}", "b": "arith.andi {0}, {1} : {T}"},
    "bitwise_or": {"i": "arith.ori {0}, {1} : {T}", "b": "arith.ori {0}, {1} : {T}"},
    "bitwise_xor": {"i": "arith.xori {0}, {1} : {T}", "b": "arith.xori {0}, {1} : {T}"},
    "invert": {"b": "%n = arith.constant true; arith.xori {0}, %n : {T}", "i": "%n = arith.constant -1 : {T}; arith.xori {0}, %n : {T}"},
    "left_shift": {"i": "arith.shli {0}, {1} : {T}"},
    "right_shift": {"i": "arith.shrsi {0}, {1} : {T}"},
    "logical_and": {"b": "arith.andi {0}, {1} : {T}"},
    "logical_or": {"b": "arith.ori {0}, {1} : {T}"},
    "logical_not": {"b": "%n = arith.constant true; arith.xori {0}, %n : {T}"},
    "isnan": {"f": "arith.cmpf uno, {0}, {0} : {T}"},
} | {name: {"f": f"math.{op} {{0}} : {{T}}"} for name, op in {
    "exp": "exp", "log": "log", "log2": "log2", "log1p": "log1p", "sqrt": "sqrt", "tanh": "tanh", "sin": "sin", "cos": "cos",
    "floor": "floor",
}.items()} | {name: {
    "f": f"arith.cmpf {'u' if name == 'not_equal' else 'o'}{op}, {{0}}, {{1}} : {{T}}",
    "i": f"arith.cmpi {op if op in ('eq', 'ne') else 's' + op}, {{0}}, {{1}} : {{T}}",
    "b": f"arith.cmpi {op if op in ('eq', 'ne') else 'u' + op}, {{0}}, {{1}} : {{T}}",
} for name, op in _COMPARISONS.items()}  # fmt: skip
"""Per function of NumPy and family of its operands' type the body."""

OWN: dict[str, str] = {
    "rsqrt": "math.rsqrt {0} : {T}",
    "erf": "math.erf {0} : {T}",
    "sigmoid": "%n = arith.constant 1.0 : {T}; %m = arith.negf {0} : {T}; %e = math.exp %m : {T}; %d = arith.addf %n, %e : {T}; "
    "arith.divf %n, %d : {T}",
}
"""Functions that NumPy lacks, of floats; integers become floats as they do for `np.exp`."""


def body_lines(body: str, type_: str) -> list[str]:
    """The ops of a body."""
    *before, last = (body.format("%x0", "%x1", T=type_)).split("; ")
    return [*before, f"%y = {last}"]


def resolved(ufunc: np.ufunc, operands: list[Any]) -> tuple[str, list[Any], Any]:
    """The body of a function for operands, each a type or one of Python's types of numbers; the types that it wants, that of the result.

    Raises Mistake for a function without a body, or for types that NumPy has none for.
    """
    known = BODIES.get(ufunc.__name__)
    if known is None:
        raise Mistake(f"the language has no 'np.{ufunc.__name__}'")
    if ufunc.nin != len(operands):
        raise Mistake(f"'np.{ufunc.__name__}' expects {ufunc.nin} operands, but got {len(operands)}")
    if ufunc.__name__ in ("logical_and", "logical_or", "logical_not"):
        wanted: list[Any] = [np.dtype(bool)] * (len(operands) + 1)
    else:
        try:
            wanted = list(ufunc.resolve_dtypes((*operands, None)))
        except TypeError:
            raise Mistake(f"NumPy has no '{ufunc.__name__}' of {_listed(operands)}") from None
    element = element_of(wanted[0])
    body = known.get(family(element))
    if body is None:
        raise Mistake(f"the language has no 'np.{ufunc.__name__}' of {_listed(operands)}")
    return body, wanted[:-1], wanted[-1]


def _listed(operands: list[Any]) -> str:
    return " and ".join(o.__name__ if isinstance(o, type) else str(o) for o in operands)


def operand_type(value: Any) -> Any:
    """The type of an operand as NumPy's promotion takes it."""
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, int):
        return int
    if isinstance(value, float):
        return float
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        raise Mistake(f"expects tiles and numbers, but got {kind_of(value)}")
    return dtype
