"""The functions of NumPy that a kernel may apply element by element, as ops of scalar bodies. Types are those that NumPy itself chooses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.lang.elements import element_of, family
from ktir.lang.mistakes import Mistake, kind_of

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


def lines(body: str, type_: str) -> list[str]:
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
