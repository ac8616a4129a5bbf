"""What is a matmul of an author's, named or a generic, and which products of matrices it is made of: one per position of its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import copysign, prod

from ktir.diagnostics import refused
from ktir.dialects.structured import Generic, maps_of
from ktir.mlir import arith, func, ir, is_a, linalg, named
from ktir.passes.pinning.matmuls.array import ArrayProduct
from ktir.passes.pinning.matmuls.vector import VectorProduct
from ktir.passes.pinning.values.elements import Apply, Element, Kind, Leaf, Number, Value, content
from ktir.passes.pinning.values.parts import position
from ktir.passes.pinning.values.rows import side_by_side
from ktir.passes.pinning.values.tensors import MOST_PIECES, Made, whole_dims
from ktir.target import HALVES, is_half

TOLERANCE = "ktir.tolerance"
ROUNDED_EACH = 2.0**-10
"""The tolerance that a product of floats of 32 bits takes, whose products are rounded each."""

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
    each = rounds_each(op)
    walks: list[list[Loop]] | None = [list(Generic(op).walk(i)) for i in range(3)] if each else walks_of(op)
    if walks is None:
        return None
    left, right, outs = op.operands
    result = ir.RankedTensorType(op.results[0].type)
    extents = {loop: n for v, walk in zip(op.operands, walks, strict=True) for loop, n in _extents(v, walk)}
    a, b, c = (set(walk) for walk in walks)
    batches = [loop for loop in walks[2] if loop in extents and extents[loop] != 1 and loop in a & b]
    rows, columns = ([loop for loop in walks[2] if loop in extents and extents[loop] != 1 and loop not in other] for other in (b, a))
    inner = [loop for loop in extents if loop not in c and extents[loop] != 1] or [loop for loop in extents if loop not in c][:1]
    if len(columns) > 1 or len(inner) > 1:
        raise refused(op, "sums over several dims, or has several dims of columns, which is not pinned yet")

    def factor(operand: ir.Value, walk: Sequence[Loop], loops: Sequence[Loop]) -> Value:
        dims = {d: loops.index(loop) if loop in loops else None for d, loop in enumerate(walk)}
        shape = tuple(extents.get(loop, 1) for loop in loops)
        given = content(operand, values, op)
        return Value(shape, whole_dims(operand, given if each else _narrow(given), op).element.moved(dims))

    across = columns or [None]
    first, second = factor(left, walks[0], [*batches, *rows, *inner]), factor(right, walks[1], [*batches, *inner, *across])
    given = factor(outs, walks[2], [*batches, *rows, *across]) if outs in values else None
    whole = _batched(first, second, given, len(batches), result.element_type, op)
    back = {d: walks[2].index(loop) for d, loop in enumerate([*batches, *rows, *columns])}
    return Value(tuple(result.shape), whole.element.moved({len(whole.shape) - 1: None} | back))


def _batched(first: Value, second: Value, given: Value | None, batches: int, type_: ir.Type, op: ir.Operation) -> Value:
    """The product of each position of the leading `batches` dims, side by side, added to `given`."""
    count = prod(first.shape[:batches])
    if count > MOST_PIECES:
        raise refused(op, f"multiplies {count} matrices at once, more than {MOST_PIECES}; the nearest supported form is a loop over them")
    at = list(product(*map(range, first.shape[:batches])))
    products = [_product(_taken(first, n, op), _taken(second, n, op), type_, op) for n in at]
    shape = (*first.shape[:-1], second.shape[-1])
    stick = len(shape) - 1 if shape[-1] != 1 else None

    def sums(blocks: range, type_: ir.Type) -> Leaf:
        tensors = [p.sums(blocks, type_) for p in products]
        made = side_by_side(tensors, products[0].shape, shape, stick) if batches else tensors[0]
        return Leaf(type_, Made(made, shape, stick), tuple(range(len(shape))))

    if given is None or _is_zero(given.element):
        return Value(shape, sums(range(products[0].blocks), type_))
    f32 = ir.F32Type.get()
    total = _wide(given).element
    for block in range(products[0].blocks):  # in order, as the array would have added them to what was there
        total = Apply(f32, Kind(arith.AddFOp.OPERATION_NAME, {}, op.location), (total, sums(range(block, block + 1), f32)))
    return Value(shape, total if type_ == f32 else Apply(type_, Kind(arith.TruncFOp.OPERATION_NAME, {}, op.location), (total,)))


def _is_zero(element: Element) -> bool:
    return isinstance(element, Number) and element.value.value == 0 and copysign(1, element.value.value) > 0


def _taken(value: Value, at: Sequence[int], op: ir.Operation) -> Value:
    """A value at one position of its leading dims."""
    element = value.element
    for d, n in enumerate(at):
        element = position(element, d, n, op)
    rest = value.shape[len(at) :]
    dims: dict[int, int | None] = dict.fromkeys(range(len(at)))
    return Value(rest, element.moved(dims | {len(at) + d: d for d in range(len(rest))}))


def _product(a: Value, b: Value, type_: ir.Type, op: ir.Operation) -> ArrayProduct | VectorProduct:
    """The product of two matrices, at the insertion point. Raises Unsupported."""
    f32 = ir.F32Type.get()
    if a.type == b.type and is_half(a.type) and type_ in (a.type, f32):
        return ArrayProduct(a, b, op)
    a, b = _wide(a), _wide(b)
    if (a.type, b.type, type_) != (f32, f32, f32):
        raise refused(op, f"multiplies {a.type} and {b.type} into {type_}, but the array takes {' or '.join(HALVES)} and adds in f32")
    if rounds_each(op):
        return VectorProduct(a, b, op)
    function = _function(op)
    stated = ir.FloatAttr(function.attributes[TOLERANCE]).value if TOLERANCE in function.attributes else 0.0
    if stated < ROUNDED_EACH:
        what = "multiplies f32 and f32, which the vector unit rounds product by product, while the array takes"
        raise refused(op, f"{what} {' or '.join(HALVES)}; '{TOLERANCE} = {ROUNDED_EACH} : f64' on the kernel allows for that")
    made = _function(ir.InsertionPoint.current.block.owner)
    made.attributes[TOLERANCE] = ir.FloatAttr.get(ir.F64Type.get(), ROUNDED_EACH)
    return VectorProduct(a, b, op)


def _function(op: ir.Operation | ir.OpView) -> ir.Operation:
    """The function that an op is in, or is."""
    inner = op.operation
    while not is_a(inner, func.FuncOp):
        inner = inner.parent.operation
    return inner


def _narrow(value: Value) -> Value:
    """Of floats that were widened, what they were: the sums of their products are the same."""
    element = value.element
    if isinstance(element, Apply) and element.op.name == arith.ExtFOp.OPERATION_NAME:
        return Value(value.shape, element.operands[0])
    return value


def _wide(value: Value) -> Value:
    """Floats of 16 bits as f32."""
    extended = Kind(arith.ExtFOp.OPERATION_NAME, {}, ir.Location.unknown())
    return Value(value.shape, Apply(ir.F32Type.get(), extended, (value.element,))) if is_half(value.type) else value


def rounds_each(op: ir.Operation) -> bool:
    """Whether an op is a sum, written out, of products of floats of 32 bits: it says itself that each of them is rounded."""
    if not is_a(op, linalg.GenericOp) or Generic(op).product_loops is None:
        return False
    body = Generic(op).body
    ops = list(body.operations)
    if [o.operation.name for o in ops[:-1]] != [arith.MulFOp.OPERATION_NAME, arith.AddFOp.OPERATION_NAME]:
        return False
    first, second, total = body.arguments
    product, added = (o.operation.results[0] for o in ops[:-1])
    return (
        all(isinstance(v.type, ir.F32Type) for v in (first, second, total))
        and set(ops[0].operation.operands) == {first, second}
        and set(ops[1].operation.operands) == {product, total}
        and ops[2].operation.operands[0] == added
    )


def walks_of(op: ir.Operation) -> list[list[Loop]] | None:
    """The loops along the dims of the factors and the result of a matmul; None for another op."""
    if is_a(op, linalg.GenericOp):
        if Generic(op).made_factor is not None and Generic(op).is_contraction:
            raise refused(op, "computes a factor of its products, which is not pinned; in the nearest supported form an op before it does")
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
