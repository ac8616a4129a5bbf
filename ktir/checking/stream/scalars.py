"""What scalar ops of bodies mean in kinds of the vector unit, and which lanes a comparison of positions holds for.

These are facts of the check's own: it shares neither table nor analysis with the lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.checking.stream.grid import relation
from ktir.isa.kinds import KINDS
from ktir.mlir import ir

_SAME = "exp log sqrt rsqrt tanh erf floor ceil trunc round roundeven exp2 expm1 log2 log10 log1p erfc sin cos tan asin acos atan"
_SAME += " sinh cosh asinh acosh atanh cbrt copysign powf atan2 fma"
_RENAMED = {"addf": "add", "subf": "sub", "mulf": "mul", "divf": "div", "remf": "remf", "maximumf": "max", "minimumf": "min", "negf": "neg"}
_RENAMED |= {"maxnumf": "maxnum", "minnumf": "minnum"}
_INTEGERS = "addi subi muli minsi maxsi minui maxui andi ori xori shli shrsi shrui divsi remsi floordivsi divui remui"
_CMPF = (None, "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", None)
_CMPI = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")

# Name and types, operands before the result: f for f16 and f32, i for i32, m for i1.
_TABLE: dict[tuple[str, str], str] = {
    **{(f"math.{name}", "ff"): name for name in _SAME.split()},
    **{(f"math.{name}", "fff"): name for name in ("copysign", "powf", "atan2")},
    ("math.absf", "ff"): "abs",
    ("math.absi", "ii"): "absi",
    **{(f"arith.{name}", "ff" if name == "negf" else "fff"): kind for name, kind in _RENAMED.items()},
    **{(f"arith.{name}", "iii"): name for name in _INTEGERS.split()},
    **{(f"arith.{name}", "mmm"): name for name in ("andi", "ori", "xori")},
    **{("arith.select", f"m{x}{x}{x}"): "select" for x in "fim"},
    ("arith.truncf", "ff"): "mov",
    ("arith.extf", "ff"): "mov",
    ("arith.extui", "mi"): "mov",
    ("arith.bitcast", "fi"): "mov",
    ("arith.bitcast", "if"): "mov",
    ("arith.extsi", "mi"): "negi",
    ("arith.extsi", "ii"): "mov",
    ("arith.sitofp", "if"): "sitofp",
    ("arith.uitofp", "if"): "uitofp",
    ("arith.uitofp", "mf"): "uitofp",
    ("arith.fptosi", "fi"): "fptosi",
    ("arith.fptoui", "fi"): "fptoui",
}


def letter(type_: ir.Type) -> str:
    """What a lane holds of this type: f, i or m; ? for what it cannot hold."""
    return {"f16": "f", "bf16": "f", "f32": "f", "f8E4M3FN": "f", "f8E5M2": "f", "i8": "i", "i32": "i", "i1": "m"}.get(str(type_), "?")


OPENED = {
    (name, row): f"{stem}{('lo', 'hi')[row]}" for name, stem in (("f8E4M3FN", "e4m3"), ("f8E5M2", "e5m2"), ("i8", "i8")) for row in (0, 1)
}
"""Type of one byte, and row of a pair -> the kind that takes it out of 16 bits."""


ROUNDED = {"f8E4M3FN": "toe4m3", "f8E5M2": "toe5m2"}
"""Float of one byte -> the kind that rounds to it."""


PAIRED = {"vector<2xf8E4M3FN>": "e4m3x2", "vector<2xf8E5M2>": "e5m2x2", "vector<2xi8>": "i8x2"}
"""Two numbers of one byte -> the kind that puts them into 16 bits."""


def half_of(type_: ir.Type) -> str:
    """The float of 16 bits that a type is, empty for others."""
    return str(type_) if isinstance(type_, ir.F16Type | ir.BF16Type) else ""


def kind(op: ir.Operation) -> str | None:
    """The kind that computes a scalar op on its types; `mov` where the lane stays as it is or is only rounded."""
    letters = "".join(letter(v.type) for v in (*op.operands, *op.results))
    if op.name in ("arith.cmpf", "arith.cmpi"):
        number = ir.IntegerAttr(op.attributes["predicate"]).value
        if op.name == "arith.cmpf":
            return f"cmpf_{_CMPF[number]}" if letters == "ffm" and _CMPF[number] else None
        signed_truth = letters == "mmm" and _CMPI[number][0] == "s"  # there true is -1, a mask 1
        return f"cmpi_{_CMPI[number]}" if letters in ("iim", "mmm") and not signed_truth else None
    if op.name == "vector.from_elements":
        return PAIRED.get(str(op.results[0].type)) if len(op.operands) == 2 else None
    if op.name == "arith.truncf" and (to := str(op.results[0].type)) in ROUNDED:
        return ROUNDED[to] if letters == "ff" else None
    if op.name == "math.fma":
        return "fma" if letters == "ffff" and str(op.results[0].type) == "f32" else None
    declared = getattr(op.operation.opview, "vector_kind", "")  # a fact of the op, which its executor is held against
    return _TABLE.get((op.name, letters)) or (declared if declared and letters == KINDS[declared].takes + KINDS[declared].gives else None)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply}


def compares_positions(op: ir.Operation) -> bool:
    """Whether an op asks where in its loops a body stands."""
    return op.name == "arith.cmpi" and all(isinstance(v.type, ir.IndexType) for v in op.operands)


def live_lanes(op: ir.Operation, extents: Mapping[int, int], stick_loop: int, lane_loop: int) -> int | None:
    """How many lanes of a row, from the first on, a comparison of positions holds for, by trying all of them; None if it holds for others,
    or not alike in all rows. `extents` of the other loops."""
    order = [*sorted(extents.keys() - {stick_loop, lane_loop}), stick_loop, lane_loop]
    axes = np.meshgrid(*(np.arange(extents[loop]) for loop in order), indexing="ij", sparse=True)
    places = dict(zip(order, axes, strict=True))
    left, right = (_position(v, places) for v in op.operands)
    if left is None or right is None:
        return None
    holds = np.broadcast_to(relation(op)(left, right), [extents[loop] for loop in order])
    rows = holds.reshape(-1, extents[stick_loop] * extents[lane_loop])
    count = int(rows[0].sum())
    return count if (rows == (np.arange(rows.shape[1]) < count)).all() else None


def _position(value: ir.Value, places: Mapping[int, NDArray[np.int64]]) -> NDArray[np.int64] | None:
    op = value.owner
    if isinstance(op, ir.Block):
        return None
    if op.name == "linalg.index":
        return places[ir.IntegerAttr(op.attributes["dim"]).value]
    if op.name == "arith.constant":
        return np.array([ir.IntegerAttr(op.attributes["value"]).value])
    operands = [_position(v, places) for v in op.operands]
    if op.name not in _ARITHMETIC or any(x is None for x in operands):
        return None
    return _ARITHMETIC[op.name](*operands)
