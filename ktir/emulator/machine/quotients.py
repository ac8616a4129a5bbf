"""Integer divisions that have no quotient: a finding where live data divides, as in the KTIR executor.

Lanes that a bound clips divide pads, which is no fault. What depends on them is told from live data by running the program again with
other pads: a division is at fault if it has no quotient whatever the pads are. Programs whose divisors are constants are not run for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.integers import no_quotient
from ktir.isa.functions import integer_lane
from ktir.isa.instructions import CONSTANTS
from ktir.isa.program import Program, Word

from .faults import DivisionFault
from .step import Step
from .trace import Event, Trace
from .vector import F32

DIVISIONS = ("divsi", "remsi", "floordivsi", "divui", "remui")
_PADS = (None, 0x2A5F3C71, 0x5B86D14F)
"""The program's own pads, then two numbers that a computation does not meet by chance."""


@dataclass
class _Missing:
    """A division without quotient: its kind, event, corelet, and where it divides by zero or overflows [cores, ..]."""

    kind: str
    event: Event
    corelet: int
    zero: NDArray[np.bool_]
    bad: NDArray[np.bool_]


def divides_by_data(program: Program) -> bool:
    """Whether a divisor may be zero or -1."""
    return any(_unsafe(words) for kernel in program.kernels for words in kernel.units.values())


def _unsafe(words: Sequence[Word]) -> bool:
    made: dict[int, Word] = {}
    for w in words:
        if w.op == "v2" and w["kind"] in DIVISIONS:
            divisor = made.get(w["src2"])
            if divisor is None or divisor.op not in CONSTANTS or divisor["value"] in (0, -1):
                return True
        if "dst" in w.operands and w.op != "vout":
            made[w["dst"]] = w
    return False


def check_quotients(program: Program, trace: Trace, corelets: int, arguments: Sequence[F32]) -> None:
    """Raise a DivisionFault for a division of live integers without a quotient. `arguments` are left as they are."""
    always: list[_Missing] = []
    for pad in _PADS:
        found = _run(Step(program, trace, corelets, None if pad is None else integer_lane(pad)), arguments)
        if pad is None:
            always = found
        else:
            for one, again in zip(always, found, strict=True):
                one.bad = one.bad & again.bad
        if not any(one.bad.any() for one in always):
            return
    _report(trace, next(one for one in always if one.bad.any()))


def _run(step: Step, arguments: Sequence[F32]) -> list[_Missing]:
    found: list[_Missing] = []

    def look(event: Event, corelet: int, kind: str, operands: Sequence[F32]) -> None:
        if kind in DIVISIONS:
            zero, over = no_quotient(f"arith.{kind}", "i32")(*(x.view(np.int32) for x in operands))
            found.append(_Missing(kind, event, corelet, zero, zero if over is None else zero | over))

    step.observe = look
    step.run([a.copy() for a in arguments])
    return found


def _report(trace: Trace, missing: _Missing) -> None:
    e = missing.event
    site = trace.kernels[e.kernel].site(e.unit, e.instruction.index, missing.corelet, e.loops)
    at = np.argwhere(missing.bad)[0]
    core = f" on core {int(at[0])}" if missing.bad.ndim > 1 and missing.bad.shape[0] > 1 else ""
    by_zero = bool(np.broadcast_to(missing.zero, missing.bad.shape)[tuple(at)])
    what = "divides by zero" if by_zero else f"divides {-(2**31)} by -1, which i32 cannot hold,"
    raise DivisionFault(f"{site} {what} in '{missing.kind}'{core}", site)
