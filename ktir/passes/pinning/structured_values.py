"""What `linalg` and `tensor` ops of a kernel make: other ways to the elements of their operands, trees over them, and reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ktir.diagnostics import refused
from ktir.dialects.structured import COMBINERS, IDENTITY, maps_of, overwritten
from ktir.mlir import arith, i32_type, ir, is_a, linalg, tensor
from ktir.passes.flat.integers.intervals import I32, width_of
from ktir.passes.pinning.matmuls.contraction import contraction
from ktir.passes.pinning.values.elements import (
    Apply,
    Element,
    Leaf,
    Number,
    Value,
    content,
    is_uniform,
    of_type,
)
from ktir.passes.pinning.values.narrowed import applied, held_as, interval, is_wide, literal, wrapped
from ktir.passes.pinning.values.parts import inserted, part_of, position, together
from ktir.passes.pinning.values.places import MOST_PIECES
from ktir.passes.pinning.values.tensors import (
    Made,
    Shared,
    choose_stick,
    common_dims,
    place_here,
    pointwise,
    reduction,
    reshaped,
    whole_dims,
)
from ktir.target import LANES

Values = Mapping[ir.Value, Value]


class Undefined:
    """A tensor without content."""


def structured(op: ir.Operation, values: Values) -> Value | Undefined | None:
    """What an op makes, at the insertion point; None for an op that is none of these."""
    if is_a(op, tensor.EmptyOp):
        return Undefined()
    if is_a(op, tensor.SplatOp) or (is_a(op, tensor.FromElementsOp) and len(op.operands) == 1):
        return Value(_shape(op.results[0]), _of(op.operands[0], values, op).element)
    if is_a(op, tensor.ExtractOp):
        return _extracted(op, values)
    if is_a(op, tensor.ExpandShapeOp, tensor.CollapseShapeOp):
        return _reshaped(op, content(op.operands[0], values, op))
    if is_a(op, tensor.ConcatOp):
        return _concatenated(op, values)
    if is_a(op, tensor.ExtractSliceOp):
        return _sliced(op, values)
    if is_a(op, tensor.InsertSliceOp):
        return _inserted(op, values)
    if is_a(op, linalg.FillOp):
        return Value(_shape(op.results[0]), _of(op.operands[0], values, op).element)
    if is_a(op, linalg.BroadcastOp):
        added = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        shape = _shape(op.results[0])
        kept = [d for d in range(len(shape)) if d not in added]
        return Value(shape, _of(op.operands[0], values, op).element.moved(dict(enumerate(kept))))
    if is_a(op, linalg.TransposeOp):
        order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
        return Value(_shape(op.results[0]), _of(op.operands[0], values, op).element.moved({d: order.index(d) for d in range(len(order))}))
    if is_a(op, linalg.ReduceOp):
        dims = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        return _reduced(op, dims, values)
    if op.name.startswith("linalg.") and len(op.results) == 1:
        return contraction(op, values) or _generic(op, values)
    return None


def _of(value: ir.Value, values: Values, op: ir.Operation) -> Value:
    return whole_dims(value, content(value, values, op), op)


def _shape(value: ir.Value) -> tuple[int, ...]:
    return tuple(ir.RankedTensorType(value.type).shape)


def _extracted(op: ir.Operation, values: Values) -> Value:
    source = _of(op.operands[0], values, op)
    if any(n != 1 for n in source.shape):
        raise refused(op, f"takes one of {list(source.shape)} elements, which is not pinned yet but of a tensor with a single one")
    return Value((), source.element.moved(dict.fromkeys(range(len(source.shape)))))


def _reshaped(op: ir.Operation, source: Value) -> Value:
    """Dims of one position come and go; dims that are joined stay apart, as nothing is moved."""
    shape = _shape(op.results[0])
    before = [d for d, n in enumerate(source.shape) if n != 1]
    after = [d for d, n in enumerate(shape) if n != 1]
    if [source.shape[d] for d in before] == [shape[d] for d in after]:
        dims: dict[int, int | None] = dict.fromkeys(range(len(source.shape)))
        return Value(shape, source.element.moved(dims | dict(zip(before, after, strict=True))))
    if is_uniform(source.element):
        return Value(shape, source.element)
    if _joins([source.shape[d] for d in before], [shape[d] for d in after]):
        return source
    return reshaped(source, shape, op)


def _concatenated(op: ir.Operation, values: Values) -> Value:
    """Tensors one after the other along a dim."""
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    return together([_of(v, values, op) for v in op.operands], dim, _shape(op.results[0]), op)


def _box(op: ir.Operation) -> list[tuple[int, int]]:
    """The first position and the extent of each dim of a slice. Raises Unsupported for one that is not known, and for steps."""
    firsts, extents, steps = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"])) for name in ("offsets", "sizes", "strides"))
    if any(n < 0 for n in (*firsts, *extents)) or any(n != 1 for n in steps):
        raise refused(op, "has places that are no numbers, or steps, which is not pinned yet; the nearest supported form loads that part")
    return list(zip(firsts, extents, strict=True))


def _sliced(op: ir.Operation, values: Values) -> Value:
    """A box of a tensor."""
    found, box = _of(op.operands[0], values, op), _box(op)
    for dim, (first, extent) in enumerate(box):
        found = part_of(found, dim, first, extent, op)
    return Value(_shape(op.results[0]), found.element.moved(_between(found.shape, _shape(op.results[0]))))


def _inserted(op: ir.Operation, values: Values) -> Value:
    """A tensor in a box of another one."""
    box, new = _box(op), _of(op.operands[0], values, op)
    extents = tuple(n for _, n in box)
    return inserted(Value(extents, new.element.moved(_between(new.shape, extents))), _of(op.operands[1], values, op), box, op)


def _between(shape: Sequence[int], other: Sequence[int]) -> dict[int, int | None]:
    """The dim of another shape that each of these is, which differ in dims of one position; these are none of it then."""
    if tuple(shape) == tuple(other):
        return {d: d for d in range(len(shape))}
    walked = zip([d for d, n in enumerate(shape) if n != 1], [d for d, n in enumerate(other) if n != 1], strict=True)
    return dict.fromkeys(range(len(shape))) | dict(walked)


def _joins(fine: Sequence[int], coarse: Sequence[int]) -> bool:
    """Whether dims in order are, several at a time, other dims."""
    rest = list(fine)
    for extent in coarse:
        product = 1
        while product < extent and rest:
            product *= rest.pop(0)
        if product != extent:
            return False
    return not rest


def _reduced(op: ir.Operation, dims: Sequence[int], values: Values) -> Value:
    """A `linalg.reduce`: the combiner of its region, over one dim."""
    if len(op.results) != 1:
        raise refused(op, "reduces several tensors at once, which is not pinned yet")
    block = op.regions[0].blocks[0]
    ops = [o.operation for o in block.operations][:-1]
    arguments = list(block.arguments)
    source = _of(op.operands[0], values, op)
    kept = {d: k for k, d in enumerate(d for d in range(len(source.shape)) if d not in dims)}
    if len(ops) != 1 or {v for v in ops[0].operands} != set(arguments) or ops[0].name not in COMBINERS:
        return _folded(op, source, dims, kept, values)
    return _combined(op, source, list(dims), kept, ops[0], values)


_MOST_FOLDED = 64


def _folded(op: ir.Operation, source: Value, dims: Sequence[int], kept: Mapping[int, int], values: Values) -> Value:
    """A reduction with a body of the author's, over what is loaded: one element of each row after the other, in his order."""
    block, given = op.regions[0].blocks[0], op.operands[1]
    walked = [d for d in dims if source.shape[d] != 1]
    count = prod(source.shape[d] for d in walked)
    if len(walked) > 1 or count > _MOST_FOLDED:
        what = f"{count} elements of several dims" if len(walked) > 1 else f"{count} elements, more than {_MOST_FOLDED}"
        raise refused(op, f"combines {what}, with none of {', '.join(COMBINERS)}")
    type_, shape = held_as(ir.RankedTensorType(op.results[0].type).element_type), _shape(op.results[0])
    total = _of(given, values, op).element
    (yielded,) = list(block.operations)[-1].operands
    for k in range(count):
        taken = position(source.element, walked[0], k, op) if walked else source.element
        scalars = {block.arguments[0]: taken.moved({d: kept.get(d) for d in range(len(source.shape))}), block.arguments[1]: total}
        made = Made(pointwise(Value(shape, _tree(yielded, scalars, values)), None, op), shape, None)
        total = Leaf(type_, made, tuple(range(len(shape))))
    return Value(shape, total)


