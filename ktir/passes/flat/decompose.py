"""Sorts, scans and reductions that are no reductions of the flat form, as such: one loop, one result, `addf`, `maximumf` or `minimumf`.

A sort is a rank by pairwise comparison and a selection by it; a scan a masked reduction over one loop more; integers are reduced in parts
that f32 holds exactly; several loops one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod

from ktir.analysis.flat import refuse
from ktir.analysis.seen_keys import bounds_of
from ktir.dialects import ktir as kt
from ktir.dialects.structured import (
    COMBINERS,
    Generic,
    affine_map,
    clone_ops,
    constant,
    element_of,
    elementwise,
    fill,
    generic,
    identity,
    loop_extents,
    maps_of,
)
from ktir.mlir import arith, func, i32_type, ir, is_a, linalg, names, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.windows import shape

MOST_PAIRS = 2**24
"""That a sort compares: they are in memory."""
_MOST_ADDED = 2**27
"""That a scan goes over, each element those before it."""
_EXACT = 2**24
"""Integers up to here are exact in f32."""
_HALF = 16
_MOST_BYTES_SUMMED = 2**16


def decompose(function: func.FuncOp) -> None:
    """Rewrite the ops of `function`; needs no particular order of the other steps, but coordinates must still be ops."""
    for op in _ops(function, kt.SortOp):
        _sort(op)
    for op in _ops(function, kt.ScanOp):
        _scan(op)
    for op in _ops(function, linalg.GenericOp):
        _results_apart(op)
    for op in _ops(function, linalg.GenericOp):
        g = Generic(op)
        if g.is_pointwise:
            _fill_of_constant(g)
        elif isinstance(g.body.arguments[-1].type, ir.IntegerType) and not g.is_contraction:
            _integer_reduction(g)
    for op in _ops(function, linalg.GenericOp):
        _loops_apart(op)
    for op in _ops(function, linalg.GenericOp):
        _initial_as_input(op)


def _ops(function: func.FuncOp, kind: type[ir.OpView]) -> list[ir.Operation]:
    return [o.operation for o in function.regions[0].blocks[0].operations if is_a(o, kind)]


# Building


def _f32() -> ir.Type:
    return ir.F32Type.get()


def _float(value: float) -> ir.Value:
    return constant(_f32(), value)


def _filled(sizes: Sequence[int], value: float) -> ir.Value:
    return fill(_float(value), tensor.empty(list(sizes), _f32()))


def _coordinate(loop: int) -> ir.Value:
    return linalg.IndexOp(loop).result


def _number(loop: int) -> ir.Value:
    """A coordinate in f32."""
    return arith.SIToFPOp(_f32(), arith.IndexCastOp(i32_type(), _coordinate(loop)).result).result


def _wide(value: ir.Value) -> ir.Value:
    return arith.ExtFOp(_f32(), value).result if isinstance(value.type, ir.F16Type | ir.BF16Type) else value


def _pointwise(inputs: Sequence[ir.Value], element: ir.Type, body: Callable[[list[ir.Value]], ir.Value]) -> ir.Value:
    """An op over tensors of one shape; `body` gets their scalars."""
    return elementwise(inputs, tensor.empty(list(shape(inputs[0])), element), lambda a: body(a[:-1]))


# Sorts and scans


def _along(op: ir.Operation, most: int) -> tuple[int, list[int]]:
    """The dim of a sort or scan, and the shape; refuses what compares more pairs than `most`."""
    dim = kt.dimension_of(op)
    sizes = list(shape(op.operands[0]))
    if prod(sizes) * sizes[dim] > most:
        raise refuse(op, f"compares {prod(sizes) * sizes[dim]} pairs, which is not supported; the most supported are {most}")
    return dim, sizes


def _pairs(rank: int, dim: int) -> tuple[ir.AffineMap, ir.AffineMap, list[str]]:
    """Maps of an element and of another one along a dim, and the iterators with that one's loop."""
    one = affine_map(rank + 1, range(rank))
    other = affine_map(rank + 1, [rank if d == dim else d for d in range(rank)])
    return one, other, ["parallel"] * rank + ["reduction"]


