"""affine: what computes indices. Loops, branches and accesses of the dialect are no part of KTIR."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes, scalar
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.dialects.scalar.arith import deliver
from ktir.emulator.reference.ops.maps import code_of
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.values import simplify
from ktir.mlir import ir

_CHOICE: dict[str, Any] = {"affine.apply": lambda x: x[0], "affine.min": np.minimum.reduce, "affine.max": np.maximum.reduce}


def _function(op: OpReader) -> Any:
    map_ = ir.AffineMapAttr(op.attribute("map")).value
    codes = [code_of(e, map_.n_dims) for e in map_.results]
    choose = _CHOICE[op.where.op]

    def compute(*operands: Any) -> Any:
        values = [np.asarray(x, np.int64) for x in operands]
        return choose(np.broadcast_arrays(*(np.asarray(f(values), np.int64) for f in codes)))

    return compute


@executes(*_CHOICE)
def _apply(op: OpReader) -> Action:
    compute, operands, (result,) = _function(op), op.operands, op.results

    def action(rec: Recording) -> None:
        rec.set(result, simplify(np.asarray(compute(*(rec.known(slot) for slot in operands)))))

    return action


@scalar(*_CHOICE)
def _apply_in_body(op: OpReader) -> ScalarOp:
    return ScalarOp("index", deliver(_function(op), len(op.operands)))


@executes("affine.delinearize_index")
def _delinearize(op: OpReader) -> Action:
    """The digits of a number to a mixed base, the first one slowest; without an outer bound it takes the rest."""
    (basis,), results, number = op.entries(1, "static_basis"), op.results, op.operands[0]

    def action(rec: Recording) -> None:
        rest: Any = rec.known(number)
        sizes = rec.numbers(basis)
        inner = sizes if len(sizes) < len(results) else sizes[1:]
        digits: list[Any] = []
        for n in reversed(inner):
            digits.append(np.mod(rest, n))
            rest = np.floor_divide(rest, n)
        rec.set_all(results, (simplify(np.asarray(digit)) for digit in (rest, *reversed(digits))))

    return action


@executes("affine.linearize_index")
def _linearize(op: OpReader) -> Action:
    count = op.integers("operandSegmentSizes")[0]
    (basis,), digits, (result,) = op.entries(count, "static_basis"), op.operands[:count], op.results

    def action(rec: Recording) -> None:
        sizes = rec.numbers(basis)
        inner = sizes if len(sizes) < count else sizes[1:]
        total: Any = rec.known(digits[0])
        for slot, n in zip(digits[1:], inner, strict=True):
            total = np.add(np.multiply(total, n), rec.known(slot))
        rec.set(result, simplify(np.asarray(total)))

    return action