def _combined(op: ir.Operation, source: Value, dims: list[int], kept: Mapping[int, int], combine: ir.Operation, values: Values) -> Value:
    """`outs` combined with what a value is along `dims`; `kept`: the dim of the result of each other dim."""
    walked = [d for d in dims if source.shape[d] != 1] or dims[:1]
    if len(walked) != 1:
        raise refused(op, "reduces several dims at once, which is not pinned yet; the nearest supported form reduces one after the other")
    (dim,) = walked
    result = op.results[0]
    own = ir.RankedTensorType(result.type).element_type
    type_ = i32_type() if _fits(source, source.shape[dim], combine) else held_as(own)
    total: Element
    if source.shape[dim] != 1 and choose_stick(source, dim) == dim and not _moves_less_by_rows(source, dim):
        made = reduction(source, dim, combine, type_, op)
        over = tuple(1 if d in dims else n for d, n in enumerate(source.shape))
        walk = tuple(kept.get(d) if d not in dims else None for d in range(len(source.shape)))
        total = Leaf(type_, Made(made, over, None), walk)
    else:
        total = _over_rows(op, source, dim, kept, combine, type_)
    given = op.operands[len(op.operands) - 1]
    if given in values and not _is_identity(values[given].element, combine):  # without content, `outs` is the identity
        init = whole_dims(given, values[given], op).element
        if combine.name.endswith("numf") and not (isinstance(init, Number) and init.value.value == init.value.value):
            raise refused(
                op,
                f"starts '{combine.name}' from values that may be NaN, which is not pinned yet; the nearest supported form "
                "starts from a number and combines the result",
            )
        total = applied(own, combine, (init, total)) if is_wide(own) else Apply(type_, combine, (init, total))
    return Value(_shape(result), wrapped(total, width_of(own) or 32) if held_as(own) != own else total)