def _sort(op: ir.Operation) -> None:
    dim, sizes = _along(op, MOST_PAIRS)
    one, other, kinds = _pairs(len(sizes), dim)
    descending = "descending" in op.attributes
    keys = op.operands[0]

    def count(scalars: list[ir.Value]) -> ir.Value:
        mine, theirs, total = scalars
        before = _precedes(theirs, mine, descending)
        earlier = arith.CmpIOp(arith.CmpIPredicate.slt, _coordinate(len(sizes)), _coordinate(dim)).result
        tie = arith.AndIOp(_equal(theirs, mine), earlier).result
        hit = arith.OrIOp(before, tie).result
        return arith.AddFOp(total, arith.SelectOp(hit, _float(1.0), _float(0.0)).result).result

    with ir.InsertionPoint(op), op.location:
        rank = generic([keys, keys], _filled(sizes, 0.0), [one, other, one], kinds, count, loc=op.location)
    for result, value in zip(op.results, op.operands, strict=True):
        if list(result.uses):
            with ir.InsertionPoint(op), op.location:
                _replace_sorted(result, _selected(value, rank, dim, _needed(result, dim)), dim)
    op.erase()


def _precedes(a: ir.Value, b: ir.Value, descending: bool) -> ir.Value:
    """Whether key a comes before key b, equal ones apart; NaN counts as the largest."""
    if isinstance(a.type, ir.IntegerType):
        predicate = arith.CmpIPredicate.sgt if descending else arith.CmpIPredicate.slt
        return arith.CmpIOp(predicate, a, b).result
    a, b = _wide(a), _wide(b)
    if descending:
        a, b = b, a
    smaller = arith.CmpFOp(arith.CmpFPredicate.OLT, a, b).result
    only_b = arith.AndIOp(arith.CmpFOp(arith.CmpFPredicate.UNO, b, b).result, arith.CmpFOp(arith.CmpFPredicate.ORD, a, a).result).result
    return arith.OrIOp(smaller, only_b).result


def _equal(a: ir.Value, b: ir.Value) -> ir.Value:
    if isinstance(a.type, ir.IntegerType):
        return arith.CmpIOp(arith.CmpIPredicate.eq, a, b).result
    a, b = _wide(a), _wide(b)
    nan = arith.AndIOp(arith.CmpFOp(arith.CmpFPredicate.UNO, a, a).result, arith.CmpFOp(arith.CmpFPredicate.UNO, b, b).result).result
    return arith.OrIOp(arith.CmpFOp(arith.CmpFPredicate.OEQ, a, b).result, nan).result


def _needed(result: ir.Value, dim: int) -> int:
    """How many of the first elements along `dim` are used; at least two, since tensors have no dims of extent 1."""
    most = 2
    for use in result.uses:
        user = use.owner.operation
        if not is_a(user, tensor.ExtractSliceOp):
            return shape(result)[dim]
        offsets, sizes, steps, _ = windows.box_of(user)
        most = max(most, offsets[dim] + (sizes[dim] - 1) * steps[dim] + 1)
    return most


def _replace_sorted(result: ir.Value, value: ir.Value, dim: int) -> None:
    """Use `value`, which holds the first elements of `result` along `dim`, in place of it; a slice of all of it is no slice."""
    for use in list(result.uses):
        user = use.owner.operation
        if is_a(user, tensor.ExtractSliceOp):
            offsets, sizes, _, _ = windows.box_of(user)
            if not any(offsets) and sizes == list(shape(value)):
                user.results[0].replace_all_uses_with(value)
                user.erase()
                continue
        user.operands[use.operand_number] = value


