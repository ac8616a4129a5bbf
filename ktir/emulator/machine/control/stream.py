"""Streams: sequences of steps that pop entries, compute and push entries. The engine behind every word that uses a FIFO.

Step j starts when its unit has finished step j-1, its inputs are ready and its output slots are free:

    done[j] = max(done[j-1], ready[j], freed[j]) + cost[j]

As many steps as the FIFOs allow are taken at once; results do not depend on how the steps are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.checks.fifo import FifoQueue
from ktir.emulator.machine.program.body import Body
from ktir.emulator.machine.trace.clocks import Clock
from ktir.emulator.machine.trace.journal import Gap, Journal
from ktir.isa.resources import ONE, Chain, Resource

Ints = NDArray[np.int64]
_NO_CHAIN = np.zeros((1, len(Resource)), np.int64)
"""Of cycle 0."""


@dataclass(frozen=True)
class Flow:
    """What a stream does to one FIFO: `total[j]` entries in the steps before step j; None = one entry per step."""

    fifo: str
    total: Ints | None = None
    latency: int = 0
    """Cycles from the end of a step until its pushed entry is ready."""
    way: Resource = Resource.HANDOVER
    """What takes that time."""

    def through(self, step: int) -> int:
        """Entries of the steps before `step`."""
        return step if self.total is None else int(self.total[step])


@dataclass(frozen=True)
class Plan:
    """The steps of a word: `work[j]` cycles of a resource in the steps before step j."""

    steps: int
    work: Ints
    resource: Resource
    pops: tuple[Flow, ...] = ()
    pushes: tuple[Flow, ...] = ()


def uniform(steps: int, cycles: float, resource: Resource, pops: Sequence[str] = (), pushes: Sequence[str] = (), latency: int = 0) -> Plan:
    """`steps` equal steps that move one entry each and take cycles of `resource`; what is pushed is on its way for `latency` more of these.
    A step ends at a whole cycle.
    """
    flows = tuple(Flow(fifo, latency=latency, way=resource) for fifo in pushes)
    return Plan(steps, np.ceil(np.arange(steps + 1) * cycles).astype(np.int64), resource, tuple(map(Flow, pops)), flows)


def of_body(body: Body, latency: int, *, free: bool = False) -> Plan:
    """The steps of a REP: one per stick. `free`: they take no time."""
    return Plan(
        body.groups * body.sticks,
        np.concatenate(([0], np.cumsum(np.tile(body.cycles * (not free), body.groups)))),
        Resource.SFP,
        tuple(Flow(f, body.total(body.pops, f)) for f in body.pops),
        tuple(Flow(f, body.total(body.pushes, f), latency) for f in body.pushes),
    )


@dataclass
class Stream:
    """A plan in progress. `time` is the end of the last step taken, `chain` what it consists of, `clock` what the stream has seen.

    `component`: the clock component that ticks once per step, or -1; `keep`: whether `rows` collects the clock of every step.
    """

    plan: Plan
    time: int
    chain: Chain
    clock: Clock
    component: int = -1
    keep: bool = False
    done: int = 0
    rows: list[Clock] = field(default_factory=list)
    stalls: dict[str, int] = field(default_factory=dict)
    journal: Journal | None = None
    gaps: list[Gap] = field(default_factory=list)
    """What it waited for and when, if there is a journal."""

    @property
    def work(self) -> int:
        """Cycles of all steps without waiting."""
        return int(self.plan.work[-1])

    @property
    def finished(self) -> bool:
        """Whether every step has been taken."""
        return self.done == self.plan.steps

    def lacking(self, fifos: dict[str, FifoQueue]) -> list[tuple[str, str]]:
        """What the next step waits for: ("empty" or "full", FIFO)."""
        i = self.done
        out = []
        for f in self.plan.pops:
            if fifos[f.fifo].fill < f.through(i + 1) - f.through(i):
                out.append(("empty", f.fifo))
        for f in self.plan.pushes:
            if fifos[f.fifo].space < f.through(i + 1) - f.through(i):
                out.append(("full", f.fifo))
        return out

    def advance(self, fifos: dict[str, FifoQueue]) -> bool:
        """Take as many steps as possible; False if none is."""
        plan, i = self.plan, self.done
        m = plan.steps - i
        for flow in plan.pops:
            queue = fifos[flow.fifo]
            m = min(m, _steps(flow, i, queue.pushed - queue.popped))
            if not m:
                return False
        for flow in plan.pushes:
            queue = fifos[flow.fifo]
            m = min(m, _steps(flow, i, queue.depth - queue.pushed + queue.popped))
        if not m:
            return False
        j = i + m
        rows: Clock | None = None
        waits: list[tuple[str, Ints, Chain]] = []
        for flow in plan.pops:
            ready, chains, seen = _inputs(flow, fifos[flow.fifo], i, j, self.clock)
            rows = seen if rows is None else np.maximum(rows, seen)
            waits.append((f"empty {flow.fifo}", ready, chains))
        for flow in plan.pushes:
            waits.append((f"full {flow.fifo}", *_room(flow, fifos[flow.fifo], i, j)))
        done, chains = self._times(i, j, waits)
        rows = np.maximum(rows, self.clock) if rows is not None else self.clock[None].repeat(m, 0)
        if self.component >= 0:
            rows[:, self.component] = self.clock[self.component] + np.arange(1, m + 1)
        self.clock = rows[-1]
        if self.keep:
            self.rows.append(rows)
        for flow in plan.pops:
            _free(flow, fifos[flow.fifo], i, j, done, chains)
        for flow in plan.pushes:
            _fill(flow, fifos[flow.fifo], i, j, done, chains, rows)
        if self.journal is not None:
            for flows, change in ((plan.pops, -1), (plan.pushes, 1)):
                for flow in flows:
                    (times,) = _per_entry(flow, i, j, done)
                    self.journal.fills.setdefault(flow.fifo, []).append((times, change))
        self.done = j
        return True

    def _times(self, i: int, j: int, waits: list[tuple[str, Ints, Chain]]) -> tuple[Ints, Chain]:
        """End of each of the steps i to j-1, and its chain; accounts for the time lost."""
        work = self.plan.work[i : j + 1] - self.plan.work[i]
        start = self.time
        if not waits:
            done = start + work[1:]
        else:
            earliest = waits[0][1] if len(waits) == 1 else np.maximum.reduce([w for _, w, _ in waits])
            done = np.maximum(np.maximum.accumulate(earliest - work[:-1]), start) + work[1:]
        self.time = int(done[-1])
        chains = self.chain[None].repeat(j - i, 0)
        worked = work[1:]
        if self.time - start > work[-1]:
            before = np.concatenate(([start], done[:-1]))
            gaps = done - np.diff(work) - before
            cause = np.argmax([w for _, w, _ in waits], axis=0) if len(waits) > 1 else np.zeros(len(gaps), int)
            # A step that waits starts its chain anew, where what it waits for comes from; those behind it go on from there.
            origin = np.maximum.accumulate(np.where(gaps > 0, np.arange(j - i), -1))
            began = origin >= 0
            origin = origin[began]
            chains[began] = np.stack([c for _, _, c in waits])[cause[origin], origin]
            worked = worked.copy()
            worked[began] -= work[origin]
            if self.journal is not None and (lasts := gaps > 0).any():
                self.gaps.append(Gap(before[lasts], gaps[lasts], cause[lasts], [name for name, _, _ in waits]))
            for c, lost in enumerate(np.bincount(cause, gaps, len(waits))):
                if lost:
                    name = waits[c][0]
                    self.stalls[name] = self.stalls.get(name, 0) + int(lost)
        chains[:, self.plan.resource] += worked
        self.chain = chains[-1]
        return done, chains


def _steps(flow: Flow, i: int, entries: int) -> int:
    """Steps from `i` on that `entries` entries or free slots allow."""
    if flow.total is None:
        return entries
    return int(flow.total.searchsorted(flow.total[i] + entries, "right")) - 1 - i


def _inputs(flow: Flow, queue: FifoQueue, i: int, j: int, clock: Clock) -> tuple[Ints, Chain, Clock]:
    """Per step the cycle at which its entries are ready, its chain, and what they have seen; earlier entries never weigh more."""
    if flow.total is None:
        slots = queue.slots(queue.popped, j - i)
        return queue.ready[slots], queue.ready_chain[slots], queue.rows[slots]
    upto = flow.total[i + 1 : j + 1] - flow.total[i]
    slots = queue.slots(queue.popped, int(upto[-1]))
    ready = np.concatenate(([0], queue.ready[slots]))
    chains = np.concatenate((_NO_CHAIN, queue.ready_chain[slots]))
    return ready[upto], chains[upto], np.concatenate((clock[None], queue.rows[slots]))[upto]


def _room(flow: Flow, queue: FifoQueue, i: int, j: int) -> tuple[Ints, Chain]:
    """Per step the cycle at which its output slots are free, and its chain; slots are freed in order."""
    if flow.total is None:
        slots = queue.slots(queue.pushed, j - i)
        return queue.freed[slots], queue.freed_chain[slots]
    upto = flow.total[i + 1 : j + 1] - flow.total[i]
    slots = queue.slots(queue.pushed, int(upto[-1]))
    return np.concatenate(([0], queue.freed[slots]))[upto], np.concatenate((_NO_CHAIN, queue.freed_chain[slots]))[upto]


def _per_entry(flow: Flow, i: int, j: int, *of_steps: Ints) -> tuple[Ints, ...]:
    """For each entry of the steps what there is per step."""
    if flow.total is None:
        return of_steps
    counts = np.diff(flow.total[i : j + 1])
    return tuple(np.repeat(x, counts, axis=0) for x in of_steps)


def _free(flow: Flow, queue: FifoQueue, i: int, j: int, done: Ints, chains: Chain) -> None:
    done, chains = _per_entry(flow, i, j, done, chains)
    slots = queue.slots(queue.popped, len(done))
    queue.freed[slots], queue.freed_chain[slots] = done, chains
    queue.popped += len(done)


def _fill(flow: Flow, queue: FifoQueue, i: int, j: int, done: Ints, chains: Chain, rows: Clock) -> None:
    done, chains, rows = _per_entry(flow, i, j, done, chains, rows)
    slots = queue.slots(queue.pushed, len(done))
    queue.ready[slots] = done + flow.latency
    queue.ready_chain[slots] = chains + ONE[flow.way] * flow.latency
    queue.rows[slots] = 0 if queue.crosses else rows
    queue.pushed += len(done)
