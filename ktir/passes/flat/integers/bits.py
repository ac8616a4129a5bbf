"""The bits of floats of 8 and 16 bits as integers, and integers as the bits of such floats, in the arithmetic of 32 bits of the device.

The fields of a narrow float, moved to the places of those of an f32, are the number but for a power of two: subnormals, too. Infinity and
NaN have an exponent of ones in both; NaN keeps its fraction, which rounding leaves as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from ktir.analysis.flat import refuse
from ktir.dialects.structured import constant
from ktir.mlir import arith, func, i32_type, ir, is_a, operations
from ktir.target import Target

_FRACTION, _BIAS, _ONES = 23, 127, 0x7F800000
"""Of f32: bits of its fraction, the bias of its exponent, an exponent of ones."""


@dataclass(frozen=True)
class _Format:
    """Bits of a narrow float, of its fraction, the bias of its exponent, and the least code that is no number."""

    width: int
    fraction: int
    bias: int
    special: int

    @property
    def shift(self) -> int:
        """How far an f32 has its fields further to the left."""
        return _FRACTION - self.fraction

    @property
    def most(self) -> int:
        """All bits but the sign."""
        return (1 << self.width - 1) - 1


_FORMATS = {
    "f16": _Format(16, 10, 15, 0x7C00),
    "bf16": _Format(16, 7, 127, 0x7F80),
    "f8E5M2": _Format(8, 2, 15, 0x7C),
    "f8E4M3FN": _Format(8, 3, 7, 0x7F),
}
_ALL_ONES = "f8E5M2"
"""A float of which PyTorch gives the NaN with all bits where it rounds to it."""
_IN_DL16 = "f8E4M3FN"
"""The float of which DLFloat16 has all codes."""


def bits_by_fields(function: func.FuncOp, target: Target) -> None:
    """Replace bitcasts between such floats and integers, in place. Raises Unsupported where the device has other floats in their place."""
    codes: dict[ir.Value, ir.Value] = {}
    for op in [o for o in operations(function) if is_a(o, arith.BitcastOp)]:
        value, to = op.operands[0], op.results[0].type
        of, into = (_FORMATS.get(str(t)) for t in (value.type, to))
        if of is None and into is None:
            continue
        if target.dl16 == "native" and (found := {of, into} - {None, _FORMATS[_IN_DL16]}):
            kind = next(name for name, known in _FORMATS.items() if known in found)
            raise refuse(op, f"reads or makes the bits of {kind}, which target '{target.name}' holds as DLFloat16, of other bits")
        with ir.InsertionPoint(op), op.location:
            code = codes.get(value) or (arith.ExtUIOp(i32_type(), value).result if of is None else _code(value, of))
            found = arith.TruncIOp(to, code).result if into is None else arith.TruncFOp(to, _number(code, into)).result
        codes[found] = code
        op.results[0].replace_all_uses_with(found)
        op.erase()


def _of(number: int) -> ir.Value:
    return constant(i32_type(), (number + 2**31) % 2**32 - 2**31)


def _and(value: ir.Value, mask: int) -> ir.Value:
    return arith.AndIOp(value, _of(mask)).result


def _chosen(value: ir.Value, least: int, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    return arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.sge, value, _of(least)), then, otherwise).result


def _scaled(bits: ir.Value, exponent: int) -> ir.Value:
    """The bits of an f32, given by its bits, times a power of two."""
    f32 = ir.F32Type.get()
    x = arith.BitcastOp(f32, bits).result
    return arith.BitcastOp(i32_type(), arith.MulFOp(x, constant(f32, 2.0**exponent)).result).result if exponent else bits


def _number(code: ir.Value, of: _Format) -> ir.Value:
    """The f32 of a code."""
    fields = arith.ShLIOp(_and(code, of.most), _of(of.shift)).result
    size = _chosen(fields, of.special << of.shift, arith.OrIOp(fields, _of(_ONES)).result, _scaled(fields, _BIAS - of.bias))
    sign = arith.ShLIOp(_and(code, 1 << of.width - 1), _of(32 - of.width)).result
    return arith.BitcastOp(ir.F32Type.get(), arith.OrIOp(size, sign).result).result


def _code(value: ir.Value, of: _Format) -> ir.Value:
    """The code of a float, an i32."""
    bits = arith.BitcastOp(i32_type(), arith.ExtFOp(ir.F32Type.get(), value).result).result
    size = _and(bits, 0x7FFFFFFF)
    if str(value.type) == _ALL_ONES and not isinstance(value.owner, ir.Block) and is_a(value.owner, arith.TruncFOp):
        special = _chosen(size, _ONES + 1, _of(of.most), _of(of.special))
    else:
        special = _and(arith.OrIOp(arith.ShRUIOp(size, _of(of.shift)).result, _of(of.special)).result, of.most)
    found = _chosen(size, _ONES, special, arith.ShRUIOp(_scaled(size, of.bias - _BIAS), _of(of.shift)).result)
    return arith.OrIOp(found, _and(arith.ShRUIOp(bits, _of(32 - of.width)).result, 1 << of.width - 1)).result
