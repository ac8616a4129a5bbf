"""Accesses that fail, as the shadows report them, and the findings that they become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.program import faults


@dataclass(frozen=True)
class Conflict:
    """An access that fails. `kind` is a key of `WORDING`, or `early`; `cell` the first cell at fault, `corelet` the one that accesses it.

    `other` is the component (absolute) of the earlier access and `event` its place in the trace, -1 if there is none.
    """

    kind: str
    cell: int
    corelet: int
    other: int = -1
    event: int = -1
    writer: int = -1
    """For a read before its write: the writing event; `event` is the read."""


@dataclass(frozen=True)
class EarlyRead:
    """Sticks that a word read before anything had written them."""

    cells: NDArray[np.int64]
    conflict: Conflict


Report = Callable[[Conflict], None]
"""Called with the first conflict of an access; raises."""

WORDING: dict[str, tuple[type[faults.MachineFinding], str]] = {
    "RAW": (faults.RawHazard, "RAW hazard: {me} reads {place}, not ordered after {other} wrote it"),
    "WAR": (faults.WarHazard, "WAR hazard: {me} overwrites {place} before {other} has surely read it"),
    "WAW": (faults.WawHazard, "WAW hazard: {me} overwrites {place}, not ordered after {other} wrote it"),
    "flight": (faults.WawHazard, "WAW hazard: {me} overwrites {place}, to which {other} may still be loading"),
    "uninit": (faults.UninitialisedRead, "{me} reads {place}, which nothing has written"),
    "type": (faults.TypeFault, "{me} reads {place} with another element size than {other} wrote"),
    "foreign read": (faults.MemoryHazard, "{me} reads {place}, which another core writes in this kernel by {other}"),
    "foreign write": (faults.MemoryHazard, "{me} writes {place}, which another core reads in this kernel by {other}"),
    "unordered read": (faults.MemoryHazard, "{me} reads {place} back, not ordered after {other} wrote it"),
    "unordered write": (faults.MemoryHazard, "{me} writes {place}, not ordered after {other} read it"),
    "early read": (faults.MemoryHazard, "{me} may read {place} ahead of its kernel, but {other} writes that"),
    "early write": (faults.WarHazard, "WAR hazard: {me} may load {place} ahead of its kernel, where {other} has it"),
    "twice": (faults.MemoryHazard, "{me} writes {place}, which another core writes in this kernel by {other}"),
}
"""Kind of conflict -> the finding and its message; `me` accesses now, `other` did before."""
