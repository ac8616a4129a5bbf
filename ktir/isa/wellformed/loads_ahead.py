"""Which loads of a kernel may be ahead of it, while the kernel before still computes.

A run of a load may be where it writes no stick of LX that the kernel before may touch, that another word of its own kernel writes or that
an earlier one of these runs fills, and where it reads nothing of memory that either kernel writes. The emulator checks all of it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from ktir.isa.access import Access
from ktir.isa.addresses import Range, indexed, touched
from ktir.isa.ahead import first_runs
from ktir.isa.descriptor import Descriptor
from ktir.isa.instructions import Does
from ktir.isa.program import Kernel, Program, Word
from ktir.isa.units import Unit
from ktir.isa.wellformed.structure import Site, sites
from ktir.target import CORELETS, STICK_BYTES

MOST = 255
"""Runs of one word."""


@dataclass(frozen=True)
class _Touch:
    """What all runs of a word may touch of LX (`argument` None) or of an argument; `word`: unit and place of the word."""

    word: tuple[Unit, int]
    argument: int | None
    reach: Range
    writes: bool

    def meets(self, other: _Touch) -> bool:
        """Whether both may ever touch the same."""
        if self.argument != other.argument or self.reach.empty or other.reach.empty:
            return False
        return self.reach.low <= other.reach.high and other.reach.low <= self.reach.high


class Aheads:
    """Marks the loads of a program's kernels. Kernels that are alike but for their arguments are looked at once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._touches: dict[int, tuple[Kernel, list[_Touch]]] = {}

    def marked(self) -> Program:
        """The program with its marks."""
        kernels = self.program.kernels
        return replace(self.program, kernels=[*kernels[:1], *(self._marked(k, before) for before, k in pairwise(kernels))])

    def _marked(self, kernel: Kernel, before: Kernel) -> Kernel:
        words = list(kernel.units.get(Unit.MNIL, []))
        found = self._of(kernel)
        others = self._of(before)
        for s in sites(words)[0]:
            if s.word.does is Does.MOVE and (count := self._count(kernel, s, found, others)):
                words[s.index] = replace(s.word, operands={**s.word.operands, "ahead": count})
        return replace(kernel, units={**kernel.units, Unit.MNIL: words})

    def _of(self, kernel: Kernel) -> list[_Touch]:
        if id(kernel) not in self._touches:
            self._touches[id(kernel)] = kernel, list(_touches(kernel))
        return self._touches[id(kernel)][1]

    def _count(self, kernel: Kernel, site: Site, own: list[_Touch], before: list[_Touch]) -> int:
        """How many of its first runs."""
        place = Unit.MNIL, site.index
        mine = [t for t in own if t.word == place]
        others = [t for t in own if t.word != place]
        read, filled = [t for t in mine if not t.writes], [t for t in mine if t.writes]
        if any(t.meets(o) and o.writes for t in read for o in (*before, *others)):
            return 0
        if any(t.meets(o) for t in filled for o in before) or any(t.meets(o) and o.writes for t in filled for o in others):
            return 0
        return _apart(kernel, site)


def _apart(kernel: Kernel, site: Site) -> int:
    """How many first runs of a load fill places of their own."""
    d = kernel.descriptors[site.word["dst"]]
    if prod(site.trips.values()) == 1:
        return 1
    access, seen, count = Access(site.word["dst"], d, kernel), np.empty(0, np.int64), 0
    for run in first_runs(kernel.units[Unit.MNIL], {site.index: MOST}):
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
                    yield _Touch((unit, s.index), d.arg, reach, name == s.word.opcode.writes)


def _whole(d: Descriptor, w: Word, name: str) -> Descriptor:
    """All that a descriptor may reach where indices choose."""
    operands: Mapping[str, object] = w.operands
    return indexed(d, w["dim"], w["size"]) if operands.get("index") is not None and name != "index" and d.space == "ddr" else d
