"""Reductions of one long row: parts of it are rows, which cores share, and what these come to is reduced once more.

A kernel of its own costs a launch and the way through memory, so a row is cut only where its body takes longer than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ktir.cost.bodies import stick_cycles
from ktir.cost.estimate import kernel_start
from ktir.dialects.structured import (
    IDENTITY,
    Generic,
    affine_map,
    clone_ops,
    constant,
    element_of,
    elementwise,
    fill,
    generic,
    index_constant,
    loop_extents,
)
from ktir.mlir import arith, func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory.reshapes import part_of, split
from ktir.target import LANES, Target


class Cut(NamedTuple):
    """Parts of a row of `length` elements each; what is left of it comes last."""

    parts: int
    length: int

    @property
    def end(self) -> int:
        """The first element that is left."""
        return self.parts * self.length


def long_rows_in_parts(function: func.FuncOp, target: Target) -> None:
    """Cut the reductions of `function` to a single number that take long, in place."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, linalg.GenericOp):
            g = Generic(op)
            cut = _cut(g, target)
            if cut is not None:
                with ir.InsertionPoint(op), op.location:
                    op.results[0].replace_all_uses_with(_in_parts(g, cut))
                op.erase()


def _cut(g: Generic, target: Target) -> Cut | None:
    """How a row is cut into whole sticks, one part for each core at most; None where that saves nothing. Parts of all of it are the best,
    since what is left is one more row."""
    if g.iterators != ["reduction"] or g.combiner not in IDENTITY:
        return None
    (size,) = loop_extents(g.op)
    sticks, cores = -(-size // LANES), min(target.cores, size // LANES)
    if (sticks - sticks // max(cores, 1)) * stick_cycles(g, target) <= 2 * kernel_start(target):
        return None
    even = max(n for n in range(1, cores + 1) if size % (n * LANES) == 0 or n == 1)
    return Cut(even, size // even) if 2 * even >= cores else Cut(cores, size // LANES // cores * LANES)


def _in_parts(g: Generic, cut: Cut) -> ir.Value:
    (size,) = loop_extents(g.op)
    element, kind = element_of(g.op.results[0]), g.combiner
    assert kind is not None
    combiner = g.yielded.owner.operation.name
    start = constant(element, IDENTITY[kind])

    def combined(scalars: list[ir.Value]) -> ir.Value:
        return ir.Operation.create(combiner, results=[element], operands=[scalars[1], scalars[0]]).results[0]

    def place() -> ir.Value:
        begin = arith.MulIOp(linalg.IndexOp(0).result, index_constant(cut.length)).result
        return arith.AddIOp(begin, linalg.IndexOp(1).result).result

    def rows(value: ir.Value) -> ir.Value:
        return split(part_of(value, 0, 0, cut.end) if cut.end < size else value, 0, [cut.parts, cut.length])

    parts = _mapped(g, rows, place, [cut.parts], start)
    whole = generic([parts], g.init, [affine_map(1, [0]), affine_map(1, [])], ["reduction"], combined, loc=g.op.location)
    if cut.end == size:
        return whole

    def last() -> ir.Value:
        return arith.AddIOp(linalg.IndexOp(0).result, index_constant(cut.end)).result

    rest = _mapped(g, lambda v: part_of(v, 0, cut.end, size - cut.end), last, [], start)
    return elementwise([rest, whole], tensor.empty([], element), lambda scalars: combined(scalars))


def _mapped(g: Generic, of: Callable[[ir.Value], ir.Value], place: Callable[[], ir.Value], rows: list[int], start: ir.Value) -> ir.Value:
    """The reduction of a part of a row, or of several: of operands as `of` gives them, with `place` as the position."""
    loops = len(rows) + 1
    walked = [len(m.results) > 0 and g.loop_of(i, 0) is not None for i, m in enumerate(g.maps[:-1])]
    inputs = [of(v) if w else v for v, w in zip(g.inputs, walked, strict=True)]
    maps = [affine_map(loops, range(loops) if w else [None] * len(m.results)) for w, m in zip(walked, g.maps, strict=False)]

    def body(scalars: list[ir.Value]) -> ir.Value:
        mapping = dict(zip(g.body.arguments, scalars, strict=True))
        for op in g.body_ops:
            if is_a(op, linalg.IndexOp):
                mapping[op.results[0]] = place()
            else:
                clone_ops([op], mapping)
        return mapping[g.yielded]

    init = fill(start, tensor.empty(rows, element_of(g.op.results[0])))
    kinds = ["parallel"] * len(rows) + ["reduction"]
    return generic(inputs, init, [*maps, affine_map(loops, range(len(rows)))], kinds, body, loc=g.op.location)
