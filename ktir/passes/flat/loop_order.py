"""How contractions and indirect tiles are written on the flat level: loops and variables in one order."""

from __future__ import annotations

from ktir.analysis.flat import shape_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Contraction, Generic, elementwise, generic, maps_of, set_maps
from ktir.mlir import arith, func, ir, is_a, linalg, tensor


def order_contractions(function: func.FuncOp) -> None:
    """Write the loops of every contraction as batch loops, rows, columns, reduced loop, with one loop of columns at most."""
    for op in [view.operation for view in function.regions[0].blocks[0].operations]:
        contraction = Generic(op).contraction if is_a(op, linalg.GenericOp) else None
        if contraction is not None and len(contraction.columns) > 1:
            contraction = _with_fewer_columns(op, contraction)
        if contraction is None:
            continue
        order = [*contraction.batch, *contraction.rows, *contraction.columns, *contraction.reduced]
        if order == sorted(order):
            continue
        kinds = list(ir.ArrayAttr(op.attributes["iterator_types"]))
        moved = [ir.AffineDimExpr.get(order.index(loop)) for loop in range(len(order))]
        set_maps(op, [ir.AffineMap.get(len(order), 0, [moved[ir.AffineDimExpr(e).position] for e in m.results]) for m in maps_of(op)])
        op.attributes["iterator_types"] = ir.ArrayAttr.get([kinds[loop] for loop in order])


def _with_fewer_columns(op: ir.Operation, contraction: Contraction) -> Contraction | None:
    """A sum of products whose second factor is no matrix, with its factors exchanged if that helps; else it is a reduction from now on."""
    if Generic(op).made_factor is not None:
        return contraction
    if len(contraction.rows) <= 1:
        left, right, _ = op.operands
        op.operands[0], op.operands[1] = right, left
        first, second, result = maps_of(op)
        set_maps(op, [second, first, result])
        return Generic(op).contraction
    _as_reduction(Generic(op))
    return None


def _as_reduction(g: Generic) -> None:
    """Replace a contraction by a reduction: its second factor is read in f32, which the array does not take."""
    op, wide = g.op, g.body.arguments[-1].type
    with ir.InsertionPoint(op), op.location:
        init = tensor.empty(shape_of(g.inputs[1]), wide)
        second = elementwise([g.inputs[1]], init, lambda s: arith.ExtFOp(wide, s[0]).result)

        def body(scalars: list[ir.Value]) -> ir.Value:
            product = arith.MulFOp(arith.ExtFOp(wide, scalars[0]).result, scalars[1]).result
            return arith.AddFOp(scalars[2], product).result

        op.results[0].replace_all_uses_with(generic([g.inputs[0], second], g.init, g.maps, g.iterators, body, loc=op.location))
    op.erase()


def order_variables(function: func.FuncOp) -> None:
    """Write the variables of every indirect tile in the order of the tile's dims."""
    for view in list(function.regions[0].blocks[0].operations):
        op = view.operation
        if not is_a(op, ktdp.ConstructIndirectAccessTileOp) or op.opview.captured:
            continue
        order = op.opview.order
        if order == sorted(order):
            continue
        moved = [ir.AffineDimExpr.get(order.index(variable)) for variable in range(len(order))]
        subscripts: list[ir.AffineExpr | tuple[ir.Value, list[ir.AffineExpr]]] = []
        for m, index in op.opview.subscripts:
            expressions = [e.compose(ir.AffineMap.get(len(order), 0, moved)) for e in m.results]
            subscripts.append(expressions[0] if index is None else (index, expressions))
        with ir.InsertionPoint(op), op.location:
            tile = ktdp.construct_indirect_access_tile(op.operands[0], subscripts, op.opview.shape)
        op.results[0].replace_all_uses_with(tile)
        op.erase()
