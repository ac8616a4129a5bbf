"""`ktir.level`, the attribute of a module that says how far it has been lowered.

module attributes {ktir.level = "tiled"}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ktir.mlir import ir

NAME = "ktir.level"


class Level(StrEnum):
    """How far a module has been lowered, in the order of the pipeline."""

    LOGICAL = "logical"
    FLAT = "flat"
    LAID_OUT = "laid-out"
    DIVIDED = "divided"
    TILED = "tiled"
    ALLOCATED = "allocated"
    SPYRE = "spyre"

    @property
    def of_host(self) -> bool:
        """Whether tensors have the caller's shapes, and arguments are the caller's buffers as they are."""
        return self in (Level.LOGICAL, Level.FLAT)

    @staticmethod
    def of(module: ir.Module | ir.Operation | Any) -> Level | None:
        """The level that a module states; None for one that states none, or none that there is."""
        found = module.operation.attributes.get(NAME)
        text = ir.StringAttr(found).value if isinstance(found, ir.StringAttr) else ""
        return Level(text) if text in _LEVELS else None


_LEVELS = frozenset(Level)

MADE_BY = {
    Level.FLAT: "ktir-break-views",
    Level.LAID_OUT: "ktir-assign-layouts",
    Level.DIVIDED: "ktir-divide-work",
    Level.TILED: "ktir-tile",
    Level.ALLOCATED: "ktir-allocate-scratchpad",
    Level.SPYRE: "convert-ktir-to-spyre",
}
"""The pass that leads to a level, from the one before it."""

KTIR_LEVELS = tuple(level for level in Level if level is not Level.SPYRE)
"""The levels at which a program is KTIR."""


def since(first: Level, last: Level = Level.SPYRE) -> tuple[Level, ...]:
    """The levels from one to another, with both."""
    levels = tuple(Level)
    return levels[levels.index(first) : levels.index(last) + 1]
