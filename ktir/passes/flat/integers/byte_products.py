"""Matmuls of numbers of one byte: the array multiplies two of them per lane, along K.

Each operand is a conversion of what an argument holds, whole blocks of 128 along K; or the first one is something that the function
computes and rounds to bytes, as activations that are quantised in front of a product: of this pairs are made (`ktir.pair_bytes`). Both are
of one type, and K is whole blocks. The products are those of the converted numbers; sums of floats are exact over 128 of them where they
were over 64, those of integers are i32. Where only one operand is of that kind, integers are multiplied as floats that hold each of them,
in parts of K that float32 adds up exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ktir.analysis.flat import shape_of
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic, element_of, elementwise, filled, generic, sum_of_products
from ktir.mlir import arith, func, integer_attribute, ir, is_a, linalg, operations, tensor
from ktir.passes.flat.integers.integer_products import as_floats, products_in_parts, view_of_load, widened_bytes
from ktir.passes.flat.integers.made_of_bytes import WIDENINGS, conversion_of
from ktir.passes.flat.memory.windows import Window, view_of, window_of_view
from ktir.target import LANES, is_byte, is_byte_float

_BLOCK = 2 * LANES
"""Bytes of which pairs are made."""


@dataclass(frozen=True)
class _Pairs:
    """An operand as pairs: their type, what makes them at the insertion point, and the loops that walk them."""

    element: ir.Type
    make: Callable[[], ir.Value]
    walk: ir.AffineMap


def products_of_bytes(function: func.FuncOp) -> None:
    """Let matmuls of a function read both operands as pairs of bytes, in place."""
    for op in [op for op in operations(function) if is_a(op, linalg.GenericOp)]:
        g = Generic(op)
        loops = g.product_loops
        if loops is None or len(loops.reduced) != 1 or not loops.columns or not (g.is_contraction or g.is_integer_product):
            continue
        whole = g.is_integer_product
        first, second = _in_memory(g, 0, loops.reduced[0]) or _computed(g, loops.reduced[0]), _in_memory(g, 1, loops.reduced[0])
        if first is not None and second is not None and first.element == second.element and whole == (str(first.element) == "i8"):
            _replace(g, [first, second])
        elif whole and all(widened_bytes(value) is not None for value in g.inputs):
            products_in_parts(g, loops.reduced[0])
            _drop(g.op)


def _of_bytes(value: ir.Value) -> Generic | None:
    """The conversion of bytes that a value is; None for another one."""
    conversion = None if isinstance(value.owner, ir.Block) else conversion_of(value.owner)
    return conversion if conversion is not None and is_byte(element_of(conversion.inputs[0])) else None


def _in_memory(g: Generic, number: int, reduced: int) -> _Pairs | None:
    """An operand whose bytes lie in memory; None for another one, and where blocks of them do not lie one behind the other along K."""
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
    whole = not any(n % _BLOCK for n in (window.sizes[along], window.offset, *others))
    if window.strides[along] != 1 or not whole or any(s < 0 for s in others):
        return None
    element = element_of(conversion.inputs[0])
    sizes = tuple(n // 2 if d == along else n for d, n in enumerate(window.sizes))
    strides = tuple(1 if d == along else s // 2 for d, s in enumerate(window.strides))

    def load() -> ir.Value:
        two = _two(element)
        return ktdp.load(
            ktdp.construct_access_tile(view_of(base, Window(window.offset // 2, sizes, strides), two), [0] * len(sizes), sizes), two
        )

    return _Pairs(element, load, ir.AffineMap.get(len(g.iterators), 0, walk))


def _computed(g: Generic, reduced: int) -> _Pairs | None:
    """A first operand that is computed, and rounded to bytes; None for another one, and where K is no whole blocks."""
    value, loops = g.inputs[0], g.walk(0)
    made = widened_bytes(value) if g.is_integer_product else _rounded(value)
    if made is None or loops.count(reduced) != 1 or None in loops or shape_of(value)[loops.index(reduced)] % _BLOCK:
        return None
    element = _narrow(made)
    assert element is not None

    def pair() -> ir.Value:
        floats = as_floats(made) if g.is_integer_product else value
        along = loops.index(reduced)
        sizes = [n // 2 if d == along else n for d, n in enumerate(shape_of(value))]
        attributes = {"dimension": integer_attribute(along)}
        result = ir.RankedTensorType.get(sizes, _two(element))
        return ir.Operation.create(kt.PairBytesOp.OPERATION_NAME, [result], [floats], attributes).results[0]

    return _Pairs(element, pair, g.maps[0])


def _rounded(value: ir.Value) -> Generic | None:
    """The pointwise op that makes a tensor of floats of which each is one of one byte; None for another value."""
    if isinstance(value.owner, ir.Block) or not is_a(value.owner, linalg.GenericOp) or len(value.owner.results) != 1:
        return None
    made = Generic(value.owner)
    return made if made.is_pointwise and is_byte_float(_narrow(made)) else None


def _narrow(made: Generic) -> ir.Type | None:
    """The type of one byte that the result of an op has been; None where it has not."""
    value = made.yielded
    while not isinstance(value.owner, ir.Block) and value.owner.name in WIDENINGS:
        value = value.owner.operands[0]
        if is_byte(value.type):
            return value.type
    return None


def _two(element: ir.Type) -> ir.Type:
    return ir.VectorType.get([2], element)


def _replace(g: Generic, found: list[_Pairs]) -> None:
    conversions = [v.owner.operation for v in g.inputs]
    with ir.InsertionPoint(g.op), g.op.location:
        operands = [pairs.make() for pairs in found]
        sums = ir.RankedTensorType(g.init.type)
        apart = g.is_integer_product and g.begins_elsewhere
        begun = filled(list(sums.shape), sums.element_type, 0) if apart else g.init
        value = generic(operands, begun, [*(pairs.walk for pairs in found), g.maps[2]], g.iterators, sum_of_products, loc=g.op.location)
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
