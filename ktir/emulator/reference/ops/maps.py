"""Affine maps as plain data, and reading a tensor through one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.tape import Binder, Call, Step
from ktir.emulator.reference.tape.values import Overlay, Tensor, Value
from ktir.mlir import ir

__all__ = ["IndexMap", "code_of", "grid_of", "linear_of", "read", "scatter"]


@dataclass(frozen=True)
class IndexMap:
    """A map from loops to coordinates. `rows[i]` is (coefficient per loop, constant), or None if result i is not linear.

    `code[i]` computes result i from the list of loop coordinates (numbers or arrays).
    """

    loops: int
    rows: tuple[tuple[tuple[int, ...], int] | None, ...]
    code: tuple[Any, ...]

    @staticmethod
    def of(map_: ir.AffineMap) -> IndexMap:
        results = list(map_.results)
        rows = tuple(linear_of(r, map_.n_dims) for r in results)
        return IndexMap(map_.n_dims, rows, tuple(code_of(r) for r in results))

    @staticmethod
    def of_dims(loops: int, dims: Iterable[int | None]) -> IndexMap:
        """The projected permutation with these loops as results; None = constant 0."""
        results = list(dims)
        rows = tuple((tuple(int(j == d) for j in range(loops)), 0) for d in results)
        code = tuple((lambda x, d=d: x[d]) if d is not None else (lambda x: 0) for d in results)
        return IndexMap(loops, rows, code)

    @property
    def is_linear(self) -> bool:
        return None not in self.rows

    def loop_of(self, result: int) -> int | None:
        """The loop that result `result` is, or None if it is anything else."""
        row = self.rows[result]
        if row is None or row[1] != 0 or sorted(row[0]) != [0] * (self.loops - 1) + [1]:
            return None
        return row[0].index(1)

    def constant(self, result: int) -> int | None:
        """The number that result `result` is, or None."""
        row = self.rows[result]
        return row[1] if row is not None and not any(row[0]) else None

    def loops_used(self) -> set[int]:
        """Loops that occur in some result; all of them if the map is not linear."""
        if not self.is_linear:
            return set(range(self.loops))
        return {j for row in self.rows if row is not None for j, c in enumerate(row[0]) if c}

    def coordinates(self, extents: tuple[int, ...]) -> list[Any]:
        """The results at every point of the loops, as arrays that broadcast over them."""
        grid = np.indices(extents, sparse=True)
        return [f(grid) for f in self.code]


def grid_of(extents: Sequence[int]) -> list[Any]:
    """Per loop its numbers along its axis, behind the axis of tiles."""
    return list(np.indices((1, *extents), sparse=True)[1:])


def linear_of(expr: ir.AffineExpr, loops: int) -> tuple[tuple[int, ...], int] | None:
    """Coefficients and constant of a linear expression of `loops` dims, or None."""
    if isinstance(expr, ir.AffineConstantExpr):
        return (0,) * loops, expr.value
    if isinstance(expr, ir.AffineDimExpr):
        return tuple(int(j == expr.position) for j in range(loops)), 0
    if isinstance(expr, ir.AffineAddExpr | ir.AffineMulExpr):
        left, right = linear_of(expr.lhs, loops), linear_of(expr.rhs, loops)
        if left is None or right is None:
            return None
        if isinstance(expr, ir.AffineAddExpr):
            return tuple(a + b for a, b in zip(left[0], right[0], strict=True)), left[1] + right[1]
        if any(left[0]):
            left, right = right, left
        return tuple(left[1] * c for c in right[0]), left[1] * right[1]
    return None


def code_of(expr: ir.AffineExpr, dims: int = 0) -> Any:
    """A function that computes the expression from the list of its dims and, after `dims` of them, its symbols: numbers or arrays."""
    if isinstance(expr, ir.AffineConstantExpr):
        value = expr.value
        return lambda x: value
    if isinstance(expr, ir.AffineDimExpr):
        position = expr.position
        return lambda x: x[position]
    if isinstance(expr, ir.AffineSymbolExpr):
        number = dims + expr.position
        return lambda x: x[number]
    assert isinstance(expr, ir.AffineBinaryExpr), f"unexpected affine expression {expr}"
    a, b = code_of(expr.lhs, dims), code_of(expr.rhs, dims)
    if isinstance(expr, ir.AffineAddExpr):
        return lambda x: a(x) + b(x)
    if isinstance(expr, ir.AffineMulExpr):
        return lambda x: a(x) * b(x)
    if isinstance(expr, ir.AffineModExpr):
        return lambda x: a(x) % b(x)
    if isinstance(expr, ir.AffineFloorDivExpr):
        return lambda x: a(x) // b(x)
    return lambda x: -(-a(x) // b(x))


def read(rec: Recording, value: Value | None, map_: IndexMap, extents: tuple[int, ...]) -> Any:
    """`value` at every point of the loops: a tensor of shape [tiles, *extents]; a known scalar stays one."""
    if isinstance(value, int | float | bool | np.ndarray):
        return value.reshape((rec.tiles,) + (1,) * len(extents)) if isinstance(value, np.ndarray) else value
    origin = [0] * len(map_.rows)
    if isinstance(value, Overlay):
        if all(_within(map_, i, part, n) for i, (part, n) in enumerate(zip(value.box, value.shape, strict=True))):
            origin = [-low for low, _ in value.box]
            value = value.patch
        else:
            value = rec.plain(value)
    assert isinstance(value, Tensor)
    shape = (value.at.shape[0], *extents)
    if map_.is_linear:
        rows = [row for row in map_.rows if row is not None]
        steps = tuple(row[0] for row in rows)
        start = tuple(row[1] + o for row, o in zip(rows, origin, strict=True))
        return value.moved(value.at.linear(shape, steps, start))
    index = tuple(np.broadcast_to(c + o, extents) for c, o in zip(map_.coordinates(extents), origin, strict=True))
    result = rec.temporary(shape, (value.at.present[0], *extents), value.element)
    step = _Gather((value,), (result,))
    step.index = index
    rec.emit(step)
    return result


def _within(map_: IndexMap, result: int, part: tuple[int, int], extent: int) -> bool:
    """Whether a result of the map stays inside `part` of an axis of `extent`."""
    if part == (0, extent):
        return True
    constant = map_.constant(result)
    return constant is not None and part[0] <= constant < part[0] + part[1]


class _Gather(Step):
    """writes[0][t, *point] = reads[0][t, *index(point)]."""

    index: tuple[NDArray[np.int64], ...]

    def calls(self, binder: Binder) -> Iterable[Call]:
        source, target, index = (
            binder.array(self.reads[0], range(1, len(self.index) + 1)),
            binder.array(self.writes[0]),
            self.index,
        )

        def gather() -> None:
            target[...] = source[(slice(None), *index)]

        yield gather, ()


class _Scatter(Step):
    """writes[0] = reads[0], then writes[0][t, *index(point)] = reads[1][t, *point], points in row-major order."""

    index: tuple[NDArray[np.int64], ...]

    def calls(self, binder: Binder) -> Iterable[Call]:
        base, target, index = binder.array(self.reads[0]), binder.array(self.writes[0]), self.index
        value = binder.array(self.reads[1])

        def scatter() -> None:
            target[...] = base
            target[(slice(None), *index)] = value

        yield scatter, ()


def scatter(rec: Recording, base: Tensor, value: Tensor, map_: IndexMap, extents: tuple[int, ...]) -> Tensor:
    """`base` with the element that the map gives replaced by `value` at every point of the loops."""
    index = tuple(np.broadcast_to(c, extents) for c in map_.coordinates(extents))
    result = rec.temporary(base.at.shape, base.at.shape, base.element)
    step = _Scatter((base, value), (result,))
    step.index = index
    rec.emit(step)
    return result
