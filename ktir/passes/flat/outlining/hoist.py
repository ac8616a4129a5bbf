"""What bodies compute of inputs alone that other ops read, too: computed once in front of all of them, as the cosines of positions, which
Inductor writes into each body that rotates by them."""

from __future__ import annotations

from collections.abc import Collection

from ktir.dialects.structured import Generic, affine_map, clone_ops, elementwise, generic, loop_extents
from ktir.mlir import ir, is_a, linalg, tensor

_FLOATS = (ir.F16Type, ir.BF16Type, ir.F32Type)


def hoist(op: ir.Operation, shared: Collection[int], before: ir.Operation) -> None:
    """Compute scalars that take an elementary function, and depend on the operands `shared` of a `linalg.generic` and on fewer loops than
    it has, in ops of their own `before` another one. Values do not change. The op may be replaced."""
    g = Generic(op)
    value = _best(g, frozenset(shared))
    while value is not None:
        g = Generic(_without(g, value, before))
        value = _best(g, frozenset(shared))


def _behind(g: Generic, value: ir.Value, given: Collection[ir.Value] = ()) -> list[ir.Operation]:
    """The ops of the body that compute a scalar, in its order; not those that compute one that is given."""
    wanted, found = {value}, list[ir.Operation]()
    for op in reversed(g.body_ops):
        if op.results[0] in wanted and op.results[0] not in given:
            wanted.update(op.operands)
            found.append(op)
    return found[::-1]


def _arguments(g: Generic, value: ir.Value) -> list[int]:
    read = {operand for op in _behind(g, value) for operand in op.operands}
    return [i for i, argument in enumerate(g.body.arguments) if argument in read]


def _loops(g: Generic, value: ir.Value) -> list[int]:
    """The loops that a scalar depends on."""
    walked = {loop for i in _arguments(g, value) for loop in g.walk(i) if loop is not None}
    return sorted(walked | {ir.IntegerAttr(op.attributes["dim"]).value for op in _behind(g, value) if is_a(op, linalg.IndexOp)})


def _best(g: Generic, shared: frozenset[int]) -> ir.Value | None:
    """The last scalar that can be computed in front, so that with it goes all that it is made of."""
    for op in reversed(g.body_ops):
        value = op.results[0]
        if not isinstance(value.type, _FLOATS) or value == g.yielded or not shared.issuperset(_arguments(g, value)):
            continue
        loops = _loops(g, value)
        parallel = all(g.iterators[loop] == "parallel" for loop in loops)
        if parallel and len(loops) < len(g.iterators) and any(o.name.startswith("math.") for o in _behind(g, value)):
            return value
    return None


def _without(g: Generic, value: ir.Value, before: ir.Operation) -> ir.Operation:
    """The op with a scalar as one more input."""
    loops, own, extents, ops = _loops(g, value), _arguments(g, value), loop_extents(g.op), _behind(g, value)
    number = {loop: d for d, loop in enumerate(loops)}

    def made(scalars: list[ir.Value]) -> ir.Value:
        mapping = {g.body.arguments[i]: scalar for i, scalar in zip(own, scalars, strict=False)}
        for op in ops:
            if is_a(op, linalg.IndexOp):
                mapping[op.results[0]] = linalg.IndexOp(number[ir.IntegerAttr(op.attributes["dim"]).value]).result
            else:
                clone_ops([op], mapping)
        return mapping[value]

    with ir.InsertionPoint(before), value.owner.location:
        walks = [[None if loop is None else number[loop] for loop in g.walk(i)] for i in own]
        init = tensor.EmptyOp([extents[loop] for loop in loops], value.type).result
        first = elementwise([g.inputs[i] for i in own], init, made, walks)

    def rest(scalars: list[ir.Value]) -> ir.Value:
        *inputs, given, out = scalars
        mapping = dict(zip(g.body.arguments, [*inputs, out], strict=True)) | {value: given}
        clone_ops(_behind(g, g.yielded, [value]), mapping)
        return mapping[g.yielded]

    with ir.InsertionPoint(g.op), g.op.location:
        maps = [*g.maps[:-1], affine_map(len(g.iterators), loops), g.maps[-1]]
        second = generic([*g.inputs, first], g.init, maps, g.iterators, rest, loc=g.op.location)
    g.op.results[0].replace_all_uses_with(second)
    g.op.erase()
    return second.owner
