"""What a program does when, as a Chrome trace: work, waits and transfers of each unit, arrows, and counters.

Three processes stand for the chip: its kernels, memory channel and ring; what each core has once; what each corelet has. All cores run
alike, and so do both corelets. A fourth one is the host, which launches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports.counters import counters
from ktir.emulator.machine.reports.events import arrow, naming, slice_of, sorting
from ktir.emulator.machine.reports.label import owners
from ktir.emulator.machine.trace.journal import Journal, Passage, Segment
from ktir.emulator.machine.trace.trace import KernelStatistics, Trace
from ktir.isa.program import Program, own_nodes
from ktir.isa.units import Unit
from ktir.target import Target

CHIP, CORE, CORELET, HOST = 0, 1, 2, 4000
"""Processes; the Chrome format asks for numbers."""
KERNELS, MEMORY, RING = 7, 8, 9
"""Rows of the chip. HTA reads that of kernels: Kineto numbers a device's first stream so."""
_FIRST_UNIT = 20
_COPIES = {Unit.MNIL: "DRAM -> LX", Unit.MNIS: "LX -> DRAM"}
"""What words that move memory do; HTA knows copies by the word Memcpy."""
MOST_ARROWS = 20_000
"""Arrows of a trace; the number of those that are left out is in it."""

Event = dict[str, Any]


def chrome_trace(program: Program, trace: Trace, target: Target) -> dict[str, Any]:
    """The run of a program as a Chrome trace (JSON object format) with Kineto's categories; times in microseconds of the chip's clock.

    The slices of a unit follow one another: `work` or `gpu_memcpy`, and `wait` with its cause; their cycles add up to the report's figures.
    Each has the KTIR op and the source line of its word; a wait for a token, which stands for no op, those of the word behind it. trace: of
    `program` on `target`; one without journals is made again.
    """
    kept = trace if trace.journals is not None else control(program, target, checks=False, journal=True)
    drawn = _Drawing(program, kept, target)
    events = [*drawn.names(), *drawn.host(), *drawn.slices(), *drawn.arrows(), *counters(program, kept, target, CHIP)]
    properties = [{"id": CHIP, "name": f"Spyre ({target.name})", "numSms": target.cores}]
    return {
        "schemaVersion": 1,
        "deviceProperties": properties,
        "distributedInfo": {"backend": "none", "rank": 0, "world_size": 1},
        "displayTimeUnit": "ns",
        "arrowsLeftOut": drawn.left_out,
        "traceEvents": events,
    }


