"""LX in the order of the KTIR: whatever two actions touch, one of them writing, they touch in the order in which KTIR has them.

The emulator has found that such accesses are ordered; here it is seen that the order is the right one. Each word of the trace carries the
number of its action's instance, and no stick may be read, or written again, after an access of a later number that it collides with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ktir.checking.stream.alignment import Aligned, Alignment
from ktir.emulator.machine.memory.touch import Toucher
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.problem import Problem
from ktir.isa.units import Unit
from ktir.target import STICK_BYTES, Target


def _writes(event: Event) -> bool | None:
    """Whether an event writes LX, or reads it; None if it does neither."""
    if event.op == "move":
        return event.unit is Unit.MNIL
    return {"push": False, "pull": True, "fill": True}.get(event.op)


def order_faults(kernels: Sequence[Alignment], trace: Trace, target: Target) -> list[Problem]:
    """The first word that touches LX out of order."""
    lx = _Scratchpad(trace, target)
    start, number = 0, -1
    actions: dict[tuple[Unit, int], Aligned] = {}
    for event in trace.events:
        while event.kernel != number:
            start += kernels[number].instances if number >= 0 else 0
            number += 1
            actions = {(unit, i): one for one in kernels[number].found for unit, words in one.words.items() for i, _ in words}
        if _writes(event) is None:
            continue
        one = actions[event.unit, event.instruction.index]
        instance = start + one.first + sum(event.counters[level] * step for level, step in one.steps.items())
        stick = lx.touch(event, instance)
        if stick is not None:
            verb = "writes" if _writes(event) else "reads"
            message = f"'{event.op}' {verb} stick {stick} of LX in another order than KTIR"
            return [kernels[number].problem(event.unit, event.instruction.index, message)]
    return []


class _Scratchpad:
    """Per class of cores and stick the highest number of an action that has written it, and of one that has read it."""

    def __init__(self, trace: Trace, target: Target) -> None:
        self.trace, self.corelets, self.sticks = trace, target.corelets, target.lx_bytes // STICK_BYTES
        self.owners = {c: core for core, c in reversed(list(enumerate(trace.classes)))}
        self.written = np.full(len(self.owners) * self.sticks, -1, np.int64)
        self.read = self.written.copy()
        self._touchers: dict[tuple[int, int, bool], Toucher] = {}

    def touch(self, event: Event, instance: int) -> int | None:
        """Note an access; the stick that is touched out of order, if any."""
        cells = self._toucher(event).touch(event.counters)[0].cells
        if not _writes(event):
            wrong = self.written[cells] >= instance
            self.read[cells] = np.maximum(self.read[cells], instance)
        else:
            wrong = (self.written[cells] > instance) | (self.read[cells] > instance)
            self.written[cells] = instance
        return int(cells[int(wrong.argmax())]) % self.sticks if wrong.any() else None

    def _toucher(self, event: Event) -> Toucher:
        access = event.instruction.lx
        assert access is not None
        key = (event.kernel, access.index, event.unit.per_corelet)
        if key not in self._touchers:
            rows = [c for c, core in self.owners.items() if core < access.cores]
            owners = [self.owners[c] for c in rows]
            self._touchers[key] = Toucher(access, owners, rows, self.sticks, self.corelets if event.unit.per_corelet else 1)
        return self._touchers[key]
