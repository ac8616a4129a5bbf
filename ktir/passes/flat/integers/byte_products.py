"""Matmuls of which both operands are bytes in memory, next to each other along K: the array multiplies two of them per lane.

Each operand must be a conversion of what an argument holds, element for element, of one type, in pairs that begin at even places, and K
whole sticks of pairs. The products are those of the converted numbers; sums are exact over 128 of them where they were over 64.
"""

from __future__ import annotations

from ktir.analysis.flat import dtype_of, shape_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, generic, sum_of_products
from ktir.mlir import func, ir, is_a, linalg, operations
from ktir.passes.flat.integers.byte_weights import conversion_of
from ktir.passes.flat.memory.windows import Window, direct_view, view_of, window_of_view
from ktir.target import LANES, is_byte


def products_of_bytes(function: func.FuncOp) -> None:
    """Let matmuls of a function read both operands as pairs of bytes, in place."""
    for op in [op for op in operations(function) if is_a(op, linalg.GenericOp)]:
        g = Generic(op)
        if g.contraction is None or len(g.contraction.reduced) != 1 or not g.contraction.columns:
            continue
        found = [_pairs(g, number) for number in (0, 1)]
        types = {dtype_of(c.inputs[0]) for c in map(conversion_of, (v.owner for v in g.inputs)) if c is not None}
        if len(types) == 1 and found[0] is not None and found[1] is not None:
            _replace(g, [found[0], found[1]])


def _pairs(g: Generic, number: int) -> tuple[ir.Value, Window, ir.AffineMap] | None:
    """Where an operand's pairs lie, and the loops that walk them; None where it has none."""
    conversion = conversion_of(g.inputs[number].owner)
    if conversion is None or not is_byte(element_of(conversion.inputs[0])):
        return None
    load = conversion.inputs[0].owner
    tile = None if isinstance(load, ir.Block) or not is_a(load, ktdp.LoadOp) else load.operands[0].owner
    view = None if tile is None else direct_view(tile)
    if view is None or not is_a(view, ktdp.ConstructMemoryViewOp) or shape_of(conversion.inputs[0]) != list(view.opview.sizes):
        return None
    place = {ir.AffineDimExpr(e).position: g.maps[number].results[d] for d, e in enumerate(conversion.maps[1].results)}
    walk = [place[ir.AffineDimExpr(e).position] for e in conversion.maps[0].results]
    loops = [ir.AffineDimExpr(e).position if isinstance(e, ir.AffineDimExpr) else None for e in walk]
    assert g.contraction is not None
    (reduced,) = g.contraction.reduced
    base, window = window_of_view(view)
    if loops.count(reduced) != 1 or not isinstance(base, ir.BlockArgument):
        return None
    along = loops.index(reduced)
    others = [s for d, (n, s) in enumerate(zip(window.sizes, window.strides, strict=True)) if d != along and n != 1]
    if window.strides[along] != 1 or window.sizes[along] % (2 * LANES) or window.offset % 2 or any(s % 2 for s in others):
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
        value = generic(loads, g.init, [*(walk for _, _, walk in found), g.maps[2]], g.iterators, sum_of_products, loc=g.op.location)
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
