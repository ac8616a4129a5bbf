"""`spyreop.slice_reduction` on loaded rows: a row is slices of 8 elements, which are dims of their own, so that no lane is moved."""

from __future__ import annotations

from typing import Protocol

from ktir.diagnostics import refused
from ktir.dialects import spyreop
from ktir.mlir import arith, ir, math
from ktir.passes.pinning.values.counted import Integers
from ktir.passes.pinning.values.elements import Apply, Element, Kind, Leaf, Number, Value, chosen, compared, integer
from ktir.passes.pinning.values.parts import position
from ktir.passes.pinning.values.places import MOST_PIECES
from ktir.passes.pinning.values.tensors import Loaded, Shared, whole_dims

_KINDS: dict[str, type[ir.OpView]] = {
    "add": arith.AddFOp,
    "sub": arith.SubFOp,
    "mul": arith.MulFOp,
    "max": arith.MaximumFOp,
    "min": arith.MinimumFOp,
    "abs_max": arith.MaximumFOp,
}


class Writer(Protocol):
    """What writes a kernel."""

    integers: Integers

    def value(self, value: ir.Value, op: ir.Operation) -> Value:
        """What a tensor is; raises Unsupported, which names `op`."""
        ...


def slice_reduced(writer: Writer, op: ir.Operation) -> Value:
    """What a reduction of slices gives: slices and their elements are its last two dims. Raises Unsupported."""
    value = whole_dims(op.operands[0], writer.value(op.operands[0], op), op)
    kind, scope = op.attributes["reduction_kind"].value, op.attributes["reduction_scope"].value
    last = len(value.shape) - 1
    if not value.shape or value.shape[last] % spyreop.SLICE or not isinstance(value.type, ir.F16Type | ir.BF16Type | ir.F32Type):
        raise refused(op, f"expects floats whose last dim is a multiple of {spyreop.SLICE}")
    shape = (*value.shape[:last], value.shape[last] // spyreop.SLICE, spyreop.SLICE)
    folded = last if scope == "across_slice" else last + 1
    if shape[folded] > MOST_PIECES:
        raise refused(op, f"folds {shape[folded]} slices, more than {MOST_PIECES}; the nearest supported form has shorter rows")
    every = _split(value.element, last, op)
    total = _taken(every, folded, 0, kind, op)
    for k in range(1, shape[folded]):
        total = _applied(_KINDS[kind], total, _taken(every, folded, k, kind, op))
    first = compared(arith.CmpIPredicate.ult, writer.integers.positions(shape[folded], folded, op), integer(1))
    return Value(shape, chosen(first, total, every))


def _taken(every: Element, dim: int, at: int, kind: str, op: ir.Operation) -> Element:
    one = position(every, dim, at, op)
    return _applied(math.AbsFOp, one) if kind == "abs_max" else one


def _applied(kind: type[ir.OpView], *operands: Element) -> Element:
    return Apply(operands[0].type, Kind(kind.OPERATION_NAME, {}, ir.Location.unknown()), operands)


def _split(element: Element, dim: int, op: ir.Operation) -> Element:
    """The tree where the last dim has become two. Raises Unsupported where that is not loaded."""
    if isinstance(element, Apply):
        return Apply(element.type, element.op, tuple(_split(o, dim, op) for o in element.operands))
    if isinstance(element, Number) or (isinstance(element, Leaf) and dim not in element.walk):
        return element
    if isinstance(element, Leaf) and isinstance(element.source, Shared):
        return _split(element.source.value.element.moved(dict(enumerate(element.walk))), dim, op)
    if not isinstance(element, Leaf) or not isinstance(element.source, Loaded) or not element.source.place.splits:
        what = "moves elements between lanes of what is computed or clipped, for which there is no instruction"
        raise refused(op, f"{what}; the nearest supported form stores it and loads it again")
    source, own = element.source, element.walk.index(dim)
    with ir.InsertionPoint(source.anchor), source.anchor.location:
        place = source.place.split(own, spyreop.SLICE)
    return Leaf(element.type, Loaded(place, source.anchor, source.bounds), (*element.walk[:own], dim, dim + 1, *element.walk[own + 1 :]))
