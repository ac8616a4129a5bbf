"""Which runs of a kernel's moves may take place before the kernel begins: the first ones of each word that says so, in program order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ktir.isa.access import Counters
from ktir.isa.descriptor import LEVELS
from ktir.isa.instructions import Does
from ktir.isa.program import Word


@dataclass(frozen=True)
class Run:
    """An execution of word `index`: the loop counters, and the levels that are open, outer loops first."""

    index: int
    counters: Counters
    levels: tuple[int, ...]


def runs_ahead(words: Sequence[Word]) -> list[Run]:
    """The runs that a unit's program allows ahead of its kernel, in the order of the program."""
    left = {i: w["ahead"] for i, w in enumerate(words) if w.does is Does.MOVE and w["ahead"]}
    return list(first_runs(words, left))


def first_runs(words: Sequence[Word], left: dict[int, int]) -> Iterator[Run]:
    """The first runs of words, `left` of each, which counts down."""
    if left:
        yield from _Walk(words, left).part(0, len(words))


@dataclass
class _Walk:
    words: Sequence[Word]
    left: dict[int, int]
    counters: list[int] = field(default_factory=lambda: [0] * LEVELS)
    levels: list[int] = field(default_factory=list)

    def part(self, first: int, end: int) -> Iterator[Run]:
        """Runs of the words [first, end)."""
        at = first
        while at < end and self.left:
            w = self.words[at]
            if w.does is Does.LOOP:
                close = self._close(at)
                yield from self._loop(w, at + 1, close)
                at = close
            elif at in self.left:
                yield Run(at, tuple(self.counters), tuple(self.levels))
                self.left[at] -= 1
                if not self.left[at]:
                    del self.left[at]
            at += 1

    def _loop(self, w: Word, first: int, end: int) -> Iterator[Run]:
        self.levels.append(w["level"])
        for trip in range(w["trips"]):
            if not any(first <= at < end for at in self.left):
                break
            self.counters[w["level"]] = trip
            yield from self.part(first, end)
        self.counters[w["level"]] = 0
        self.levels.pop()

    def _close(self, at: int) -> int:
        """Where the loop that begins at a word ends."""
        open_loops = 0
        for i in range(at, len(self.words)):
            does = self.words[i].does
            open_loops += (does is Does.LOOP) - (does is Does.END_LOOP)
            if not open_loops:
                return i
        return len(self.words)
