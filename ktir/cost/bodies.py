"""What the vector unit takes for the body of a `linalg.generic`, before there are instructions."""

from __future__ import annotations

from typing import Any

from ktir.dialects.structured import Generic
from ktir.dialects.vector_kinds import byte_kind, is_folded, keeps_lane, kind_of
from ktir.isa.cycles import kind_cycles
from ktir.mlir import ir
from ktir.target import LANES, Target, is_byte, is_byte_float


def stick_cycles(g: Generic, target: Target) -> int:
    """Cycles per stick. A position that masks lanes costs what its `select` does; a reduction combines in one cycle."""
    return max(sum(scalar_cycles(op, target) for op in g.body_ops), 1)


def scalar_cycles(op: ir.Operation, target: Target) -> int:
    """Cycles per stick of one op of a body."""
    kind = None if keeps_lane(op) or is_folded(op) else kind_of(op)
    return kind_cycles(kind, target) if kind is not None else 0


def widening_cycles(rows: Any, weights: Any, target: Target) -> int:
    """Cycles in which the vector unit widens a block of 64x64 weights of one byte to the type of the rows that are multiplied with it; 0
    where the array takes both as they are."""
    if not is_byte(weights) or is_byte(rows):
        return 0
    kinds = [byte_kind(weights, 0), *([] if is_byte_float(weights) else ["sitofp"])]
    return LANES * sum(kind_cycles(kind, target) for kind in kinds)
