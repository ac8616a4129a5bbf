"""What the vector unit takes for the body of a `linalg.generic`, before there are instructions."""

from __future__ import annotations

from ktir.dialects.structured import Generic
from ktir.dialects.vector_kinds import byte_kind, is_folded, keeps_lane, kind_of, rounding_kind
from ktir.isa.cycles import kind_cycles
from ktir.mlir import ir
from ktir.target import LANES, TWOS, Target, is_byte, is_byte_float


def stick_cycles(g: Generic, target: Target) -> int:
    """Cycles per stick. A position that masks lanes costs what its `select` does; a reduction combines in one cycle."""
    return max(sum(scalar_cycles(op, target) for op in g.body_ops), 1)


def scalar_cycles(op: ir.Operation, target: Target) -> int:
    """Cycles per stick of one op of a body."""
    kind = None if keeps_lane(op) or is_folded(op) else kind_of(op)
    return kind_cycles(kind, target) if kind is not None else 0


def pairing_cycles(pairs: str, target: Target) -> int:
    """Cycles per stick in which numbers become pairs of bytes: both are rounded, then put together."""
    format_ = TWOS[pairs]
    narrow = "fptosi" if format_.letter == "i" else rounding_kind(format_.hosts[0])
    return 2 * kind_cycles(narrow, target) + kind_cycles(format_.two, target)


def widening_cycles(g: Generic, target: Target) -> int:
    """Cycles in which the vector unit makes a block of 64x64 second factors of a contraction of what memory has: widens elements of one
    byte, or computes factors of them; 0 where the array takes both operands as they are."""
    rows, weights = (argument.type for argument in list(g.body.arguments)[:2])
    if not is_byte(weights) or is_byte(rows):
        return 0
    taken = kind_cycles(byte_kind(weights, 0), target)
    if g.made_factor is not None:
        return LANES * (taken + sum(scalar_cycles(op, target) for op in g.body_ops[:-3]))
    return LANES * (taken + (0 if is_byte_float(weights) else kind_cycles("sitofp", target)))
