"""Tiles that are addressed through indices, as the flat form has them: one dimension is looked up, and what walks the index walks nothing
else of the base.

Where several dimensions are looked up, or a variable of the index walks another dimension as well, these dimensions become one, and the
place in it is computed: a sum of indices times strides. So is a place that depends on several variables in one division. Additions
through indices are sums over all who may add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from ktir.analysis.flat import refuse
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import affine_map, constant, element_of, elementwise, fill, generic, loop_extents, maps_of, moved_by, set_maps
from ktir.mlir import arith, func, i32_type, ir, is_a, linalg, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.addresses import functions_of, loops_of
from ktir.passes.flat.memory.new_arguments import NewArguments
from ktir.passes.flat.memory.reshapes import collapsed
from ktir.passes.flat.memory.windows import shape

MOST_PAIRS = 2**24


@dataclass(frozen=True)
class _Dim:
    """A dim of the base: the variable that walks it alone, or else how its place is found."""

    number: int
    size: int
    map: ir.AffineMap
    view: ir.Value | None

    @property
    def variable(self) -> int | None:
        """The variable of a direct subscript that is nothing but one."""
        e = None if self.view is not None else self.map.results[0]
        return ir.AffineDimExpr(e).position if isinstance(e, ir.AffineDimExpr) else None

    @property
    def variables(self) -> set[int]:
        """All variables that decide about the place."""
        return {v for e in self.map.results for v in loops_of(e)}


def indices_apart(function: func.FuncOp, arguments: NewArguments) -> None:
    """Rewrite tiles and additions through indices, in place; tiles have their variables in the order of their dims by now."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, kt.ScatterAddOp):
            _sum_of_all(op, arguments)
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, linalg.GenericOp):
            _read_through_tiles(op)
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, ktdp.ConstructIndirectAccessTileOp) and not op.opview.captured and list(op.results[0].uses):
            if op.opview.index_views or _is_entangled(
                [m.results[0] for m, _ in op.opview.subscripts], shape_of_view(op.operands[0]), op.opview.shape
            ):
                _look_up_one(op)


def _dims(tile: ktdp.ConstructIndirectAccessTileOp) -> list[_Dim]:
    sizes = shape_of_view(tile.base)
    return [_Dim(d, sizes[d], m, view) for d, (m, view) in enumerate(tile.subscripts)]