def _selected(value: ir.Value, rank: ir.Value, dim: int, count: int) -> ir.Value:
    """The elements of `value` whose rank along `dim` is 0, 1, .. `count` - 1."""
    sizes = [count if d == dim else n for d, n in enumerate(shape(value))]
    element = element_of(value)
    one, other, kinds = _pairs(len(sizes), dim)

    def hit(scalars: list[ir.Value]) -> ir.Value:
        return arith.CmpFOp(arith.CmpFPredicate.OEQ, scalars[1], _number(dim)).result

    def chosen(part: Callable[[ir.Value], ir.Value]) -> ir.Value:
        def body(scalars: list[ir.Value]) -> ir.Value:
            found = arith.SelectOp(hit(scalars), part(scalars[0]), _float(-inf)).result
            return arith.MaximumFOp(scalars[2], found).result

        return generic([value, rank], _filled(sizes, -inf), [other, other, one], kinds, body, loc=ir.Location.current)

    if not isinstance(element, ir.IntegerType):
        found = chosen(_wide)
        return found if element == _f32() else _pointwise([found], element, lambda a: arith.TruncFOp(element, a[0]).result)
    if element.width == 1:
        found = chosen(lambda x: arith.UIToFPOp(_f32(), x).result)
        return _pointwise([found], element, lambda a: arith.CmpFOp(arith.CmpFPredicate.OGT, a[0], _float(0.0)).result)
    if _is_narrow(element) or _is_coordinate(value):
        return _pointwise([chosen(lambda x: arith.SIToFPOp(_f32(), x).result)], element, lambda a: arith.FPToSIOp(element, a[0]).result)
    parts = [chosen(_high), chosen(_low)]
    return _pointwise(parts, element, lambda a: _joined(a[0], a[1], element))


def _is_coordinate(value: ir.Value) -> bool:
    """Whether the elements of a tensor are coordinates, which f32 holds exactly."""
    op = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if not is_a(op, linalg.GenericOp) or len(op.operands) != 1 or max(shape(value), default=1) >= _EXACT:
        return False
    return all(is_a(o, linalg.IndexOp, arith.IndexCastOp, arith.TruncIOp, arith.ExtSIOp) for o in Generic(op).body_ops)


def _is_narrow(type_: ir.Type) -> bool:
    """Whether an integer has no high half."""
    return ir.IntegerType(type_).width <= _HALF


def _high(value: ir.Value) -> ir.Value:
    """All but the low half of an integer, in f32."""
    return arith.SIToFPOp(_f32(), arith.ShRSIOp(value, constant(value.type, _HALF)).result).result


def _low(value: ir.Value) -> ir.Value:
    """The low half of an integer, in f32."""
    return arith.SIToFPOp(_f32(), arith.AndIOp(value, constant(value.type, (1 << _HALF) - 1)).result).result


def _joined(high: ir.Value, low: ir.Value, element: ir.Type) -> ir.Value:
    up = arith.ShLIOp(arith.FPToSIOp(element, high).result, constant(element, _HALF)).result
    return arith.OrIOp(up, arith.FPToSIOp(element, low).result).result


def _scan(op: ir.Operation) -> None:
    dim, sizes = _along(op, _MOST_ADDED)
    one, other, kinds = _pairs(len(sizes), dim)
    block = op.regions[0].blocks[0]
    *body, end = [o.operation for o in block.operations]
    element = element_of(op.operands[0])
    if (
        len(body) != 1
        or len(op.operands) != 1
        or body[0].name not in _COMBINED
        or set(body[0].operands) != set(block.arguments)
        or end.operands[0] != body[0].results[0]
    ):
        raise refuse(op, "combines by something else than a sum, maximum or minimum, which is not supported")
    wide, none = element if isinstance(element, ir.IntegerType) else _f32(), identity(COMBINERS[body[0].name], element)

    def combine(scalars: list[ir.Value]) -> ir.Value:
        inside = arith.CmpIOp(arith.CmpIPredicate.sle, _coordinate(len(sizes)), _coordinate(dim)).result
        mapped = arith.SelectOp(inside, _wide(scalars[0]), constant(wide, none)).result
        return ir.Operation.create(body[0].name, results=[wide], operands=[scalars[1], mapped]).results[0]

    with ir.InsertionPoint(op), op.location:
        init = fill(constant(wide, none), tensor.empty(sizes, wide))
        found = generic([op.operands[0]], init, [other, one], kinds, combine, loc=op.location)
        if wide != element:
            found = _pointwise([found], element, lambda a: arith.TruncFOp(element, a[0]).result)
    op.results[0].replace_all_uses_with(found)
    op.erase()


