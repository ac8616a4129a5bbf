"""Matmuls of a pinned kernel on the array: blocks of 64 rows of the second operand, one after the other, in loops over sticks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ktir.diagnostics import refused
from ktir.dialects.structured import affine_map, constant, elementwise, fill, generic, index_constant
from ktir.mlir import arith, ir, is_a, linalg, scf, tensor
from ktir.passes.pinning.values.elements import Apply, Element, Leaf, Number, Value, whole_dims
from ktir.passes.pinning.values.places import sticks
from ktir.passes.pinning.values.tensors import Loaded, Made, physical_shape, pointwise
from ktir.target import LANES


def matmul(op: ir.Operation, values: Mapping[ir.Value, Value]) -> Value:
    """What a `linalg.matmul` makes, at the insertion point. Raises Unsupported."""
    for operand in list(op.operands)[:2]:
        if operand not in values:
            raise refused(op, "reads a tensor without content")
    a, b = (whole_dims(v, values[v], op) for v in list(op.operands)[:2])
    result = ir.RankedTensorType(op.results[0].type).element_type
    if "indexing_maps" in op.attributes and str(op.attributes["indexing_maps"]) != _USUAL:
        raise refused(op, "has indexing maps of its own, which is not pinned yet; the nearest supported form transposes an operand")
    if [str(a.type), str(b.type)] != ["f16", "f16"] or str(result) not in ("f16", "f32"):
        raise refused(op, f"multiplies {a.type} and {b.type} into {result}, but the array takes f16 and adds in f32")
    (m, k), n = a.shape, b.shape[1]
    rows, weights = _zeroed(a, op), _weights(b, op)
    outs = op.operands[len(op.operands) - 1]
    given = whole_dims(outs, values[outs], op) if outs in values else None
    shape, blocks = [sticks(n), physical_shape((m, n), 1)[1], LANES], sticks(k)
    if given is None or _is_zero(given.element):
        return _made(_product(rows, weights, shape, range(blocks), result), (m, n), result)
    if str(result) != "f32":
        raise refused(op, f"adds to 'outs' of {result}; the nearest supported form accumulates in f32")
    add = next(o.operation for o in op.regions[0].blocks[0].operations if is_a(o, arith.AddFOp))
    total: Element = given.element
    for block in range(blocks):  # in order, as the array would have added them to what was there
        part = _made(_product(rows, weights, shape, range(block, block + 1), result), (m, n), result)
        total = Apply(result, add, (total, part.element))
    return Value((m, n), total)


_USUAL = "[affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>]"


def _made(value: ir.Value, shape: tuple[int, int], type_: ir.Type) -> Value:
    return Value(shape, Leaf(type_, Made(value, shape, 1), (0, 1)))


def _is_zero(element: Element) -> bool:
    return isinstance(element, Number) and element.value.value == 0 and math.copysign(1, element.value.value) > 0


def _zeroed(a: Value, op: ir.Operation) -> ir.Value:
    """The first operand with K in its sticks, and zeros behind it: what is loaded has them, what is computed gets them."""
    made, extent = pointwise(a, 1, op), a.shape[1]
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
    k = b.shape[0]
    leaf = b.element
    if isinstance(leaf, Leaf) and isinstance(leaf.source, Loaded) and None not in leaf.walk and len(leaf.walk) == 2:
        return leaf.source.physical(leaf.walk.index(1), ((k, leaf.walk.index(0)),), op, LANES)
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
