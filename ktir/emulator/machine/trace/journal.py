"""What each unit does at each cycle, for drawings: a control run that is asked to keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.trace.tokens import Key
from ktir.isa.units import Unit

if TYPE_CHECKING:
    from ktir.emulator.machine.program.decode import Instruction

Ints = NDArray[np.int64]
MOST_PARTS = 32
"""Waits of one word that are kept apart; of more, neighbours are put together: first what they waited, then what was done."""


class Segment(NamedTuple):
    """Cycles [begin, end) of a unit in a kernel, in which it works on a word (`cause` is empty) or waits. Those of a unit follow one
    another without gap or overlap. `merged`: segments that this one stands for."""

    unit: Unit
    instruction: Instruction | None
    begin: int
    end: int
    cause: str = ""
    merged: int = 1


class Gap(NamedTuple):
    """Waits of a stream by step: `begin` and `cycles` of those that wait, and which of `causes` is to blame."""

    begin: Ints
    cycles: Ints
    cause: Ints
    causes: Sequence[str]


class Passage(NamedTuple):
    """A word that moves entries of a FIFO: the numbers [first, end) of the entries, and when."""

    unit: Unit
    first: int
    end: int
    begin: int
    done: int


class Traffic(NamedTuple):
    """What a unit has of the memory channel or the ring in cycles [begin, end), for a word."""

    unit: Unit
    begin: int
    end: int
    nbytes: int
    instruction: Instruction | None = None


@dataclass
class Journal:
    """What happened in one kernel, in cycles from its start."""

    segments: list[Segment] = field(default_factory=list)
    posts: dict[Key, list[int]] = field(default_factory=dict)
    """Channel -> when its sender has posted each token."""
    takes: dict[Key, list[int]] = field(default_factory=dict)
    """Channel -> until when its receiver waited for each."""
    pushes: dict[str, list[Passage]] = field(default_factory=dict)
    pops: dict[str, list[Passage]] = field(default_factory=dict)
    """FIFO -> words that put entries into it, and take them."""
    fills: dict[str, list[tuple[Ints, int]]] = field(default_factory=dict)
    """FIFO -> cycles at which entries come (1) or go (-1)."""
    memory: list[Traffic] = field(default_factory=list)
    ring: list[Traffic] = field(default_factory=list)
    landing: list[tuple[Unit, Instruction, int, int]] = field(default_factory=list)
    """Transfers that are still on their way after the channel is free for others."""

    def segment(self, unit: Unit, x: Instruction | None, begin: int, end: int, cause: str = "", merged: int = 1) -> None:
        """Add cycles of a unit, unless there are none."""
        if end > begin:
            self.segments.append(Segment(unit, x, begin, end, cause, merged))

    def passage(self, fifo: str, unit: Unit, entries: int, begin: int, done: int, *, pushed: bool) -> None:
        """A word has moved entries of a FIFO."""
        kept = (self.pushes if pushed else self.pops).setdefault(fifo, [])
        first = kept[-1].end if kept else 0
        kept.append(Passage(unit, first, first + entries, begin, done))

    def stream(self, unit: Unit, x: Instruction | None, begin: int, end: int, gaps: Sequence[Gap]) -> None:
        """Cycles of a word that moves entries step by step, with what it waited for between steps."""
        at = begin
        for start, cycles, cause, merged in _parts(gaps):
            self.segment(unit, x, at, start, merged=merged)
            self.segment(unit, x, start, start + cycles, cause, merged)
            at = start + cycles
        self.segment(unit, x, at, end)


def _parts(gaps: Sequence[Gap]) -> list[tuple[int, int, str, int]]:
    """Begin, cycles and cause of waits; where these are too many, neighbours of one cause are one, at the place of the first."""
    found = [(int(b), int(n), g.causes[int(c)], 1) for g in gaps for b, n, c in zip(g.begin, g.cycles, g.cause, strict=True)]
    if len(found) <= MOST_PARTS:
        return found
    out: list[tuple[int, int, str, int]] = []
    size = -(-len(found) // MOST_PARTS)
    for k in range(0, len(found), size):
        group = found[k : k + size]
        at = group[0][0]
        for cause in dict.fromkeys(c for _, _, c, _ in group):
            mine = [n for _, n, c, _ in group if c == cause]
            out.append((at, sum(mine), cause, len(mine)))
            at += sum(mine)
    return out
