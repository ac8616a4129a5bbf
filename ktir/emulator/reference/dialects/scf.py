"""scf: loops and conditions, resolved while recording. Numbers that depend on data make the program run as it is recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from ktir.diagnostics import KtirError
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.record.budget import expect_trips, take_step, trip_count, work_of
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.tape.values import simplify


@executes("scf.for")
def _for(op: OpReader) -> Action:
    low, high, step, *initial = op.operands
    results, where = op.results, op.where
    work = work_of(op.op.regions[0].blocks[0], op.numbering)
    body = op.block()
    induction, *carried_slots = body.arguments

    def action(rec: Recorder) -> None:
        first, end, stride = rec.known(low), rec.known(high), rec.known(step)
        if not np.all(np.greater(stride, 0)):
            raise KtirError(f"{where} expects a positive step, but got {stride}", where.location)
        trips: Any = trip_count(first, end, stride)
        outer = rec.active
        if outer is not None and np.ndim(trips):
            trips = np.where(outer, trips, 0)
        trips = simplify(trips)
        carried = [rec.get(slot) for slot in initial]
        most = int(np.max(trips))
        expect_trips(rec, where, most, work)
        for i in rec.trips_of(most, bool(carried)):
            if isinstance(trips, np.ndarray):
                running = trips > i if outer is None else (trips > i) & outer
                rec.active = None if running.all() else running
            take_step(rec, where)
            rec.set(induction, simplify(np.add(first, np.multiply(stride, i))))
            rec.set_all(carried_slots, carried)
            carried = [rec.merge(old, new) for old, new in zip(carried, rec.run(body), strict=True)]
        rec.active = outer
        rec.set_all(results, carried)

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
                if not rec.active.any():
                    continue
                found = rec.run(branch)
                values = [rec.merge(old, new) for old, new in zip(values, found, strict=True)] if values else found
            rec.active = outer
            if results and not values:  # no tile is here
                values = rec.run(branches[0])
        rec.set_all(results, values)

    return action


@executes("scf.while")
def _while(op: OpReader) -> Action:
    """While the region `before` says so: its yielded values go to `after`, and what that yields goes back."""
    initial, results, where = op.operands, op.results, op.where
    before, after = op.block(0), op.block(1)

    def action(rec: Recorder) -> None:
        outer = rec.active
        carried: list[Any] = [rec.get(slot) for slot in initial]
        found: list[Any] | None = None
        while True:
            take_step(rec, where)
            rec.set_all(before.arguments, carried)
            _, *values = rec.run(before)
            goes = rec.known(before.yields[0])
            # A tile that ends keeps the values of its last test.
            found = values if found is None else [rec.merge(old, new) for old, new in zip(found, values, strict=True)]
            live = rec.live() & np.broadcast_to(np.asarray(goes, np.bool_), (rec.tiles,))
            if not live.any():
                break
            rec.active = None if live.all() else live
            rec.set_all(after.arguments, found)
            carried = [rec.merge(old, new) for old, new in zip(carried, rec.run(after), strict=True)]
        rec.active = outer
        rec.set_all(results, found or [])

    return action


@executes("scf.execute_region")
def _region(op: OpReader) -> Action:
    results, body = op.results, op.block()

    def action(rec: Recorder) -> None:
        rec.set_all(results, rec.run(body))

    return action


@executes("scf.index_switch")
def _switch(op: OpReader) -> Action:
    (argument,), results = op.operands, op.results
    cases = op.integers("cases")
    blocks = [op.block(i) for i in range(1 + len(cases))]

    def action(rec: Recorder) -> None:
        chosen = rec.known(argument)
        outer, values = rec.active, []
        found: list[Any] = []
        taken = np.zeros(rec.tiles, np.bool_)
        for case, block in zip([*cases, None], [*blocks[1:], blocks[0]], strict=True):
            mask = ~taken if case is None else np.broadcast_to(np.equal(chosen, case), (rec.tiles,))
            taken = taken | mask
            live = mask if outer is None else mask & outer
            if not live.any():
                continue
            rec.active = None if live.all() else live
            values = rec.run(block)
            found = [rec.merge(old, new) for old, new in zip(found, values, strict=True)] if found else values
        rec.active = outer
        rec.set_all(results, found)

    return action


@executes("scf.parallel")
def _parallel(op: OpReader) -> Action:
    """Iterations one after another; reductions fold in that order."""
    counts = op.integers("operandSegmentSizes")
    rank = counts[0]
    low, high, step = (op.operands[i * rank : (i + 1) * rank] for i in range(3))
    initial, results, where = op.operands[3 * rank :], op.results, op.where
    body = op.block()
    last = list(op.op.regions[0].blocks[0].operations)[-1].operation
    reducers: list[Any] = []
    reduced: list[int] = []
    if last.name == "scf.reduce":
        inner = op.inner(last)
        reduced = inner.operands
        reducers = [inner.block(i) for i in range(len(reduced))]

    def action(rec: Recorder) -> None:
        bounds = ([rec.integer(slot, "a bound") for slot in row] for row in (low, high, step))
        totals = [rec.get(slot) for slot in initial]
        for point in _points(rec, where, *bounds):
            take_step(rec, where)
            rec.set_all(body.arguments, point)
            rec.run(body)
            for k, (slot, block) in enumerate(zip(reduced, reducers, strict=True)):
                rec.set_all(block.arguments, (totals[k], rec.get(slot)))
                (totals[k],) = rec.run(block)
        rec.set_all(results, totals)

    return action


def _points(rec: Recorder, where: Where, low: Sequence[int], high: Sequence[int], step: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The iterations of a loop over several dims, last dim fastest. Raises where they are too many, before the first one."""
    for stride in step:
        if stride <= 0:
            raise KtirError(f"{where} expects a positive step, but got {stride}", where.location)
    expect_trips(rec, where, prod(map(trip_count, low, high, step)))
    return _product([range(*bounds) for bounds in zip(low, high, step, strict=True)])


def _product(ranges: Sequence[range]) -> Iterator[tuple[int, ...]]:
    """As `itertools.product`, without a copy of the ranges."""
    if not ranges:
        yield ()
        return
    for first in ranges[0]:
        for rest in _product(ranges[1:]):
            yield (first, *rest)


@executes("scf.reduce")
def _reduce(op: OpReader) -> Action:
    """The `scf.parallel` around it folds."""
    return lambda rec: None


@executes("scf.forall")
def _forall(op: OpReader) -> Action:
    """Iterations one after another; each inserts its slices into the shared outputs."""
    counts = op.integers("operandSegmentSizes")
    bounds = op.entries(0, "staticLowerBound", "staticUpperBound", "staticStep")
    outputs, results, where = op.operands[sum(counts[:3]) :], op.results, op.where
    body = op.block()
    rank = len(bounds[0])

    def action(rec: Recorder) -> None:
        low, high, step = (rec.integers(row, "a bound") for row in bounds)
        shared = body.arguments[rank:]
        rec.set_all(shared, map(rec.get, outputs))
        for point in _points(rec, where, low, high, step):
            take_step(rec, where)
            for slot, value in zip(body.arguments, point, strict=False):
                rec.set(slot, value)
            rec.run(body)
        rec.set_all(results, map(rec.get, shared))

    return action


@executes("scf.forall.in_parallel")
def _in_parallel(op: OpReader) -> Action:
    body = op.block()

    def action(rec: Recorder) -> None:
        rec.run(body)

    return action
