"""No op reads more than three tensors.

The vector unit has three input FIFOs per corelet (the public sample device; `ktir.isa.units`), so a body over more operands becomes two ops
with a tensor between them, of the type that the body wrote; an i1 is an i32 there. Nothing is rounded that was not rounded before, and a
reduction stays one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ktir.analysis.attributes.levels import require_level
from ktir.analysis.attributes.plan_attributes import copy_kernel
from ktir.analysis.axes import row_loops
from ktir.analysis.calls import planned
from ktir.analysis.memory_order import arguments_of
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.structured import (
    SUM_OF_PRODUCTS,
    Generic,
    affine_map,
    clone_ops,
    constant,
    element_of,
    elementwise,
    generic,
    loop_extents,
)
from ktir.layout import Layout
from ktir.mlir import arith, i32_type, ir, is_a, linalg, tensor
from ktir.pipeline import AtLeast, Pass
from ktir.target import type_letter


@dataclass(frozen=True)
class SplitBodiesPass(Pass):
    """Split each body with more than `inputs` tensor operands at the scalar that leaves the fewest.

    Expects and guarantees: the flat or the laid-out level; values do not change.
    """

    name: ClassVar[str] = "ktir-split-bodies"
    description: ClassVar[str] = "flat or laid-out: at most three tensor operands per op"
    inputs: Annotated[int, AtLeast(2)] = 3

    def run(self, module: ir.Module) -> None:
        """Rewrite every body of the module until none is too wide."""
        laid_out = Level.of(module) is Level.LAID_OUT
        require_level(module, self.name, Level.LAID_OUT if laid_out else Level.FLAT, kernels=False)
        for function in planned(module):
            work = [o.operation for o in function.regions[0].blocks[0].operations if is_a(o, linalg.GenericOp)]
            while work:
                op = work.pop()
                g = Generic(op)
                if len(g.inputs) > self.inputs and not g.is_contraction:
                    work.extend(_split(g, self.inputs))


class _Body:
    """The scalar ops of a body by number, with the operands of the op that each one depends on: a wide body is asked about often."""

    def __init__(self, g: Generic) -> None:
        self.ops = g.body_ops
        self._place = {result: k for k, op in enumerate(self.ops) for result in op.results}
        arguments = {a: frozenset([i]) for i, a in enumerate(g.body.arguments)}
        self._read = [[self._place[v] for v in op.operands if v in self._place] for op in self.ops]
        self.arguments = [frozenset().union(*(arguments.get(v, frozenset()) for v in op.operands)) for op in self.ops]
        self.uses: list[frozenset[int]] = []
        for own, read in zip(self.arguments, self._read, strict=True):
            self.uses.append(own.union(*(self.uses[k] for k in read)))

    def behind(self, value: ir.Value, stop: int | None = None) -> list[int]:
        """The ops that compute `value`, in body order, without op `stop` and those behind it."""
        last = self._place.get(value, -1)
        needed = {last} - {-1, stop}
        for k in range(last, -1, -1):
            if k in needed:
                needed.update(r for r in self._read[k] if r != stop)
        return sorted(needed)


def _split(g: Generic, limit: int) -> list[ir.Operation]:
    """Replace one op by two; returns both for another look."""
    inputs = len(g.inputs)
    body, yielded = _Body(g), g.yielded
    of_index = [is_a(op, linalg.IndexOp) for op in body.ops]
    best = None
    for k, op in enumerate(body.ops):
        value, own = op.results[0], body.uses[k]
        if not type_letter(value.type) or not 2 <= len(own) <= limit or max(own) >= inputs or value == yielded:
            continue
        if any(of_index[i] for i in body.behind(value)):
            continue
        rest = body.behind(yielded, stop=k)
        if [body.ops[i].name for i in rest] == SUM_OF_PRODUCTS:
            continue  # would be a contraction, which adds otherwise: the extension to f32 is the next choice
        left = {a for i in rest for a in body.arguments[i] if a < inputs}
        missing = len(set(_parallel_loops(g)) - _loops_of(g, own))  # what lacks rows cannot be in one kernel with what has them
        spread = not any(_loops_of(g, [i]) >= _loops_of(g, own) for i in own)  # a table of rows and columns, as a mask of positions
        score = (spread, len(left), missing, -len(own))
        if best is None or score < best[0]:
            best = (score, value, sorted(own), [body.ops[i] for i in rest], sorted(left))
    if best is None:
        raise Unsupported(
            f"'linalg.generic' op reads {inputs} tensors at once, but the vector unit has {limit} inputs and the body cannot be split; "
            "the nearest supported form combines at most three tensors per expression",
            location_text(g.op.location),
        )
    _, value, own, rest, left = best
    with ir.InsertionPoint(g.op), g.op.location:
        part = _laid_out_part if ir.RankedTensorType(g.op.results[0].type).encoding is not None else _logical_part
        first, loops = part(g, value, own)
        second = _second_part(g, value, rest, left, first, affine_map(len(g.iterators), loops))
    copy_kernel(g.op, first.owner, second.owner)
    _move_ahead(first.owner.operation)
    g.op.results[0].replace_all_uses_with(second)
    g.op.erase()
    return [first.owner, second.owner]


def _move_ahead(part: ir.Operation) -> None:
    """Let a part of inputs alone stand in front of the first contraction behind the last op that writes these: between a contraction and
    what else reads it there would be another kernel."""
    loads = [v.owner.operation for v in Generic(part).inputs if not isinstance(v.owner, ir.Block)]
    if not all(is_a(op, ktdp.LoadOp) for op in loads):
        return
    read = frozenset().union(*map(arguments_of, loads))
    ahead = None
    for op in (o.operation for o in part.block):
        if op == part:
            break
        if is_a(op, ktdp.StoreOp) and arguments_of(op) & read:
            ahead = None
        elif ahead is None and is_a(op, linalg.GenericOp) and Generic(op).contraction is not None:
            ahead = op
    if ahead is None:
        return

    def move(op: ir.Operation) -> None:
        if not op.is_before_in_block(ahead):
            for v in op.operands:
                if not isinstance(v.owner, ir.Block):
                    move(v.owner.operation)
            op.move_before(ahead)

    move(part)


def _parallel_loops(g: Generic) -> list[int]:
    return [i for i, kind in enumerate(g.iterators) if kind == "parallel"]


def _loops_of(g: Generic, operands: Iterable[int]) -> set[int]:
    """The loops that walk these operands."""
    return {loop for i in operands for loop in g.walk(i) if loop is not None}


def _logical_part(g: Generic, value: ir.Value, own: list[int]) -> tuple[ir.Value, list[int | None]]:
    """The tensor of the scalars `value`, which depend on the operands `own`, and the loop of the op along each of its dims."""
    loops, extents = sorted(_loops_of(g, own)), loop_extents(g.op)
    init = tensor.EmptyOp([extents[loop] for loop in loops], _stored(value)).result
    return _scalars(g, value, own, init, loops), list(loops)


def _stored(value: ir.Value) -> ir.Type:
    return i32_type() if _is_flag(value) else value.type


def _scalars(g: Generic, value: ir.Value, own: list[int], init: ir.Value, loops: Sequence[int | None]) -> ir.Value:
    """The op that computes scalar `value` of the body from the operands `own`; `loops`: the loop of the op along each dim of `init`."""
    number = {loop: d for d, loop in enumerate(loops) if loop is not None}
    walks = [[None if loop is None else number[loop] for loop in g.walk(i)] for i in own]
    whole = _Body(g)

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapping = {g.body.arguments[i]: a for i, a in zip(own, arguments, strict=False)}
        clone_ops([whole.ops[k] for k in whole.behind(value)], mapping)
        return arith.ExtUIOp(element_of(init), mapping[value]).result if _is_flag(value) else mapping[value]

    with value.owner.location:
        return elementwise([g.inputs[i] for i in own], init, body, walks)


def _shape_loops(g: Generic, operands: list[int]) -> list[int | None]:
    """The loop along each dim of a tensor that varies as these operands do: [sticks, rows.., lanes]; None = the dim has extent 1."""
    used = _loops_of(g, operands)
    rows = row_loops(g)
    stick, lane = (loop for loop in range(len(g.iterators)) if loop not in rows)
    kept: list[int | None] = [loop for loop in rows if loop in used]
    column = lane not in used
    return [None if column else stick, *(kept or [None]), None if column else lane]


def _laid_out_part(g: Generic, value: ir.Value, own: list[int]) -> tuple[ir.Value, list[int | None]]:
    """The same on the laid-out level."""
    loops, extents, stored = _shape_loops(g, own), loop_extents(g.op), _stored(value)
    in_lanes = [ir.RankedTensorType(g.inputs[i].type) for i in own if g.walk(i)[-1] is not None]
    columns = max((list(kt.LayoutAttr(type_.encoding).size)[-1] for type_ in in_lanes), default=1)
    layout = Layout.rows([1 if loop is None else extents[loop] for loop in loops[1:-1]], columns, str(stored))
    encoding = kt.LayoutAttr.build(list(layout.size), list(layout.device_size), list(layout.stride_map), stored)
    init = tensor.EmptyOp(list(layout.device_size), stored, encoding=encoding).result
    return _scalars(g, value, own, init, loops), loops


def _is_flag(value: ir.Value) -> bool:
    return str(value.type) == "i1"


def _second_part(
    g: Generic, value: ir.Value, rest: list[ir.Operation], left: list[int], first: ir.Value, new_map: ir.AffineMap
) -> ir.Value:
    def body(arguments: list[ir.Value]) -> ir.Value:
        kept = [g.body.arguments[i] for i in left]
        mapping = dict(zip([*kept, value, g.body.arguments[len(g.inputs)]], arguments, strict=True))
        if _is_flag(value):
            number = mapping[value]
            zero = constant(number.type, 0)
            mapping[value] = arith.CmpIOp(arith.CmpIPredicate.ne, number, zero).result
        clone_ops(rest, mapping)
        return mapping[g.yielded]

    maps = [*(g.maps[i] for i in left), new_map, g.maps[-1]]
    return generic([*(g.inputs[i] for i in left), first], g.init, maps, g.iterators, body, loc=g.op.location)
