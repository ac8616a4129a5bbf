"""Tensors of sticks, rows and lanes: their shapes, copies and parts of them, and what is put together of several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from ktir.dialects.structured import affine_map, elementwise, filled, generic
from ktir.mlir import ir, is_a, linalg, tensor
from ktir.passes.pinning.values.places import even, sticks
from ktir.target import LANES


def rows_of(shape: Sequence[int], stick: int | None) -> tuple[int, ...]:
    """The dims that rows walk."""
    return tuple(d for d, n in enumerate(shape) if d != stick and n != 1)


def physical_shape(shape: Sequence[int], stick: int | None) -> list[int]:
    """Sticks, rows and lanes of a tensor."""
    return [1 if stick is None else sticks(shape[stick]), even(prod(shape[d] for d in rows_of(shape, stick))), LANES]


def side_by_side(parts: Sequence[ir.Value], part: tuple[int, ...], shape: tuple[int, ...], stick: int | None) -> ir.Value:
    """The tensor of a `shape` whose rows are those of tensors of a shape `part`, one after the other."""
    lane_dim = None if stick is None else stick - len(shape) + len(part)
    live, moved = prod(part[d] for d in rows_of(part, lane_dim)), physical_shape(part, lane_dim)
    buffer, type_ = physical_shape(shape, stick), ir.RankedTensorType(parts[0].type).element_type
    more = moved[1] != live  # each has a row more, over which the next one comes
    whole = tensor.EmptyOp([buffer[0], buffer[1] + 2 * more, LANES], type_).result
    for k, value in enumerate(parts):
        whole = tensor.InsertSliceOp(own(value), whole, [], [], [], [0, k * live, 0], moved, [1, 1, 1]).result
    if more:
        whole = tensor.ExtractSliceOp(ir.RankedTensorType.get(buffer, type_), whole, [], [], [], [0] * 3, buffer, [1] * 3).result
    return whole


def own(value: ir.Value) -> ir.Value:
    """A tensor that nobody else reads, and that is no part of another one."""
    if not list(value.uses) and is_a(value.owner, linalg.GenericOp, linalg.FillOp):
        return value
    return copied(value)


def copied(value: ir.Value) -> ir.Value:
    """A copy of a tensor."""
    type_ = ir.RankedTensorType(value.type)
    return elementwise([value], tensor.EmptyOp(list(type_.shape), type_.element_type).result)


def taken(value: ir.Value, at: Sequence[int], size: Sequence[int]) -> ir.Value:
    """What a tensor has from a stick, a row and a lane on."""
    type_ = ir.RankedTensorType(value.type)
    if list(type_.shape) == list(size):
        return value
    part_type = ir.RankedTensorType.get(list(size), type_.element_type)
    return tensor.ExtractSliceOp(part_type, value, [], [], [], list(at), list(size), [1, 1, 1]).result


def runs(whole: ir.Value, first: int, count: int) -> Iterator[tuple[int, ir.Value]]:
    """`count` rows of a tensor from `first` on: an even number of them, and the last one of an odd number."""
    lanes = ir.RankedTensorType(whole.type).shape[0]
    for at, n in _even_and_odd(count):
        yield at, taken(whole, [0, first + at, 0], [lanes, n, LANES])


def _even_and_odd(count: int) -> list[tuple[int, int]]:
    """So many rows, as those that are moved at once: from which one on, and how many, an even number or the last one."""
    even_ = count - count % 2
    return [(at, n) for at, n in ((0, even_), (even_, count % 2)) if n]


def assembled(pieces: Iterable[tuple[int, int, ir.Value]], type_: ir.Type, shape: tuple[int, ...], stick: int | None) -> ir.Value:
    """A tensor of a shape, of pieces by the stick and the row at which each begins: they are copied, one after the other."""
    size = physical_shape(shape, stick)
    odd = size[1] != prod(shape[d] for d in rows_of(shape, stick))  # nobody but a piece of all rows writes the one that makes them even
    whole = filled(size, type_, 0) if odd else tensor.EmptyOp(size, type_).result  # before what is computed there
    for at, row, value in pieces:
        moved = list(ir.RankedTensorType(value.type).shape)
        whole = tensor.InsertSliceOp(own(value), whole, [], [], [], [at, row, 0], moved, [1, 1, 1]).result
    return whole


def repeated(value: ir.Value, count: int) -> Iterator[tuple[int, ir.Value]]:
    """A tensor of one row as so many equal rows: an even number of them, and the last one of an odd number."""
    lanes, type_ = ir.RankedTensorType(value.type).shape[0], ir.RankedTensorType(value.type).element_type
    maps = [affine_map(3, [0, None, 2]), affine_map(3, [0, 1, 2])]
    for at, n in _even_and_odd(count):
        rows = tensor.EmptyOp([lanes, n, LANES], type_).result
        yield at, generic([value], rows, maps, ["parallel"] * 3, lambda a: a[0], loc=ir.Location.current)
