"""The control run: everything about a program that does not depend on values, once per program.

Units are generators that yield when they are blocked. Since every FIFO and token channel has one writer and one reader, the order in which
units are served changes neither the verdict nor the trace's meaning nor, with the memory channel arbitrated by time, any cycle.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import NoReturn

import numpy as np

from ktir.emulator.machine.checks.checks import Checks, Memories
from ktir.emulator.machine.checks.state import KernelState, UnitState
from ktir.emulator.machine.control.ahead import Before, load_ahead
from ktir.emulator.machine.control.kernel_streams import Blocked
from ktir.emulator.machine.control.words import Words
from ktir.emulator.machine.memory.touch import lx_classes
from ktir.emulator.machine.program import faults
from ktir.emulator.machine.program.decode import UNITS, DecodedKernel
from ktir.emulator.machine.trace.clocks import WIDTH, both_corelets
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.descriptor import LEVELS
from ktir.isa.instructions import Does
from ktir.isa.program import Program
from ktir.isa.resources import Resource
from ktir.isa.units import FIFOS, Unit
from ktir.target import Target

MAX_WORDS = 4_000_000
"""Words that one kernel may execute, over all units; more is taken for a runaway loop."""


def control(
    program: Program,
    target: Target,
    *,
    seed: int | None = None,
    checks: bool = True,
    journal: bool = False,
    free: Collection[Resource] = (),
    contended: bool = True,
    since: int = 0,
) -> Trace:
    """Run the control plane of `program`. Raises a MachineFinding for the first fault.

    seed: serve the units in random order (for tests). checks: False leaves out the shadows, for timing alone. journal: keep what each unit
    does when. free: what takes no time, to ask what a program would take without it. contended: False lets no unit wait for another one's
    use of the memory channel and the ring. Both hold for kernel `since` and those behind it.
    """
    order = None if seed is None else random.Random(seed)
    kernels = [DecodedKernel(program, k, target) for k in range(len(program.kernels))]
    classes = lx_classes([(k.kernel, k.accesses, _trips(k)) for k in kernels])
    memories = Memories(program, target, classes, checks)
    trace = Trace(kernels, classes, journals=[] if journal else None)
    clock = np.zeros(WIDTH, np.int64)
    before = Before(clock, 0, 0)
    for decoded in kernels:
        asked = decoded.index >= since
        state = KernelState(decoded, target, trace, clock, free if asked else (), contended or not asked)
        _KernelRun(state, memories, order, before).run()
        clock = both_corelets(np.maximum.reduce([u.clock for u in state.units.values()]))
        before = Before.of(state)
    if trace.statistics:
        trace.statistics[-1].dead_writes += int(np.count_nonzero(memories.lx.unread))
    return trace


def _trips(decoded: DecodedKernel) -> list[int]:
    """Per level the highest trip count of any loop of the kernel."""
    out = [0] * LEVELS
    for x in decoded.instructions:
        if x.does is Does.LOOP:
            out[x.level] = max(out[x.level], x.trips)
    return out


class _KernelRun:
    """Serves the units of one kernel until all have halted."""

    def __init__(self, state: KernelState, memories: Memories, order: random.Random | None, before: Before) -> None:
        self.state = state
        self.memories = memories
        self.order = order
        self.before = before
        self.checks = Checks(memories, state)
        self.words = Words(state, self.checks)

    def run(self) -> None:
        """Run the kernel and append its statistics to the trace."""
        state = self.state
        self._check_length()
        before = self.memories.lx.dead_writes
        load_ahead(state, self.checks, self.before)
        self.memories.barrier(state.decoded)
        live = {u: self._program(state.units[u]) for u in UNITS if state.decoded.units[u]}
        while live:
            seen = state.progress
            order = list(live)
            if self.order:
                self.order.shuffle(order)
            for u in order:
                try:
                    next(live[u])
                except StopIteration:
                    del live[u]
                    state.progress += 1
            if live and state.progress == seen and not state.shared.grant() and not self.words.split_rep():
                self._deadlock(list(live))
        self._check_end()
        self._measure()
        state.statistics.dead_writes = self.memories.lx.dead_writes - before

    def _check_length(self) -> None:
        """Raise for a kernel that would run for ages."""
        total = 0
        for unit, instructions in self.state.decoded.units.items():
            runs = [1]
            for x in instructions:
                if x.does is Does.END_LOOP:
                    runs.pop()
                elif x.does is Does.LOOP:
                    runs.append(runs[-1] * x.trips)
                total += runs[-1]
                if total > MAX_WORDS:
                    message = f"the kernel executes more than {MAX_WORDS} words"
                    raise faults.IllegalProgram(message, self.state.decoded.site(unit, x.index))

    def _program(self, u: UnitState) -> Blocked:
        """One unit's program."""
        instructions = self.state.decoded.units[u.unit]
        trips: list[int] = []
        k = 0
        while True:
            x = instructions[k]
            u.at = x
            if x.does is Does.HALT:
                return
            if x.does is Does.LOOP:
                if not x.trips:
                    k = x.end
                    continue
                u.counters[x.level] = 0
                u.levels.append(x.level)
                trips.append(x.trips)
                k += 1
            elif x.does is Does.END_LOOP:
                u.counters[x.level] += 1
                if u.counters[x.level] < trips[-1]:
                    k = x.end + 1
                    continue
                u.counters[x.level] = 0
                u.levels.pop()
                trips.pop()
                k += 1
            else:
                u.statistics.words += 1
                yield from self.words.run(u, x)
                self.state.progress += 1
                k = x.end

    def _check_end(self) -> None:
        """Nothing may be left of a kernel but the declared tokens."""
        state = self.state
        self.checks.early_reads()
        if self.words.array.accumulated:
            raise state.fault(faults.AccumulatorFault, "the kernel ends with sums that PTO has not drained", state.last(Unit.PT))
        for f in state.fifos.values():
            if f.fill:
                unit = FIFOS[f.name].producer
                count = "1 entry is" if f.fill == 1 else f"{f.fill} entries are"
                message = f"{count} left in FIFO {f.name} at the end of the kernel, pushed by {unit.name}"
                raise state.fault(faults.FifoFault, message, state.last(unit))
        declared = {(c.sender, c.receiver, c.token): c.leftover for c in state.decoded.kernel.channels}
        for key in {**declared, **state.channels}:
            left = len(state.channels[key].posts) if key in state.channels else 0
            if left != declared.get(key, 0):
                sender, receiver, token = key
                channel = f"channel {sender.name} -> {receiver.name}, token {token}"
                message = f"{channel} ends with {left} tokens, but the kernel declares {declared.get(key, 0)}"
                raise state.fault(faults.TokenFault, message, state.last(sender))

    def _measure(self) -> None:
        state, s = self.state, self.state.statistics
        s.cycles, chain = max((u.done for u in state.units.values()), key=lambda done: done[0])
        s.chain = {r: int(chain[r]) for r in Resource if chain[r]}
        for u in state.units.values():
            u.statistics.end = u.time
        s.units = {u.unit: u.statistics for u in state.units.values()}
        s.loads = {
            Resource.MEMORY: state.shared.memory_load,
            Resource.RING: state.shared.ring_load,
            Resource.PT: s.units[Unit.PT].busy,
            Resource.SFP: s.units[Unit.SFP].busy,
            Resource.LX: max(s.units[Unit.LXLU].busy, s.units[Unit.LXSU].busy),
        }
        s.fifo_entries = {f.name: f.pushed for f in state.fifos.values() if f.pushed}
        s.tokens = {k: (c.posted, c.most) for k, c in state.channels.items()}
        state.trace.statistics.append(s)
        if state.journal is not None and state.trace.journals is not None:
            state.trace.journals.append(state.journal)

    def _deadlock(self, blocked: Sequence[Unit]) -> NoReturn:
        self.checks.early_reads()
        state = self.state
        waits = {u: state.units[u].waits() for u in blocked}
        parts = []
        for u, (what, on) in waits.items():
            at = state.units[u].at
            place = f"word {at.index} '{at.op}'" if at else "its start"
            parts.append(f"{u.name} at {place} waits for {what} ({on.name}{'' if on in waits else ', which has halted'})")
        ring = _ring(waits)
        head = f"deadlock of {' -> '.join(u.name for u in ring)}" if ring else "deadlock"
        first = state.units[(ring or list(blocked))[0]]
        site = state.site(state.event(first, first.at)) if first.at else None
        raise faults.Deadlock(f"{head}: {'; '.join(parts)}", site, waits)


def _ring(waits: dict[Unit, tuple[str, Unit]]) -> list[Unit]:
    """Units that wait for each other in a ring, empty if there is none."""
    for start in waits:
        path = [start]
        while (following := waits[path[-1]][1]) in waits:
            if following in path:
                return path[path.index(following) :]
            path.append(following)
    return []
