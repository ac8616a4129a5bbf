"""Exchanges between the tiles of a pinned kernel: one round per producer of a group, and the author's combiner after each."""

from __future__ import annotations

from collections.abc import Callable

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._ktdp import tile_sets
from ktir.mlir import func, ir, is_a
from ktir.passes.pinning.elements import Leaf, Value
from ktir.passes.pinning.tensors import Made, choose_stick, pointwise

Combine = Callable[[Value, Value], Value]


def folded(op: ir.Operation, contribution: Value, combine: Combine) -> Value:
    """What an `inter_tile_reduce` makes on its consumers: contributions combined in ascending order of the tiles."""
    produce = op.operands[0].owner.operation
    groups = tile_sets.groups(ktdp.TileFutureType(op.operands[0].type).groups)
    if groups is None or "producer_dependency_per_consumer" in op.attributes:
        raise refused(op, "expects groups with constant bounds and without a dependency of its own, others are not pinned yet")
    producers = [tile_sets.members(produce.attributes["producer_tiles_per_group"], (g,)) for g in groups]
    if any(not p or len(p) != len(producers[0] or ()) for p in producers):
        raise refused(produce, "expects as many producers in each group, others are not pinned yet")
    receivers = {tile for g in groups for tile in tile_sets.members(op.attributes["consumer_tiles_per_group"], (g,)) or ()}
    if is_a(op, ktdp.InterTileConsumeOp) and len(receivers) < KernelFunction(_function(op)).cores:
        raise refused(op, "leaves tiles that receive nothing, which is not pinned yet")
    stick = choose_stick(contribution, next((d for d in reversed(range(len(contribution.shape))) if contribution.shape[d] != 1), None))
    sent = pointwise(contribution, stick, op)
    total: Value | None = None
    for tiles in zip(*(p or () for p in producers), strict=True):
        sender = _affine(tiles, groups, produce)
        future = ktdp.inter_tile_produce(sender, ktdp.TileFutureType(op.operands[0].type).groups, [sent.type], lambda _: [sent])
        (received,) = ktdp.inter_tile_consume(future, op.attributes["consumer_tiles_per_group"])
        made = Made(received, contribution.shape, stick)
        piece = Value(contribution.shape, Leaf(contribution.type, made, tuple(range(len(contribution.shape)))))
        total = piece if total is None else combine(total, piece)
    assert total is not None
    return total


def _function(op: ir.Operation) -> ir.Operation:
    """The kernel that an op is in."""
    while not is_a(op, func.FuncOp):
        op = op.parent.operation
    return op


def _affine(tiles: tuple[int, ...], groups: list[int], op: ir.Operation) -> ir.Attribute:
    """The set of one tile per group."""
    step = (tiles[1] - tiles[0]) // (groups[1] - groups[0]) if len(groups) > 1 else 0
    first = tiles[0] - step * groups[0]
    if any(tile != first + step * g for tile, g in zip(tiles, groups, strict=True)):
        raise refused(op, "expects producers that are as far apart in each group, others are not pinned yet")
    return ir.Attribute.parse(f"affine_set<(i)[g] : (i - g * {step} - {first} == 0)>")


def contributed(op: ir.Operation) -> ir.Value:
    """The tensor that a tile contributes to an exchange. Raises Unsupported for several, and for what is computed among them."""
    owner = op.operands[0].owner
    if isinstance(owner, ir.Block) or not is_a(owner, ktdp.InterTileProduceOp):
        raise refused(op, "expects a future that is made by 'ktdp.inter_tile_produce'")
    (block,) = owner.operation.regions[0].blocks
    *ops, end = (o.operation for o in block.operations)
    if ops or len(end.operands) != 1 or len(op.results) != 1:
        raise refused(owner.operation, "expects to contribute one tensor, which is computed before it, others are not pinned yet")
    return end.operands[0]