_FULL, _FEW = 8, 8
"""Lanes of a stick that pay for its row, and positions that are combined one by one."""


def _moves_less_by_rows(source: Value, dim: int) -> bool:
    """Whether a dim that may lie in the sticks had better not: with an inner one there, whole sticks are moved and combined, while memory
    would give the lanes of one element by element."""
    inner = next(d for d in reversed(range(len(source.shape))) if source.shape[d] != 1 or d == dim)
    if inner <= dim or source.shape[inner] < _FULL or choose_stick(source, inner) != inner:
        return False
    return prod(n for d, n in enumerate(source.shape) if d < dim) <= MOST_PIECES or source.shape[dim] <= _FEW


def _over_rows(op: ir.Operation, source: Value, dim: int, kept: Mapping[int, int], combine: ir.Operation, type_: ir.Type) -> Element:
    """What `combine` makes of a value along a dim that cannot lie in the sticks, in the order of the lanes of one."""
    count, shape = source.shape[dim], _shape(op.results[0])
    if count > LANES or (count > _FEW and all(n == 1 for n in source.shape[:dim])):
        return _by_halves(op, source, dim, kept, combine, type_)
    places = {d: kept.get(d) for d in range(len(source.shape))}
    each = [position(source.element, dim, k, op) for k in range(count)] if count != 1 else [source.element]
    lanes = [element.moved(places) for element in each]

    def both(a: Element, b: Element) -> Element:
        pair = Value(shape, Apply(type_, combine, (a, b)))
        return Leaf(type_, Shared(pair, place_here(), op), tuple(range(len(shape))))

    width = LANES
    while width > 1:
        width //= 2
        lanes = [both(a, lanes[k + width]) if k + width < len(lanes) else a for k, a in enumerate(lanes[:width])]
    identity = IDENTITY[COMBINERS[combine.name]]
    return both(of_type(type_, identity), lanes[0])  # lanes begin so: a sum is never -0


