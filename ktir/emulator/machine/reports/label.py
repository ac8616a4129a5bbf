"""What a kernel does, in a few words, and the source lines that it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ktir.emulator.machine.program.decode import Instruction
from ktir.isa.instructions import Does
from ktir.isa.kinds import KINDS
from ktir.isa.problem import NO_SOURCE
from ktir.isa.program import Kernel, Program, Source, Word
from ktir.isa.units import Unit

_MOST = 4
"""Names of a label."""
_COSTS = ("matmul", "gather", "scatter", "reduce", "long", "transcendental", "exchange", "simple")
"""What takes longest comes first."""
_CONVERSIONS = ("mov", "sitofp", "uitofp", "fptosi", "fptoui")


def label(kernel: Kernel) -> str:
    """Such as `matmul, reduce max, exp, ...`; `copy` where nothing is computed."""
    found = dict.fromkeys(item for unit, words in kernel.units.items() for w in words for item in _names(unit, w))
    names = [name for _, name in sorted(found, key=lambda item: _COSTS.index(item[0]))]
    return ", ".join([*names[:_MOST], "..."] if len(names) > _MOST else names) or "copy"


def _names(unit: Unit, word: Word) -> Iterator[tuple[str, str]]:
    """What a word does, and after what it is put into order."""
    match word.does:
        case Does.MULTIPLY:
            yield "matmul", "matmul"
        case Does.MOVE if word["index"] is not None:
            name = "gather" if unit is Unit.MNIL else "scatter"
            yield name, name
        case Does.SEND:
            yield "exchange", "exchange"
        case Does.REDUCE:
            yield "reduce", f"reduce {word['kind']}"
        case Does.FUNCTION if word["kind"] not in _CONVERSIONS:
            yield KINDS[word["kind"]].cost, word["kind"]


def lines(program: Program, kernel: Kernel) -> list[str]:
    """`file:line` of the source lines that a kernel's words come from, in order."""
    found = {program.source_of(w).location for words in kernel.units.values() for w in words}
    places = [text.rsplit(":", 2) for text in found if text.count(":") >= 2]
    return [f"{file}:{line}" for file, line in sorted({(p[0], int(p[1])) for p in places if p[1].isdigit()})]


def owners(program: Program, words: Sequence[Instruction]) -> dict[int, Source]:
    """Number of a word of a unit -> what it works for: its source. A word without one, such as a wait, belongs to the next one that has
    one, else to the one before; one that drains sums to the multiplication that made them, though it stands where another op takes them.
    """
    found: dict[int, Source] = {}
    for order in (reversed(words), words):
        source = NO_SOURCE
        for x in order:
            for each in (*x.streams, x):
                own = program.source_of(each.word)
                source = own if own != NO_SOURCE else source
                if found.get(each.index, NO_SOURCE) == NO_SOURCE:
                    found[each.index] = source
    sums = NO_SOURCE
    for x in words:
        if x.does is Does.MULTIPLY:
            sums = found[x.index]
        elif x.does is Does.DRAIN and sums != NO_SOURCE:
            found[x.index] = sums
    return found
