"""Shadow state of the arguments in memory: which core owns a cell in the running kernel, and what the cell holds.

A cell is a stick, or, where element descriptors use the argument, as many elements as all of its descriptors leave together. Within a
kernel cores may not share a cell that one of them writes, and a core's own accesses must be ordered by tokens. A stick descriptor writes
whole sticks, also where lanes are dead. The barrier between kernels orders everything; what earlier kernels wrote stays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.memory.conflicts import Conflict, Report
from ktir.emulator.machine.memory.touch import NEVER, Touch, tag_of
from ktir.emulator.machine.trace.clocks import MNIL, MNIS, Clock
from ktir.isa.program import Argument
from ktir.target import STICK_BYTES

NOBODY, MANY = -1, -2

Ints = NDArray[np.int64]


class ArgumentShadow:
    """One argument, in cells of `cell` elements, 0 = sticks. `protected`: the running kernel writes it; other reads need no owner.

    A constant argument is remembered by its element size alone.
    """

    def __init__(self, argument: Argument, cell: int = 0) -> None:
        per_stick = STICK_BYTES // argument.element_bytes
        self.own = tag_of(argument)
        self.constant = argument.constant
        self.cells = 0 if self.constant else argument.sticks * (per_stick // (cell or per_stick))
        full = 1 if cell else per_stick
        self.tag = np.full(self.cells, self.own if argument.given else NEVER, np.int8)
        self.lanes = np.full(self.cells, full if argument.given else 0, np.int8)
        self.protected = False
        self._full = full
        self._holes: Ints | None = None
        """Per cell how many cells before it do not hold all of their own elements; none yet counted in this kernel."""

    def _fresh(self) -> None:
        n = self.cells
        self.owner = np.full(n, NOBODY, np.int16)
        self.write_clock = np.zeros(n, np.int64)
        self.write_event = np.full(n, -1, np.int32)
        self.reader = np.full(n, NOBODY, np.int16)
        self.read_clock = np.zeros(n, np.int64)
        self.read_event = np.full(n, -1, np.int32)

    def barrier(self, written: bool) -> None:
        """Start a kernel, which writes this argument or not."""
        self.protected = written
        self._holes = None
        if written:
            self._fresh()

    def complete(self, low: int, high: int) -> bool:
        """Whether any read of the cells `low` to `high` is in order: the kernel does not write the argument, and they hold elements."""
        if self.protected or high >= self.cells:
            return False
        if self._holes is None:
            whole = (self.tag == self.own) & (self.lanes >= self._full)
            self._holes = np.concatenate(([0], np.cumsum(~whole)))
        return bool(self._holes[high + 1] == self._holes[low])

    def read(self, touch: Touch, clock: Clock, event: int, report: Report, *, early: bool = False) -> None:
        """MNIL, which has seen `clock`, reads. early: or has read before the kernel began."""
        cells = touch.cells
        tag = np.full(cells.size, self.own, np.int8) if self.constant else self.tag[cells]
        bad = tag != touch.tag if self.constant else (tag != touch.tag) | (self.lanes[cells] < touch.lanes)
        if bad.any():
            k = int(bad.argmax())
            kind = "type" if tag[k] not in (NEVER, touch.tag[k]) else "uninit"
            report(Conflict(kind, int(cells[k]), 0, MNIS, int(self.write_event[cells[k]]) if self.protected else -1))
        if not self.protected:
            return
        owner = self.owner[cells]
        foreign = (owner >= 0) & (early | (owner != touch.owner) | (self.write_clock[cells] > clock[MNIS]))
        if foreign.any():
            k = int(foreign.argmax())
            kind = "early read" if early else "foreign read" if owner[k] != touch.owner[k] else "unordered read"
            report(Conflict(kind, int(cells[k]), 0, MNIS, int(self.write_event[cells[k]])))
        # several cores may read one stick in one word: the last of them stays, so compare afterwards
        before = self.reader[cells]
        self.reader[cells] = touch.owner
        shared = (self.reader[cells] != touch.owner) | ((before != NOBODY) & (before != touch.owner))
        self.reader[cells[shared]] = MANY
        self.read_clock[cells] = clock[MNIL]
        self.read_event[cells] = event

    def write(self, touch: Touch, clock: Clock, event: int, report: Report) -> None:
        """MNIS, which has seen `clock`, writes."""
        cells, core = touch.cells, touch.owner
        owner, reader = self.owner[cells], self.reader[cells]
        twice = (owner >= 0) & (owner != core)
        if twice.any():
            k = int(twice.argmax())
            report(Conflict("twice", int(cells[k]), 0, MNIS, int(self.write_event[cells[k]])))
        taken = (reader != NOBODY) & ((reader != core) | (self.read_clock[cells] > clock[MNIL]))
        if taken.any():
            k = int(taken.argmax())
            kind = "foreign write" if reader[k] != core[k] else "unordered write"
            report(Conflict(kind, int(cells[k]), 0, MNIL, int(self.read_event[cells[k]])))
        same = self.tag[cells] == touch.tag
        self.lanes[cells] = np.maximum(touch.lanes, np.where(same, self.lanes[cells], 0))
        self.tag[cells] = touch.tag
        self.owner[cells] = core
        self.write_clock[cells] = clock[MNIS]
        self.write_event[cells] = event
        lost = self.owner[cells] != core
        if lost.any():
            report(Conflict("twice", int(cells[int(lost.argmax())]), 0, MNIS, event))