def _by_halves(op: ir.Operation, source: Value, dim: int, kept: Mapping[int, int], combine: ir.Operation, type_: ir.Type) -> Element:
    """The same of many rows: blocks of as many as a stick has lanes are combined in order, and then halves of what that gives."""
    wanted = next((d for d in reversed(range(len(source.shape))) if d != dim and source.shape[d] != 1), None)
    identity = of_type(type_, IDENTITY[COMBINERS[combine.name]])

    def made(rows: int, element: Element) -> Value:
        """A tensor of so many positions along the dim."""
        shape = tuple(rows if d == dim else n for d, n in enumerate(source.shape))
        value = Value(shape, element)
        stick = choose_stick(value, wanted)
        return Value(shape, Leaf(type_, Made(pointwise(value, stick, op), shape, stick), tuple(range(len(shape)))))

    def added(total: Value, to: int, block: Value) -> Value:
        """`total`, whose first rows, `to` at most, are combined with those of a block."""
        rows = block.shape[dim]
        first = made(rows, Apply(type_, combine, (part_of(total, dim, 0, rows, op).element, block.element)))
        rest = [part_of(total, dim, rows, to - rows, op)] if rows < to else []
        return together([first, *rest], dim, tuple(to if d == dim else n for d, n in enumerate(source.shape)), op)

    count = min(LANES, source.shape[dim])
    total = made(count, Apply(type_, combine, (identity, part_of(source, dim, 0, count, op).element)))
    for first in range(LANES, source.shape[dim], LANES):
        total = added(total, LANES, part_of(source, dim, first, min(LANES, source.shape[dim] - first), op))
    width = LANES
    while width > 1:
        width //= 2
        if total.shape[dim] > width:  # the lanes that there are not leave the others as they are
            total = added(total, width, part_of(total, dim, width, total.shape[dim] - width, op))
    return total.element.moved({d: kept.get(d) for d in range(len(source.shape))})


def _fits(source: Value, count: int, combine: ir.Operation) -> bool:
    """Whether what integers of 64 bits come to is known to fit into 32."""
    if not is_wide(combine.results[0].type):
        return False
    each = interval(source.element)
    most = max(abs(each.low), abs(each.high)) * (count if is_a(combine, arith.AddIOp) else 1)
    return most <= I32.high and is_a(combine, arith.AddIOp, arith.MaxSIOp, arith.MinSIOp)


def _is_identity(init: Element, combine: ir.Operation) -> bool:
    return isinstance(init, Number) and init.value.value == IDENTITY[COMBINERS[combine.name]]


def _generic(op: ir.Operation, values: Values) -> Value | Undefined:
    """A generic, or a named op that is one: its body over the elements of its operands."""
    if not len(op.regions) or not len(op.regions[0].blocks):
        raise refused(op, "is not pinned yet")
    block, rank = op.regions[0].blocks[0], len(_shape(op.results[0]))
    if "iterator_types" in op.attributes:
        if (wrong := overwritten(op)) is not None:
            raise refused(op, wrong)
        iterators = ["reduction" in str(i) for i in ir.ArrayAttr(op.attributes["iterator_types"])]
        maps = maps_of(op)
    else:
        iterators, maps = [False] * rank, [ir.AffineMap.get_identity(rank)] * len(op.operands)
        if any(_shape(v) != _shape(op.results[0]) for v in op.operands):
            raise refused(op, "is not pinned yet")
    identity = ir.AffineMap.get_identity(rank)
    if not any(iterators) and all(m == identity for m in maps):
        return _each(op, block, values)
    out = _walk(maps[-1], op)
    if None in out:
        raise refused(op, "has a result with a dim that no loop walks, which is not pinned yet")
    scalars: dict[ir.Value, Element] = {}
    extents: dict[int, int] = {}
    for argument, operand, m in zip(block.arguments, op.operands, maps, strict=True):
        walk = _walk(m, op)
        extents.update({loop: n for loop, n in zip(walk, _shape(operand), strict=True) if loop is not None})
        if any(True for _ in argument.uses) and (operand != op.operands[len(op.operands) - 1] or not any(iterators)):
            scalars[argument] = _of(operand, values, op).element.moved(dict(enumerate(walk)))
    shape = tuple(extents[loop] for loop in range(len(iterators)))
    *ops, end = (o.operation for o in block.operations)
    (yielded,) = end.operands
    if any(iterators):
        return _generic_reduction(op, Value(shape, Number(yielded.type, ir.UnitAttr.get())), ops, yielded, scalars, iterators, out, values)
    place = {loop: d for d, loop in enumerate(out) if loop is not None}
    return Value(_shape(op.results[0]), _tree(yielded, scalars, values).moved(place))


