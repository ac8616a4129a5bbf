"""Where each word of a unit's program stands: in which loops, in which REP; and what is wrong with the nesting."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ktir.isa.instructions import OPCODES, STREAMS, Does
from ktir.isa.program import Word


@dataclass(frozen=True)
class Loop:
    """An open loop; `index` is its word."""

    index: int
    level: int
    trips: int
    region: int


@dataclass(frozen=True)
class Site:
    """A word and what is open around it, outer loops first. `rep` is the word of the REP whose body holds it, in list `part`."""

    index: int
    word: Word
    loops: tuple[Loop, ...]
    rep: Word | None = None
    part: str = ""

    @property
    def repetitions(self) -> int:
        """How often the word runs in a kernel (its REP counted once)."""
        return prod(loop.trips for loop in self.loops)

    @property
    def trips(self) -> dict[int, int]:
        """Trips of every open level."""
        return {loop.level: loop.trips for loop in self.loops}


Fault = tuple[int, str]
_STREAMS = ", ".join(name for name, o in OPCODES.items() if o.does in STREAMS)


def sites(words: list[Word]) -> tuple[list[Site], list[Fault]]:
    """The sites of all words, and faults of nesting as (word index, message)."""
    found: list[Site] = []
    faults: list[Fault] = []
    loops: tuple[Loop, ...] = ()
    stack: list[Loop] = []
    rep: Word | None = None
    parts: list[str] = []
    for i, w in enumerate(words):
        if not parts:
            rep = None
        if w.opcode.body_only and rep is None:
            faults.append((i, f"'{w.op}' is legal only inside the body of a 'rep'"))
        elif rep is not None and not w.opcode.body_only:
            faults.append((i, f"'{w.op}' stands inside the body of a 'rep'"))
        part = parts.pop(0) if parts else ""
        if w.does is Does.END_LOOP:
            loops = _close(loops, stack, i, w, faults)
        found.append(Site(i, w, loops, rep, part))
        if w.does is Does.LOOP:
            stack.append(Loop(i, w["level"], w["trips"], w["region"]))
            if any(loop.level == w["level"] for loop in loops):
                faults.append((i, f"'loop' expects a level that is not open, but got {w['level']}"))
            else:
                loops = (*loops, stack[-1])
        elif w.does is Does.REPEAT:
            rep, parts = w, w.parts[: len(words)]
            if i + w.held >= len(words):
                faults.append((i, f"'rep' has a body of {w.held} words, but only {len(words) - i - 1} words follow"))
        elif w.does is Does.TOGETHER:
            _streams(words, i, faults)
        elif w.does is Does.HALT:
            _halt(words, i, loops, faults)
    faults += [(loop.index, f"'loop' of level {loop.level} is not ended") for loop in stack]
    if not any(w.does is Does.HALT for w in words):
        faults.append((max(len(words) - 1, 0), "the unit's program does not end in 'halt'"))
    return found, faults


def _close(loops: tuple[Loop, ...], stack: list[Loop], index: int, word: Word, faults: list[Fault]) -> tuple[Loop, ...]:
    """Ends the innermost loop of `stack`; the rest of `loops`, which lacks loops of a level that was open already."""
    if not stack:
        faults.append((index, "'endl' without an open 'loop'"))
        return loops
    ended = stack.pop()
    if ended.level != word["level"]:
        faults.append((index, f"'endl' expects level {ended.level}, which is the innermost open one, but got {word['level']}"))
    return loops[:-1] if loops and loops[-1] is ended else loops


def _streams(words: list[Word], index: int, faults: list[Fault]) -> None:
    count = words[index].held
    streams = words[index + 1 : index + 1 + count]
    if len(streams) < count or any(w.does not in STREAMS for w in streams):
        faults.append((index, f"'par' expects {count} words of {_STREAMS} to follow"))
        return
    fifos = [w.pops or w.pushes for w in streams]
    if len(set(fifos)) != len(fifos):
        faults.append((index, f"'par' expects streams of different FIFOs, but got {', '.join(fifos)}"))


def _halt(words: list[Word], index: int, loops: tuple[Loop, ...], faults: list[Fault]) -> None:
    if loops:
        faults.append((index, "'halt' stands inside a loop"))
    if index != len(words) - 1:
        faults.append((index, "'halt' is not the last word"))
