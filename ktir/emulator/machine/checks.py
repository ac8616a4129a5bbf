"""The checks of memory accesses: each execution of a word against the shadows of LX and of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from ktir.isa.program import Program
from ktir.target import STICK_BYTES, Target

from . import faults
from .access import Access
from .clocks import MNIL, Clock, party
from .conflicts import WORDING, Conflict
from .decode import DecodedKernel, Instruction
from .memory import ArgumentShadow
from .shadow import LxShadow
from .state import KernelState
from .touch import Touch, Toucher
from .trace import Event


class Memories:
    """LX and the arguments: what outlives a kernel. `classes` has per core its class of cores that use LX alike."""

    def __init__(self, program: Program, target: Target, classes: Sequence[int], shadows: bool) -> None:
        self.program = program
        self.classes = classes
        self.shadows = shadows
        """False: only addresses are checked."""
        self.lx_sticks = target.lx_bytes // STICK_BYTES
        self.lx = LxShadow(max(classes, default=0) + 1, self.lx_sticks)
        self.arguments = [ArgumentShadow(a) for a in program.arguments]

    def barrier(self, decoded: DecodedKernel) -> None:
        """Start a kernel."""
        written = {x.ddr.descriptor.arg for x in decoded.instructions if x.op == "xst" and x.ddr}
        for i, argument in enumerate(self.arguments):
            argument.barrier(i in written)


class Checks:
    """The accesses of one kernel."""

    def __init__(self, memories: Memories, state: KernelState) -> None:
        self.memories = memories
        self.state = state
        self._touchers: dict[tuple[int, bool, tuple[int, ...] | None], Toucher] = {}
        cores = state.decoded.kernel.cores
        self._classes = {c: core for core, c in reversed(list(enumerate(memories.classes[:cores])))}
        """Class -> its first core."""

    def _toucher(self, access: Access, per_corelet: bool, leaders: tuple[int, ...] | None = None) -> Toucher:
        key = (access.index, per_corelet, leaders)
        if key not in self._touchers:
            if access.descriptor.space == "lx":
                rows = list(self._classes)
                owners = [self._classes[c] for c in rows]
                made = Toucher(access, owners, rows, self.memories.lx_sticks, self.state.target.corelets if per_corelet else 1)
            else:
                cores = leaders or range(access.cores)
                made = Toucher(access, cores, [0] * len(cores), 0, 1)
            self._touchers[key] = made
        return self._touchers[key]

    # LX

    def read_lx(self, event: Event, number: int, access: Access, clock: Clock, stamp: int, component: int) -> None:
        """Check and record a read by event `number`. A core unit's entries share one stamp, a stream's have stamps from `stamp` on."""
        touch, low, high = self._toucher(access, event.unit.per_corelet).touch(event.counters)
        self._check_lx(event, low, high)
        if self.memories.shadows:
            if not event.unit.per_corelet:
                touch.entry = np.zeros_like(touch.entry)
            self.memories.lx.read(touch, clock, stamp, component, number, self._reporter(event, "LX"))

    def write_lx(self, event: Event, number: int, access: Access, rows: Clock, component: int = MNIL) -> None:
        """Check and record a write by event `number`; `rows` as in `LxShadow.write`."""
        toucher = self._toucher(access, event.unit.per_corelet)
        touch, low, high = toucher.touch(event.counters)
        self._check_lx(event, low, high)
        self._check_apart(event, access, toucher, touch)
        if self.memories.shadows:
            self.memories.lx.write(touch, rows, component, number, self._reporter(event, "LX"))

    def _check_lx(self, event: Event, low: int, high: int) -> None:
        if low < 0 or high >= self.memories.lx_sticks:
            self._out_of_range(event, low, high, f"LX, which has {self.memories.lx_sticks}")
        self.state.trace.lx_sticks = max(self.state.trace.lx_sticks, high + 1)

    def early_reads(self) -> None:
        """Raise if LX was read before anything had written it, and no write has come to make that a race."""
        for early in self.memories.lx.early:
            reader = self.state.trace.events[early.conflict.event]
            self._conflict(reader, "LX", replace(early.conflict, event=-1))

    # Memory

    def transfer(self, event: Event, x: Instruction) -> tuple[Touch, int]:
        """The sticks of memory that an XLD, XLDM or XST touches, and how many cores touch them: of groups only the leaders."""
        assert x.ddr
        leaders = None if x.leaders is None else tuple(np.unique(x.leaders).tolist())
        touch, low, high = self._toucher(x.ddr, False, leaders).touch(event.counters)
        size = self.memories.arguments[x.ddr.descriptor.arg or 0].sticks
        if low < 0 or high >= size:
            self._out_of_range(event, low, high, f"{self._argument(x)} of {size} sticks")
        if leaders is not None:
            self._check_members(event, x)
        return touch, len(leaders) if leaders else x.ddr.cores

    def read_memory(self, event: Event, number: int, x: Instruction, touch: Touch, clock: Clock) -> None:
        """Check and record a load by event `number`."""
        assert x.ddr
        if self.memories.shadows:
            argument = self.memories.arguments[x.ddr.descriptor.arg or 0]
            argument.read(touch, clock, number, self._reporter(event, self._argument(x)))

    def write_memory(self, event: Event, number: int, x: Instruction, touch: Touch, clock: Clock) -> None:
        """Check and record a store by event `number`."""
        assert x.ddr
        if self.memories.shadows:
            self._check_apart(event, x.ddr, self._toucher(x.ddr, False), touch)
            argument = self.memories.arguments[x.ddr.descriptor.arg or 0]
            argument.write(touch, clock, number, self._reporter(event, self._argument(x)))

    def _argument(self, x: Instruction) -> str:
        assert x.ddr
        return f"argument '{self.memories.program.arguments[x.ddr.descriptor.arg or 0].name}'"

    def _check_members(self, event: Event, x: Instruction) -> None:
        """Every member of a group must describe what its leader reads."""
        assert x.ddr
        rows = [x.ddr.table] if x.ddr.table is not None else []
        rows += [c.limit for c in x.ddr.clips if len(c.limit) > 1]
        for row in rows:
            other = row != row[x.leaders]
            if other.any():
                core = int(np.argmax(other))
                message = f"core {core} and its leader {int(x.leaders[core])} describe different reads"
                raise self.state.fault(faults.MulticastFault, message, event)

    # Findings

    def _out_of_range(self, event: Event, low: int, high: int, whole: str) -> NoReturn:
        message = f"{self.state.site(event)} accesses sticks {low} to {high} of {whole}"
        raise self.state.fault(faults.OutOfRange, message, event)

    def _check_apart(self, event: Event, access: Access, toucher: Toucher, touch: Touch) -> None:
        if toucher.visits_twice(touch):
            message = f"{self.state.site(event)} writes through descriptor {access.index}, which visits a stick twice"
            raise self.state.fault(faults.IllegalProgram, message, event)

    def _reporter(self, event: Event, where: str) -> Callable[[Conflict], None]:
        return lambda found: self._conflict(event, where, found)

    def _conflict(self, event: Event, where: str, found: Conflict) -> NoReturn:
        """Raise the finding that a conflict amounts to."""
        stick = f"{where} stick {found.stick}"
        earlier = self.state.trace.events[found.event] if found.event >= 0 else None
        if found.kind == "early":
            assert earlier
            reader = self.state.site(earlier, found.corelet if earlier.unit.per_corelet else None)
            writer = self.state.site(event)
            raise faults.RawHazard(f"RAW hazard: {reader} reads {stick}, not ordered after {writer} writes it", reader, writer)
        site = self.state.site(event, found.corelet if event.unit.per_corelet else None)
        other = self.state.site(earlier, party(found.other)[1] if found.other >= 0 else None) if earlier else None
        kind, text = WORDING[found.kind]
        raise kind(text.format(me=site, other=other or "another word", stick=stick), site, other)