_COMBINED = names(arith.AddFOp, arith.MaximumFOp, arith.MinimumFOp, arith.AddIOp, arith.MaxSIOp, arith.MinSIOp)
"""What scans, and accumulators that begin with its identity, combine by."""


# Generics


def _results_apart(op: ir.Operation) -> None:
    """An op per result of a generic; each result may depend on its own accumulator only."""
    count = len(op.results)
    if count == 1:
        return
    block = op.regions[0].blocks[0]
    *body, end = [o.operation for o in block.operations]
    inputs = list(op.operands)[:-count]
    maps, kinds = maps_of(op), Generic(op).iterators
    accumulators = list(block.arguments)[len(inputs) :]
    for k in range(count):
        needed = _needed_ops(end.operands[k], body)
        foreign = [a for i, a in enumerate(accumulators) if i != k and any(a in list(o.operands) for o in needed)]
        if foreign:
            raise refuse(op, "has results that depend on each other's accumulators, which is not supported")
        own = accumulators[k]

        def copy(scalars: list[ir.Value], needed: list[ir.Operation] = needed, own: ir.Value = own, k: int = k) -> ir.Value:
            mapping = dict(zip([*list(block.arguments)[: len(inputs)], own], scalars, strict=True))
            clone_ops(needed, mapping)
            return mapping.get(end.operands[k], end.operands[k])

        with ir.InsertionPoint(op), op.location:
            own_maps = [*maps[: len(inputs)], maps[len(inputs) + k]]
            value = generic(inputs, op.operands[len(inputs) + k], own_maps, kinds, copy, loc=op.location)
        op.results[k].replace_all_uses_with(value)
    op.erase()


def _needed_ops(value: ir.Value, body: Sequence[ir.Operation]) -> list[ir.Operation]:
    """Ops of `body` that `value` is computed by, in order."""
    wanted = {value}
    found = []
    for op in reversed(body):
        if any(r in wanted for r in op.results):
            found.append(op)
            wanted |= set(op.operands)
    return found[::-1]


def _fill_of_constant(g: Generic) -> None:
    """A generic that yields a constant everywhere is a fill."""
    maker = g.yielded.owner
    if not is_a(maker, arith.ConstantOp) or len(g.op.operands) > 1:
        return
    op = g.op
    with ir.InsertionPoint(op), op.location:
        scalar = maker.operation.clone().results[0]
        op.results[0].replace_all_uses_with(fill(scalar, tensor.empty(list(shape(op.results[0])), element_of(op.results[0]))))
    op.erase()


def _initial_as_input(op: ir.Operation) -> None:
    """A pointwise op that reads what its result held before gets that as an input, or as a constant of its body."""
    g = Generic(op)
    before = g.body.arguments[-1]
    if not g.is_pointwise or not (list(before.uses) or g.yielded == before):
        return
    constant = _filled_with(g.init)

    def body(scalars: list[ir.Value]) -> ir.Value:
        mapping = dict(zip(g.body.arguments, scalars, strict=False))
        if constant is not None:
            mapping[before] = constant.clone().results[0]
        clone_ops(g.body_ops, mapping)
        return mapping.get(g.yielded, g.yielded)

    with ir.InsertionPoint(op), op.location:
        init = tensor.empty(list(shape(op.results[0])), element_of(op.results[0]))
        inputs, maps = (g.inputs, g.maps[:-1]) if constant is not None else ([*g.inputs, g.init], g.maps)
        value = generic(inputs, init, [*maps, g.maps[-1]], g.iterators, body, loc=op.location)
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _filled_with(value: ir.Value) -> ir.Operation | None:
    """The constant that a tensor is filled with."""
    owner = value.owner
    if not is_a(owner, linalg.FillOp):
        return None
    maker = owner.operation.operands[0].owner
    return maker.operation if is_a(maker, arith.ConstantOp) else None


