"""The result of the control run: word events in an order that is legal to replay one by one, and what the run measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

from ktir.emulator.machine.program.decode import DecodedKernel, Instruction
from ktir.emulator.machine.trace.journal import Journal
from ktir.emulator.machine.trace.tokens import Key
from ktir.isa.access import Counters
from ktir.isa.resources import Resource
from ktir.isa.units import Unit

Place = tuple[int, Unit, int, Counters, tuple[int, int] | None]
"""Which execution of which word of which kernel an event is."""


@dataclass(slots=True)
class Event:
    """One execution of a word that moves or computes data, on every core and on both corelets.

    `counters` are the eight loop counters. `steps` is the range of steps for a part of a REP, None for the whole word. `begin` and `end`
    are cycles from the start of the kernel.
    """

    kernel: int
    unit: Unit
    instruction: Instruction
    counters: Counters
    open_levels: tuple[int, ...] = ()
    begin: int = 0
    end: int = 0
    steps: tuple[int, int] | None = None

    @property
    def place(self) -> Place:
        """What tells it from all others of a program."""
        return self.kernel, self.unit, self.instruction.index, self.counters, self.steps

    @property
    def op(self) -> str:
        """Mnemonic of the word."""
        return self.instruction.op

    @property
    def loops(self) -> tuple[tuple[int, int], ...]:
        """(level, counter) of the open loops, outermost first."""
        return tuple((level, self.counters[level]) for level in self.open_levels)


@dataclass
class UnitStatistics:
    """Cycles of one unit: working, and lost by cause. Both corelets have the same."""

    busy: int = 0
    words: int = 0
    end: int = 0
    stalls: dict[str, int] = field(default_factory=dict)

    def lose(self, cause: str, cycles: int) -> None:
        """Add lost cycles."""
        if cycles > 0:
            self.stalls[cause] = self.stalls.get(cause, 0) + cycles


@dataclass
class KernelStatistics:
    """What one kernel took. Bytes are those of the whole chip; FIFO entries and tokens those of one corelet of one core."""

    name: str
    cores: int
    cycles: int = 0
    units: dict[Unit, UnitStatistics] = field(default_factory=dict)
    dram_read: int = 0
    dram_written: int = 0
    fifo_entries: dict[str, int] = field(default_factory=dict)
    tokens: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """Channel -> (tokens posted, most at once)."""
    dead_writes: int = 0
    """LX sticks written and never read before they were overwritten or the program ended, per class of cores."""
    chain: dict[Resource, int] = field(default_factory=dict)
    """What the cycles consist of: the longest chain."""
    loads: dict[Resource, int] = field(default_factory=dict)
    """For how long each resource is busy."""
    lead: int = 0
    """Cycles by which its first load was ahead of it, and the bytes of its own that had been moved when it began."""
    dram_ahead: int = 0


@dataclass
class Trace:
    """All events of a program in order, kernel after kernel."""

    kernels: list[DecodedKernel]
    classes: list[int]
    """Per core its class: cores of one class use LX alike."""
    lx_sticks: int = 0
    """Sticks of LX that the program touches, from stick 0."""
    events: list[Event] = field(default_factory=list)
    statistics: list[KernelStatistics] = field(default_factory=list)
    journals: list[Journal] | None = None
    """A journal per kernel, where the control run was asked to keep them."""

    @property
    def starts(self) -> list[int]:
        """Cycle at which each kernel starts, and the end of the last one."""
        return [0, *accumulate(s.cycles for s in self.statistics)]

    @property
    def cores(self) -> int:
        """Cores of the largest kernel."""
        return len(self.classes)
