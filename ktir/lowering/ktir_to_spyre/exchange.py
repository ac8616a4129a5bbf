"""Exchanges between cores: who receives whose contribution."""

from __future__ import annotations

from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._ktdp import tile_sets
from ktir.mlir import ir, is_a


def contribution(consume: ir.Operation) -> ir.Value:
    """What the cores contribute that a consumption takes; raises Unsupported for more than one tensor."""
    produce = _produce(consume)
    values = list(list(produce.regions[0].blocks[0].operations)[-1].operands)
    if len(values) != 1 or len(list(produce.regions[0].blocks[0].operations)) != 1:
        raise refused(produce, "expects to contribute one tensor, which is computed before it")
    return values[0]


def senders(consume: ir.Operation, cores: int) -> list[int]:
    """Per core the one whose contribution it receives, its own if it receives none."""
    produce = _produce(consume)
    groups = tile_sets.groups(consume.operands[0].type.groups)
    if groups is None:
        raise refused(consume, "expects groups with constant bounds")
    dependency = (
        consume.attributes["producer_dependency_per_consumer"] if "producer_dependency_per_consumer" in consume.attributes else None
    )
    found = list(range(cores))
    for group in groups:
        producers = tile_sets.members(produce.attributes["producer_tiles_per_group"], (group,))
        consumers = tile_sets.members(consume.attributes["consumer_tiles_per_group"], (group,))
        if producers is None or consumers is None or max(producers + consumers, default=0) >= cores:
            raise refused(consume, f"expects producers and consumers of group {group} among its {cores} cores")
        for consumer in consumers:
            sources = producers if dependency is None else tile_sets.members(dependency, (consumer, group)) or []
            if len(sources) != 1 or sources[0] not in producers:
                raise refused(consume, f"expects one producer of group {group} for core {consumer}")
            found[consumer] = sources[0]
    return found


def _produce(consume: ir.Operation) -> ir.Operation:
    owner = consume.operands[0].owner
    if not is_a(owner, ktdp.InterTileProduceOp):
        raise refused(consume, "expects a future that is made by 'ktdp.inter_tile_produce' in the same block")
    return owner.operation if hasattr(owner, "operation") else owner