def _integer_reduction(g: Generic) -> None:
    """Reductions of integers, in parts that f32 holds: flags, narrow unsigned numbers and extremes of small ones as they are, extremes of
    others in halves, sums in bytes."""
    op = g.op
    type_ = ir.IntegerType(g.body.arguments[-1].type)
    name = g.yielded.owner.operation.name if not isinstance(g.yielded.owner, ir.Block) else ""
    sizes, init = shape(op.results[0]), g.init
    exact = name in names(arith.MaxSIOp, arith.MinSIOp) and _is_exact(g)

    def reduced(part: Callable[[ir.Value, list[ir.Value]], ir.Value], kind: str, *more: ir.Value) -> ir.Value:
        """The reduction of `part` of what is combined, which also gets scalars of `more`, tensors of the result's shape."""

        def body(scalars: list[ir.Value]) -> ir.Value:
            mapped = part(g.copy_mapped(scalars), scalars[len(g.inputs) : -1])
            combiner = {"add": arith.AddFOp, "max": arith.MaximumFOp, "min": arith.MinimumFOp}[kind]
            return combiner(scalars[-1], mapped).result

        maps = [*g.maps[:-1], *([g.maps[-1]] * (len(more) + 1))]
        return generic([*g.inputs, *more], _filled(sizes, identity(kind, _f32())), maps, g.iterators, body, loc=op.location)

    def combined(parts: Sequence[ir.Value], join: Callable[[list[ir.Value]], ir.Value]) -> ir.Value:
        """The reduction with what stood in the accumulator before."""
        if _is_neutral(init, name, exact):
            return _pointwise(parts, type_, join)

        def body(scalars: list[ir.Value]) -> ir.Value:
            return ir.Operation.create(name, results=[type_], operands=[scalars[-1], join(scalars[:-1])]).results[0]

        return _pointwise([*parts, init], type_, body)

    with ir.InsertionPoint(op), op.location:
        if type_.width == 1 and name in names(arith.OrIOp, arith.AndIOp):
            flags = reduced(lambda x, _: arith.UIToFPOp(_f32(), x).result, "max" if name == arith.OrIOp.OPERATION_NAME else "min")
            result = combined([flags], lambda a: arith.CmpFOp(arith.CmpFPredicate.OGT, a[0], _float(0.0)).result)
        elif name in names(arith.MaxUIOp, arith.MinUIOp) and type_.width < 32:
            found = reduced(lambda x, _: arith.UIToFPOp(_f32(), x).result, name[6:9])
            result = combined([found], lambda a: arith.TruncIOp(type_, arith.FPToSIOp(i32_type(), a[0]).result).result)
        elif exact:
            found = reduced(lambda x, _: arith.SIToFPOp(_f32(), x).result, "max" if name == arith.MaxSIOp.OPERATION_NAME else "min")
            result = combined([found], lambda a: arith.FPToSIOp(type_, a[0]).result)
        elif name in names(arith.MaxSIOp, arith.MinSIOp):
            kind, beyond = ("max", -1.0) if name == arith.MaxSIOp.OPERATION_NAME else ("min", float(1 << _HALF))
            high = reduced(lambda x, _: _high(x), kind)

            def low_part(x: ir.Value, more: list[ir.Value]) -> ir.Value:
                same = arith.CmpFOp(arith.CmpFPredicate.OEQ, _high(x), more[0]).result
                return arith.SelectOp(same, _low(x), _float(beyond)).result

            low = reduced(low_part, kind, high)
            result = combined([high, low], lambda a: _joined(a[0], a[1], type_))
        elif name == arith.AddIOp.OPERATION_NAME:
            result = combined(*_bytes_summed(g, reduced, type_))
        else:
            raise refuse(
                op, f"reduces {type_} by '{name}', which is not supported; the nearest supported forms are sums and signed extremes"
            )
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _is_exact(g: Generic) -> bool:
    """Whether all that an integer reduction combines, as positions are, and numbers of few bits, is exact in f32."""
    function = g.op.parent.opview
    assert isinstance(function, func.FuncOp)
    low, high = bounds_of(function, g, g.mapped)
    return _is_narrow(g.mapped.type) or bool(low.min() >= -_EXACT and high.max() <= _EXACT)


