"""What happens inside of kernels, op by op: time, transfers, use of PT, stalls, and which areas of memory and LX are used most."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from ktir.emulator.machine.reports.label import owners
from ktir.emulator.machine.reports.occupancy import sticks_of
from ktir.emulator.machine.trace.journal import Journal, Segment
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.instructions import Does
from ktir.isa.program import Program, Source
from ktir.isa.units import Unit
from ktir.target import STICK_BYTES

K = TypeVar("K", bound=Hashable)


@dataclass
class Inside:
    """Words that belong together. Cycles: `cycles` in which a unit works for them, `busy` of each unit, `multiplying` of PT, `stalls` by
    cause, of their words and of waits before them. `latency`: of all their `transfers`, each from its request to its last byte.
    """

    cycles: int = 0
    busy: Counter[Unit] = field(default_factory=Counter)
    multiplying: int = 0
    stalls: Counter[str] = field(default_factory=Counter)
    transfers: int = 0
    latency: int = 0
    moved: int = 0
    """Bytes over the memory channel, of all cores."""

    @property
    def dma_latency(self) -> float:
        """Cycles of a transfer."""
        return self.latency / self.transfers if self.transfers else 0.0

    @property
    def pe_util(self) -> float:
        """Share of its cycles in which PT multiplies."""
        return self.multiplying / self.cycles if self.cycles else 0.0


class Area(NamedTuple):
    """A part of a memory with the bytes that go there and come from there. `space`: an argument of the program, or `LX` of a core with the
    sticks [first, last].
    """

    space: str
    first: int
    last: int
    read: int
    written: int


def inside(program: Program, trace: Trace, key: Callable[[str, Source], K]) -> dict[K, Inside]:
    """The words of a program by `key`, which takes the name of their kernel and their source, in the order in which they first do
    something. trace: with journals.
    """
    assert trace.journals is not None
    found: dict[K, Inside] = {}
    for statistics, decoded, journal in zip(trace.statistics, trace.kernels, trace.journals, strict=True):
        spans: dict[K, list[tuple[int, int]]] = defaultdict(list)
        own = {unit: owners(program, words) for unit, words in decoded.units.items()}
        for s in sorted((s for s in journal.segments if s.instruction is not None), key=lambda s: s.begin):
            assert s.instruction is not None
            name = key(statistics.name, own[s.unit][s.instruction.index])
            _add(found.setdefault(name, Inside()), s)
            if not s.cause:
                spans[name].append((s.begin, s.end))
        for name, each in spans.items():
            found[name].cycles += _union(each)
        for unit, x, begin, end in journal.landing:
            assert x.ddr is not None, unit
            found[key(statistics.name, program.source_of(x.word))].latency += end - begin
        for t in journal.memory:
            if t.instruction is not None:
                found[key(statistics.name, program.source_of(t.instruction.word))].moved += t.nbytes
    return found


def _add(to: Inside, s: Segment) -> None:
    x, cycles = s.instruction, s.end - s.begin
    assert x is not None
    transfer = x.does is Does.MOVE
    if s.cause:
        to.stalls[s.cause] += cycles
        to.latency += cycles if transfer else 0
        return
    to.busy[s.unit] += cycles
    to.multiplying += cycles if x.does is Does.MULTIPLY else 0
    to.transfers += transfer
    to.latency += cycles if transfer else 0


def _union(spans: list[tuple[int, int]]) -> int:
    """Cycles that at least one of spans has, which are sorted."""
    total = end = 0
    for begin, until in spans:
        total += max(until - max(begin, end), 0)
        end = max(end, until)
    return total


def hot_areas(program: Program, trace: Trace, core: int = 0) -> list[Area]:
    """Arguments by the bytes of all cores, and areas of a core's LX whose sticks are used alike; those used most come first. trace: with
    journals.
    """
    assert trace.journals is not None
    return sorted([*_memory(program, trace.journals), *_lx(trace, core)], key=lambda a: -(a.read + a.written))


def _memory(program: Program, journals: list[Journal]) -> Iterator[Area]:
    moved: dict[int, list[int]] = {}
    for t in (t for journal in journals for t in journal.memory if t.nbytes):
        x = t.instruction
        assert x is not None
        assert x.ddr is not None
        moved.setdefault(x.ddr.descriptor.arg or 0, [0, 0])[not x.loads] += t.nbytes
    for number, (read, written) in moved.items():
        argument = program.arguments[number]
        yield Area(f"argument {argument.name}", 0, argument.sticks - 1, read, written)


def _lx(trace: Trace, core: int) -> Iterator[Area]:
    counts = np.zeros((2, trace.lx_sticks + 1), np.int64)
    for e in trace.events:
        access = e.instruction.lx
        if access is not None and core < trace.kernels[e.kernel].kernel.cores:
            counts[int(e.instruction.writes_lx), sticks_of(access, e, core)] += 1
    edges = np.flatnonzero(np.concatenate(([True], np.diff(counts, axis=1).any(0), [True])))
    for first, end in zip(edges.tolist(), edges[1:].tolist(), strict=False):
        read, written = (int(n) for n in counts[:, first])
        if read or written:
            yield Area(f"LX of core {core}", first, end - 1, read * (end - first) * STICK_BYTES, written * (end - first) * STICK_BYTES)
