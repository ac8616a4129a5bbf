"""What pad lanes hold: constants folded through scalar bodies, bit for bit as the machine computes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ktir.arithmetic import numerics
from ktir.arithmetic.integers import DIVISIONS
from ktir.dialects.structured import Generic
from ktir.dialects.vector_kinds import keeps_lane, kind_of
from ktir.isa.functions import FUNCTIONS, integer_lane
from ktir.mlir import arith, ir, is_a
from ktir.target import LANES, type_letter


def folded_pad(g: Generic, operands: Sequence[float | None], scalar: ir.Value | None = None) -> float | None:
    """Value of the pad lanes of a body's result (or of one of its scalars), where it follows from constants; None otherwise.

    `operands` has what each operand shows in the pad lanes; None = anything, such as the data of a column operand.
    """
    known: dict[ir.Value, np.float32] = {
        argument: _lane(pad, argument.type) for argument, pad in zip(g.body.arguments, operands, strict=False) if pad is not None
    }
    for op in g.body_ops:
        folded = _fold(op, known)
        if folded is not None:
            known[op.results[0]] = folded
    wanted = g.yielded if scalar is None else scalar
    result = known.get(wanted)
    if result is None:
        return None
    return float(result) if type_letter(wanted.type) == "f" else float(result.view(np.int32))


def unsafe_divisions(g: Generic, operands: Sequence[float | None], columns: int) -> list[ir.Operation]:
    """Integer divisions of a body over rows of `columns` whose divisor may be 0 or -1 in pad lanes."""
    if columns % LANES == 0:
        return []
    divisions = [op for op in g.body_ops if op.name.removeprefix("arith.") in DIVISIONS and type_letter(op.operands[1].type) == "i"]
    return [op for op in divisions if folded_pad(g, operands, op.operands[1]) in (None, 0.0, -1.0)]


def _lane(number: float, type_: ir.Type) -> np.float32:
    return np.float32(number) if type_letter(type_) == "f" else integer_lane(int(number))


def _fold(op: ir.Operation, known: dict[ir.Value, np.float32]) -> np.float32 | None:
    """The lane that a scalar op gives for known lanes: f32 values, i32 bits, masks."""
    if is_a(op, arith.ConstantOp):
        return _constant(op)
    operands = [known.get(v) for v in op.operands]
    lanes = [np.full(1, v, np.float32) for v in operands if v is not None]
    if len(lanes) != len(operands):
        return None
    if keeps_lane(op):
        return lanes[0][0]
    kind = kind_of(op)
    if kind is None:
        return None
    with numerics.quiet():
        result = FUNCTIONS[kind](*lanes)
    return numerics.round_to(str(op.results[0].type), result)[0]


def _constant(op: ir.Operation) -> np.float32 | None:
    attribute, letter = op.attributes["value"], type_letter(op.results[0].type)
    if letter == "f":
        return np.float32(ir.FloatAttr(attribute).value)
    if letter == "i":
        return integer_lane(ir.IntegerAttr(attribute).value)
    return integer_lane(int(str(attribute) == "true")) if letter == "m" else None
