"""Matmuls of a pinned kernel on the array: blocks of 64 rows of the second operand, one after the other, in loops over sticks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ktir.diagnostics import refused
from ktir.dialects.structured import Generic, affine_map, constant, elementwise, fill, generic, index_constant, maps_of
from ktir.mlir import arith, ir, is_a, linalg, named, scf, tensor
from ktir.passes.pinning.values.elements import Apply, Element, Leaf, Number, Value, content, whole_dims
from ktir.passes.pinning.values.places import sticks
from ktir.passes.pinning.values.tensors import Loaded, Made, physical_shape, pointwise
from ktir.target import HALVES, LANES, is_half

_NAMED = named(
    {
        linalg.MatmulOp: ("mk", "kn", "mn"),
        linalg.BatchMatmulOp: ("bmk", "bkn", "bmn"),
        linalg.MatvecOp: ("mk", "k", "m"),
        linalg.VecmatOp: ("k", "kn", "n"),
        linalg.DotOp: ("k", "k", ""),
    }
)
"""The loops along the dims of operands and result of named ops."""


def contraction(op: ir.Operation, values: Mapping[ir.Value, Value]) -> Value | None:
    """What a matmul makes, a named one or a `linalg.generic` that is one, whatever the order of its loops, at the insertion point; None
    for another op. Raises Unsupported."""
    walks = walks_of(op)
    if walks is None:
        return None
    left, right, outs = op.operands
    result = ir.RankedTensorType(op.results[0].type)
    types = [content(left, values, op).type, content(right, values, op).type, result.element_type]
    if types[0] != types[1] or not is_half(types[0]) or types[2] not in (types[0], ir.F32Type.get()):
        raise refused(op, "multiplies {} and {} into {}, but the array takes {} and adds in f32".format(*types, " or ".join(HALVES)))
    extents = {loop: n for v, walk in zip(op.operands, walks, strict=True) for loop, n in _extents(v, walk)}
    a, b, c = (set(walk) for walk in walks)
    rows, columns = ([loop for loop in walks[2] if loop in extents and extents[loop] != 1 and loop not in other] for other in (b, a))
    inner = [loop for loop in extents if loop not in c and extents[loop] != 1] or [loop for loop in extents if loop not in c][:1]
    if any(extents[loop] != 1 for loop in a & b & c if loop is not None) or len(columns) > 1 or len(inner) > 1:
        raise refused(op, "multiplies matrices of several batches, or sums over several dims, which is not pinned yet")

    def factor(operand: ir.Value, walk: Sequence[Loop], loops: Sequence[Loop], shape: tuple[int, ...]) -> Value:
        dims = {d: loops.index(loop) if loop in loops else None for d, loop in enumerate(walk)}
        return Value(shape, whole_dims(operand, content(operand, values, op), op).element.moved(dims))

    m, k, n = [extents[loop] for loop in rows], extents[inner[0]], extents[columns[0]] if columns else 1
    first = factor(left, walks[0], [*rows, *inner], (*m, k))
    second = factor(right, walks[1], [*inner, *columns], (k, n))
    given = factor(outs, walks[2], [*rows, *columns], (*m, n)).element if outs in values else None
    total = _contracted(first, second, given, result.element_type, op)
    back = {d: walks[2].index(loop) for d, loop in enumerate([*rows, *columns])}
    return Value(tuple(result.shape), total.moved({len(m): None} | back))


def walks_of(op: ir.Operation) -> list[list[Loop]] | None:
    """The loops along the dims of the factors and the result of a matmul; None for another op."""
    if is_a(op, linalg.GenericOp):
        return [list(Generic(op).walk(i)) for i in range(3)] if Generic(op).contraction else None
    if op.name not in _NAMED:
        return None
    if "indexing_maps" not in op.attributes:
        return [list(walk) for walk in _NAMED[op.name]]
    found = []
    for m in maps_of(op):
        if not all(isinstance(r, ir.AffineDimExpr) for r in m.results):
            raise refused(op, f"has the map {m}, which is more than a choice of loops, and is not pinned yet")
        found.append([ir.AffineDimExpr(r).position for r in m.results])
    return found


Loop = int | str | None


def _extents(value: ir.Value, walk: Sequence[Loop]) -> list[tuple[Loop, int]]:
    return [(loop, n) for loop, n in zip(walk, ir.RankedTensorType(value.type).shape, strict=True) if loop is not None]


def _contracted(a: Value, b: Value, given: Element | None, result: ir.Type, op: ir.Operation) -> Element:
    """The product of `a` [rows .., k] and `b` [k, n], added to `given`."""
    rows, weights = _zeroed(a, op), _weights(b, op)
    whole, blocks = (*a.shape[:-1], b.shape[1]), sticks(b.shape[0])
    shape = [sticks(b.shape[1]), physical_shape(whole, len(whole) - 1)[1], LANES]
    if given is None or _is_zero(given):
        return _made(_product(rows, weights, shape, range(blocks), result), whole, result)
    if str(result) != "f32":
        raise refused(op, f"adds to 'outs' of {result}; the nearest supported form accumulates in f32")
    add = next(o.operation for o in op.regions[0].blocks[0].operations if is_a(o, arith.AddFOp))
    total = given
    for block in range(blocks):  # in order, as the array would have added them to what was there
        part = _made(_product(rows, weights, shape, range(block, block + 1), result), whole, result)
        total = Apply(result, add, (total, part))
    return total


def _made(value: ir.Value, shape: tuple[int, ...], type_: ir.Type) -> Leaf:
    stick = len(shape) - 1 if shape[-1] != 1 else None
    return Leaf(type_, Made(value, shape, stick), tuple(range(len(shape))))


def _is_zero(element: Element) -> bool:
    return isinstance(element, Number) and element.value.value == 0 and math.copysign(1, element.value.value) > 0


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


def _weights(b: Value, op: ir.Operation) -> ir.Value:
    """The second operand [sticks of N, K, 64], with rows of zeros up to whole blocks."""
    (k, n), leaf = b.shape, b.element
    if isinstance(leaf, Leaf) and isinstance(leaf.source, Loaded) and 0 in leaf.walk and (n == 1 or 1 in leaf.walk):
        return leaf.source.physical(leaf.walk.index(1) if n != 1 else None, ((k, leaf.walk.index(0)),), op, LANES)
    if k % LANES:
        raise refused(op, f"multiplies by a computed operand of {k} rows, not a multiple of {LANES}, which is not pinned yet")
    return pointwise(b, 1, op)


def _product(a: ir.Value, b: ir.Value, shape: Sequence[int], blocks: range, type_: ir.Type) -> ir.Value:
    """The sums over some blocks of K, stick by stick of N."""
    f32 = ir.F32Type.get()
    block = [1, *shape[1:]]
    first, last, one = (index_constant(i) for i in (0, shape[0], 1))
    outer = scf.ForOp(first, last, one, [tensor.EmptyOp(list(shape), type_).result])
    with ir.InsertionPoint(outer.body):
        zeros = fill(constant(f32, 0.0), tensor.EmptyOp(block, f32).result)
        inner = scf.ForOp(index_constant(blocks.start), index_constant(blocks.stop), index_constant(1), [zeros])
        with ir.InsertionPoint(inner.body):
            at = inner.induction_variable
            row = arith.MulIOp(at, index_constant(LANES)).result
            left = _part(a, [at, 0, 0], block)
            right = _part(b, [outer.induction_variable, row, 0], [1, LANES, LANES])
            maps = [affine_map(3, walk) for walk in ([None, 0, 2], [None, 2, 1], [None, 0, 1])]
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


def _part(value: ir.Value, first: Sequence[int | ir.Value], shape: Sequence[int]) -> ir.Value:
    type_ = ir.RankedTensorType.get(list(shape), ir.RankedTensorType(value.type).element_type)
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    starts = [f if isinstance(f, int) else dynamic for f in first]
    return tensor.ExtractSliceOp(type_, value, [f for f in first if not isinstance(f, int)], [], [], starts, list(shape), [1, 1, 1]).result
