"""NumPy's functions of elements as ops of a scalar body, and how NumPy types them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.diagnostics import close_to
from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.base.scalars import element_of, family

# A body is written as ops on {0}, {1} of type {T} that end in the op of the result; %k are numbers between.
_COMPARISONS = {"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}

_DIVIDED = (
    "%n = arith.constant 0.0 : {T}; %r = arith.remf {0}, {1} : {T}; %f = arith.cmpf une, %r, %n : {T}; "
    "%s = arith.cmpf olt, %r, %n : {T}; %t = arith.cmpf olt, {1}, %n : {T}; %v = arith.xori %s, %t : i1; %o = arith.andi %f, %v : i1; "
)
"""What is left of a division, and whether it has another sign than the divisor: the quotient is one less then."""
_REMAINDER = (
    f"{_DIVIDED}%p = arith.addf %r, {{1}} : {{T}}; %u = arith.select %o, %p, %r : {{T}}; %z = math.copysign %n, {{1}} : {{T}}; "
    "%w = arith.select %f, %u, %z : {T}; %e = arith.cmpf oeq, {1}, %n : {T}; arith.select %e, %r, %w : {T}"
)
_FLOOR_DIVIDED = (
    f"{_DIVIDED}%ab = arith.subf {{0}}, %r : {{T}}; %q = arith.divf %ab, {{1}} : {{T}}; %i = arith.constant 1.0 : {{T}}; "
    "%j = arith.subf %q, %i : {T}; %k = arith.select %o, %j, %q : {T}; %l = math.floor %k : {T}; %m = arith.subf %k, %l : {T}; "
    "%h = arith.constant 0.5 : {T}; %b = arith.cmpf ogt, %m, %h : {T}; %c = arith.addf %l, %i : {T}; %d = arith.select %b, %c, %l : {T}; "
    "%w = arith.divf {0}, {1} : {T}; %z = math.copysign %n, %w : {T}; %g = arith.cmpf une, %k, %n : {T}; "
    "%u = arith.select %g, %d, %z : {T}; %e = arith.cmpf oeq, {1}, %n : {T}; arith.select %e, %w, %u : {T}"
)
"""As NumPy defines them: the remainder is exact, and the quotient is that of what divides evenly, which the quotient's floor is not."""
WIDE = frozenset({"floor_divide", "remainder"})
"""Functions of floats whose steps are f32's, as NumPy's are; the result is rounded once."""