class _Drawing:
    """The events of one trace."""

    def __init__(self, program: Program, trace: Trace, target: Target) -> None:
        assert trace.journals is not None
        self.program = program
        self.trace = trace
        self.target = target
        self.nodes = own_nodes(program.sources)
        self.owners = [{unit: owners(program, words) for unit, words in k.units.items()} for k in trace.kernels]
        self.us = 1.0 / target.clock_ghz / 1000
        self.left_out = 0
        self.starts = trace.starts
        self.kernels: Sequence[tuple[KernelStatistics, Journal, int]] = [*zip(trace.statistics, trace.journals, self.starts, strict=False)]
        self.units = sorted({s.unit for _, journal, _ in self.kernels for s in journal.segments})

    def names(self) -> Iterator[Event]:
        """What processes and rows are called, in order."""
        cores, corelets = self.trace.cores, self.target.corelets
        chip = [(KERNELS, f"stream {KERNELS}: kernels"), (MEMORY, "memory channel"), (RING, "ring")]
        units = {
            process: [(_FIRST_UNIT + int(u), u.name) for u in self.units if u.per_corelet is (process == CORELET)]
            for process in (CORE, CORELET)
        }
        for process, name, rows in (
            (CHIP, f"spyre:0, {cores} cores", chip),
            (CORE, f"each of {cores} cores, which run alike", units[CORE]),
            (CORELET, f"each of {corelets} corelets of a core, which run alike", units[CORELET]),
            (HOST, "host", [(1, "launches")]),
        ):
            yield naming("process_name", process, 0, name)
            yield sorting("process_sort_index", process, 0, process)
            for row, text in rows:
                yield naming("thread_name", process, row, text)
                yield sorting("thread_sort_index", process, row, row)

    def host(self) -> Iterator[Event]:
        """A launch per kernel, inside one profiler step, tied to it by `correlation`."""
        yield self._slice("ProfilerStep#0", "user_annotation", HOST, 1, 0, self.starts[-1])
        for k, (statistics, _, start) in enumerate(self.kernels):
            ids = {"correlation": k + 1, "External id": k + 1}
            end = start + statistics.cycles
            yield self._slice(f"spyre::{statistics.name}", "cpu_op", HOST, 1, start, end, ids)
            yield self._slice("cudaLaunchKernel", "cuda_runtime", HOST, 1, start, end, ids)
            shape = {"device": CHIP, "stream": KERNELS, "grid": [statistics.cores, 1, 1], "block": [self.target.corelets, 1, 1]}
            moved = {"cycles": statistics.cycles, "bytes read": statistics.dram_read, "bytes written": statistics.dram_written}
            yield self._slice(statistics.name, "kernel", CHIP, KERNELS, start, end, ids | shape | moved)

    def slices(self) -> Iterator[Event]:
        """What units do, what is on its way to and from memory, and who has the memory channel and the ring."""
        for k, (_, journal, start) in enumerate(self.kernels):
            moved = {(t.unit, t.begin): t.nbytes for t in journal.memory}
            for s in journal.segments:
                yield self._segment(k, s, start, moved.get((s.unit, s.begin), 0))
            for row, traffic in ((MEMORY, journal.memory), (RING, journal.ring)):
                for t in traffic:
                    yield self._slice(
                        t.unit.name, "channel", CHIP, row, start + t.begin, start + t.end, {"bytes": t.nbytes} if t.nbytes else {}
                    )
            for number, (unit, x, begin, end) in enumerate(journal.landing):
                place = {"id": f"{start}.{number}", "pid": _process(unit), "tid": _FIRST_UNIT + int(unit)}
                place |= {"cat": "landing", "name": f"{x.op} on its way"}
                yield {"ph": "b", **place, "ts": round((start + begin) * self.us, 6)}
                yield {"ph": "e", **place, "ts": round((start + end) * self.us, 6)}

    def arrows(self) -> Iterator[Event]:
        """From who posts a token or moves entries into a FIFO to who takes them."""
        number = 0
        for _, journal, start in self.kernels:
            places = _Places(journal)
            for kind, name, sender, sent, receiver, taken in _transfers(journal):
                begin, end = places.last(sender, sent), places.first(receiver, taken)
                if begin is None or end is None or end < begin:
                    continue
                number += 1
                if number > MOST_ARROWS:
                    self.left_out += 1
                    continue
                at = [(unit, (start + cycle + 0.5) * self.us) for unit, cycle in ((sender, begin), (receiver, end))]
                for phase, (unit, us) in zip("sf", at, strict=True):
                    yield arrow(phase, number, kind, name, _process(unit), _FIRST_UNIT + int(unit), us)

    def _segment(self, kernel: int, s: Segment, start: int, nbytes: int) -> Event:
        """nbytes: over the memory channel, of all cores."""
        x = s.instruction
        arguments: dict[str, Any] = {"cycles": s.end - s.begin}
        if x is not None:
            source = self.owners[kernel][s.unit][x.index]
            told = (("op", source.op), ("source", source.location), ("nodes", self.nodes[source]))
            arguments |= {"word": x.index} | {k: v for k, v in told if v}
        if s.merged > 1:
            arguments["merged"] = s.merged
        if s.cause:
            name, category = f"wait: {s.cause}", "wait"
            arguments["cause"] = s.cause
        elif x is not None and x.ddr is not None:
            name, category = f"Memcpy {_COPIES[s.unit]} ({x.op})", "gpu_memcpy"
            arguments |= {"device": CHIP, "stream": _FIRST_UNIT + int(s.unit), "correlation": 0, "bytes": nbytes}
            arguments["memory bandwidth (GB/s)"] = round(nbytes / (s.end - s.begin) * self.target.clock_ghz, 3)
        else:
            name, category = x.op if x is not None else s.unit.name, "work"
        return self._slice(name, category, _process(s.unit), _FIRST_UNIT + int(s.unit), start + s.begin, start + s.end, arguments)

    def _slice(self, name: str, category: str, process: int, row: int, begin: int, end: int, given: Event | None = None) -> Event:
        return slice_of(name, category, process, row, begin * self.us, end * self.us, given or {})


def _process(unit: Unit) -> int:
    return CORELET if unit.per_corelet else CORE


class _Places:
    """Where arrows of a kernel begin and end: inside of slices, since viewers tie them to these."""

    def __init__(self, journal: Journal) -> None:
        self._segments: dict[Unit, list[Segment]] = {}
        for s in journal.segments:
            self._segments.setdefault(s.unit, []).append(s)
        self._begins = {unit: [s.begin for s in segments] for unit, segments in self._segments.items()}

    def last(self, unit: Unit, cycle: int) -> int | None:
        """The last cycle of a unit's slices that is not later."""
        k = bisect_right(self._begins.get(unit, ()), cycle - 1) - 1
        return min(cycle, self._segments[unit][k].end) - 1 if k >= 0 else None

    def first(self, unit: Unit, cycle: int) -> int | None:
        """The first cycle of a unit's slices from then on, the last one of all where there is none."""
        segments = self._segments.get(unit)
        return None if segments is None else min(cycle, segments[-1].end - 1)


_Transfer = tuple[str, str, Unit, int, Unit, int]
"""Category and name of an arrow, who sends and when, who takes and when."""


def _transfers(journal: Journal) -> Iterator[_Transfer]:
    for (sender, receiver, token), posts in journal.posts.items():
        for sent, taken in zip(posts, journal.takes.get((sender, receiver, token), ()), strict=False):
            yield "token", f"token {token}", sender, sent, receiver, taken
    for fifo, pushes in journal.pushes.items():
        pops = journal.pops.get(fifo, [])
        ends = [p.end for p in pops]
        for push in pushes:
            pop: Passage | None = next(iter(pops[bisect_right(ends, push.first) :][:1]), None)
            if pop is not None and pop.first < push.end:
                sent = push.begin + 1
                yield "exchange" if fifo == "R" else "fifo", f"FIFO {fifo}", push.unit, sent, pop.unit, max(pop.begin, sent)
