"""Products of matrices of f32 on the vector unit, column by column: a sum over the lanes of each row, which then goes to its lane."""

from __future__ import annotations

from ktir.dialects.structured import affine_map, constant, elementwise, fill, generic, index_constant
from ktir.mlir import arith, ir, linalg, scf, tensor
from ktir.passes.pinning.matmuls.array import part
from ktir.passes.pinning.values.elements import Value
from ktir.passes.pinning.values.rows import physical_shape
from ktir.passes.pinning.values.tensors import pointwise
from ktir.target import LANES


class VectorProduct:
    """The product of `a` [rows .., k] and `b` [k, n], of f32; each product of elements is rounded, and their sums are in machine order."""

    blocks = 1

    def __init__(self, a: Value, b: Value, op: ir.Operation) -> None:
        """At the insertion point."""
        self.shape, self._k = (*a.shape[:-1], b.shape[1]), b.shape[0]
        self._rows, self._columns = pointwise(a, len(a.shape) - 1, op), pointwise(b, 0, op)

    def sums(self, blocks: range, type_: ir.Type) -> ir.Value:
        """The tensor of the sums, at the insertion point."""
        full, rest = divmod(self.shape[-1], LANES)
        shape = [full + (rest > 0), physical_shape(self.shape, len(self.shape) - 1)[1], LANES]
        whole = tensor.EmptyOp(shape, type_).result
        if full:
            loop = scf.ForOp(index_constant(0), index_constant(full), index_constant(1), [whole])
            with ir.InsertionPoint(loop.body):
                at = loop.induction_variable
                first = arith.MulIOp(at, index_constant(LANES)).result
                done = _stick(self._rows, self._columns, first, LANES, self._k)
                scf.YieldOp([_put(done, loop.inner_iter_args[0], at)])
            whole = loop.results[0]
        if rest:
            at = index_constant(full)  # stands before what is computed there
            whole = _put(_stick(self._rows, self._columns, index_constant(full * LANES), rest, self._k), whole, at)
        return whole


def _stick(rows: ir.Value, columns: ir.Value, first: ir.Value, count: int, k: int) -> ir.Value:
    """The tensor [1, rows, 64] of what some columns from `first` on give, each in its lane."""
    f32 = ir.F32Type.get()
    inner, height, _ = ir.RankedTensorType(rows.type).shape
    shape = [1, height, LANES]
    found: ir.Value | None = None
    for lane in range(count):
        at = first if lane == 0 else arith.AddIOp(first, index_constant(lane)).result
        column = part(columns, [0, at, 0], [inner, 1, LANES])
        zeros = fill(constant(f32, 0.0), tensor.EmptyOp(shape, f32).result)
        maps = [affine_map(3, [1, 0, 2]), affine_map(3, [1, None, 2]), affine_map(3, [None, 0, None])]
        kinds = ["parallel", "reduction", "reduction"]
        total = generic([rows, column], zeros, maps, kinds, lambda s: _term(s, k), loc=ir.Location.current)
        splat = [None, 1, None]  # a sum lies in one lane
        if found is None:
            found = elementwise([total], tensor.EmptyOp(shape, f32).result, walks=[splat])
        else:
            below = (lambda limit: lambda s: _behind(s, limit))(lane)
            found = elementwise([found, total], tensor.EmptyOp(shape, f32).result, below, [[0, 1, 2], splat])
    assert found is not None
    return found


def _term(s: list[ir.Value], extent: int) -> ir.Value:
    """The sum so far and a product, none behind the last of `extent`."""
    term = arith.MulFOp(s[0], s[1]).result
    if extent % LANES:
        at = arith.AddIOp(arith.MulIOp(linalg.IndexOp(1).result, index_constant(LANES)).result, linalg.IndexOp(2).result).result
        lives = arith.CmpIOp(arith.CmpIPredicate.ult, at, index_constant(extent)).result
        term = arith.SelectOp(lives, term, constant(ir.F32Type.get(), 0.0)).result
    return arith.AddFOp(s[2], term).result


def _behind(s: list[ir.Value], lane: int) -> ir.Value:
    """What was there in the lanes before one, and a new value from it on."""
    at = arith.AddIOp(arith.MulIOp(linalg.IndexOp(0).result, index_constant(LANES)).result, linalg.IndexOp(2).result).result
    return arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.ult, at, index_constant(lane)).result, s[0], s[1]).result


def _put(stick: ir.Value, whole: ir.Value, at: ir.Value) -> ir.Value:
    """A stick of columns in the tensor of all."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    sizes = list(ir.RankedTensorType(stick.type).shape)
    return tensor.InsertSliceOp(stick, whole, [at], [], [], [dynamic, 0, 0], sizes, [1, 1, 1]).result
