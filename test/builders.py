"""Building blocks of programs that tests write op by op."""

from __future__ import annotations

import re
from collections.abc import Callable

from ktir.mlir import arith, ir

Body = Callable[[list[ir.Value]], ir.Value]
"""Makes the scalar body of an op: block arguments to the yielded value."""


def element_type(name: str) -> ir.Type:
    """`f16`, `f32` or `i32`."""
    return {"f16": ir.F16Type.get, "f32": ir.F32Type.get, "i32": lambda: ir.IntegerType.get_signless(32)}[name]()


def index(value: int) -> ir.Value:
    """An index constant."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def number(value: float, type_: ir.Type | None = None) -> ir.Value:
    """A constant, f32 if no type is given."""
    type_ = type_ or ir.F32Type.get()
    return arith.ConstantOp(type_, ir.FloatAttr.get(type_, value)).result


def f32(value: ir.Value) -> ir.Value:
    """A scalar as f32."""
    return value if isinstance(value.type, ir.F32Type) else arith.ExtFOp(ir.F32Type.get(), value).result


def f16(value: ir.Value) -> ir.Value:
    """A scalar rounded to f16."""
    return arith.TruncFOp(ir.F16Type.get(), value).result


def in_bf16(text: str) -> str:
    """KTIR with bf16 in place of f16."""
    return re.sub(r"(?<!\w)f16\b|(?<=x)f16\b", "bf16", text)
