"""arith and vector on pairs of numbers (`PAIRS`): what makes one of two numbers of one byte, and what makes a
product of two operands whose elements are pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.registry import on_pairs
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.dialects.scalar.arith import deliver


@on_pairs("arith.extf", "arith.sitofp", "arith.extsi")
def _widen(op: OpReader) -> ScalarOp:
    return ScalarOp(op.result_type().element, form="copy")  # all of one byte are exact in what holds any pair


@on_pairs("vector.from_elements")
def _from_elements(op: OpReader) -> ScalarOp:
    if len(op.operands) != 2:
        raise op.unsupported("does not make a pair of two numbers")
    return ScalarOp(op.result_type().element, deliver(_both, 2))


def _both(a: Any, b: Any) -> Any:
    result = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), np.complex64)
    result.real, result.imag = a, b
    return result


def _products(a: Any, b: Any) -> Any:
    result = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), np.result_type(a, b))
    result.real, result.imag = np.real(a) * np.real(b), np.imag(a) * np.imag(b)
    return result


@on_pairs("arith.mulf", "arith.muli")
def _multiply(op: OpReader) -> ScalarOp:
    return ScalarOp(op.result_type().element, deliver(_products, 2), multiplies=True)


@on_pairs("vector.reduction")
def _reduce(op: OpReader) -> ScalarOp:
    """Both numbers of a pair, added to a third one."""
    if str(op.attribute("kind")) != "#vector.kind<add>" or len(op.operands) != 2:
        raise op.unsupported("does not add a pair to a number")
    return ScalarOp(op.result_type().element, deliver(_add_both, 2), combines="add")


def _add_both(pair: Any, so_far: Any) -> Any:
    kind = np.asarray(so_far).dtype
    return (so_far + np.real(pair).astype(kind)) + np.imag(pair).astype(kind)
