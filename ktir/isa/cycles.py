"""What one execution of a vector op costs, in cycles; the emulator and the cost model agree on it."""

from __future__ import annotations

from ktir.isa.program import Word
from ktir.target import Target

_FREE = ("vin", "vout", "vconst")
_TRANSCENDENTAL = ("exp", "log", "sqrt", "rsqrt", "rec", "tanh", "erf", "div")


def op_cycles(word: Word, target: Target) -> int:
    """Cycles of one execution of a REP body's op."""
    if word.op in _FREE:
        return 0
    if word.op == "vred":
        return target.sfp_lane_reduction_cycles
    if word.op in ("v1", "v2") and word["kind"] in _TRANSCENDENTAL:
        return target.sfp_transcendental_cycles
    return 1
