"""What a program takes on the machine: cycles, busy units, stalls, traffic. Known without running it on values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ktir.emulator import notebook
from ktir.emulator.machine.trace.trace import KernelStatistics, Trace
from ktir.isa.resources import Resource
from ktir.isa.units import Unit
from ktir.target import Target


@dataclass(frozen=True)
class UnitReport:
    """One unit of a core. A corelet unit has `instances` alike. Cycles: `busy` working, `stalls` lost by cause, `end` when it halts."""

    unit: Unit
    instances: int
    words: int
    busy: int
    end: int
    utilisation: float
    """Busy cycles as a share of the kernel's."""
    stalls: dict[str, int]


@dataclass(frozen=True)
class ChannelReport:
    """A token channel: tokens posted per queue, most of them waiting at once."""

    sender: Unit
    receiver: Unit
    token: int
    posted: int
    most: int


@dataclass(frozen=True)
class KernelReport:
    """One kernel. Bytes are those of the whole chip, entries and tokens those of one corelet of one core."""

    name: str
    cores: int
    cycles: int
    microseconds: float
    units: tuple[UnitReport, ...]
    dram_read: int
    dram_written: int
    dram_utilisation: float
    """Bytes moved from its start on, as a share of what the memory channel could have moved."""
    fifo_entries: dict[str, int]
    channels: tuple[ChannelReport, ...]
    dead_writes: int
    """LX sticks written and never read, summed over the classes of cores that use LX alike."""
    chain: dict[Resource, int] = field(default_factory=dict)
    """What the cycles consist of: the longest chain of work and delays that wait for each other."""
    loads: dict[Resource, int] = field(default_factory=dict)
    """For how many cycles each resource is busy."""
    lead: int = 0
    """Cycles by which its first load was ahead of it, under the kernel before."""
    dram_ahead: int = 0
    """Bytes that were moved then."""

    def unit(self, unit: Unit) -> UnitReport:
        """The report of a unit."""
        return next(u for u in self.units if u.unit is unit)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        head, *rows = self._units()
        return notebook.titled(f"kernel '{self.name}': {self.cycles:,} cycles, {self.microseconds:.2f} us", notebook.table(head, rows))

    def tokens(self) -> list[str]:
        """A line per token channel, with a head."""
        rows = [(f"{c.sender.name} -> {c.receiver.name}, token {c.token}", str(c.posted), str(c.most), "") for c in self.channels]
        return aligned([(f"kernel '{self.name}'", "tokens", "at most at once", ""), *rows])

    def _lines(self) -> list[str]:
        lines = [
            f"kernel '{self.name}': {self.cores} cores, {self.cycles} cycles, {self.microseconds:.2f} us",
            f"  memory: {_bytes(self.dram_read)} read, {_bytes(self.dram_written)} written, channel {self.dram_utilisation:.0%} used",
        ]
        if self.lead:
            lines.append(
                f"  its first loads began {self.lead} cycles ahead of it, under the kernel before: {_bytes(self.dram_ahead)} by its start"
            )
        parts = sorted(self.chain.items(), key=lambda part: -part[1])
        lines.append("  longest chain: " + ", ".join(f"{r.title} {n / max(self.cycles, 1):.0%}" for r, n in parts))
        lines += aligned(self._units())
        if self.fifo_entries:
            lines.append("  FIFO entries per corelet: " + ", ".join(f"{name} {n}" for name, n in self.fifo_entries.items()))
        if self.channels:
            posted, most = sum(c.posted for c in self.channels), max(c.most for c in self.channels)
            lines.append(f"  tokens: {posted:,} on {len(self.channels)} channels, of one at most {most} at once")
        if self.dead_writes:
            lines.append(f"  LX sticks written and never read: {self.dead_writes}")
        return lines

    def _units(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("unit", "words", "busy", "%", "ends", "stalls")]
        for u in self.units:
            name = f"{u.unit.name} x{u.instances}" if u.instances > 1 else u.unit.name
            stalls = ", ".join(f"{cause} {cycles}" for cause, cycles in sorted(u.stalls.items(), key=lambda s: -s[1]))
            rows.append((name, str(u.words), str(u.busy), f"{u.utilisation:.0%}", str(u.end), stalls))
        return rows


