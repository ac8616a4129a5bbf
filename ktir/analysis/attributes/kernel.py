"""The attributes of a kernel, by name and type; what each says stands in `table`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.mlir import ir


@dataclass(frozen=True)
class Division:
    """What `ktir.work` says: parts of the sticks of columns and of each row loop, and the share of one core."""

    column_parts: int
    row_parts: tuple[int, ...]
    sticks: int
    row_shares: tuple[int, ...]


@dataclass(frozen=True)
class KernelFunction:
    """A kernel whose attributes are read when they are asked for, as it is then."""

    function: ir.Operation | Any

    @property
    def rows(self) -> list[int]:
        """Extents of the row loops, outer to inner."""
        return list(ir.DenseI64ArrayAttr(self.function.attributes["ktir.rows"]))

    @property
    def work(self) -> Division:
        """How the kernel is divided."""
        work = kt.WorkAttr(self.function.attributes["ktir.work"])
        splits, tile = list(work.splits), list(work.tile)
        return Division(splits[0], tuple(splits[1:-1]), tile[0], tuple(tile[1:-1]))

    @property
    def grid(self) -> tuple[int, ...]:
        """The compute tiles that run it."""
        return tuple(ir.IntegerAttr(n).value for n in ir.ArrayAttr(self.function.attributes["grid"]))

    @property
    def cores(self) -> int:
        """How many compute tiles run it."""
        return prod(self.grid)

    def coordinate(self, dim: int) -> list[int]:
        """Per compute tile its coordinate in a dimension of the grid, of which the last one is the fastest."""
        return [tile // prod(self.grid[dim + 1 :]) % self.grid[dim] for tile in range(self.cores)]

    @property
    def columns(self) -> int:
        """Sticks of every result that may be dealt out; 0: none."""
        return self._count("ktir.columns", 0)

    @property
    def sums(self) -> int:
        """Cores that share the reduced loop of matmuls."""
        return self._count("ktir.sums", 1)

    def _count(self, name: str, default: int) -> int:
        return ir.IntegerAttr(self.function.attributes[name]).value if name in self.function.attributes else default


def is_authors(function: ir.Operation | Any) -> bool:
    """Whether a function is a kernel whose grid its author chose, as he wrote it or pinned: no pass divides it."""
    return "grid" in function.attributes and not any(name in function.attributes for name in ("ktir.rows", "ktir.exchange"))


def level_within(function: ir.Operation | Any, level: Level | None) -> Level | None:
    """The level of what is in a function of a module: of kernels by hand the tiled one as soon as there are layouts."""
    return Level.TILED if level in (Level.LAID_OUT, Level.DIVIDED) and is_authors(function) else level
