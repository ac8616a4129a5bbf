"""What happens on a card, one step after the other, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ktir.target import Target

Kind = Literal["H2D", "D2H", "D2D", "Relayout", "HostCompute", "Compute"]
MOVES: tuple[Kind, ...] = ("H2D", "D2H", "D2D", "Relayout")
"""Kinds of steps that do nothing but move bytes."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that a card or its host has done: bytes moved, and emulated nanoseconds. `name`: of a program. `host_ns`: that the host
    takes to give it.
    """

    kind: Kind
    nbytes: int
    ns: float
    name: str = ""
    host_ns: float = 0.0


def moving(kind: Kind, nbytes: int, target: Target, name: str = "") -> Step:
    """A step that moves bytes: between host and card over the bus, within the card through its memory, read and written counted."""
    return _moving(kind, nbytes, target.host_gb_per_second if kind in ("H2D", "D2H") else target.dram_gb_per_second, name)


@lru_cache(maxsize=1 << 12)
def _moving(kind: Kind, nbytes: int, gb_per_second: float, name: str) -> Step:
    return Step(kind, nbytes, nbytes / gb_per_second, name)
