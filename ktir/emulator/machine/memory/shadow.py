"""Shadow state of LX: who wrote and read each stick last, what it holds, and the checks of every access against it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ktir.emulator.machine.memory.conflicts import Conflict, EarlyRead, Report
from ktir.emulator.machine.memory.touch import NEVER, Touch
from ktir.emulator.machine.trace.clocks import ABSOLUTE, MNIL, READER_ROW, READERS, Clock


class LxShadow:
    """One row of `sticks` sticks per class of cores, flat."""

    def __init__(self, classes: int, sticks: int) -> None:
        n = classes * sticks
        self.sticks = sticks
        self.writer = np.full(n, -1, np.int8)
        """Component (absolute) of the last write."""
        self.write_clock = np.zeros(n, np.int64)
        self.write_event = np.full(n, -1, np.int32)
        self.loaded = np.zeros(n, np.int64)
        """MNIL's clock at the last write, where that was a load: until it has landed, MNIL itself may not write what it fills at once."""
        self.tag = np.full(n, NEVER, np.int8)
        self.lanes = np.zeros(n, np.int64)
        """Initialised lanes, counted from lane 0."""
        self.read_clock = np.zeros((len(READERS), n), np.int64)
        self.read_event = np.full((len(READERS), n), -1, np.int32)
        self.unread = np.zeros(n, np.bool_)
        self.dead_writes = 0
        """Sticks overwritten before anything read them."""
        self.early: list[EarlyRead] = []
        """Reads of what nothing had written; a later write in the same kernel makes them a race."""

    def read(self, touch: Touch, clock: Clock, stamp: int, component: int, event: int, report: Report) -> None:
        """A word of `component` (relative) that has seen `clock` [WIDTH] reads; entry e has the stamp `stamp` + e."""
        cells = touch.cells
        tag = self.tag[cells]
        bad = (tag != touch.tag) & (tag != NEVER)
        if bad.any():
            k = int(bad.argmax())
            report(self._conflict("type", touch, k, int(self.writer[cells[k]]), int(self.write_event[cells[k]])))
        early = self.lanes[cells] < touch.lanes
        if early.any():
            self.early.append(EarlyRead(cells[early], self._conflict("uninit", touch, int(early.argmax()), -1, event)))
        writer = self.writer[cells]
        seen = clock[ABSOLUTE][touch.corelet, writer]
        late = self.write_clock[cells] > seen
        if late.any():
            k = int(late.argmax())
            report(self._conflict("RAW", touch, k, int(writer[k]), int(self.write_event[cells[k]])))
        row = READER_ROW[ABSOLUTE[:, component]][touch.corelet]
        self.read_clock[row, cells] = stamp + touch.entry
        self.read_event[row, cells] = event
        self.unread[cells] = False

    def write(self, touch: Touch, rows: Clock, component: int, event: int, report: Report, landed: int | None = None) -> None:
        """A word of `component` (relative) writes; `rows` [entries | 1, WIDTH] is what it had seen at each entry, with its own stamp.

        Loads that MNIL has issued up to `landed` have landed for sure; None: this is a load, which lands after those before it.
        """
        self.early_reads(touch, event, report)
        cells = touch.cells
        if landed is not None:
            flying = self.loaded[cells] > landed
            if flying.any():
                k = int(flying.argmax())
                report(self._conflict("flight", touch, k, MNIL, int(self.write_event[cells[k]])))
        at = touch.entry if len(rows) > 1 else 0
        mine = rows[:, ABSOLUTE][at, touch.corelet]
        old = self.writer[cells]
        last = self.write_clock[cells]
        late = (last > mine[np.arange(len(cells)), old]) & (old >= 0)
        if late.any():
            k = int(late.argmax())
            report(self._conflict("WAW", touch, k, int(old[k]), int(self.write_event[cells[k]])))
        unread = self.read_clock[:, cells] > mine[:, READERS].T
        if unread.any():
            r, k = np.argwhere(unread)[0]
            report(self._conflict("WAR", touch, int(k), int(READERS[r]), int(self.read_event[r, cells[k]])))
        self.dead_writes += int(np.count_nonzero(self.unread[cells]))
        own = ABSOLUTE[:, component][touch.corelet]
        same = self.tag[cells] == touch.tag
        self.lanes[cells] = np.maximum(touch.lanes, np.where(same, self.lanes[cells], 0))
        self.writer[cells] = own
        self.write_clock[cells] = mine[np.arange(len(cells)), own]
        self.loaded[cells] = 0 if landed is not None else self.write_clock[cells]
        self.write_event[cells] = event
        self.tag[cells] = touch.tag
        self.unread[cells] = True
        lost = self.writer[cells] != own
        if lost.any():
            k = int(lost.argmax())
            report(self._conflict("WAW", touch, k, int(self.writer[cells[k]]), event))

    def confirm(self, touch: Touch, clock: Clock, event: int, report: Report) -> None:
        """A load of MNIL that may have been made ahead of its kernel, as event `event`, has its place here, with `clock`: nothing of the
        kernel has touched that before, and what comes next is ordered as if it was made here."""
        cells = touch.cells
        other = self.write_event[cells] != event
        if other.any():
            k = int(other.argmax())
            report(self._conflict("early write", touch, k, int(self.writer[cells[k]]), int(self.write_event[cells[k]])))
        used = self.read_event[:, cells] > event
        if used.any():
            r, k = np.argwhere(used)[0]
            report(self._conflict("early write", touch, int(k), int(READERS[r]), int(self.read_event[r, cells[k]])))
        self.write_clock[cells] = self.loaded[cells] = clock[MNIL]

    def early_reads(self, touch: Touch, event: int, report: Report) -> None:
        """Report a read that came before the write of `touch`; the conflict's `other` side is the writer."""
        for early in self.early:
            met = np.isin(touch.cells, early.cells)
            if met.any():
                k = int(met.argmax())
                report(replace(early.conflict, kind="early", cell=int(touch.cells[k]) % self.sticks, writer=event))

    def _conflict(self, kind: str, touch: Touch, k: int, other: int, event: int) -> Conflict:
        return Conflict(kind, int(touch.cells[k]) % self.sticks, int(touch.corelet[k]), other, event)
