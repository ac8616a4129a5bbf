"""How much a run may do: recording unrolls loops, so one with an absurd trip count would never end.

A step is an op or a trip of a loop, once for all tiles together. What loops take at least is known where they are entered, as far as the
bounds of the loops in them are constants or come from outside; what is not foreseen is seen when the steps are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ktir.diagnostics import Unsupported
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.op_reader import Numbering
from ktir.emulator.reference.record.recording import Recording
from ktir.mlir import ir

__all__ = ["Work", "expect_trips", "take_step", "trip_count", "work_of"]

_STEPS_OF_A_CALL = 16
"""Steps for each NumPy call that a tape may have: with more calls a plan would need gigabytes."""


@dataclass(frozen=True)
class _Bound:
    """A number, or the slot of a value that is there when the loop is entered."""

    number: int | None
    slot: int = -1

    def least(self, rec: Recording) -> Any:
        """The number on every tile; None where data decides."""
        if self.number is not None:
            return self.number
        value = rec.get(self.slot)
        return value if isinstance(value, int | np.integer | np.ndarray) else None


@dataclass(frozen=True)
class Work:
    """What a body does at least: its own ops, and loops in it, each with its bounds and its body."""

    ops: int
    loops: tuple[tuple[tuple[_Bound, ...], Work], ...] = ()

    def steps(self, rec: Recording) -> int:
        """Steps of one pass over the body, at least."""
        found = self.ops
        for bounds, inner in self.loops:
            low, high, step = (bound.least(rec) for bound in bounds)
            if low is not None and high is not None and step is not None and np.all(np.greater(step, 0)):
                found += int(np.min(trip_count(low, high, step))) * (1 + inner.steps(rec))
        return found


def work_of(block: ir.Block, numbering: Numbering) -> Work:
    """What a body does; to be asked before it is compiled, when only the values outside of it have slots."""
    ops = [view.operation for view in block.operations]
    loops = []
    for op in ops:
        if op.name == "scf.for":
            bounds = tuple(_bound(value, numbering) for value in list(op.operands)[:3])
            if None not in bounds:
                loops.append((bounds, work_of(op.regions[0].blocks[0], numbering)))
    return Work(len(ops) - 1, tuple(loops))


def _bound(value: ir.Value, numbering: Numbering) -> _Bound | None:
    owner = value.owner
    if not isinstance(owner, ir.Block) and owner.name == "arith.constant":
        return _Bound(ir.IntegerAttr(owner.attributes["value"]).value)
    return _Bound(None, numbering[value]) if value in numbering.slots else None


def trip_count(low: Any, high: Any, step: Any) -> Any:
    """Trips from `low` to below `high`; of numbers that differ between tiles an array."""
    if any(isinstance(n, np.ndarray) for n in (low, high, step)):
        return np.maximum(-(np.subtract(low, high) // step), 0)
    return max(-((int(low) - int(high)) // int(step)), 0)


def expect_trips(rec: Recording, where: Where, trips: int, work: Work | None = None) -> None:
    """Raises Unsupported where a loop that begins now takes more steps than are left."""
    each = 1 + (0 if work is None else work.steps(rec))
    most = rec.policy.most_steps
    if rec.counts.ops + rec.turns + trips * each > most:
        what = f"takes {trips * each} steps or more in its {trips} trips"
        raise Unsupported(f"{where} {what}, but a run may take {most}; 'most-steps' sets how many", where.location)


def take_step(rec: Recording, where: Where) -> None:
    """A trip or a call begins. Raises Unsupported where the steps are used up."""
    rec.turns += 1
    most = rec.policy.most_steps
    if rec.counts.ops + rec.turns > most:
        raise Unsupported(f"{where} goes on after {most} steps; 'most-steps' sets how many a run may take", where.location)
    if len(rec.steps) > (calls := most // _STEPS_OF_A_CALL):
        raise Unsupported(f"{where} unrolls to more than {calls} calls; 'most-steps' sets {_STEPS_OF_A_CALL} times as many", where.location)