class Load(NamedTuple):
    """What a run of a program asks of the machine: bytes of memory, and the share of the time in which PT units of its cores work."""

    read: int
    written: int
    pt: float


@dataclass(frozen=True)
class MachineReport:
    """A program on a target, kernel after kernel."""

    program: str
    target: str
    clock_ghz: float
    kernels: tuple[KernelReport, ...] = field(default=())
    load: Load = field(init=False, repr=False, compare=False)
    """All kernels together. Made at once: who watches a card asks from a thread of its own, while the report may be written to a file."""

    def __post_init__(self) -> None:
        pt = sum(u.busy for k in self.kernels for u in k.units if u.unit is Unit.PT)
        read, written = sum(k.dram_read for k in self.kernels), sum(k.dram_written for k in self.kernels)
        object.__setattr__(self, "load", Load(read, written, pt / max(self.cycles, 1)))

    @property
    def cycles(self) -> int:
        """Cycles of all kernels."""
        return sum(k.cycles for k in self.kernels)

    @property
    def microseconds(self) -> float:
        """Time of all kernels at the target's clock."""
        return self.cycles / self.clock_ghz / 1000

    @property
    def dram_bytes(self) -> int:
        """Bytes read and written by all kernels."""
        return sum(k.dram_read + k.dram_written for k in self.kernels)

    def __str__(self) -> str:
        head = f"program '{self.program}' on {self.target} at {self.clock_ghz} GHz: {self.cycles} cycles, {self.microseconds:.2f} us"
        return "\n".join([head, *map(str, self.kernels)])

    def _repr_html_(self) -> str:
        head = f"program '{self.program}' on {self.target}: {self.cycles:,} cycles, {self.microseconds:.2f} us"
        rows = ((k.name, k.cores, k.cycles, _bytes(k.dram_read), _bytes(k.dram_written), f"{k.dram_utilisation:.0%}") for k in self.kernels)
        kernels = notebook.table(("kernel", "cores", "cycles", "read", "written", "channel"), rows)
        units = "".join(k._repr_html_() for k in self.kernels[: notebook.MOST_ROWS])
        return notebook.titled(head, kernels, notebook.folded("units", units))


def report(name: str, trace: Trace, target: Target) -> MachineReport:
    """The report of a control run."""
    return MachineReport(name, target.name, target.clock_ghz, tuple(_kernel(s, target) for s in trace.statistics))


def _kernel(s: KernelStatistics, target: Target) -> KernelReport:
    total = max(s.cycles, 1)
    units = tuple(
        UnitReport(u, target.corelets if u.per_corelet else 1, t.words, t.busy, t.end, t.busy / total, dict(t.stalls))
        for u, t in s.units.items()
        if t.words
    )
    channels = tuple(ChannelReport(*key, posted, most) for key, (posted, most) in sorted(s.tokens.items()))
    used = (s.dram_read + s.dram_written - s.dram_ahead) / (total * target.dram_bytes_per_cycle)
    return KernelReport(
        s.name,
        s.cores,
        s.cycles,
        s.cycles / target.clock_ghz / 1000,
        units,
        s.dram_read,
        s.dram_written,
        used,
        s.fifo_entries,
        channels,
        s.dead_writes,
        s.chain,
        s.loads,
        s.lead,
        s.dram_ahead,
    )


def _bytes(n: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} B"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines of aligned columns, the first and the last to the left."""
    widths = [max(len(r[c]) for r in rows) for c in range(len(rows[0]) - 1)]
    out = []
    for r in rows:
        cells = [r[0].ljust(widths[0]), *(r[c].rjust(widths[c]) for c in range(1, len(widths))), r[-1]]
        out.append("  " + "  ".join(cells).rstrip())
    return out
