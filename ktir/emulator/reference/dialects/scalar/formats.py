"""arith and math: ops on the representation of floats, and those with two results or an integer power."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import elementary, numerics
from ktir.arithmetic.elementary import once
from ktir.arithmetic.integers import fit, signed
from ktir.emulator.findings import DivisionByZero, Finding
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.scalar_op import ScalarOp
from ktir.emulator.reference.dialects.scalar.arith import deliver
from ktir.emulator.reference.dialects.scalar.arith_integer import number_of
from ktir.emulator.reference.ops.elementwise import elementwise, elementwise_results
from ktir.emulator.reference.tape.values import CARRIERS

_SMALLEST = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022, "f8E4M3FN": -6, "f8E5M2": -14, "dl16": -30}
"""Exponent of the smallest normal number."""


@elementwise("arith.convertf")
def _convert(op: OpReader) -> ScalarOp:
    """Between formats of one width: rounded once."""
    element = op.result_type().element
    return ScalarOp(element, deliver(lambda x: once(x, element), 1))


@elementwise("arith.flush_denormals")
def _flush(op: OpReader) -> ScalarOp:
    """A subnormal becomes a zero of its sign."""
    element = op.result_type().element
    least = 2.0 ** _SMALLEST[element]

    def flush(x: Any) -> Any:
        return np.where(np.abs(x) < least, np.copysign(0, x), x).astype(CARRIERS[element])

    return ScalarOp(element, deliver(flush, 1))


def _power_of_two(scale: Any) -> NDArray[np.float64]:
    """The exponent of a scale alone, as f8E8M0FNU keeps it: 2^-127 to 2^127, or NaN."""
    bits = (np.asarray(scale, np.float32).view(np.uint32) >> np.uint32(23)) & np.uint32(255)
    return np.where(bits == 255, np.nan, np.ldexp(1.0, np.where(bits == 255, 0, bits.astype(np.int64) - 127)))


@elementwise("arith.scaling_extf")
def _scaling_extension(op: OpReader) -> ScalarOp:
    element = op.result_type().element
    return ScalarOp(element, deliver(lambda x, s: once(np.asarray(x, np.float64) * _power_of_two(s), element), 2))


@elementwise("arith.scaling_truncf")
def _scaling_truncation(op: OpReader) -> ScalarOp:
    element, source = op.result_type().element, op.operand_type(0).element

    def truncate(x: Any, scale: Any) -> Any:
        return once(once(np.asarray(x, np.float64) / _power_of_two(scale), source), element)

    return ScalarOp(element, deliver(truncate, 2))


@elementwise("math.clampf")
def _clamp(op: OpReader) -> ScalarOp:
    """The smaller of the upper bound and the larger of the value and the lower bound; a NaN stays."""
    return ScalarOp(op.result_type().element, deliver(lambda x, low, high: np.minimum(np.maximum(x, low), high), 3))


@elementwise_results("math.sincos")
def _sincos(op: OpReader) -> tuple[ScalarOp, ...]:
    element = op.result_type().element
    functions = (elementary.function(name, CARRIERS[element]) for name in ("sin", "cos"))
    return tuple(ScalarOp(element, deliver(f, 1), rounds=element in numerics.NARROW) for f in functions)


@elementwise("math.ipowi")
def _integer_power(op: OpReader) -> ScalarOp:
    """With a negative exponent the quotient 1 / x^n, rounded towards zero."""
    element = op.result_type().element

    def power(base: Any, exponent: Any) -> Any:
        x, n = signed(base, element).astype(np.int64), signed(exponent, element).astype(np.int64)
        x, n = np.broadcast_arrays(x, n)
        result, factor, left = np.ones_like(x), x, np.maximum(n, 0)
        while left.any():
            result = np.where(left & 1, result * factor, result)
            factor, left = factor * factor, left >> 1
        odd = np.where(n & 1, -1, 1)
        negative = np.where(x == 1, 1, np.where(x == -1, odd, 0))
        return fit(np.where(n < 0, negative, result), element)

    def faults(base: Any, exponent: Any) -> Iterator[tuple[NDArray[np.bool_], type[Finding], str]]:
        wrong = np.equal(base, 0) & np.less(signed(exponent, element), 0)
        if wrong.any():
            yield wrong, DivisionByZero, "raises 0 to a negative power"

    return ScalarOp(element, deliver(power, 2), number=number_of(power, element), faults=faults)