def _is_entangled(expressions: Sequence[ir.AffineExpr], sizes: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether a place depends on several variables in one division, so that no strides describe it."""
    strides = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
    return functions_of(expressions, strides, extents) is None


def _read_through_tiles(op: ir.Operation) -> None:
    """Operands that a generic reads at entangled places are read through tiles."""
    maps = maps_of(op)
    if all(isinstance(e, ir.AffineDimExpr) for m in maps for e in m.results):
        return
    extents = loop_extents(op)
    for i, m in enumerate(maps[: len(op.operands) - len(op.results)]):
        value, expressions = op.operands[i], list(m.results)
        if not _is_entangled(expressions, shape(value), extents):
            continue
        loops = sorted(set().union(*map(loops_of, expressions)))
        moved = [ir.AffineDimExpr.get(loops.index(v) if v in loops else 0) for v in range(len(extents))]
        places = [e.compose(ir.AffineMap.get(len(loops), 0, moved)) for e in expressions]
        with ir.InsertionPoint(op), op.location:
            type_ = ir.RankedTensorType(value.type)
            memory = in_memory(value)
            tile = ktdp.construct_indirect_access_tile(memory, places, [extents[v] for v in loops])
            op.operands[i] = ktdp.load(tile, type_.element_type)
        maps[i] = affine_map(len(extents), loops)
    set_maps(op, maps)


# One looked up dim


def _look_up_one(op: ir.Operation) -> None:
    tile = op.opview
    dims = _dims(tile)
    apart = _walked_alone(dims)
    folded = [d for d in dims if d.number not in apart]
    simple = len(folded) == 1 and all(isinstance(e, ir.AffineDimExpr) for e in folded[0].map.results)
    walks = all(isinstance(e, ir.AffineDimExpr) for d in folded if d.view is not None for e in d.map.results)
    if simple or not walks or not is_a(op.operands[0].owner, ktdp.ConstructMemoryViewOp, kt.MaterializeOp):
        return
    extents = list(tile.shape)
    walked = sorted(set().union(*(d.variables for d in folded)))
    kept = [d for d in dims if d.number in apart]
    with ir.InsertionPoint(op), op.location:
        found = _folded(op.operands[0], [d.number for d in folded], [d.number for d in kept])
        if found is None:
            return
        base, steps = found
        places = _places(folded, steps, walked, [extents[v] for v in walked], shape_of_view(base)[0])
        index = in_memory(places)
        variables = [ir.AffineExpr.get_dim(v) for v in walked]
        subscripts = [(index, variables), *(d.map.results[0] for d in kept)]
        made = ktdp.construct_indirect_access_tile(base, subscripts, extents)
    op.results[0].replace_all_uses_with(made)
    op.erase()


def _walked_alone(dims: Sequence[_Dim]) -> set[int]:
    """The dims that a variable walks that decides about no other one."""
    apart = {d.number for d in dims if d.variable is not None}
    while True:
        shared = {d.number for d in dims if d.number in apart for o in dims if o is not d and d.variable in o.variables}
        if not shared:
            return apart
        apart -= shared


def shape_of_view(view: ir.Value) -> list[int]:
    """Extents of a view of memory."""
    return list(ir.MemRefType(view.type).shape)


def _folded(view: ir.Value, folded: Sequence[int], kept: Sequence[int]) -> tuple[ir.Value, list[int]] | None:
    """A view with the dims `folded` as its first one, then those `kept`, and the step of each folded dim; None for backward steps."""
    op = view.owner.operation
    sizes = shape_of_view(view)
    if is_a(op, kt.MaterializeOp):
        given, order = op.operands[0], [*folded, *kept]
        if order != sorted(order):
            given = _transposed(given, order)
        groups = [list(range(len(folded))), *([len(folded) + i] for i in range(len(kept)))]
        flat = given if len(folded) == 1 else collapsed(given, groups)
        return in_memory(flat), [prod(sizes[d] for d in folded[i + 1 :]) for i in range(len(folded))]
    base, window = windows.window_of_view(op)
    strides = [window.strides[d] for d in folded]
    if any(s < 0 for s in strides):
        return None
    step = gcd(*strides) or 1
    steps = [s // step for s in strides]
    count = 1 + sum((sizes[d] - 1) * s for d, s in zip(folded, steps, strict=True))
    base = moved_by(base, window.offset)
    view_ = ktdp.construct_memory_view(
        base, [count, *(sizes[d] for d in kept)], [step, *(window.strides[d] for d in kept)], op.opview.element_type
    )
    return view_, steps


def _transposed(value: ir.Value, order: Sequence[int]) -> ir.Value:
    init = tensor.empty([shape(value)[d] for d in order], element_of(value))
    return elementwise([value], init, walks=[[list(order).index(d) for d in range(len(order))]])


def _places(dims: Sequence[_Dim], steps: Sequence[int], walked: Sequence[int], extents: Sequence[int], count: int) -> ir.Value:
    """The place in the folded dim, over the variables `walked`; beyond it where an index is out of its own dim."""
    loops = {v: i for i, v in enumerate(walked)}
    looked_up = [d for d in dims if d.view is not None]
    inputs = [_indices(d.view) for d in looked_up if d.view is not None]
    walks = [[loops[ir.AffineDimExpr(e).position] for e in d.map.results] for d in looked_up]

    def body(scalars: list[ir.Value]) -> ir.Value:
        total, inside = _number(0), None
        for d, step in zip(dims, steps, strict=True):
            if d.view is None:
                place = _evaluated(d.map.results[0], loops)
            else:
                place = _as_i32(scalars[looked_up.index(d)])
                valid = arith.CmpIOp(arith.CmpIPredicate.ult, place, _number(d.size)).result
                inside = valid if inside is None else arith.AndIOp(inside, valid).result
            total = arith.AddIOp(total, arith.MulIOp(place, _number(step)).result if step != 1 else place).result
        return total if inside is None else arith.SelectOp(inside, total, _number(count)).result

    return elementwise(inputs, tensor.empty(list(extents), i32_type()), body, walks)


def _indices(view: ir.Value) -> ir.Value:
    """What an index view holds, as a tensor."""
    op = view.owner.operation
    if is_a(op, kt.MaterializeOp):
        return op.operands[0]
    sizes = shape_of_view(view)
    return ktdp.load(ktdp.construct_access_tile(view, [0] * len(sizes), sizes), ir.MemRefType(view.type).element_type)


def _evaluated(e: ir.AffineExpr, loops: dict[int, int]) -> ir.Value:
    """An affine expression of variables."""
    if isinstance(e, ir.AffineConstantExpr):
        return _number(ir.AffineConstantExpr(e).value)
    if isinstance(e, ir.AffineDimExpr):
        return _coordinate(loops[ir.AffineDimExpr(e).position])
    left, right = (_evaluated(part, loops) for part in (e.lhs, e.rhs))
    if isinstance(e, ir.AffineAddExpr):
        return arith.AddIOp(left, right).result
    if isinstance(e, ir.AffineMulExpr):
        return arith.MulIOp(left, right).result
    if isinstance(e, ir.AffineFloorDivExpr | ir.AffineModExpr):
        quotient = arith.FloorDivSIOp(left, right).result
        return quotient if isinstance(e, ir.AffineFloorDivExpr) else arith.SubIOp(left, arith.MulIOp(quotient, right).result).result
    raise refuse(ir.InsertionPoint.current.block.owner.operation, "computes a subscript by a ceiling division, which is not supported")


def in_memory(value: ir.Value) -> ir.Value:
    """A tensor as memory that is read by index."""
    type_ = ir.RankedTensorType(value.type)
    return ir.Operation.create(kt.MaterializeOp.OPERATION_NAME, [ir.MemRefType.get(type_.shape, type_.element_type)], [value]).results[0]


def _coordinate(loop: int) -> ir.Value:
    return arith.IndexCastOp(i32_type(), linalg.IndexOp(loop).result).result


def _as_i32(value: ir.Value) -> ir.Value:
    width = ir.IntegerType(value.type).width
    if width == 32:
        return value
    return (arith.TruncIOp if width > 32 else arith.ExtSIOp)(i32_type(), value).result


def _number(value: int) -> ir.Value:
    return constant(i32_type(), value)


# Additions


def _sum_of_all(op: ir.Operation, arguments: NewArguments) -> None:
    """base[n] + the sum of x[i] over all i whose index is n: each element of the base asks all who may add to it."""
    value, tile_op = op.operands[0], op.operands[1].owner.operation
    tile, dims = tile_op.opview, _dims(tile_op.opview)
    direct = {d.variable: d.number for d in dims if d.variable is not None}
    looked_up = [d for d in dims if d.view is not None]
    extents, sizes = list(tile.shape), [d.size for d in dims]
    if len(direct) + len(looked_up) != len(dims) or any(not isinstance(e, ir.AffineDimExpr) for d in looked_up for e in d.map.results):
        raise refuse(op, "adds at computed addresses, which is not supported")
    if _meets_itself(sizes, windows.window_of_view(tile_op.operands[0].owner.operation)[1].strides):
        raise refuse(op, "adds to a view that has elements several times, which is not supported")
    summed = [v for v in range(len(extents)) if v not in direct]
    if (pairs := prod(sizes) * prod(extents[v] for v in summed)) > MOST_PAIRS:
        raise refuse(
            op, f"compares {pairs} pairs of an element and who may add to it, which is not supported; the most supported are {MOST_PAIRS}"
        )
    loops = direct | {v: len(dims) + i for i, v in enumerate(summed)}
    count, element = len(dims) + len(summed), element_of(value)
    wide = element if isinstance(element, ir.IntegerType) or str(element) == "f64" else ir.F32Type.get()

    def body(scalars: list[ir.Value]) -> ir.Value:
        added, total = scalars[0], scalars[-1]
        for d, place in zip(looked_up, scalars[1:], strict=False):
            hit = arith.CmpIOp(arith.CmpIPredicate.eq, place, _coordinate(d.number)).result
            added = arith.SelectOp(hit, added, constant(added.type, 0)).result
        if isinstance(wide, ir.IntegerType):
            return arith.AddIOp(total, added).result
        return arith.AddFOp(total, added if wide == element else arith.ExtFOp(wide, added).result).result

    with ir.InsertionPoint(op), op.location:
        checked = [_checked(d, arguments, op) for d in looked_up]
        maps = [affine_map(count, [loops[v] for v in range(len(extents))])]
        maps += [affine_map(count, [loops[ir.AffineDimExpr(e).position] for e in d.map.results]) for d in looked_up]
        own = affine_map(count, range(len(dims)))
        init = fill(constant(wide, 0), tensor.empty(sizes, wide))
        kinds = ["parallel"] * len(dims) + ["reduction"] * len(summed)
        sums = generic([value, *checked], init, [*maps, own], kinds, body, loc=op.location)
        place = ktdp.construct_access_tile(tile_op.operands[0], [0] * len(sizes), sizes)
        ktdp.store(_added(ktdp.load(place, element), sums), place)
    op.erase()


def _meets_itself(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several positions may be one element: a step is no longer than what the smaller ones reach."""
    reach = 0
    for stride, size in sorted((abs(s), n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _added(before: ir.Value, sums: ir.Value) -> ir.Value:
    """What was there, and what is added, rounded once."""
    element = element_of(before)

    def body(scalars: list[ir.Value]) -> ir.Value:
        old, new, _ = scalars
        if isinstance(element, ir.IntegerType):
            return arith.AddIOp(old, new).result
        if old.type == new.type:
            return arith.AddFOp(old, new).result
        return arith.TruncFOp(element, arith.AddFOp(arith.ExtFOp(new.type, old).result, new).result).result

    return elementwise([before, sums], tensor.empty(list(shape(before)), element), body)


def _checked(dim: _Dim, arguments: NewArguments, op: ir.Operation) -> ir.Value:
    """The indices of a dim, each looked up among the numbers below its size: one that is not there is an error, as in every access."""
    assert dim.view is not None
    base = arguments.add("iota", [dim.size], i32_type(), op.location)
    numbers = ktdp.construct_memory_view(base, [dim.size], [1], i32_type())
    extents = shape_of_view(dim.view)
    variables = [ir.AffineExpr.get_dim(v) for v in range(len(extents))]
    return ktdp.load(ktdp.construct_indirect_access_tile(numbers, [(dim.view, variables)], extents), i32_type())
