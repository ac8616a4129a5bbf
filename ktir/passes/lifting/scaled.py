"""Online softmax: sums that each trip scales anew, because what they are relative to, the greatest value so far, has changed.

With m the greatest value so far and n that after this trip, a trip makes of a sum `x * exp(m - n) + f(exp(s - n))`, where f is linear.
So x * exp(m) is a plain sum over trips, and what the last trip leaves is the sum of f(exp(s - M)) with M the greatest value of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ktir.mlir import arith, ir, is_a, linalg, math
from ktir.passes.lifting.forms import Form
from ktir.passes.lifting.values import Carried, Decay, Decayed, Partial, Total, Value, Whole


@dataclass(frozen=True)
class Kind:
    """What a scalar of a body is in an online softmax; `plain`: nothing of it."""

    what: str
    """`plain`, `top` (n), `carried`, `log` (s - n), `linear` (in exp(s - n)), `fall` (m - n), `decay` (exp of that), `decayed`, `sum`,
    or `other`."""
    top: Total | None = None
    carried: Carried | None = None
    loops: Mapping[int, int] = field(default_factory=dict)
    """Of a decay: loops that run along dims of the greatest values."""
    walk: tuple[int | None, ...] = ()
    part: ir.Value | None = None
    """Of a sum: what this trip adds."""


_PLAIN, _OTHER = Kind("plain"), Kind("other")


def kind_of(form: Form, given: Sequence[Value | None], value: ir.Value) -> Kind:
    """What a scalar of a body is."""
    operand = form.operand_of(value)
    if operand is not None:
        return _of_operand(given[operand], form.walks[operand])
    owner = value.owner
    if isinstance(owner, ir.Block) or not form.has(owner.operation) or is_a(owner, arith.ConstantOp, linalg.IndexOp):
        return _PLAIN
    kinds = [kind_of(form, given, v) for v in owner.operands]
    if all(k.what == "plain" for k in kinds):
        return _PLAIN
    return _of_op(owner.operation, kinds)


def _of_operand(made: Value | None, walk: tuple[int | None, ...]) -> Kind:
    if isinstance(made, Total) and made.combiner == "max":
        loops = {loop: k for loop, k in zip(walk, made.whole.dims, strict=True) if loop is not None and k is not None}
        return Kind("top", made, loops=loops, walk=walk)
    if isinstance(made, Carried):
        return Kind("carried", carried=made, walk=walk)
    if isinstance(made, Decay | Decayed):
        by = made if isinstance(made, Decay) else made.by
        loops = {loop: k for d, k in by.dims.items() if (loop := walk[d]) is not None}
        what = "decayed" if isinstance(made, Decayed) else "fall" if made.log else "decay"
        return Kind(what, by.top, made.carried if isinstance(made, Decayed) else None, loops, walk)
    whole = made.whole if isinstance(made, Partial) else made
    if isinstance(whole, Whole) and whole.relative is not None:
        return Kind("log" if whole.relative.log else "linear", whole.relative.top)
    return _OTHER if isinstance(made, Partial | Total) else _PLAIN


def _of_op(op: ir.Operation, kinds: Sequence[Kind]) -> Kind:
    words, (first, *_), last = [k.what for k in kinds], kinds, kinds[-1]
    found = _OTHER
    if is_a(op, arith.SubFOp):
        if words == ["plain", "top"]:
            found = Kind("log", last.top)
        elif words == ["carried", "top"] and last.top is not None and last.top.carried == first.carried and first.walk == last.walk:
            found = Kind("fall", last.top, loops=last.loops)
    elif is_a(op, math.ExpOp) and words[0] in ("log", "fall"):
        found = replace(first, what="linear" if words[0] == "log" else "decay")
    elif is_a(op, arith.ExtFOp, arith.TruncFOp, arith.NegFOp) and words == ["linear"]:
        found = first
    elif is_a(op, arith.MulFOp) and sorted(words) == ["linear", "plain"]:
        found = first if words[0] == "linear" else last
    elif is_a(op, arith.DivFOp) and words == ["linear", "plain"]:
        found = first
    elif is_a(op, arith.MulFOp) and sorted(words) == ["carried", "decay"]:
        carried, decay = (first, last) if words[0] == "carried" else (last, first)
        found = Kind("decayed", decay.top, carried.carried, decay.loops, carried.walk)
    elif is_a(op, arith.AddFOp) and sorted(words) == ["decayed", "linear"] and first.top == last.top:
        decayed, part = (0, 1) if words[0] == "decayed" else (1, 0)
        found = replace(kinds[decayed], what="sum", part=op.operands[part])
    return found
