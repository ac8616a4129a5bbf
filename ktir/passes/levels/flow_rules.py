"""Rules of the allocated level for what goes between global memory, scratchpad and compute ops. Each raises `Broken`, or returns."""

from __future__ import annotations

from ktir.analysis.attributes.broken import Broken, note_at, note_source
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic
from ktir.mlir import ir, is_a, linalg, scf


def _space_of(tile: ir.Value) -> str:
    """`global` or `ct_local`: where a tile of a view lies."""
    return tile.owner.operands[0].owner.opview.memory_space


def _is_load(value: ir.Value, space: str) -> bool:
    owner = value.owner
    return is_a(owner, ktdp.LoadOp) and _space_of(owner.operands[0]) == space


def _is_sum(owner: ir.Operation | ir.Block) -> bool:
    """Whether PT holds what an op makes: the sums of a loop that declares them, or of a block of a contraction."""
    if is_a(owner, scf.ForOp):
        return "ktir.acc" in owner.attributes
    return is_a(owner, linalg.GenericOp) and Generic(owner.operation).is_contraction


def load_moves(load: ir.Operation) -> None:
    """What comes from global memory goes to the scratchpad; what comes from there to a compute op or to global memory."""
    space = _space_of(load.operands[0])
    for use in load.results[0].uses:
        user = use.owner.operation
        stores = is_a(user, ktdp.StoreOp) and _space_of(user.operands[1]) == ("ct_local" if space == "global" else "global")
        if not stores and not (space == "ct_local" and is_a(user, linalg.GenericOp, ktdp.YieldPartialOp)):
            wanted = "stored to the scratchpad" if space == "global" else "read by a compute op, sent to a core or stored to global memory"
            raise Broken(f"expects what is loaded from {space} memory to be {wanted} only", note_at(user))


def store_moves(store: ir.Operation) -> None:
    """Global memory is written from the scratchpad; the scratchpad from global memory or by a compute op."""
    value = store.operands[0]
    if _space_of(store.operands[1]) == "global":
        if not _is_load(value, "ct_local"):
            raise Broken("expects a store to global memory of what was loaded from the scratchpad", note_source(value))
    elif not is_a(value.owner, linalg.GenericOp, linalg.FillOp, ktdp.InterTileConsumeOp) and not _is_load(value, "global"):
        what = "a compute op's result, a fill, a load from global memory or what a core has sent"
        raise Broken(f"expects a store to the scratchpad of {what}", note_source(value))


def sends_from_scratchpad(produce: ir.Operation) -> None:
    """What a core sends to another one lies in its scratchpad."""
    for value in list(produce.regions[0].blocks[0].operations)[-1].operands:
        if not _is_load(value, "ct_local"):
            raise Broken("expects to send what was loaded from the scratchpad", note_source(value))


def gives_nothing(branch: ir.Operation) -> None:
    """A branch stores what it makes."""
    if len(branch.results):
        raise Broken("expects no results: what a branch makes is stored in it")


def received_once(consume: ir.Operation) -> None:
    """What a core receives goes to one place of its scratchpad; one core sends it."""
    uses = [u.owner.operation for u in consume.results[0].uses]
    if len(consume.results) != 1 or len(uses) != 1 or not is_a(uses[0], ktdp.StoreOp) or _space_of(uses[0].operands[1]) != "ct_local":
        raise Broken("expects one tensor, which is stored to one place of the scratchpad", *map(note_at, uses))


def computes_on_scratchpad(op: ir.Operation) -> None:
    """A compute op reads the scratchpad or an accumulator; its result goes to the scratchpad or stays in the accumulator."""
    g = Generic(op)
    for i, value in enumerate(g.inputs):
        if not _is_sum(value.owner) and not _is_load(value, "ct_local"):
            raise Broken(f"expects operand #{i} to be loaded from the scratchpad or to be an accumulator", note_source(value))
    for use in op.results[0].uses:
        adds_on = g.is_contraction and is_a(use.owner, scf.ForOp, linalg.GenericOp)
        if not is_a(use.owner, ktdp.StoreOp, scf.YieldOp) and not adds_on:
            raise Broken("expects its result to be stored to the scratchpad or carried as an accumulator", note_at(use.owner.operation))
