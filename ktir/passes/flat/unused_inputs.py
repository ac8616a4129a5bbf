"""Inputs that a body does not use, since what it computed of them is known: element-wise ops lose them."""

from __future__ import annotations

from ktir.dialects.structured import Generic, clone_ops, fill, generic
from ktir.mlir import arith, func, ir, is_a, linalg


def drop_unused_inputs(function: func.FuncOp) -> None:
    """Rewrite such ops of a function in place; one that gives the same number everywhere becomes a fill."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        if is_a(op, linalg.GenericOp) and len(op.results) == 1 and Generic(op).is_pointwise:
            _erase_dead(Generic(op))
            g = Generic(op)
            used = [i for i in range(len(g.inputs)) if list(g.body.arguments[i].uses)]
            if len(used) < len(g.inputs):
                with ir.InsertionPoint(op), op.location:
                    op.results[0].replace_all_uses_with(_on(g, used))
                op.erase()


def _erase_dead(g: Generic) -> None:
    for op in reversed(g.body_ops):
        if not any(list(r.uses) for r in op.results):
            op.erase()


def _on(g: Generic, used: list[int]) -> ir.Value:
    """The op on some of its inputs."""
    owner = g.yielded.owner
    if not used and is_a(owner, arith.ConstantOp):
        return fill(owner.operation.clone().results[0], g.init)

    def body(arguments: list[ir.Value]) -> ir.Value:
        mapping = dict(zip([*(g.body.arguments[i] for i in used), g.body.arguments[-1]], arguments, strict=True))
        clone_ops(g.body_ops, mapping)
        return mapping.get(g.yielded, g.yielded)

    inputs, maps = [g.inputs[i] for i in used], [g.maps[i] for i in (*used, -1)]
    return generic(inputs, g.init, maps, g.iterators, body, loc=g.op.location)
