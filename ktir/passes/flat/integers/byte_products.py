"""Matmuls of which both operands are bytes in memory, next to each other along K: the array multiplies two of them per lane.

Each operand must be a conversion of what an argument holds, element for element, of one type, in pairs that begin at even places, and K
whole sticks of pairs. The products are those of the converted numbers; sums of floats are exact over 128 of them where they were over 64,
those of integers are i32. Where only one operand is of that kind, integers are multiplied as floats that hold each of them, in parts of K
that float32 adds up exactly.
"""

from __future__ import annotations

from ktir.analysis.flat import dtype_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, elementwise, filled, generic, sum_of_products
from ktir.mlir import arith, func, ir, is_a, linalg, operations, tensor
from ktir.passes.flat.integers.integer_products import products_in_parts, view_of_load, widened_bytes
from ktir.passes.flat.integers.made_of_bytes import conversion_of
from ktir.passes.flat.memory.windows import Window, view_of, window_of_view
from ktir.target import LANES, is_byte


def products_of_bytes(function: func.FuncOp) -> None:
    """Let matmuls of a function read both operands as pairs of bytes, in place."""
    for op in [op for op in operations(function) if is_a(op, linalg.GenericOp)]:
        g = Generic(op)
        loops = g.product_loops
        if loops is None or len(loops.reduced) != 1 or not loops.columns or not (g.is_contraction or g.is_integer_product):
            continue
        types = {str(dtype_of(c.inputs[0])) for c in map(_of_bytes, g.inputs) if c is not None}
        first, second = (_pairs(g, number, loops.reduced[0]) for number in (0, 1))
        whole = g.is_integer_product
        if len(types) == 1 and first is not None and second is not None and whole == (types == {"i8"}):
            _replace(g, [first, second])
        elif whole and all(widened_bytes(value) is not None for value in g.inputs):
            products_in_parts(g, loops.reduced[0])
            _drop(g.op)


def _of_bytes(value: ir.Value) -> Generic | None:
    """The conversion of bytes that a value is; None for another one."""
    conversion = None if isinstance(value.owner, ir.Block) else conversion_of(value.owner)
    return conversion if conversion is not None and is_byte(element_of(conversion.inputs[0])) else None


def _pairs(g: Generic, number: int, reduced: int) -> tuple[ir.Value, Window, ir.AffineMap] | None:
    """Where an operand's pairs lie, and the loops that walk them; None where it has none."""
    conversion = _of_bytes(g.inputs[number])
    if conversion is None:
        return None
    view = view_of_load(conversion.inputs[0])
    if view is None:
        return None
    place = {ir.AffineDimExpr(e).position: g.maps[number].results[d] for d, e in enumerate(conversion.maps[1].results)}
    walk = [place[ir.AffineDimExpr(e).position] for e in conversion.maps[0].results]
    loops = [ir.AffineDimExpr(e).position if isinstance(e, ir.AffineDimExpr) else None for e in walk]
    base, window = window_of_view(view)
    if loops.count(reduced) != 1 or not isinstance(base, ir.BlockArgument):
        return None
    along = loops.index(reduced)
    others = [s for d, (n, s) in enumerate(zip(window.sizes, window.strides, strict=True)) if d != along and n != 1]
    if window.strides[along] != 1 or window.sizes[along] % (2 * LANES) or window.offset % 2 or any(s % 2 or s < 0 for s in others):
        return None
    sizes = tuple(n // 2 if d == along else n for d, n in enumerate(window.sizes))
    strides = tuple(1 if d == along else s // 2 for d, s in enumerate(window.strides))
    return base, Window(window.offset // 2, sizes, strides), ir.AffineMap.get(len(g.iterators), 0, walk)


def _replace(g: Generic, found: list[tuple[ir.Value, Window, ir.AffineMap]]) -> None:
    conversions = [v.owner.operation for v in g.inputs]
    with ir.InsertionPoint(g.op), g.op.location:
        element = element_of(Generic(conversions[0]).inputs[0])
        two = ir.VectorType.get([2], element)
        loads = []
        for base, window, _ in found:
            tile = ktdp.construct_access_tile(view_of(base, window, two), [0] * len(window.sizes), window.sizes)
            loads.append(ktdp.load(tile, two))
        sums = ir.RankedTensorType(g.init.type)
        apart = g.is_integer_product and g.begins_elsewhere
        begun = filled(list(sums.shape), sums.element_type, 0) if apart else g.init
        value = generic(loads, begun, [*(walk for _, _, walk in found), g.maps[2]], g.iterators, sum_of_products, loc=g.op.location)
        if apart:
            empty = tensor.EmptyOp(list(sums.shape), sums.element_type).result
            value = elementwise([g.init, value], empty, lambda x: arith.AddIOp(x[0], x[1]).result)
    g.op.results[0].replace_all_uses_with(value)
    g.op.erase()
    for conversion in dict.fromkeys(conversions):
        _drop(conversion)


def _drop(op: ir.Operation) -> None:
    """Erase an op that nothing reads, and what it alone has read."""
    if any(list(r.uses) for r in op.results):
        return
    before = [v.owner.operation for v in op.operands if not isinstance(v.owner, ir.Block)]
    op.erase()
    for each in dict.fromkeys(before):
        _drop(each)
