"""What the vector unit takes for the body of a `linalg.generic`, before there are instructions."""

from __future__ import annotations

from ktir.dialects.structured import Generic
from ktir.dialects.vector_kinds import is_folded, keeps_lane, kind_of
from ktir.isa.cycles import kind_cycles
from ktir.target import Target


def stick_cycles(g: Generic, target: Target) -> int:
    """Cycles per stick. A position that masks lanes costs what its `select` does; a reduction combines in one cycle."""
    total = 0
    for op in g.body_ops:
        kind = None if keeps_lane(op) or is_folded(op) else kind_of(op)
        total += kind_cycles(kind, target) if kind is not None else 0
    return max(total, 1)
