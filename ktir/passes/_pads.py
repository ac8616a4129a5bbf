"""What pad lanes hold: constants folded through scalar bodies, bit for bit as the machine computes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ktir import numerics
from ktir.dialects.structured import Generic
from ktir.mlir import ir

_FOLD_UNARY = {"math.exp": "exp", "math.sqrt": "sqrt", "math.rsqrt": "rsqrt", "math.tanh": "tanh", "math.erf": "erf",
               "math.absf": "abs", "arith.negf": "neg", "math.floor": "floor", "math.log": "log"}  # fmt: skip
_FOLD_BINARY = {"arith.addf": "add", "arith.subf": "sub", "arith.mulf": "mul", "arith.divf": "div",
                "arith.maximumf": "max", "arith.minimumf": "min"}  # fmt: skip


def folded_pad(g: Generic, operands: Sequence[float | None], scalar: ir.Value | None = None) -> float | None:
    """Value of the pad lanes of a body's result (or of one of its scalars), where it follows from constants; None otherwise.

    `operands` has what each operand shows in the pad lanes; None = anything, such as the data of a column operand.
    """
    known: dict[ir.Value, np.float32] = {
        argument: np.float32(pad) for argument, pad in zip(g.body.arguments, operands, strict=False) if pad is not None
    }
    for op in g.body_ops:
        folded = _fold(op, known)
        if folded is not None:
            known[op.results[0]] = folded
    result = known.get(g.yielded if scalar is None else scalar)
    return None if result is None else float(result)


def _fold(op: ir.Operation, known: dict[ir.Value, np.float32]) -> np.float32 | None:
    if op.name == "arith.constant":
        attribute = op.attributes["value"]
        return np.float32(ir.FloatAttr(attribute).value) if isinstance(attribute, ir.FloatAttr) else None
    operands = [known.get(v) for v in op.operands]
    if any(v is None for v in operands):
        return None
    arrays = [np.full(1, v, np.float32) for v in operands]
    if op.name in ("arith.extf", "arith.truncf"):
        result = arrays[0]
    elif op.name in _FOLD_UNARY:
        result = numerics.UNARY[_FOLD_UNARY[op.name]](arrays[0])
    elif op.name in _FOLD_BINARY:
        result = numerics.BINARY[_FOLD_BINARY[op.name]](*arrays)
    else:
        return None
    if isinstance(op.results[0].type, ir.F16Type):
        result = numerics.round_f16(result)
    return np.float32(result[0])
