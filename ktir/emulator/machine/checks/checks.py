"""The checks of memory accesses: each execution of a word against the shadows of LX and of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from ktir.diagnostics import KtirError
from ktir.emulator.machine.checks.state import KernelState
from ktir.emulator.machine.memory.conflicts import WORDING, Conflict
from ktir.emulator.machine.memory.element_touch import ElementToucher, cell_sizes
from ktir.emulator.machine.memory.memory import ArgumentShadow
from ktir.emulator.machine.memory.shadow import LxShadow
from ktir.emulator.machine.memory.touch import Touch, Toucher
from ktir.emulator.machine.program import faults
from ktir.emulator.machine.program.decode import DecodedKernel, Instruction
from ktir.emulator.machine.trace.clocks import MNIL, Clock, party
from ktir.emulator.machine.trace.trace import Event
from ktir.isa.access import Access
from ktir.isa.addresses import indexed
from ktir.isa.program import Program
from ktir.target import LANES, STICK_BYTES, Target

MAX_CELLS = 1 << 28
"""Cells of all arguments that may be written; each takes up to 31 bytes of the emulator's memory."""


class Memories:
    """LX and the arguments: what outlives a kernel. `classes` has per core its class of cores that use LX alike."""

    def __init__(self, program: Program, target: Target, classes: Sequence[int], shadows: bool) -> None:
        self.program = program
        self.classes = classes
        self.shadows = shadows
        """False: only addresses are checked."""
        self.lx_sticks = target.lx_bytes // STICK_BYTES
        self.lx = LxShadow(max(classes, default=0) + 1, self.lx_sticks)
        self.cells = cell_sizes(program)
        sizes = zip(program.arguments, self.cells, strict=True)
        cells = sum(a.sticks * (STICK_BYTES // a.element_bytes // cell if cell else 1) for a, cell in sizes if not a.constant)
        if shadows and cells > MAX_CELLS:
            raise KtirError(f"program '{program.name}' writes {cells} cells of memory, but the emulator keeps track of at most {MAX_CELLS}")
        self.arguments = [ArgumentShadow(a, cell) for a, cell in zip(program.arguments, self.cells, strict=True)]

    def barrier(self, decoded: DecodedKernel) -> None:
        """Start a kernel."""
        written = {x.ddr.descriptor.arg for x in decoded.instructions if x.ddr and not x.loads}
        for i, argument in enumerate(self.arguments):
            argument.barrier(i in written)


@dataclass(frozen=True)
class Moved:
    """What an execution of a transfer moves. `touch`: cells of memory, None where indices from data choose them.

    `readers`: how many cores access memory; `fragments`: cycles of LX on the slowest core, 0 for whole sticks; `bytes` has `index_bytes`.
    """

    touch: Touch | None
    readers: int
    bytes: int
    fragments: int = 0
    index_bytes: int = 0


class Checks:
    """The accesses of one kernel."""

    def __init__(self, memories: Memories, state: KernelState) -> None:
        self.memories = memories
        self.state = state
        self._touchers: dict[tuple[int, bool, tuple[int, ...] | None], Toucher] = {}
        cores = state.decoded.kernel.cores
        self._classes = {c: core for core, c in reversed(list(enumerate(memories.classes[:cores])))}
        """Class -> its first core."""
        self._element_touchers: dict[tuple[int, tuple[int, ...] | None, int, int | None], ElementToucher] = {}

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

    def write_lx(self, event: Event, number: int, access: Access, rows: Clock, component: int = MNIL, landed: int | None = None) -> None:
        """Check and record a write by event `number`; `rows` and `landed` as in `LxShadow.write`."""
        toucher = self._toucher(access, event.unit.per_corelet)
        touch, low, high = toucher.touch(event.counters)
        self._check_lx(event, low, high)
        self._check_apart(event, access, toucher, touch)
        if self.memories.shadows:
            self.memories.lx.write(touch, rows, component, number, self._reporter(event, "LX"), landed)

    def _check_lx(self, event: Event, low: int, high: int) -> None:
        if low < 0 or high >= self.memories.lx_sticks:
            self._out_of_range(event, low, high, STICK_BYTES, f"LX, which has {self.memories.lx_sticks * STICK_BYTES}")
        self.state.trace.lx_sticks = max(self.state.trace.lx_sticks, high + 1)

    def confirm_lx(self, event: Event, number: int, access: Access, clock: Clock) -> None:
        """The place of a write that may be ahead of its kernel: nothing has touched there what it wrote."""
        if self.memories.shadows:
            touch, *_ = self._toucher(access, False).touch(event.counters)
            self.memories.lx.confirm(touch, clock, number, self._reporter(event, "LX"))

    def early_reads(self) -> None:
        """Raise if LX was read before anything had written it, and no write has come to make that a race."""
        for early in self.memories.lx.early:
            reader = self.state.trace.events[early.conflict.event]
            self._conflict(reader, "LX", replace(early.conflict, event=-1))

    # Memory

    def transfer(self, event: Event, x: Instruction) -> Moved:
        """What a transfer moves; of groups only the leaders count."""
        assert x.ddr
        leaders = None if x.leaders is None else tuple(np.unique(x.leaders).tolist())
        readers = len(leaders) if leaders else x.ddr.cores
        if leaders is not None:
            self._check_members(event, x)
        number = x.ddr.descriptor.arg or 0
        if not self.memories.cells[number]:
            touch, low, high = self._toucher(x.ddr, False, leaders).touch(event.counters)
            self._check_memory(event, x.ddr, low, high)
            return Moved(touch, readers, touch.cells.size * STICK_BYTES)
        toucher = self._element_toucher(x.ddr, leaders, dim=x.dim if x.idx else None)
        granule = self.state.target.dram_granule_bytes
        counted, pieces = toucher.price.of(event.counters)
        touch, index_bytes = None, 0
        if x.idx is None:
            low, high = toucher.reach(event.counters)
            if not x.loads or not self._complete(x.ddr, low, high):
                touch, low, high = toucher.touch(event.counters, not x.loads)
            self._check_memory(event, x.ddr, low, high)
            if not x.ddr.descriptor.element:
                return Moved(touch, readers, toucher.sticks(event.counters) * STICK_BYTES)
        else:
            self._check_memory(event, x.ddr, *toucher.reach(event.counters, x.size))
            indices = self._element_toucher(x.idx, leaders, 1)
            self._check_memory(event, x.idx, *indices.reach(event.counters))
            index_bytes = granule * int(indices.price.of(event.counters)[0].sum())
        return Moved(touch, readers, granule * int(counted.sum()) + index_bytes, int(pieces.max(initial=0)), index_bytes)

    def _element_toucher(
        self, access: Access, leaders: tuple[int, ...] | None, lanes: int = LANES, dim: int | None = None
    ) -> ElementToucher:
        key = (access.index, leaders, lanes, dim)
        if key not in self._element_touchers:
            cell = self.memories.cells[access.descriptor.arg or 0]
            self._element_touchers[key] = ElementToucher(access, leaders or range(access.cores), cell, self.state.target, dim, lanes)
        return self._element_touchers[key]

    def read_memory(self, event: Event, number: int, x: Instruction, moved: Moved, clock: Clock, *, early: bool = False) -> None:
        """Check and record a load by event `number`. early: it may have been ahead of the kernel, so nothing of that has written there."""
        assert x.ddr
        if not self.memories.shadows:
            return
        touch = moved.touch
        if x.idx is not None:
            self._read_indices(event, number, x.idx, clock)
            touch = self._reachable(event, x)
        if touch is not None:
            self._shadow(x.ddr).read(touch, clock, number, self._reporter(event, *self._place(x.ddr)), early=early)

    def write_memory(self, event: Event, number: int, x: Instruction, moved: Moved, clock: Clock) -> None:
        """Check and record a store by event `number`."""
        assert x.ddr
        if not self.memories.shadows:
            return
        if x.idx is not None:
            self._read_indices(event, number, x.idx, clock)
            self._check_alone(event, x)
        if moved.touch is not None:
            toucher = self._element_toucher(x.ddr, None) if self.memories.cells[x.ddr.descriptor.arg or 0] else self._toucher(x.ddr, False)
            self._check_apart(event, x.ddr, toucher, moved.touch)
            self._shadow(x.ddr).write(moved.touch, clock, number, self._reporter(event, *self._place(x.ddr)))

    def _shadow(self, access: Access) -> ArgumentShadow:
        return self.memories.arguments[access.descriptor.arg or 0]

    def _complete(self, access: Access, low: int, high: int) -> bool:
        """Whether elements `low` to `high` may be read in any case, so that only the range counts."""
        shadow, cell = self._shadow(access), self.memories.cells[access.descriptor.arg or 0]
        return shadow.constant or (0 <= low and shadow.complete(low // cell, high // cell))

    def _read_indices(self, event: Event, number: int, idx: Access, clock: Clock) -> None:
        """Check and record the reading of indices; those of a scatter come from memory that the kernel leaves alone."""
        shadow = self._shadow(idx)
        if not event.instruction.loads and shadow.protected:
            message = f"{self.state.site(event)} reads indices from {self._argument(idx.descriptor.arg or 0)}, which this kernel writes"
            raise self.state.fault(faults.MemoryHazard, message, event)
        touch, *_ = self._element_toucher(idx, None, 1).touch(event.counters)
        shadow.read(touch, clock, number, self._reporter(event, *self._place(idx)))

    def _reachable(self, event: Event, x: Instruction) -> Touch | None:
        """All that the indices of a gather may choose, which must be written, but by other kernels; None for inputs."""
        assert x.ddr
        number = x.ddr.descriptor.arg or 0
        if self._shadow(x.ddr).protected:
            message = f"{self.state.site(event)} gathers from {self._argument(number)}, which this kernel writes"
            raise self.state.fault(faults.MemoryHazard, message, event)
        reach = self._element_toucher(x.ddr, None, dim=x.dim).reach(event.counters, x.size)
        if self.memories.program.arguments[number].given or self._complete(x.ddr, *reach):
            return None
        every = Access(-1 - x.ddr.index, indexed(x.ddr.descriptor, x.dim, x.size), self.state.decoded.kernel)
        return self._element_toucher(every, None).touch(event.counters)[0]

    def _check_alone(self, event: Event, x: Instruction) -> None:
        """Nothing but scatters may use an argument that the kernel scatters to."""
        assert x.ddr
        number = x.ddr.descriptor.arg
        for other in self.state.decoded.instructions:
            uses = [other.idx] if other.scatters else [other.ddr, other.idx]
            if any(a is not None and a.descriptor.arg == number for a in uses):
                message = f"{self.state.site(event)} scatters to {self._argument(number or 0)}, which '{other.op}' of this kernel uses too"
                raise self.state.fault(faults.MemoryHazard, message, event)

    def _argument(self, number: int) -> str:
        return f"argument '{self.memories.program.arguments[number].name}'"

    def _place(self, access: Access) -> tuple[str, int]:
        """An argument and the bytes of its cells, for messages."""
        number = access.descriptor.arg or 0
        return self._argument(number), self.memories.cells[number] * access.descriptor.element_bytes or STICK_BYTES

    def _check_memory(self, event: Event, access: Access, low: int, high: int) -> None:
        number = access.descriptor.arg or 0
        argument = self.memories.program.arguments[number]
        unit, size = argument.element_bytes if self.memories.cells[number] else STICK_BYTES, argument.sticks * STICK_BYTES
        if low < 0 or high * unit >= size:
            self._out_of_range(event, low, high, unit, f"{self._argument(number)} of {size} bytes")

    def _check_members(self, event: Event, x: Instruction) -> None:
        """Every member of a group must describe what its leader reads."""
        assert x.ddr
        read = [x.ddr] if x.idx is None else [x.ddr, x.idx]
        rows = [access.table for access in read if access.table is not None]
        rows += [c.limit for access in read for c in access.clips if len(c.limit) > 1]
        for row in rows:
            other = row != row[x.leaders]
            if other.any():
                core = int(np.argmax(other))
                message = f"core {core} and its leader {int(x.leaders[core])} describe different reads"
                raise self.state.fault(faults.MulticastFault, message, event)

    # Findings

    def _out_of_range(self, event: Event, low: int, high: int, unit: int, whole: str) -> NoReturn:
        message = f"{self.state.site(event)} accesses bytes {low * unit} to {(high + 1) * unit - 1} of {whole}"
        raise self.state.fault(faults.OutOfRange, message, event)

    def _check_apart(self, event: Event, access: Access, toucher: Toucher | ElementToucher, touch: Touch) -> None:
        if toucher.visits_twice(touch):
            what = "a stick" if isinstance(toucher, Toucher) else "an element"
            message = f"{self.state.site(event)} writes through descriptor {access.index}, which visits {what} twice"
            raise self.state.fault(faults.IllegalProgram, message, event)

    def _reporter(self, event: Event, where: str, size: int = STICK_BYTES) -> Callable[[Conflict], None]:
        return lambda found: self._conflict(event, where, found, size)

    def _conflict(self, event: Event, where: str, found: Conflict, size: int = STICK_BYTES) -> NoReturn:
        """Raise the finding that a conflict amounts to, in cells of `size` bytes."""
        place = f"{where} byte {found.cell * size}"
        earlier = self.state.trace.events[found.event] if found.event >= 0 else None
        if found.kind == "early":
            assert earlier
            reader = self.state.site(earlier, found.corelet if earlier.unit.per_corelet else None)
            writer = self.state.site(event)
            raise faults.RawHazard(f"RAW hazard: {reader} reads {place}, not ordered after {writer} writes it", reader, writer)
        site = self.state.site(event, found.corelet if event.unit.per_corelet else None)
        other = self.state.site(earlier, party(found.other)[1] if found.other >= 0 else None) if earlier else None
        kind, text = WORDING[found.kind]
        raise kind(text.format(me=site, other=other or "another word", place=place), site, other)
