"""What is made of bytes, element for element: conversions, which are exact, and whatever is computed of a byte and of few other numbers."""

from __future__ import annotations

from collections.abc import Collection

from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of
from ktir.mlir import arith, i32_type, ir, is_a, linalg, math, names
from ktir.passes.flat.memory.windows import direct_view
from ktir.target import is_byte_float, is_half

_CONVERSIONS = names(arith.ExtFOp, arith.SIToFPOp, arith.TruncFOp)
_WIDENINGS = names(arith.ExtSIOp)
WIDENINGS = (*_CONVERSIONS, *_WIDENINGS)
"""Ops that make a wider number of a byte. What one rounds to holds every float of one byte."""
_MOST_INPUTS = 3
"""Tensors that the vector unit reads at once."""
_COMPUTED = names(
    arith.ExtFOp, arith.TruncFOp, arith.SIToFPOp, arith.UIToFPOp, arith.ExtSIOp, arith.ExtUIOp, arith.TruncIOp, arith.ConstantOp,
    arith.AddFOp, arith.SubFOp, arith.MulFOp, arith.DivFOp, arith.NegFOp, arith.MaximumFOp, arith.MinimumFOp,
    arith.AddIOp, arith.SubIOp, arith.MulIOp, arith.MaxSIOp, arith.MinSIOp, arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp,
    arith.AndIOp, arith.OrIOp, arith.XOrIOp, arith.CmpFOp, arith.CmpIOp, arith.SelectOp, math.AbsFOp, math.FmaOp,
)  # fmt: skip
"""What a factor may be computed by in front of the array: instructions of the vector unit that leave it no slower than memory."""


def conversion_of(op: ir.Operation) -> Generic | None:
    """An op as one that makes a float of 16 bits of each byte, or an i32; None for another one."""
    if not is_a(op, linalg.GenericOp) or len(op.results) != 1:
        return None
    made = element_of(op.results[0])
    if not is_half(made) and made != i32_type():
        return None
    g, conversions = Generic(op), _CONVERSIONS if is_half(made) else _WIDENINGS
    chain, value = [o.name for o in g.body_ops], g.yielded
    while value != g.body.arguments[0]:
        if isinstance(value.owner, ir.Block) or value.owner.name not in conversions:
            return None
        value = value.owner.operands[0]
    return g if g.is_pointwise and len(g.inputs) == 1 and len(chain) <= 2 and _one_to_one(g, 0) else None


def _one_to_one(g: Generic, number: int) -> bool:
    """Whether an op reads an operand element for element, and all others along loops."""
    return all(isinstance(e, ir.AffineDimExpr) for m in g.maps for e in m.results) and len(g.maps[number].results) == len(g.iterators)


def made_of_bytes(op: ir.Operation, number: int, known: Collection[int] = ()) -> Generic | None:
    """An op as one that makes a float of 16 bits of each byte that operand `number` is, and of few other numbers that are loaded, or
    `known` operands; None for another one."""
    if not is_a(op, linalg.GenericOp) or len(op.results) != 1 or not is_half(element_of(op.results[0])):
        return None
    g = Generic(op)
    if not g.is_pointwise or number >= len(g.inputs) or len(g.inputs) > _MOST_INPUTS or not _one_to_one(g, number):
        return None
    if any(True for _ in g.body.arguments[len(g.inputs)].uses) or not any(True for _ in g.body.arguments[number].uses):
        return None
    others = {i: v for i, v in enumerate(g.inputs) if i != number}
    if any(is_byte_float(element_of(v)) or not (i in known or is_loaded(v)) for i, v in others.items()) or isinstance(
        g.yielded.owner, ir.Block
    ):
        return None
    fitting = all(o.name in _COMPUTED and not any(is_byte_float(r.type) for r in o.results) for o in g.body_ops)
    return g if fitting and not isinstance(g.yielded.owner, ir.Block) else None


def is_loaded(value: ir.Value) -> bool:
    """Whether a tensor is what memory holds, as a whole."""
    owner = value.owner
    return not isinstance(owner, ir.Block) and is_a(owner, ktdp.LoadOp) and direct_view(owner.operands[0].owner.operation) is not None
