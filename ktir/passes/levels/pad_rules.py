"""Rule of the laid-out level: what lies beyond a tensor's columns reaches no result."""

from __future__ import annotations

from ktir.analysis.attributes.broken import Broken, note_source
from ktir.analysis.calls import is_kernel
from ktir.analysis.pads import folded_pad
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import IDENTITY, Generic
from ktir.mlir import arith, ir, is_a, linalg, tensor
from ktir.target import LANES


class _Elsewhere(Exception):
    """The value comes out of memory that another kernel wrote."""


def pads_kept_out(op: ir.Operation) -> None:
    """What lies beyond a tensor's columns reaches no result: a reduction masks it unless it holds the identity; the first operand of a
    contraction has zeros there, since garbage times zero may be NaN."""
    g = Generic(op)
    if g.is_pointwise:
        return
    try:
        if g.is_contraction:
            for i, (which, v) in enumerate(zip(("first", "second"), g.inputs[:2], strict=True)):
                reduced = _lane_loop(g, i) is not None and g.iterators[_lane_loop(g, i) or 0] == "reduction"
                if reduced and _partial(v) and _pad_of(v) != 0.0:
                    raise Broken(f"expects the lanes of its {which} operand beyond its columns to be zero", note_source(v))
        elif g.combiner is not None:
            reduced = [i for i, v in enumerate(g.inputs) if _lane_loop(g, i) is not None and _partial(v)]
            if reduced and _reduced_pad(g) != IDENTITY[g.combiner]:
                raise Broken(f"expects lanes beyond the columns of its operands to be masked with the identity of '{g.combiner}'")
    except _Elsewhere:
        return


def _partial(value: ir.Value) -> bool:
    """Whether the last stick of a laid-out tensor has lanes beyond its columns."""
    size = list(kt.LayoutAttr(ir.RankedTensorType(value.type).encoding).size)
    return bool(size) and size[-1] % LANES != 0


def _reduced_pad(g: Generic) -> float | None:
    masked = _masked_with(g.mapped)
    return masked if masked is not None else folded_pad(g, _shown(g), g.mapped)


def _shown(g: Generic) -> list[float | None]:
    """What operands show in pad lanes; operands that do not walk the lanes show data."""
    return [_pad_of(v) if _lane_loop(g, i) is not None else None for i, v in enumerate(g.inputs)]


def _lane_loop(g: Generic, operand: int) -> int | None:
    """The loop that walks the lanes of an operand; None: it shows lane 0 everywhere."""
    return g.loop_of(operand, len(g.maps[operand].results) - 1)


def _pad_of(value: ir.Value) -> float | None:
    """What a laid-out tensor holds beyond its columns, as far as it follows from the ops that made it; None = anything."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    if is_a(owner, ktdp.LoadOp):
        view = owner.operands[0].owner.operands[0].owner
        zero = kt.LayoutAttr(view.attributes["ktir.layout"]).pad == "zero"
        if not zero and is_kernel(view.parent):
            raise _Elsewhere
        return 0.0 if zero else None
    if is_a(owner, tensor.ExpandShapeOp, tensor.PadOp):
        return _pad_of(owner.operands[0])
    if is_a(owner, linalg.FillOp) and not isinstance(owner.operands[0].owner, ir.Block):
        attribute = owner.operands[0].owner.attributes["value"]
        return ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None
    if not is_a(owner, linalg.GenericOp) or not (g := Generic(owner)).is_pointwise:
        return None
    masked = _masked_with(g.yielded)
    return masked if masked is not None else folded_pad(g, _shown(g))


def _masked_with(scalar: ir.Value) -> float | None:
    """The constant that a scalar is in lanes beyond a bound, if it is chosen by a comparison of an index."""
    select = scalar.owner
    if not is_a(select, arith.SelectOp) or not _compares_index(select.operands[0]):
        return None
    other = select.operands[2].owner
    if not is_a(other, arith.ConstantOp):
        return None
    value = other.attributes["value"]
    return ir.FloatAttr(value).value if isinstance(value, ir.FloatAttr) else ir.IntegerAttr(value).value


def _compares_index(condition: ir.Value) -> bool:
    compare = condition.owner
    return is_a(compare, arith.CmpIOp) and isinstance(compare.operands[0].type, ir.IndexType)
