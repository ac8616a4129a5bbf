"""Coordinates in scalar bodies become operands: `linalg.index k` is an i32 over loop k, loaded from memory whose element i holds i.

A reduction over a loop that no tensor with content walks reads that loop's coordinates: something has to count its trips.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ktir.analysis.flat import refuse
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, constant, identity, index_constant, loop_extents, maps_of
from ktir.mlir import arith, func, i32_type, ir, is_a, linalg, operations, tensor
from ktir.passes.flat.memory.new_arguments import NewArguments


def coordinates_as_operands(function: func.FuncOp, arguments: NewArguments) -> None:
    """Replace every `linalg.index`; ops with loops of one extent share a load from an argument of role `iota`."""
    numbers: dict[int, ir.Value] = {}

    def coordinates(extent: int, location: ir.Location) -> ir.Value:
        if extent not in numbers:
            base = arguments.add("iota", [extent], i32_type(), location)
            with ir.InsertionPoint.at_block_begin(function.regions[0].blocks[0]), location:
                view = ktdp.construct_memory_view(base, [extent], [1], i32_type())
                numbers[extent] = ktdp.load(ktdp.construct_access_tile(view, [0], [extent]), i32_type())
        return numbers[extent]

    for op in [op for op in operations(function) if is_a(op, linalg.GenericOp)]:
        extents = loop_extents(op)
        op = _counted(op)
        found = [o.operation for o in op.regions[0].blocks[0].operations if is_a(o, linalg.IndexOp)]
        if found:
            _with_numbers(op, found, extents, coordinates)


def _counted(op: ir.Operation) -> ir.Operation:
    """A generic without the operands that only say how often loops run; a reduction over such a loop uses its coordinate."""
    maps = maps_of(op)
    operands, block, cut = list(op.operands), op.regions[0].blocks[0], len(op.operands) - len(op.results)
    empty = [i for i in range(cut) if _is_empty(operands[i]) and not list(block.arguments[i].uses)]
    if not empty:
        return op
    kept = [i for i in range(len(operands)) if i not in empty]
    walked = {e.position for i in kept for e in maps[i].results if isinstance(e, ir.AffineDimExpr)}
    for i in reversed(empty):
        block.erase_argument(i)
    op = with_operands(op, [operands[i] for i in kept if i < cut], operands[cut:], [maps[i] for i in kept])
    for loop in sorted(set(range(maps[0].n_dims)) - walked):
        _use_coordinate(op, loop)
    return op


def _is_empty(value: ir.Value) -> bool:
    return is_a(value.owner, tensor.EmptyOp)


def _use_coordinate(op: ir.Operation, loop: int) -> None:
    """Make a reduction combine its value where the coordinate of `loop` is none below 0: everywhere."""
    g = Generic(op)
    if g.combiner is None:
        raise refuse(op, "reduces a loop that no tensor walks by something else than a sum, maximum or minimum, which is not supported")
    last, mapped = g.yielded.owner.operation, g.mapped
    with ir.InsertionPoint(last), op.location:
        coordinate, zero = linalg.IndexOp(loop).result, index_constant(0)
        none = constant(mapped.type, identity(g.combiner, mapped.type))
        value = arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.sge, coordinate, zero).result, mapped, none).result
    last.operands[list(last.operands).index(mapped)] = value


def _with_numbers(
    op: ir.Operation, found: list[ir.Operation], extents: list[int], coordinates: Callable[[int, ir.Location], ir.Value]
) -> None:
    maps = maps_of(op)
    operands = list(op.operands)
    cut = len(operands) - len(op.results)
    inputs, of_inputs = operands[:cut], maps[:cut]
    block = op.regions[0].blocks[0]
    scalars: dict[int, ir.Value] = {}
    for index in found:
        loop = ir.IntegerAttr(index.attributes["dim"]).value
        if loop not in scalars:
            inputs.append(coordinates(extents[loop], op.location))
            of_inputs.append(affine_map(len(extents), [loop]))
            scalars[loop] = _inserted_argument(block, len(inputs) - 1, op.location)
        with ir.InsertionPoint(index), index.location:
            coordinate = arith.IndexCastOp(ir.IndexType.get(), scalars[loop]).result
        index.results[0].replace_all_uses_with(coordinate)
        index.erase()
    with_operands(op, inputs, operands[cut:], [*of_inputs, *maps[cut:]])


def _inserted_argument(block: ir.Block, position: int, location: ir.Location) -> ir.Value:
    """A new block argument of type i32 at `position`; those behind it move on."""
    block.add_argument(i32_type(), location)
    arguments = list(block.arguments)
    for i in range(len(arguments) - 1, position, -1):
        arguments[i].set_type(arguments[i - 1].type)
        arguments[i - 1].replace_all_uses_with(arguments[i])
    arguments[position].set_type(i32_type())
    return arguments[position]


def with_operands(op: ir.Operation, inputs: Sequence[ir.Value], inits: Sequence[ir.Value], maps: Sequence[ir.AffineMap]) -> ir.Operation:
    """Replace a generic by one with other operands and maps, into which its body moves."""
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": op.attributes["iterator_types"],
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), len(inits)]),
    }
    with ir.InsertionPoint(op), op.location:
        types = [r.type for r in op.results]
        new = ir.Operation.create(op.name, results=types, operands=[*inputs, *inits], attributes=attributes, regions=1)
    op.regions[0].blocks[0].append_to(new.regions[0])
    for old, value in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(value)
    op.erase()
    return new
