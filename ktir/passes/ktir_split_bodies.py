"""Laid-out KTIR: no op reads more than three tensors.

The vector unit has three input FIFOs per corelet (the public sample device; `ktir.isa.units`), so a body over more operands becomes two ops
with an f32 or f16 tensor between them, of the type that the body wrote. Nothing is rounded that was not rounded before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic, affine_map, clone_ops, generic
from ktir.layout import Layout
from ktir.mlir import ir, tensor
from ktir.passes._levels import require_level
from ktir.pipeline import Pass


@dataclass(frozen=True)
class SplitBodiesPass(Pass):
    """Split each body with more than `inputs` tensor operands at the scalar that leaves the fewest.

    Expects and guarantees: the laid-out level; values do not change.
    """

    name: ClassVar[str] = "ktir-split-bodies"
    description: ClassVar[str] = "laid-out: at most three tensor operands per op"
    inputs: int = 3

    def run(self, module: ir.Module) -> None:
        """Rewrite every body of the module until none is too wide."""
        require_level(module, self.name, "laid-out", kernels=False)
        for function in module.body.operations:
            work = [o.operation for o in function.regions[0].blocks[0].operations if o.operation.name == "linalg.generic"]
            while work:
                op = work.pop()
                g = Generic(op)
                if len(g.inputs) > self.inputs and not g.is_contraction:
                    work.extend(_split(g, self.inputs))


def _cone(g: Generic) -> dict[ir.Value, frozenset[int]]:
    """Per scalar of the body the operands that it depends on."""
    uses: dict[ir.Value, frozenset[int]] = {a: frozenset([i]) for i, a in enumerate(g.body.arguments)}
    for op in g.body_ops:
        own = frozenset().union(*(uses.get(v, frozenset()) for v in op.operands))
        for result in op.results:
            uses[result] = own
    return uses


def _ops_behind(value: ir.Value, g: Generic, stop: ir.Value | None = None) -> list[ir.Operation]:
    """Body ops that compute `value`, in body order, without those behind `stop`."""
    needed, pending = set(), [value]
    while pending:
        v = pending.pop()
        if (stop is not None and v == stop) or isinstance(v.owner, ir.Block) or v.owner in needed or v.owner not in g.body_ops:
            continue
        needed.add(v.owner)
        pending.extend(v.owner.operands)
    return [o for o in g.body_ops if o in needed]


def _split(g: Generic, limit: int) -> list[ir.Operation]:
    """Replace one op by two; returns both for another look."""
    inputs = len(g.inputs)
    uses = _cone(g)
    best = None
    for op in g.body_ops:
        value = op.results[0]
        own = uses[value]
        floats = isinstance(value.type, ir.F16Type) or isinstance(value.type, ir.F32Type)
        if not floats or not 2 <= len(own) <= limit or max(own) >= inputs or value == g.yielded:
            continue
        if any(o.name == "linalg.index" for o in _ops_behind(value, g)):
            continue
        rest = _ops_behind(g.yielded, g, stop=value)
        left = {i for o in rest for v in o.operands for i, a in enumerate(g.body.arguments) if v == a and i < inputs}
        score = (len(left), -len(own))
        if best is None or score < best[0]:
            best = (score, value, sorted(own), rest, sorted(left))
    if best is None:
        raise Unsupported(
            f"'linalg.generic' op reads {inputs} tensors at once, but the vector unit has {limit} inputs and the body cannot be split; "
            "the nearest supported form combines at most three tensors per expression",
            location_text(g.op.location),
        )
    _, value, own, rest, left = best
    with ir.InsertionPoint(g.op), g.op.location:
        first = _first_part(g, value, own)
        p = g.loop_of(len(g.inputs), 1)
        column = ir.RankedTensorType(first.type).shape[0] == 1 and all(2 not in _dims(g, i) for i in own)
        loops = len(g.iterators)
        order = _loop_order(g)
        new_map = affine_map(loops, [None, p, None] if column else [order[0], p, order[2]])
        second = _second_part(g, value, rest, left, first, new_map)
    g.op.results[0].replace_all_uses_with(second)
    g.op.erase()
    return [first.owner, second.owner]


def _loop_order(g: Generic) -> tuple[int, int, int]:
    """Loops (sticks, rows, lanes) of the op: a reduction runs rows first."""
    return (0, 1, 2) if g.is_pointwise else (1, 0, 2)


def _dims(g: Generic, operand: int) -> set[int | None]:
    """Which of (sticks, rows, lanes) = (0, 1, 2) an operand varies over."""
    order = _loop_order(g)
    return {None if (loop := g.loop_of(operand, d)) is None else order.index(loop) for d in range(3)}


def _first_part(g: Generic, value: ir.Value, own: list[int]) -> ir.Value:
    order = _loop_order(g)
    maps = []
    for i in own:
        loops = [g.loop_of(i, d) for d in range(3)]
        maps.append(affine_map(3, [None if loop is None else order.index(loop) for loop in loops]))
    column = all(2 not in _dims(g, i) for i in own)
    layouts = [kt.LayoutAttr(ir.RankedTensorType(v.type).encoding) for v in [*g.inputs, g.op.results[0]]]
    rows = kt.LayoutAttr(ir.RankedTensorType(g.op.results[0].type).encoding).size[0]
    columns = 1 if column else max(a.size[1] for a in layouts)
    layout = Layout.rows(rows, columns, str(value.type))
    encoding = kt.LayoutAttr.build(list(layout.size), list(layout.device_size), list(layout.stride_map), value.type)
    init = tensor.EmptyOp(list(layout.device_size), value.type, encoding=encoding).result

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapping = {g.body.arguments[i]: a for i, a in zip(own, arguments, strict=False)}
        clone_ops(_ops_behind(value, g), mapping)
        return mapping[value]

    identity = affine_map(3, [0, 1, 2])
    return generic([g.inputs[i] for i in own], init, [*maps, identity], ["parallel"] * 3, body, loc=value.owner.location)


def _second_part(
    g: Generic, value: ir.Value, rest: list[ir.Operation], left: list[int], first: ir.Value, new_map: ir.AffineMap
) -> ir.Value:
    def body(arguments: list[ir.Value]) -> ir.Value:
        kept = [g.body.arguments[i] for i in left]
        mapping = dict(zip([*kept, value, g.body.arguments[len(g.inputs)]], arguments, strict=True))
        clone_ops(rest, mapping)
        return mapping[g.yielded]

    maps = [*(g.maps[i] for i in left), new_map, g.maps[-1]]
    return generic([*(g.inputs[i] for i in left), first], g.init, maps, g.iterators, body, loc=g.op.location)
