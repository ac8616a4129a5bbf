"""Which loads of a kernel may be ahead of it, while the kernel before still computes.

A run of a load may be where it writes no stick of LX that the kernel before may touch, that another word of its own kernel writes or that
an earlier one of these runs fills, and where it reads nothing of memory that either kernel writes. The emulator checks all of it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ktir.isa.access import Access
from ktir.isa.addresses import Range, indexed, touched
from ktir.isa.ahead import first_runs
from ktir.isa.descriptor import Descriptor
from ktir.isa.instructions import Does
from ktir.isa.program import Kernel, Program, Word
from ktir.isa.units import Unit
from ktir.isa.wellformed.structure import sites
from ktir.target import CORELETS, STICK_BYTES

MOST = 255
"""Runs of one word."""


@dataclass(frozen=True)
class _Touch:
    """What all runs of a word, of `unit` at `index`, may touch through a descriptor: whole sticks of LX or of an argument."""

    unit: Unit
    index: int
    descriptor: int
    reach: Range
    writes: bool


@dataclass(frozen=True)
class _Use:
    """A touch in one of the runs of a kernel, of this argument; None: of LX."""

    touch: _Touch
    argument: int | None

    def meets(self, other: _Use) -> bool:
        """Whether both may ever touch the same."""
        mine, others = self.touch.reach, other.touch.reach
        return self.argument == other.argument and mine.low <= others.high and others.low <= mine.high


class Aheads:
    """Marks the loads of a program's kernels. Kernels that have the same words are looked at once, and still have the same words
    afterwards where they have the same marks.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._touches: dict[int, list[_Touch]] = {}
        self._apart: dict[tuple[int, int], int] = {}
        self._units: dict[tuple[int, tuple[tuple[int, int], ...]], dict[Unit, list[Word]]] = {}

    def marked(self) -> Program:
        """The program with its marks."""
        kernels = self.program.kernels
        return replace(self.program, kernels=[*kernels[:1], *(self._marked(k, before) for before, k in pairwise(kernels))])

    def _marked(self, kernel: Kernel, before: Kernel) -> Kernel:
        own, others, counts = self._uses(kernel), self._uses(before), dict[int, int]()
        moves = dict.fromkeys(
            u.touch.index for u in own if u.touch.unit is Unit.MNIL and kernel.units[Unit.MNIL][u.touch.index].does is Does.MOVE
        )
        for index in moves:
            mine = [u for u in own if u.touch.unit is Unit.MNIL and u.touch.index == index]
            rest = [u for u in own if u.touch.unit is not Unit.MNIL or u.touch.index != index]
            if not _meet(mine, rest, others):
                counts[index] = self._count(kernel, index)
        if not counts:
            return kernel
        key = id(kernel.units), tuple(counts.items())
        if key not in self._units:
            words = [
                replace(w, operands={**w.operands, "ahead": counts[i]}) if i in counts else w for i, w in enumerate(kernel.units[Unit.MNIL])
            ]
            self._units[key] = {**kernel.units, Unit.MNIL: words}
        return replace(kernel, units=self._units[key])

    def _uses(self, kernel: Kernel) -> list[_Use]:
        key = id(kernel.units)
        if key not in self._touches:
            self._touches[key] = [t for t in _touches(kernel) if not t.reach.empty]
        return [_Use(t, kernel.descriptors[t.descriptor].arg) for t in self._touches[key]]

    def _count(self, kernel: Kernel, index: int) -> int:
        key = id(kernel.units), index
        if key not in self._apart:
            self._apart[key] = _apart(kernel, index)
        return self._apart[key]


def _meet(mine: list[_Use], rest: list[_Use], before: list[_Use]) -> bool:
    """Whether it makes a difference when a load takes place: `rest` is what else its kernel touches, `before` what the one before does."""
    for u in mine:
        if any(u.meets(o) and (o.touch.writes or u.touch.writes) for o in before) or any(u.meets(o) and o.touch.writes for o in rest):
            return True
    return False


def _apart(kernel: Kernel, index: int) -> int:
    """How many first runs of a load fill places of their own."""
    number = kernel.units[Unit.MNIL][index]["dst"]
    d = kernel.descriptors[number]
    access, seen, count = Access(number, d, kernel), np.empty(0, np.int64), 0
    for run in first_runs(kernel.units[Unit.MNIL], {index: MOST}):
        sticks = np.unique(access.sticks(run.counters)[..., None] + np.arange(d.entry_bytes // STICK_BYTES))
        if np.isin(sticks, seen, assume_unique=True).any():
            break
        seen, count = np.concatenate((seen, sticks)), count + 1
    return count


def _touches(kernel: Kernel) -> Iterator[_Touch]:
    for unit, words in kernel.units.items():
        for s in sites(words)[0]:
            for name in (*s.word.opcode.reads, *([s.word.opcode.writes] if s.word.opcode.writes else [])):
                number = s.word.operands.get(name)
                if number is not None:
                    d = _whole(kernel.descriptors[number], s.word, name)
                    reach = touched(d, kernel, s.trips, CORELETS if unit.per_corelet else 1)
                    sticks = Range(reach.low - reach.low % STICK_BYTES, reach.high | (STICK_BYTES - 1))
                    yield _Touch(unit, s.index, number, reach if reach.empty else sticks, name == s.word.opcode.writes)


def _whole(d: Descriptor, w: Word, name: str) -> Descriptor:
    """All that a descriptor may reach where indices choose."""
    operands: Mapping[str, object] = w.operands
    return indexed(d, w["dim"], w["size"]) if operands.get("index") is not None and name != "index" and d.space == "ddr" else d
