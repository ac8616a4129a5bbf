"""What happens on a card, one step after the other, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from ktir.target import Target

if TYPE_CHECKING:
    from ktir.emulator.machine import Machine

Kind = Literal["H2D", "D2H", "D2D", "Relayout", "HostCompute", "Compute"]
MOVES: tuple[Kind, ...] = ("H2D", "D2H", "D2D", "Relayout")
"""Kinds of steps that do nothing but move bytes."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a card or its host has done: bytes moved, and emulated nanoseconds. `name`: of a program. `host_ns`: that the host
    takes to give it. `machine`: what runs the program.
    """

    kind: Kind
    nbytes: int
    ns: float
    name: str = ""
    host_ns: float = 0.0
    machine: Machine | None = field(default=None, compare=False, repr=False)

    def alone(self) -> Step:
        """The same, as an object of its own: steps of a kind, or of a program, share one."""
        return replace(self)


def moving(kind: Kind, nbytes: int, target: Target, name: str = "") -> Step:
    """A step that moves bytes: between host and card over the bus, within the card through its memory, read and written counted."""
    return _moving(kind, nbytes, target.host_gb_per_second if kind in ("H2D", "D2H") else target.dram_gb_per_second, name)


@lru_cache(maxsize=1 << 12)
def _moving(kind: Kind, nbytes: int, gb_per_second: float, name: str) -> Step:
    return Step(kind, nbytes, nbytes / gb_per_second, name)
