"""scf: loops and conditions on known numbers, so both are resolved while recording."""

from __future__ import annotations

import numpy as np

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.recorder import Recorder
from ktir.emulator.reference.registry import Action, executes
from ktir.emulator.reference.values import simplify

_MOST_STEPS = 1 << 21
"""Steps of a tape; a program with more would need gigabytes for its plan."""


@executes("scf.for")
def _for(op: OpReader) -> Action:
    low, high, step, *initial = op.operands
    results, where = op.results, op.where
    body = op.block()
    induction, *carried_slots = body.arguments

    def action(rec: Recorder) -> None:
        first, end, stride = rec.known(low), rec.known(high), rec.known(step)
        if not np.all(np.greater(stride, 0)):
            raise KtirError(f"{where} expects a positive step, but got {stride}", where.location)
        trips = simplify(np.maximum(-(np.subtract(first, end) // stride), 0))
        outer = rec.active
        carried = [rec.get(slot) for slot in initial]
        for i in range(int(np.max(trips))):
            if isinstance(trips, np.ndarray):
                running = trips > i if outer is None else (trips > i) & outer
                rec.active = None if running.all() else running
            if len(rec.steps) > _MOST_STEPS:
                raise Unsupported(f"{where} unrolls to more than {_MOST_STEPS} steps", where.location)
            rec.set(induction, simplify(np.add(first, np.multiply(stride, i))))
            for slot, value in zip(carried_slots, carried, strict=True):
                rec.set(slot, value)
            carried = [rec.merge(old, new) for old, new in zip(carried, rec.run(body), strict=True)]
        rec.active = outer
        for slot, value in zip(results, carried, strict=True):
            rec.set(slot, value)

    return action


@executes("scf.if")
def _if(op: OpReader) -> Action:
    (condition,), results = op.operands, op.results
    branches = [op.block(i) for i in range(2) if len(op.op.regions[i].blocks)]

    def action(rec: Recorder) -> None:
        holds = rec.known(condition)
        if not isinstance(holds, np.ndarray):
            taken = branches[0] if holds else branches[1] if len(branches) > 1 else None
            values = rec.run(taken) if taken is not None else []
        else:
            outer = rec.active
            values = []
            for branch, mask in zip(branches, (holds.astype(np.bool_), ~holds.astype(np.bool_)), strict=False):
                rec.active = mask if outer is None else mask & outer
                found = rec.run(branch)
                values = [rec.merge(old, new) for old, new in zip(values, found, strict=True)] if values else found
            rec.active = outer
        for slot, value in zip(results, values, strict=True):
            rec.set(slot, value)

    return action
