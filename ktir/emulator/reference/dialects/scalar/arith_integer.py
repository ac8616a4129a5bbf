"""arith: integer and index arithmetic, on numbers known while recording and on data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ktir.arithmetic import numerics
from ktir.arithmetic.integers import PREDICATES, SIGNED, UNSIGNED, apply, compare, fit, signed, unsigned, width
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.dialects.scalar.arith import deliver
from ktir.emulator.reference.ops.elementwise import elementwise, elementwise_results
from ktir.emulator.reference.tape.divisions import faults_of
from ktir.emulator.reference.tape.values import CARRIERS
from ktir.mlir import ir

_COMBINES = {
    "arith.addi": "add",
    "arith.muli": "mul",
    "arith.maxsi": "max",
    "arith.minsi": "min",
    "arith.maxui": "maxu",
    "arith.minui": "minu",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
}


def number_of(compute: Callable[..., Any], element: str) -> Callable[..., Any]:
    """An integer function on Python numbers and on arrays with one entry per tile."""

    def on_numbers(*operands: Any) -> Any:
        with numerics.quiet():
            result = np.asarray(compute(*(fit(np.asarray(x), element) for x in operands)))
        return result if result.ndim else result.item()

    return on_numbers


@elementwise(*SIGNED, *UNSIGNED, "arith.shli", "arith.shrsi", "arith.shrui")
def _integer(op: OpReader) -> ScalarOp:
    name, element = op.where.op, op.result_type().element
    compute = apply(name, element)
    return ScalarOp(
        element,
        deliver(compute, 2),
        number=number_of(compute, element),
        combines=_COMBINES.get(name),
        multiplies=name == "arith.muli",
        faults=faults_of(name, element),
    )


def _high(a: Any, b: Any, element: str, number: Callable[..., Any]) -> Any:
    """The upper half of the product, which has twice the width."""
    wide = np.multiply(number(a, element).astype(object), number(b, element).astype(object))
    return fit(_narrowed(wide >> width(element), element), element)


def _narrowed(x: Any, element: str) -> Any:
    """Python integers as values of the carrier."""
    bits = width(element)
    flat = [(int(n) & ((1 << bits) - 1)) for n in np.asarray(x, object).reshape(-1)]
    values = [n - (1 << bits) if bits > 1 and n >> (bits - 1) else n for n in flat]
    return np.array(values, CARRIERS[element]).reshape(np.shape(x))


_EXTENDED: dict[str, tuple[Callable[[Any, Any, str], Any], Callable[[Any, Any, str], Any]]] = {
    "arith.addui_extended": (
        lambda a, b, e: apply("arith.addi", e)(a, b),
        lambda a, b, e: unsigned(apply("arith.addi", e)(a, b), e) < unsigned(a, e),
    ),
    "arith.subui_extended": (
        lambda a, b, e: apply("arith.subi", e)(a, b),
        lambda a, b, e: unsigned(a, e) < unsigned(b, e),
    ),
    "arith.mulsi_extended": (
        lambda a, b, e: apply("arith.muli", e)(a, b),
        lambda a, b, e: _high(a, b, e, signed),
    ),
    "arith.mului_extended": (
        lambda a, b, e: apply("arith.muli", e)(a, b),
        lambda a, b, e: _high(a, b, e, unsigned),
    ),
}
"""The two results: the low part, and the carry, the borrow or the high part."""


@elementwise_results(*_EXTENDED)
def _extended(op: OpReader) -> tuple[ScalarOp, ...]:
    element = op.operand_type(0).element

    def part(k: int) -> ScalarOp:
        function = _EXTENDED[op.where.op][k]

        def compute(a: Any, b: Any) -> Any:
            return function(a, b, element)

        return ScalarOp(op.result_type(k).element, deliver(compute, 2), number=number_of(compute, element))

    return part(0), part(1)


@elementwise("arith.cmpi")
def _compare_integer(op: OpReader) -> ScalarOp:
    predicate = ir.IntegerAttr(op.attribute("predicate")).value
    function = compare(PREDICATES[predicate], op.operand_type(0).element)
    return ScalarOp("i1", deliver(function, 2), number=function)
