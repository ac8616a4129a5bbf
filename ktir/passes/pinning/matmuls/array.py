"""Products of matrices on the array: blocks of 64 rows of the second operand, one after the other, in loops over sticks."""

from __future__ import annotations

from collections.abc import Sequence

from ktir.dialects.structured import affine_map, constant, elementwise, fill, filled, generic, index_constant
from ktir.mlir import arith, ir, linalg, scf, tensor
from ktir.passes.pinning.values.elements import Leaf, Value
from ktir.passes.pinning.values.places import sticks
from ktir.passes.pinning.values.rows import own, physical_shape
from ktir.passes.pinning.values.tensors import Loaded, pointwise
from ktir.target import LANES


class ArrayProduct:
    """The product of `a` [rows .., k] and `b` [k, n], of one float of 16 bits, in blocks of 64 of k."""

    def __init__(self, a: Value, b: Value, op: ir.Operation) -> None:
        """At the insertion point."""
        self.shape = (*a.shape[:-1], b.shape[1])
        self.blocks = sticks(b.shape[0])
        self._rows, self._turned = _zeroed(a, op), _is_turned(b)
        self._weights = _turned(b, op) if self._turned else _weights(b, op)

    def sums(self, blocks: range, type_: ir.Type) -> ir.Value:
        """The tensor of the sums over some blocks, at the insertion point."""
        shape = [sticks(self.shape[-1]), physical_shape(self.shape, len(self.shape) - 1)[1], LANES]
        return _product(self._rows, self._weights, shape, blocks, type_, self._turned)


def _zeroed(a: Value, op: ir.Operation) -> ir.Value:
    """The first operand with K in its sticks, and zeros behind it: what is loaded has them, what is computed gets them."""
    made, extent = pointwise(a, len(a.shape) - 1, op), a.shape[-1]
    loaded = isinstance(a.element, Leaf) and isinstance(a.element.source, Loaded)
    if loaded or extent % LANES == 0:
        return made
    type_ = ir.RankedTensorType(made.type)

    def masked(scalars: list[ir.Value]) -> ir.Value:
        stick, lane = (linalg.IndexOp(d).result for d in (0, 2))
        at = arith.AddIOp(arith.MulIOp(stick, index_constant(LANES)).result, lane).result
        lives = arith.CmpIOp(arith.CmpIPredicate.ult, at, index_constant(extent)).result
        return arith.SelectOp(lives, scalars[0], constant(type_.element_type, 0.0)).result

    return elementwise([made], tensor.EmptyOp(list(type_.shape), type_.element_type).result, masked)


def _is_turned(b: Value) -> bool:
    """Whether the second operand lies in memory with K side by side: loaded so, it is no element by element load."""
    leaf = b.element
    if not isinstance(leaf, Leaf) or not isinstance(leaf.source, Loaded) or not {0, 1} <= set(leaf.walk) or 1 in b.shape:
        return False
    along_k, along_n = (leaf.walk.index(d) for d in (0, 1))
    dims = leaf.source.place.dims
    whole_blocks = dims[along_n].room is None or b.shape[1] % LANES == 0  # else zeros would stand behind rows that are clipped
    return dims[along_k].stride == 1 != dims[along_n].stride and along_k not in leaf.source.in_rows and whole_blocks


def _turned(b: Value, op: ir.Operation) -> ir.Value:
    """The second operand [sticks of K, N, 64], with rows of zeros up to whole blocks."""
    leaf = b.element
    assert isinstance(leaf, Leaf)
    return leaf.source.physical(leaf.walk.index(0), ((b.shape[1], leaf.walk.index(1)),), op, LANES)


def _weights(b: Value, op: ir.Operation) -> ir.Value:
    """The second operand [sticks of N, K, 64], with rows of zeros up to whole blocks; a row that makes them even is none of them."""
    (k, n), leaf = b.shape, b.element
    if isinstance(leaf, Leaf) and isinstance(leaf.source, Loaded) and 0 in leaf.walk and (n == 1 or 1 in leaf.walk):
        return leaf.source.physical(leaf.walk.index(1) if n != 1 else None, ((k, leaf.walk.index(0)),), op, LANES)
    stick = 1 if n != 1 else None
    if k % LANES == 0:
        return pointwise(b, stick, op)
    whole = filled([sticks(n), sticks(k) * LANES, LANES], b.type, 0.0)  # before what is computed there
    rows = pointwise(b, stick, op)
    type_ = ir.RankedTensorType(rows.type)
    for first, count in [(0, k)] if k == 1 or k % 2 == 0 else [(0, k - 1), (k - 1, 1)]:
        size = [type_.shape[0], count, LANES]
        piece = own(rows if size == list(type_.shape) else part(rows, [0, first, 0], size))
        whole = tensor.InsertSliceOp(piece, whole, [], [], [], [0, first, 0], size, [1, 1, 1]).result
    return whole


def _product(a: ir.Value, b: ir.Value, shape: Sequence[int], blocks: range, type_: ir.Type, turned: bool) -> ir.Value:
    """The sums over some blocks of K, stick by stick of N; `turned`: the second operand has K in its sticks."""
    f32 = ir.F32Type.get()
    block = [1, *shape[1:]]
    first, last, one = (index_constant(i) for i in (0, shape[0], 1))
    outer = scf.ForOp(first, last, one, [tensor.EmptyOp(list(shape), type_).result])
    with ir.InsertionPoint(outer.body):
        zeros = fill(constant(f32, 0.0), tensor.EmptyOp(block, f32).result)
        inner = scf.ForOp(index_constant(blocks.start), index_constant(blocks.stop), index_constant(1), [zeros])
        with ir.InsertionPoint(inner.body):
            at = inner.induction_variable
            stick, block_ = (at, outer.induction_variable) if turned else (outer.induction_variable, at)
            row = arith.MulIOp(block_, index_constant(LANES)).result
            left = part(a, [at, 0, 0], block)
            right = part(b, [stick, row, 0], [1, LANES, LANES])
            maps = [affine_map(3, walk) for walk in ([None, 0, 2], [None, 1, 2] if turned else [None, 2, 1], [None, 0, 1])]
            kinds = ["parallel", "parallel", "reduction"]
            scf.YieldOp([generic([left, right], inner.inner_iter_args[0], maps, kinds, _multiply, loc=ir.Location.current)])
        done = elementwise([inner.results[0]], tensor.EmptyOp(block, type_).result, lambda s: _rounded(s[0], type_))
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        whole = outer.inner_iter_args[0]
        scf.YieldOp([tensor.InsertSliceOp(done, whole, [outer.induction_variable], [], [], [dynamic, 0, 0], block, [1, 1, 1]).result])
    return outer.results[0]


def _multiply(s: Sequence[ir.Value]) -> ir.Value:
    wide = [arith.ExtFOp(ir.F32Type.get(), v).result for v in s[:2]]
    return arith.AddFOp(s[2], arith.MulFOp(*wide).result).result


def _rounded(value: ir.Value, type_: ir.Type) -> ir.Value:
    return value if value.type == type_ else arith.TruncFOp(type_, value).result


def part(value: ir.Value, first: Sequence[int | ir.Value], shape: Sequence[int]) -> ir.Value:
    type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    starts = [f if isinstance(f, int) else dynamic for f in first]
    return tensor.ExtractSliceOp(type_, value, [f for f in first if not isinstance(f, int)], [], [], starts, list(shape), [1, 1, 1]).result
