"""A compiled program: its functions, blocks and ops as plain data. Nothing in it refers to MLIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ktir.dialects.module_level import Level
from ktir.emulator.findings import Where

__all__ = ["OWN_ROLES", "Action", "Argument", "BlockPlan", "Function", "OpPlan", "Program"]

Action = Callable[[Any], None]
"""Executes one op on a recorder, which is built on programs: reads and writes its SSA values, emits steps."""

OWN_ROLES = ("pool", "iota")
"""Roles of memory that the caller need not give: what a program keeps between its ops, and memory whose element i holds i."""


@dataclass(frozen=True, slots=True)
class OpPlan:
    """An op: what records it, its place, the slots of its operands and results, the blocks that recording it may run."""

    action: Action
    where: Where
    operands: tuple[int, ...]
    results: tuple[int, ...]
    blocks: tuple[BlockPlan, ...] = ()


@dataclass(frozen=True)
class BlockPlan:
    """A block: slots of its arguments, its ops, slots that its terminator passes on."""

    arguments: tuple[int, ...]
    ops: tuple[OpPlan, ...]
    yields: tuple[int, ...]


@dataclass(frozen=True)
class Argument:
    """A function argument: its type, and what `ktir.name`, `ktir.role`, `ktir.layout` and `ktir.type` say of it."""

    slot: int
    type: str
    name: str | None
    role: str | None
    elements: int | None
    """Size of a buffer with a layout, of a pool or an iota, in elements of `element`."""
    element: str | None
    narrow: bool = False
    """Whether the views of it take the integers of the caller's array, of another width, as i32."""
    alias: str | None = None
    """Its name in the text."""
    lies: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Size and strides of the tensor, where it declares strides that are not those of its size."""


@dataclass
class Function:
    """A compiled `func.func`. `grid` is None where the attribute is absent: one tile."""

    name: str
    where: Where
    grid: tuple[int, ...] | None
    arguments: list[Argument] = field(default_factory=list)
    body: BlockPlan | None = None
    slots: int = 0

    @property
    def tiles(self) -> int:
        return prod(self.grid) if self.grid else 1


@dataclass
class Program:
    """All functions of a module by name, and the one that is executed if none is named."""

    functions: dict[str, Function]
    entry: str | None
    remote: bool
    """Whether a view names the scratchpad of a tile: then tiles may touch each other's."""
    level: Level | None
    """Attribute `ktir.level` of the module."""
    lx_bytes: int
    """Scratchpad of a core that the module's target has for programs."""
