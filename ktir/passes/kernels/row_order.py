"""Dims of second operands in the order that divisions and tiles know: batches, rows, lanes.

A contraction reads rows wherever its maps say, such as heads that lie behind the positions of a cache. Its second operand comes from memory
by a load of its own, whose view has the dims in this order instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from ktir.analysis.axes import row_dim, second_operand_source
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects.structured import Generic, element_of, padded, set_maps
from ktir.mlir import func, ir, is_a, linalg, operations, tensor


def rows_before_lanes(kernel: func.FuncOp) -> None:
    """Load second operands of contractions so, in place."""
    for op in [o for o in operations(kernel) if is_a(o, linalg.GenericOp)]:
        g = Generic(op)
        if not g.is_contraction or not is_a(g.inputs[1].owner, tensor.ExpandShapeOp):
            continue
        split, before = g.inputs[1].owner.operation, ir.RankedTensorType(second_operand_source(g).type).rank - 2
        if (row := row_dim(split)) != before:
            order = [*(d for d in range(before + 1) if d != row), row, before + 1]
            with ir.InsertionPoint(op), op.location:
                op.operands[1] = _split(split, _source(split, order), order)
            first, second, result = g.maps
            expressions = [[e] for e in second.results]
            expressions[row : row + 2] = [[*expressions[row], *expressions[row + 1]]]
            set_maps(op, [first, ir.AffineMap.get(second.n_dims, 0, [e for d in order for e in expressions[d]]), result])


def _moved(encoding: ir.Attribute, order: Sequence[int]) -> ir.Attribute:
    """A layout whose device has its dims in another order."""
    layout = kt.LayoutAttr(encoding)
    device, strides = ([numbers[d] for d in order] for numbers in (layout.device, layout.strides))
    return kt.LayoutAttr.build(list(layout.size), device, strides, layout.dtype, layout.arrangement, layout.pad)


def _source(split: ir.Operation, order: Sequence[int]) -> ir.Value:
    """What is split, loaded in another order and padded."""
    value = split.operands[0]
    pad = value.owner.operation if is_a(value.owner, tensor.PadOp) else None
    load = (pad.operands[0] if pad is not None else value).owner.operation
    with load.location:
        loaded = ktdp.load(_tile(load.operands[0], order), element_of(load.results[0]), _moved(load.results[0].type.encoding, order))
        if pad is None:
            return loaded
        type_ = ir.RankedTensorType(value.type)
        shape = [type_.shape[d] for d in order]
        return padded(loaded, ir.RankedTensorType.get(shape, type_.element_type, _moved(type_.encoding, order)))


def _split(split: ir.Operation, value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Rows as blocks of a stick each."""
    before, type_ = ir.RankedTensorType(value.type).rank - 2, ir.RankedTensorType(split.results[0].type)
    row = order[-2]
    places = [place for d in order for place in ([d] if d < row else [d, d + 1] if d == row else [d + 1])]
    shape = [type_.shape[place] for place in places]
    groups = [*([d] for d in range(before)), [before, before + 1], [before + 2]]
    result = ir.RankedTensorType.get(shape, type_.element_type, _moved(type_.encoding, places))
    return tensor.ExpandShapeOp(result, value, groups, [], shape).result


def _tile(tile: ir.Value, order: Sequence[int]) -> ir.Value:
    """The same elements with the dims in another order; those of the view follow."""
    if is_a(tile.owner, ktdp.ConstructAccessTileOp):
        found = tile.owner.opview
        shape = [found.shape[d] for d in order]
        return ktdp.construct_access_tile(_view(found.base.owner.opview, order), [0] * len(shape), shape)
    indirect = tile.owner.opview
    renamed = [ir.AffineDimExpr.get(order.index(variable)) for variable in range(len(order))]
    subscripts = [([e.compose(ir.AffineMap.get(len(order), 0, renamed)) for e in m.results], index) for m, index in indirect.subscripts]
    base_order = sorted(range(len(subscripts)), key=lambda d: _first(subscripts[d][0]))
    view = _view(indirect.base.owner.opview, base_order)
    given = [expressions[0] if index is None else (index, expressions) for expressions, index in (subscripts[d] for d in base_order)]
    return ktdp.construct_indirect_access_tile(view, given, [indirect.shape[d] for d in order])


def _first(expressions: Sequence[ir.AffineExpr]) -> int:
    """Where the dim of a view belongs that these variables address; constants stay in front."""
    return min((ir.AffineDimExpr(e).position for e in expressions if isinstance(e, ir.AffineDimExpr)), default=-1)


def _view(view: ktdp.ConstructMemoryViewOp, order: Sequence[int]) -> ir.Value:
    attributes: dict[str, ir.Attribute] = {"ktir.layout": _moved(view.attributes["ktir.layout"], order)}
    sizes = [view.sizes[d] for d in order]
    if view.masked:
        for stick, last in affine.lane_bounds(view.attributes["coordinate_set"])[0]:
            attributes |= {"coordinate_set": affine.clipped(sizes, order.index(stick), last), "masked": ir.UnitAttr.get()}
    return ktdp.construct_memory_view(view.offset, sizes, [view.strides[d] for d in order], view.element_type, attributes=attributes)
