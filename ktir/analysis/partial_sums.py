"""Reductions whose loop is dealt to several cores: `parts` neighbouring cores hold a partial sum each, the first one of them adds all up.

Core t has part t mod parts. The order is that of the cores, ((p0 + p1) + p2) + ..., at every level.
"""

from __future__ import annotations

from ktir.dialects import ktdp
from ktir.dialects.structured import constant, elementwise, fill
from ktir.mlir import arith, integer_attribute, ir, tensor

_ADDED_AT_ONCE = 2
"""Parts that one op adds: the vector unit has three inputs."""


def parts_of(reduce: ir.Operation) -> int:
    """How many parts an `inter_tile_reduce` that `reduced` has built adds up."""
    return ir.IntegerAttr(reduce.attributes["ktir.parts"]).value


def contribution(produce: ir.Operation) -> ir.Value:
    """What a core contributes."""
    (value,) = list(produce.regions[0].blocks[0].operations)[-1].operands
    return value


def produced_again(produce: ir.Operation, value: ir.Value) -> ir.Value:
    """The same future of another contribution."""
    groups = produce.results[0].type.groups
    return ktdp.inter_tile_produce(produce.attributes["producer_tiles_per_group"], groups, [value.type], lambda _: [value])


def live_at_once(reduce: ir.Operation) -> int:
    """Tensors that exist besides the partial sum and the total while parts are added up, as `summed` does it."""
    return min(parts_of(reduce) - 1, _ADDED_AT_ONCE) + (parts_of(reduce) - 1 > _ADDED_AT_ONCE)


def reduced(partial: ir.Value, cores: int, parts: int) -> ir.Value:
    """The sum on the first core of each group; on the others nothing."""
    type_ = ir.RankedTensorType(partial.type)
    everyone = ir.Attribute.parse(f"affine_set<(i)[g] : (i - g * {parts} >= 0, -i + g * {parts} + {parts - 1} >= 0)>")
    future = ktdp.inter_tile_produce(everyone, _groups(cores, parts), [type_], lambda _: [partial])
    zero = fill(constant(type_.element_type, 0.0), _empty(partial))
    (total,) = ktdp.inter_tile_reduce(future, _member(parts, 0), [zero], lambda a, b: [_sum([a, b])])
    total.owner.attributes["ktir.parts"] = integer_attribute(parts)
    return total


def summed(partial: ir.Value, cores: int, parts: int) -> ir.Value:
    """The same one part after the other: the first core receives each and adds it."""
    received = [_received(partial, cores, parts, part) for part in range(1, parts)]
    total = partial
    for first in range(0, len(received), _ADDED_AT_ONCE):
        total = _sum([total, *received[first : first + _ADDED_AT_ONCE]])
    return total


def _received(partial: ir.Value, cores: int, parts: int, part: int) -> ir.Value:
    future = ktdp.inter_tile_produce(_member(parts, part), _groups(cores, parts), [partial.type], lambda _: [partial])
    (received,) = ktdp.inter_tile_consume(future, _member(parts, 0))
    return received


def _groups(cores: int, parts: int) -> ir.Attribute:
    return ir.Attribute.parse(f"affine_set<(g) : (g >= 0, -g + {cores // parts - 1} >= 0)>")


def _member(parts: int, part: int) -> ir.Attribute:
    """The core of a group that has a part."""
    return ir.Attribute.parse(f"affine_set<(i)[g] : (i - g * {parts} - {part} == 0)>")


def _empty(like: ir.Value) -> ir.Value:
    type_ = ir.RankedTensorType(like.type)
    return tensor.EmptyOp(list(type_.shape), type_.element_type).result


def _sum(values: list[ir.Value]) -> ir.Value:
    def body(arguments: list[ir.Value]) -> ir.Value:
        total, *others = arguments[: len(values)]
        add = arith.AddIOp if isinstance(total.type, ir.IntegerType) else arith.AddFOp
        for other in others:
            total = add(total, other).result
        return total

    return elementwise(values, _empty(values[0]), body)
