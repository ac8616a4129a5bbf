"""What is computed of each finished stick of a contraction, so that its sums, and what comes between, never exist as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ktir.analysis.attributes.residents import resident_behind
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.mlir import arith, ir, is_a, linalg
from ktir.passes.tiling.plan.tile_views import direct, tile_of

Epilogues = Mapping[ir.Operation, Sequence[ir.Operation]]
"""Per contraction the ops on the elements of its result that are computed of each stick of it, each of what the one before gives."""


def epilogues_of(ops: Sequence[ir.Operation], contractions: Sequence[ir.Operation]) -> dict[ir.Operation, list[ir.Operation]]:
    """The ops behind each contraction of which each is all that reads the one before.

    Only those that read element for element what they are of: the vector unit takes sums from PT as they come, and cannot spread a column,
    a row or a scalar. A body that knows its position (a mask) is left out: inside the loop it would see a block, not the tensor. So is an
    op with an operand that does not exist yet at the contraction, or that is written between.
    """
    position = {op: i for i, op in enumerate(ops)}
    made = dict(position)  # the number of the op at which there is what an op gives
    stores = [op for op in ops if is_a(op, ktdp.StoreOp)]
    found = {op: list[ir.Operation]() for op in contractions}
    for contraction, chain in found.items():
        at = position[contraction]

        def is_there(v: ir.Value, at: int = at) -> bool:
            if not is_a(v.owner, ktdp.LoadOp):
                return made[v.owner] < at
            return not any(at < position[op] < position[v.owner] and _same(argument_of(op), argument_of(v.owner)) for op in stores)

        value = contraction.results[0]
        while (op := _only_reader(value)) is not None and all(v == value or is_there(v) for v in Generic(op).inputs):
            chain.append(op)
            made[op], value = at, op.results[0]
    return found


def _only_reader(value: ir.Value) -> ir.Operation | None:
    """The op on each element that alone reads a value, if that is all there is."""
    uses = list(value.uses)
    if len(uses) != 1 or not is_a(uses[0].owner, linalg.GenericOp):
        return None
    g, operand = Generic(uses[0].owner.operation), uses[0].operand_number
    same = g.is_pointwise and operand < len(g.inputs) and g.maps[operand] == g.maps[-1]
    return g.op if same and not any(is_a(o, linalg.IndexOp) for o in g.body_ops) else None


def left_by(contraction: ir.Operation, epilogues: Epilogues) -> ir.Value:
    """What is there behind a contraction: its result, or that of the last op of its epilogue."""
    return [contraction, *epilogues.get(contraction, ())][-1].results[0]


def joined_contractions(ops: Sequence[ir.Operation], epilogues: Epilogues) -> dict[ir.Operation, list[ir.Operation]]:
    """Per contraction the earlier ones of which nothing but its epilogue reads what they leave, element for element.

    A stick of each of them is all that has to be there at once: rows stay for all of them, where their whole results would take the room.
    Not across a store, which may write what the earlier one reads.
    """
    found = {op: list[ir.Operation]() for op in epilogues}
    last = {op: contraction for contraction, chain in epilogues.items() for op in chain}
    position = {op: i for i, op in enumerate(ops)}
    stores = [i for i, op in enumerate(ops) if is_a(op, ktdp.StoreOp)]
    for contraction in epilogues:
        uses = list(left_by(contraction, epilogues).uses)
        into = last.get(uses[0].owner.operation) if len(uses) == 1 else None
        if into is None or any(position[contraction] < i < position[into] for i in stores):
            continue
        g = Generic(uses[0].owner.operation)
        if g.maps[uses[0].operand_number] == g.maps[-1]:
            found[into].append(contraction)
    return {op: others for op, others in found.items() if others}


def stored_at_once(ops: Sequence[ir.Operation], epilogues: Epilogues) -> dict[ir.Value, list[ir.Operation]]:
    """What contractions leave that is only stored: its stores, which need not wait for other ops.

    Not where the kernel reads the same memory: what an op in place reads must be read before.
    """
    read = {argument_of(op) for op in ops if is_a(op, ktdp.LoadOp)}
    found = {}
    for contraction in epilogues:
        target = left_by(contraction, epilogues)
        stores = [u.owner.operation for u in target.uses]
        if stores and all(is_a(op, ktdp.StoreOp) and (at := argument_of(op)) is not None and at not in read for op in stores):
            found[target] = stores
    return found


def by_stick(stores: Sequence[ir.Operation]) -> bool:
    """Whether stores follow each finished stick: not through indices, which would be read again."""
    return all(direct(tile_of(op)) for op in stores)


def argument_of(access: ir.Operation) -> ir.Value | None:
    """The argument of the kernel that a load or store touches; None for what stays in the scratchpad."""
    return None if resident_behind(access) is not None else _base(access.operands[-1].owner.operands[0].owner.opview.offset)


def _same(argument: ir.Value | None, other: ir.Value | None) -> bool:
    """Whether two accesses may touch the same memory; all of the scratchpad is one."""
    return argument is other if argument is None or other is None else argument == other


def _base(offset: ir.Value) -> ir.Value | None:
    if isinstance(offset.owner, ir.Block):
        return offset
    if not is_a(offset.owner, arith.AddIOp):
        return None
    return next((found for v in offset.owner.operands if (found := _base(v)) is not None), None)
