"""Which integer divisions of a program depend on data, and where lanes have no quotient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.integers import no_quotient
from ktir.emulator.machine.trace.trace import Event
from ktir.isa.instructions import Does
from ktir.isa.program import Program, Word

DIVISIONS = ("divsi", "remsi", "floordivsi", "divui", "remui")


@dataclass(eq=False)
class Noticed:
    """Lanes without a quotient in a block of cores, corelets and groups of a REP; `number`: which of its divisions it is."""

    event: Event
    number: int
    block: tuple[slice, slice, slice]
    bad: NDArray[np.bool_]
    """[cores, corelets, groups, sticks, lanes], 1 where nothing depends on an axis."""


def divides_by_data(program: Program) -> bool:
    """Whether a divisor may be zero or -1."""
    return any(_unsafe(words) for kernel in program.kernels for words in kernel.units.values())


def _unsafe(words: Sequence[Word]) -> bool:
    made: dict[int, Word] = {}
    for w in words:
        if w.does is Does.FUNCTION and w["kind"] in DIVISIONS:
            divisor = made.get(w["src2"])
            if divisor is None or divisor.does is not Does.CONSTANT or divisor["value"] in (0, 2**32 - 1):
                return True
        if w.register is not None:
            made[w.register] = w
    return False


def missing(kind: str, a: NDArray[np.float32], b: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where lanes divide by zero, and where they have no quotient at all."""
    zero, over = no_quotient(f"arith.{kind}", "i32")(a.view(np.int32), b.view(np.int32))
    return zero, zero if over is None else zero | over