def _each(op: ir.Operation, block: ir.Block, values: Values) -> Value:
    """A generic that computes each element from those at the same place."""
    read = [(a, v) for a, v in zip(block.arguments, op.operands, strict=True) if any(True for _ in a.uses)]
    operands = [v for _, v in read]
    found, shape = common_dims(operands, [content(v, values, op) for v in operands], _shape(op.results[0]), op)
    (yielded,) = list(block.operations)[-1].operands
    if shape != _shape(op.results[0]) and any(is_a(inner, linalg.IndexOp) for inner in block.operations):
        found, shape = [whole_dims(v, f, op) for v, f in zip(operands, found, strict=True)], _shape(op.results[0])
    return Value(shape, _tree(yielded, {a: f.element for (a, _), f in zip(read, found, strict=True)}, values))


def _generic_reduction(
    op: ir.Operation,
    loops: Value,
    ops: list[ir.Operation],
    yielded: ir.Value,
    scalars: Mapping[ir.Value, Element],
    iterators: Sequence[bool],
    out: Sequence[int | None],
    values: Values,
) -> Value:
    """A generic that ends by combining with `outs`."""
    combine = yielded.owner
    accumulator = op.regions[0].blocks[0].arguments[len(op.operands) - 1]
    if isinstance(combine, ir.Block) or combine.name not in COMBINERS or len(list(accumulator.uses)) != 1:
        raise refused(op, f"expects a reduction that ends with one of {', '.join(COMBINERS)} of 'outs'")
    others = [v for v in combine.operands if v != accumulator]
    if len(others) != 1:
        raise refused(op, "expects a reduction that combines 'outs' with what it maps")
    mapped = Value(loops.shape, _tree(others[0], scalars, values))
    kept = {loop: d for d, loop in enumerate(out) if loop is not None}
    return _combined(op, mapped, [loop for loop, reduced in enumerate(iterators) if reduced], kept, combine.operation, values)


def _walk(m: ir.AffineMap, op: ir.Operation) -> list[int | None]:
    """The loop along each dim of an operand."""
    found: list[int | None] = []
    for result in m.results:
        if isinstance(result, ir.AffineDimExpr):
            found.append(ir.AffineDimExpr(result).position)
        elif isinstance(result, ir.AffineConstantExpr) and result.value == 0:
            found.append(None)
        else:
            raise refused(op, f"has the map {m}, which is more than a choice of loops, and is not pinned yet")
    return found


def _tree(value: ir.Value, scalars: Mapping[ir.Value, Element], values: Values) -> Element:
    """What a scalar of a body is; `values` has those from outside of it, and positions."""
    if value in scalars:
        return scalars[value]
    if value in values:
        return values[value].element
    owner = value.owner
    if isinstance(owner, ir.Block):
        raise refused(owner.owner, "reads 'outs' in a way that is not pinned yet")
    if is_a(owner, arith.ConstantOp):
        return literal(value.type, owner.attributes["value"], owner.operation)
    if not len(owner.operands):
        raise refused(owner.operation, "is read as data in the body of an op, which is not pinned yet")
    return applied(value.type, owner.operation, tuple(_tree(v, scalars, values) for v in owner.operands))
