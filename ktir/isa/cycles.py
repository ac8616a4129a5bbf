"""What one execution of a vector op costs, in cycles; the emulator and the cost model agree on it."""

from __future__ import annotations

from ktir.isa.instructions import CONSTANTS
from ktir.isa.kinds import KINDS
from ktir.isa.program import Word
from ktir.target import Target

_FREE = ("vin", "vout", *CONSTANTS)


def op_cycles(word: Word, target: Target) -> int:
    """Cycles of one execution of a REP body's op."""
    if word.op in _FREE:
        return 0
    if word.op == "vred":
        return target.sfp_lane_reduction_cycles
    return kind_cycles(word["kind"], target) if word.op in ("v1", "v2", "v3") else 1


def kind_cycles(kind: str, target: Target) -> int:
    """Cycles of one stick of an operation."""
    return {"simple": 1, "transcendental": target.sfp_transcendental_cycles, "long": target.sfp_long_cycles}[KINDS[kind].cost]
