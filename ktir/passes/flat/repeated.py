"""Reductions over and over: a loop that walks none of what is reduced makes the same numbers again, so they are made once."""

from __future__ import annotations

from collections.abc import Sequence

from ktir.dialects.structured import Generic, affine_map, element_of, elementwise, fill, generic, maps_of, set_maps
from ktir.mlir import func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory.windows import shape


def reduce_once(function: func.FuncOp) -> None:
    """Take such loops from the reductions of `function` that begin with a constant; readers see the result along them."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, linalg.GenericOp) and len(op.results) == 1:
            g = Generic(op)
            if not g.is_pointwise and (again := _again(g)):
                _take(g, again)


def _again(g: Generic) -> set[int]:
    """Parallel loops that nothing depends on."""
    init = g.init.owner
    if not is_a(init, linalg.FillOp):
        return set()
    walked = {loop for i in range(len(g.inputs)) for loop in g.walk(i)}
    walked |= {ir.IntegerAttr(o.attributes["dim"]).value for o in g.body_ops if is_a(o, linalg.IndexOp)}
    return {i for i, kind in enumerate(g.iterators) if kind == "parallel"} - walked


def _take(g: Generic, again: set[int]) -> None:
    op, last = g.op, len(g.inputs)
    loops = [i for i in range(len(g.iterators)) if i not in again]
    kept = [d for d, loop in enumerate(g.walk(last)) if loop not in again]

    def without(operand: int, dims: Sequence[int]) -> ir.AffineMap:
        walks = [g.loop_of(operand, d) for d in dims]
        return affine_map(len(loops), [None if loop is None else loops.index(loop) for loop in walks])

    def body(scalars: list[ir.Value]) -> ir.Value:
        return g.copy_body(scalars, {loop: i for i, loop in enumerate(loops)})

    sizes = shape(op.results[0])
    with ir.InsertionPoint(op), op.location:
        init = fill(g.init.owner.operation.operands[0], tensor.empty([sizes[d] for d in kept], element_of(g.init)))
        maps = [*(without(i, range(len(m.results))) for i, m in enumerate(g.maps[:-1])), without(last, kept)]
        once = generic(g.inputs, init, maps, [g.iterators[i] for i in loops], body, loc=op.location)
    _show(op.results[0], once, kept)
    op.erase()


def _show(repeated: ir.Value, once: ir.Value, kept: Sequence[int]) -> None:
    """Let all readers have `once`, the dims `kept` of `repeated`, in its place."""
    for use in list(repeated.uses):
        op, number = use.owner.operation, use.operand_number
        if is_a(op, linalg.GenericOp) and number < len(op.operands) - len(op.results):
            maps = maps_of(op)
            m = maps[number]
            maps[number] = ir.AffineMap.get(m.n_dims, 0, [m.results[d] for d in kept])
            if not _walk_all_loops(maps):
                continue  # it alone says how far a loop goes, as where equal numbers are summed
            set_maps(op, maps)
            op.operands[number] = once
    if list(repeated.uses):
        with ir.InsertionPoint.after(once.owner), once.owner.location:
            whole = elementwise([once], tensor.empty(list(shape(repeated)), element_of(repeated)), walks=[kept])
        repeated.replace_all_uses_with(whole)


def _walk_all_loops(maps: Sequence[ir.AffineMap]) -> bool:
    walked = {ir.AffineDimExpr(e).position for m in maps for e in m.results if isinstance(e, ir.AffineDimExpr)}
    return len(walked) == maps[0].n_dims