def _is_neutral(init: ir.Value, combiner: str, exact: bool) -> bool:
    """Whether a tensor is filled with what a combiner leaves its other operand as it is with, which is `exact` in f32."""
    if (constant := _filled_with(init)) is None or combiner not in _COMBINED:
        return False
    value = ir.IntegerAttr(constant.attributes["value"]).value
    own = identity(COMBINERS[combiner], element_of(init))
    most = min(abs(own), _EXACT) if exact else abs(own)
    return value == 0 if own == 0 else value <= -most if own < 0 else value >= most


def _bytes_summed(
    g: Generic, reduced: Callable[..., ir.Value], type_: ir.IntegerType
) -> tuple[list[ir.Value], Callable[[list[ir.Value]], ir.Value]]:
    """The sums of the bytes of what is summed, four at most, and how they are put together; numbers of less bits as i32."""
    count = prod(n for n, kind in zip(loop_extents(g.op), g.iterators, strict=True) if kind == "reduction")
    if count > _MOST_BYTES_SUMMED:
        raise refuse(g.op, f"sums {count} integers, which is not supported; the most supported are {_MOST_BYTES_SUMMED}")

    if type_.width < 8:
        raise refuse(g.op, f"sums {type_}, which is not supported; the nearest supported form sums i8, i16, i32 or i64")
    narrow = type_.width < 32
    held = i32_type() if narrow else type_
    last = min(type_.width, 32) // 8 - 1

    def byte(k: int) -> Callable[[ir.Value, list[ir.Value]], ir.Value]:
        def part(x: ir.Value, _: list[ir.Value]) -> ir.Value:
            moved = arith.ExtSIOp(held, x).result if narrow else x
            moved = arith.ShRSIOp(moved, constant(held, 8 * k)).result if k else moved
            return arith.SIToFPOp(_f32(), moved if k == last else arith.AndIOp(moved, constant(held, 255)).result).result

        return part

    def join(sums: list[ir.Value]) -> ir.Value:
        total = arith.FPToSIOp(held, sums[0]).result
        for k, s in enumerate(sums[1:], 1):
            total = arith.AddIOp(total, arith.ShLIOp(arith.FPToSIOp(held, s).result, constant(held, 8 * k)).result).result
        return arith.TruncIOp(type_, total).result if narrow else total

    return [reduced(byte(k), "add") for k in range(last + 1)], join


def _loops_apart(op: ir.Operation) -> None:
    """One reduction per reduced loop, the innermost first."""
    g = Generic(op)
    reduced = [i for i, kind in enumerate(g.iterators) if kind == "reduction"]
    if len(reduced) < 2 or (g.contraction is not None and len(g.contraction.columns) == 1):
        return
    if g.combiner is None:
        raise refuse(op, "reduces several loops by something else than a sum, maximum or minimum, which is not supported")
    extents = loop_extents(op)
    inner = reduced[-1]
    outer = [i for i in range(len(extents)) if i != inner]
    element = g.body.arguments[-1].type
    kinds = ["reduction" if i == inner else "parallel" for i in range(len(extents))]

    def rest(scalars: list[ir.Value]) -> ir.Value:
        return ir.Operation.create(g.yielded.owner.operation.name, results=[element], operands=[scalars[1], scalars[0]]).results[0]

    with ir.InsertionPoint(op), op.location:
        start = constant(element, identity(g.combiner, element))
        init = fill(start, tensor.empty([extents[i] for i in outer], element))
        part = generic(g.inputs, init, [*g.maps[:-1], affine_map(len(extents), outer)], kinds, g.copy_body, loc=op.location)
        remaining = [outer.index(ir.AffineDimExpr(e).position) for e in g.maps[-1].results]
        maps = [affine_map(len(outer), range(len(outer))), affine_map(len(outer), remaining)]
        result = generic([part], g.init, maps, [g.iterators[i] for i in outer], rest, loc=op.location)
    op.results[0].replace_all_uses_with(result)
    op.erase()
    _loops_apart(result.owner.operation)