BODIES: dict[str, dict[str, str]] = {
    "add": {"f": "arith.addf {0}, {1} : {T}", "i": "arith.addi {0}, {1} : {T}", "b": "arith.ori {0}, {1} : {T}"},
    "subtract": {"f": "arith.subf {0}, {1} : {T}", "i": "arith.subi {0}, {1} : {T}"},
    "multiply": {"f": "arith.mulf {0}, {1} : {T}", "i": "arith.muli {0}, {1} : {T}", "b": "arith.andi {0}, {1} : {T}"},
    "divide": {"f": "arith.divf {0}, {1} : {T}"},
    "floor_divide": {"i": "arith.floordivsi {0}, {1} : {T}", "f": _FLOOR_DIVIDED},
    "remainder": {"i": "%q = arith.floordivsi {0}, {1} : {T}; %p = arith.muli %q, {1} : {T}; arith.subi {0}, %p : {T}", "f": _REMAINDER},
    "fmod": {"f": "arith.remf {0}, {1} : {T}", "i": "arith.remsi {0}, {1} : {T}"},
    "power": {"f": "math.powf {0}, {1} : {T}"},
    "arctan2": {"f": "math.atan2 {0}, {1} : {T}"},
    "copysign": {"f": "math.copysign {0}, {1} : {T}"},
    "sign": {
        "f": "%n = arith.constant 0.0 : {T}; %m = arith.constant 1.0 : {T}; %l = arith.constant -1.0 : {T}; "
        "%ab = arith.cmpf ogt, {0}, %n : {T}; %b = arith.cmpf olt, {0}, %n : {T}; %c = arith.cmpf oeq, {0}, %n : {T}; "
        "%d = arith.select %c, %n, {0} : {T}; %e = arith.select %b, %l, %d : {T}; arith.select %ab, %m, %e : {T}",
        "i": "%n = arith.constant 1 : {T}; %m = arith.constant -1 : {T}; %ab = arith.minsi {0}, %n : {T}; arith.maxsi %ab, %m : {T}",
    },
    "negative": {"f": "arith.negf {0} : {T}", "i": "%n = arith.constant 0 : {T}; arith.subi %n, {0} : {T}"},
    "positive": {
        "f": "%n = arith.constant 1.0 : {T}; arith.mulf {0}, %n : {T}",
        "i": "%n = arith.constant 0 : {T}; arith.addi {0}, %n : {T}",
    },
    "absolute": {"f": "math.absf {0} : {T}", "i": "math.absi {0} : {T}"},
    "maximum": {"f": "arith.maximumf {0}, {1} : {T}", "i": "arith.maxsi {0}, {1} : {T}", "b": "arith.ori {0}, {1} : {T}"},
    "minimum": {"f": "arith.minimumf {0}, {1} : {T}", "i": "arith.minsi {0}, {1} : {T}", "b": "arith.andi {0}, {1} : {T}"},
    "fabs": {"f": "math.absf {0} : {T}"},
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
    "logical_xor": {"b": "arith.xori {0}, {1} : {T}"},
    "isnan": {"f": "arith.cmpf uno, {0}, {0} : {T}"},
    "isinf": {
        "f": "%d = arith.subf {0}, {0} : {T}; %m = arith.cmpf uno, %d, %d : {T}; %n = arith.cmpf ord, {0}, {0} : {T}; "
        "arith.andi %m, %n : i1"
    },
    "isfinite": {"f": "%d = arith.subf {0}, {0} : {T}; %n = arith.constant 0.0 : {T}; arith.cmpf oeq, %d, %n : {T}"},
} | {name: {"f": f"math.{op} {{0}} : {{T}}"} for name, op in {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sqrt": "sqrt", "cbrt": "cbrt", "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "rint": "roundeven",
}.items()} | {name: {"f": f"math.{name} {{0}} : {{T}}", "i": "%n = arith.constant 0 : {T}; arith.addi {0}, %n : {T}"}
    for name in ("floor", "ceil", "trunc")
} | {name: {
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


def resolved(ufunc: np.ufunc, operands: list[Any]) -> tuple[str, list[Any], Any, Any]:
    """The body of a function for operands, each a type or one of Python's types of numbers; the types that it wants, that of
    what it makes, and that of the result.

    Raises Mistake for a function without a body, or for types that NumPy has none for.
    """
    known = BODIES.get(ufunc.__name__)
    if known is None:
        raise Mistake(missing(ufunc.__name__))
    if ufunc.nin != len(operands):
        raise Mistake(f"'np.{ufunc.__name__}' expects {ufunc.nin} operands, but got {len(operands)}")
    if ufunc.__name__ in ("logical_and", "logical_or", "logical_xor", "logical_not"):
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
    if ufunc.__name__ in WIDE and element in ("f16", "bf16"):
        wide = np.dtype(np.float32)
        return body, [wide] * ufunc.nin, wide if wanted[-1] == wanted[0] else wanted[-1], wanted[-1]
    return body, wanted[:-1], wanted[-1], wanted[-1]


OTHERS: set[str] = set()
"""Names of NumPy's functions of whole arrays that tiles have."""


def missing(name: str) -> str:
    """What to say of a function of NumPy that the language does not have."""
    return f"the language has no 'np.{name}'{close_to(name, (*BODIES, *OTHERS))}; docs/lang.md lists what it has"


def _listed(operands: list[Any]) -> str:
    return " and ".join(o.__name__ if isinstance(o, type) else str(o) for o in operands)


def operand_type(value: Any) -> Any:
    """The type of an operand as NumPy's promotion takes it: Python's own numbers adapt to what they stand beside. Those of classes made of
    them do not, of which `np.float64` is one."""
    if isinstance(value, bool):
        return np.dtype(bool)
    if type(value) in (int, float):
        return type(value)
    if isinstance(value, int | float):
        return np.asarray(value).dtype
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        raise Mistake(f"expects tiles and numbers, but got {kind_of(value)}")
    return dtype
