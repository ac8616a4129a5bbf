"""Statistics of rows (`spyreop.exx2` and its pairs) as what computes them: two sums in f32, each divided by the count and rounded once.

A row is what the reduced loops of the `linalg.generic` around them walk, or else its last loop. A pair is two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ktir.diagnostics import refused
from ktir.dialects import spyreop
from ktir.dialects.structured import affine_map, clone_ops, constant, filled, generic, loop_extents, maps_of, renumber
from ktir.mlir import arith, ir, is_a, linalg, names, operations
from ktir.passes.general.intrinsics import in_f32, scale

_STATISTICS = (spyreop.Exx2Op, spyreop.Exx2FusedOp, spyreop.Exx2ZeroMeanFusedOp)
STATISTICS = names(*_STATISTICS, spyreop.LayerNormScaleFusedOp)
"""Names of the ops that are written out."""


def has_statistics(root: ir.Operation) -> bool:
    """Whether there is something to write out."""
    return any(is_a(op, *_STATISTICS) for op in operations(root))


def expand_statistics(root: ir.Operation) -> None:
    """Write out the generics in `root` that have statistics of rows in their bodies. Raises Unsupported."""
    for op in operations(root):
        if is_a(op, linalg.GenericOp) and any(is_a(o.operation, *_STATISTICS) for o in op.regions[0].blocks[0].operations):
            with ir.InsertionPoint(op), op.location:
                _Rows(op).write()
            op.erase()


@dataclass(frozen=True)
class _Sums:
    """Per row: the sum of what a statistic is of, and that of its squares."""

    op: ir.Operation
    values: tuple[ir.Value, ir.Value]


class _Rows:
    """A generic with statistics, on its way to several without."""

    def __init__(self, op: ir.Operation) -> None:
        self.op, self.maps, self.extents = op, maps_of(op), loop_extents(op)
        block = op.regions[0].blocks[0]
        *self.body, self.end = [o.operation for o in block.operations]
        self.arguments = list(block.arguments)
        reduced = [j for j, kind in enumerate(ir.ArrayAttr(op.attributes["iterator_types"])) if "reduction" in str(kind)]
        self.over = reduced or [len(self.extents) - 1]
        self.rows = [j for j in range(len(self.extents)) if j not in self.over]
        self.loops = self.rows if reduced else list(range(len(self.extents)))
        """Those of what is computed behind the statistics."""
        self.sums: list[_Sums] = []

    def write(self) -> None:
        """All of it, at the insertion point."""
        for op in self.body:
            if is_a(op, *_STATISTICS):
                squares = self._sum(op, squared=True)
                self.sums.append(_Sums(op, (squares if is_a(op, spyreop.Exx2ZeroMeanFusedOp) else self._sum(op, squared=False), squares)))
        for k, (result, value) in enumerate(zip(self.op.results, self.end.operands, strict=True)):
            result.replace_all_uses_with(self._result(k, value))

    def _sum(self, op: ir.Operation, *, squared: bool) -> ir.Value:
        value, every = op.operands[0], list(range(len(self.extents)))

        def summed(scalars: list[ir.Value]) -> ir.Value:
            x = self._computed(value, scalars, every)
            wide = x if isinstance(x.type, ir.F32Type) else arith.ExtFOp(ir.F32Type.get(), x).result
            return arith.AddFOp(scalars[-1], arith.MulFOp(wide, wide).result if squared else wide).result

        init = filled([self.extents[j] for j in self.rows], ir.F32Type.get(), 0.0)
        operands, maps = self._read(value, every)
        kinds = ["reduction" if j in self.over else "parallel" for j in every]
        return generic(operands, init, [*maps, affine_map(len(every), self.rows)], kinds, summed, loc=self.op.location)

    def _result(self, k: int, value: ir.Value) -> ir.Value:
        outs = len(self.arguments) - len(self.op.results) + k
        operands, maps = self._read(value, self.loops)
        own = self._moved(self.maps[outs], self.loops)
        kinds = ["parallel"] * len(self.loops)
        return generic(
            operands,
            self.op.operands[outs],
            [*maps, own],
            kinds,
            lambda scalars: self._computed(value, scalars, self.loops),
            loc=self.op.location,
        )

    def _read(self, value: ir.Value, loops: Sequence[int]) -> tuple[list[ir.Value], list[ir.AffineMap]]:
        """What a value of the body is computed from: operands of the generic, and sums, over loops of those."""
        used, statistics = self._used(value)
        operands = [self.op.operands[i] for i in used]
        maps = [self._moved(self.maps[i], loops) for i in used]
        for sums in statistics:
            operands += sums.values
            maps += [affine_map(len(loops), [loops.index(j) for j in self.rows])] * 2
        return operands, maps

    def _moved(self, map_: ir.AffineMap, loops: Sequence[int]) -> ir.AffineMap:
        """The map of an operand over some of the loops. Raises Unsupported where it walks others."""
        walked = [ir.AffineDimExpr(r).position if isinstance(r, ir.AffineDimExpr) else None for r in map_.results]
        if any(j is not None and j not in loops for j in walked) or any(
            j is None and not isinstance(r, ir.AffineConstantExpr) for j, r in zip(walked, map_.results, strict=True)
        ):
            raise refused(self.op, "reads elements of rows behind statistics of whole rows; the nearest supported form has no reduced loop")
        return affine_map(len(loops), [None if j is None else loops.index(j) for j in walked])

    def _used(self, value: ir.Value) -> tuple[list[int], list[_Sums]]:
        needed = self._needed(value)
        reads = [value, *(v for op in needed for v in op.operands if not is_a(op, *_STATISTICS))]
        used = [i for i, argument in enumerate(self.arguments) if argument in reads]
        return used, [s for s in self.sums if s.op in needed]

    def _needed(self, value: ir.Value) -> list[ir.Operation]:
        """The ops of the body that a value is computed by, in order, no further back than statistics."""
        found: set[ir.Operation] = set()
        todo = [value]
        while todo:
            owner = todo.pop().owner
            if not isinstance(owner, ir.Block) and (op := owner.operation) in self.body and op not in found:
                found.add(op)
                todo += [] if is_a(op, *_STATISTICS) else list(op.operands)
        return [op for op in self.body if op in found]

    def _computed(self, value: ir.Value, scalars: list[ir.Value], loops: Sequence[int]) -> ir.Value:
        """A value of the body in another one, whose arguments are what `_read` gives."""
        used, statistics = self._used(value)
        mapping = {self.arguments[i]: scalar for i, scalar in zip(used, scalars, strict=False)}
        pairs: dict[ir.Value, list[ir.Value]] = {}
        rest = iter(scalars[len(used) :])
        for sums in statistics:
            total = [next(rest), next(rest)]
            self._divide(sums.op, total, mapping, pairs)
        for op in self._needed(value):
            if is_a(op, spyreop.LayerNormScaleFusedOp):
                mapping[op.results[0]] = in_f32(scale)(op, pairs[op.operands[0]])
            elif not is_a(op, *_STATISTICS):
                clone_ops([op], mapping)
                renumber([mapping[r].owner for r in op.results], {j: k for k, j in enumerate(loops)})
        if value not in mapping:
            raise refused(self.op, "gives a pair of floats, which is no type of the device; the nearest supported form gives two numbers")
        return mapping[value]

    def _divide(
        self, op: ir.Operation, total: list[ir.Value], mapping: dict[ir.Value, ir.Value], pairs: dict[ir.Value, list[ir.Value]]
    ) -> None:
        """What a statistic gives, of its sums."""
        type_, f32 = op.operands[0].type, ir.F32Type.get()
        count = constant(f32, float(prod(self.extents[j] for j in self.over)))
        means = [arith.DivFOp(t, count).result for t in total]
        rounded = [m if type_ == f32 else arith.TruncFOp(type_, m).result for m in means]
        if is_a(op, spyreop.Exx2Op):
            mapping.update(zip(op.results, rounded, strict=True))
        else:
            pairs[op.results[0]] = [constant(type_, 0.0), rounded[1]] if is_a(op, spyreop.Exx2ZeroMeanFusedOp) else rounded
