"""tensor: reshapes and slices are views of the same data; only inserting and padding move it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.findings import OutOfBounds
from ktir.emulator.reference.compile.op_reader import SLICE, OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.compile.scalar import compile_body
from ktir.emulator.reference.ops.maps import grid_of
from ktir.emulator.reference.ops.pointwise import evaluate, loop_tensor
from ktir.emulator.reference.ops.structured_steps import repeat
from ktir.emulator.reference.record.recording import NeedsTiles, Recording
from ktir.emulator.reference.tape.tape import Assemble
from ktir.emulator.reference.tape.values import Entries, Strided, Tensor
from ktir.mlir import ir


@executes("tensor.empty")
def _empty(op: OpReader) -> Action:
    type_ = op.result_type()
    sizes, (result,) = op.operands, op.results

    def action(rec: Recording) -> None:
        rec.set(result, rec.poison(sized(rec, type_.shape, sizes), type_.element))

    return action


def sized(rec: Recording, shape: tuple[int, ...], sizes: list[int]) -> tuple[int, ...]:
    """`shape` with its dynamic extents from `sizes`."""
    given = iter(sizes)
    return tuple(rec.integer(next(given), "a size") if n < 0 else n for n in shape)


@executes("tensor.splat")
def _splat(op: OpReader) -> Action:
    type_ = op.result_type()
    (value, *sizes), (result,) = op.operands, op.results

    def action(rec: Recording) -> None:
        rec.set(result, broadcast_scalar(rec, rec.get(value), sized(rec, type_.shape, sizes), type_.element))

    return action


def broadcast_scalar(rec: Recording, value: Any, shape: tuple[int, ...], element: str) -> Tensor:
    """A tensor of `shape` that repeats a scalar, known or from data."""
    if isinstance(value, Tensor):
        return value.moved(value.at.spread(shape), element)
    array = np.asarray(value)
    return rec.constant(array.reshape(array.shape + (1,) * len(shape)) if array.ndim else array, shape, element)


@executes("tensor.cast")
def _cast(op: OpReader) -> Action:
    shape = op.result_type().shape
    (value,), (result,), where = op.operands, op.results, op.where

    def action(rec: Recording) -> None:
        found = rec.get(value)
        if len(found.shape) != len(shape) or any(n not in (-1, m) for n, m in zip(shape, found.shape, strict=True)):
            raise KtirError(f"{where} casts a tensor of shape {list(found.shape)} to {list(shape)}", where.location)
        rec.set(result, found)

    return action


@executes("tensor.collapse_shape")
def _collapse(op: OpReader) -> Action:
    groups = op.groups()
    (value,), (result,) = op.operands, op.results

    def collapsed(at: Strided) -> Strided | None:
        if not groups:  # every extent is 1
            return at.axes((0,))
        for axis, group in enumerate(groups, 1):
            merged = at.collapse(axis, axis + len(group) - 1)
            if merged is None:
                return None
            at = merged
        return at

    def action(rec: Recording) -> None:
        tensor = rec.tensor(value)
        at = collapsed(tensor.at)
        if at is None:
            tensor = repeat(rec, tensor)
            at = collapsed(tensor.at)
            assert at is not None
        rec.set(result, tensor.moved(at))

    return action


@executes("tensor.expand_shape")
def _expand(op: OpReader) -> Action:
    groups, given = op.groups(), op.result_type().shape
    (value, *sizes), (result,) = op.operands, op.results

    def action(rec: Recording) -> None:
        shape = sized(rec, given, sizes)
        tensor = rec.tensor(value)
        at = tensor.at if groups else tensor.at.spread(shape)
        for group in groups:
            at = at.expand(1 + group[0], tuple(shape[i] for i in group))
        rec.set(result, tensor.moved(at))

    return action


def _kept(op: OpReader, entries: Entries, shape: tuple[int, ...]) -> list[int]:
    """The dims of a slice that remain in a type of lower rank, which drops dims of size 1."""
    kept: list[int] = []
    for dim, (fixed, n) in enumerate(entries):
        size = n if fixed else -1
        droppable = size == 1 and len(entries) - dim > len(shape) - len(kept)
        if len(kept) < len(shape) and shape[len(kept)] == size and not (droppable and shape[len(kept)] != 1):
            kept.append(dim)
        elif size != 1:
            raise op.unsupported("drops a dim that is not of size 1")
    if len(kept) != len(shape):
        raise op.unsupported("reduces the rank in a way")
    return kept


def _box(rec: Recording, entries: Sequence[Entries]) -> tuple[list[int], list[int], list[int]]:
    """Offsets, sizes and strides of a slice."""
    origin, sizes, strides = (rec.integers(e, what) for e, what in zip(entries, ("an offset", "a size", "a stride"), strict=True))
    return origin, sizes, strides


@executes("tensor.extract_slice")
def _extract_slice(op: OpReader) -> Action:
    entries = op.entries(1, *SLICE)
    kept = _kept(op, entries[1], op.result_type().shape)
    value, (result,), where = op.operands[0], op.results, op.where

    def action(rec: Recording) -> None:
        origin, sizes, strides = _box(rec, entries)
        source = rec.get(value)
        _check_box(source.shape, origin, sizes, strides, where)
        tensor = rec.plain(source)
        at = tensor.at.box(tuple(zip(origin, sizes, strict=True)))
        at = Strided(at.shape, (at.strides[0], *(s * k for s, k in zip(at.strides[1:], strides, strict=True))), at.offset)
        rec.set(result, tensor.moved(at.axes((0, *(1 + d for d in kept)))))

    return action


def _check_box(shape: Any, origin: Sequence[int], sizes: Sequence[int], strides: Sequence[int], where: Any) -> None:
    for dim, (n, low, size, stride) in enumerate(zip(shape, origin, sizes, strides, strict=True)):
        if low < 0 or (size and low + (size - 1) * stride >= n):
            raise OutOfBounds(f"takes elements {low} to {low + (size - 1) * stride} in dim {dim} of size {n}", where, address=low)


@executes("tensor.insert_slice", "tensor.parallel_insert_slice")
def _insert_slice(op: OpReader) -> Action:
    entries = op.entries(2, *SLICE)
    kept = _kept(op, entries[1], op.operand_type(0).shape)
    value, base = op.operands[:2]
    result, where = op.results[0] if op.results else base, op.where  # in an scf.forall the shared output itself changes

    def action(rec: Recording) -> None:
        origin, sizes, strides = _box(rec, entries)
        whole, part = rec.tensor(base), rec.tensor(value)
        _check_box(whole.shape, origin, sizes, strides, where)
        steps = dict(zip(kept, part.at.strides[1:], strict=True))
        at = Strided(
            (part.at.shape[0], *sizes),
            (part.at.strides[0], *(steps.get(d, 0) for d in range(len(sizes)))),
            part.at.offset,
        )
        box = tuple(zip(origin, sizes, strict=True))
        if all(s == 1 for s in strides):
            rec.set(result, rec.overwrite(whole, [(box, part.moved(at))]))
        else:
            rec.set(result, _spread(rec, whole, part.moved(at), origin, strides))

    return action


def _spread(rec: Recording, whole: Tensor, part: Tensor, origin: Sequence[int], strides: Sequence[int]) -> Tensor:
    """`whole` with the elements of `part`, whose rank is the same, at distances of `strides` from `origin` on."""
    shape = whole.at.shape
    tiles = shape[0] if whole.at.present[0] != 1 or part.at.present[0] != 1 else 1
    result = rec.temporary(shape, (tiles, *shape[1:]), whole.element)
    at = result.at.box(tuple(zip(origin, part.shape, strict=True)))
    at = Strided(at.shape, (at.strides[0], *(s * k for s, k in zip(at.strides[1:], strides, strict=True))), at.offset)
    rec.emit(Assemble((whole, part), (result,), based=True, pieces=((at, 1),)))
    return result


@executes("tensor.pad")
def _pad(op: OpReader) -> Action:
    rows, type_ = op.entries(1, "static_low", "static_high"), op.result_type()
    body = compile_body(op, 0, "tensor.yield")
    value, (result,), where = op.operands[0], op.results, op.where

    def action(rec: Recording) -> None:
        low, high = (rec.integers(row, "an amount of padding") for row in rows)
        tensor = rec.tensor(value)
        if not any(low) and not any(high):
            rec.set(result, tensor)
            return
        shape = tuple(a + n + b for a, n, b in zip(low, tensor.shape, high, strict=True))
        if min((*low, *high), default=0) < 0:
            raise KtirError(f"{where} pads by {min((*low, *high))}", where.location)
        (fill,) = evaluate(rec, body, grid_of(shape), shape, body.yields)
        base = loop_tensor(rec, fill, shape, type_.element)
        rec.set(result, rec.overwrite(base, [(tuple(zip(low, tensor.shape, strict=True)), tensor)]))

    return action


@executes("tensor.extract")
def _extract(op: OpReader) -> Action:
    value, *indices = op.operands
    (result,), where = op.results, op.where

    def action(rec: Recording) -> None:
        tensor = rec.tensor(value)
        rec.set(result, _element(rec, tensor, [rec.known(i) for i in indices], where))

    return action


def _element(rec: Recording, tensor: Tensor, origin: list[Any], where: Any) -> Tensor:
    """One element on each tile, at coordinates that may differ between tiles."""
    ones = (1,) * len(origin)
    if not any(isinstance(o, np.ndarray) for o in origin):
        _check_box(tensor.shape, origin, ones, ones, where)
        return tensor.moved(tensor.at.box(tuple((int(o), 1) for o in origin)).axes((0,)))
    result: Tensor | None = None
    table = np.stack([np.broadcast_to(o, (rec.tiles,)) for o in origin], axis=1)
    for row in np.unique(table[rec.live()], axis=0):
        _check_box(tensor.shape, [int(o) for o in row], ones, ones, where)
        one = tensor.moved(tensor.at.box(tuple((int(o), 1) for o in row)).axes((0,)))
        result = one if result is None else rec.overwrite(result, [((), one)], (table == row).all(1))
    assert result is not None
    return result


@executes("tensor.insert")
def _insert(op: OpReader) -> Action:
    value, base, *indices = op.operands
    (result,), where, element = op.results, op.where, op.result_type().element

    def action(rec: Recording) -> None:
        whole = rec.tensor(base)
        scalar = rec.plain(rec.get(value), element)
        origin = [rec.known(i) for i in indices]
        ones = (1,) * len(origin)
        table = np.stack([np.broadcast_to(o, (rec.tiles,)) for o in origin], axis=1) if origin else np.zeros((rec.tiles, 0), np.int64)
        rows = np.unique(table[rec.live()], axis=0)
        for row in rows:
            _check_box(whole.shape, [int(o) for o in row], ones, ones, where)
            piece = scalar.moved(scalar.at.spread(ones), element)
            members = None if len(rows) == 1 and rec.active is None else (table == row).all(1) & rec.live()
            whole = rec.overwrite(whole, [(tuple((int(o), 1) for o in row), piece)], members)
        rec.set(result, whole)

    return action


@executes("tensor.from_elements")
def _from_elements(op: OpReader) -> Action:
    type_ = op.result_type()
    operands, (result,) = op.operands, op.results

    def action(rec: Recording) -> None:
        base = rec.poison(type_.shape, type_.element)
        base.empty = False
        pieces = []
        for number, slot in enumerate(operands):
            scalar = rec.plain(rec.get(slot), type_.element)
            ones = (1,) * len(type_.shape)
            piece = scalar.moved(scalar.at.spread(ones), type_.element)
            place = np.unravel_index(number, type_.shape) if type_.shape else ()
            pieces.append((tuple((int(p), 1) for p in place), piece))
        rec.set(result, rec.overwrite(base, pieces))

    return action


@executes("tensor.dim")
def _dim(op: OpReader) -> Action:
    value, dim = op.operands
    (result,), where = op.results, op.where

    def action(rec: Recording) -> None:
        shape, axis = rec.get(value).shape, rec.integer(dim, "a dim")
        if not 0 <= axis < len(shape):
            raise Unsupported(f"{where} asks for dim {axis} of a tensor of rank {len(shape)}", where.location)
        rec.set(result, int(shape[axis]))

    return action


@executes("tensor.rank")
def _rank(op: OpReader) -> Action:
    (value,), (result,) = op.operands, op.results
    return lambda rec: rec.set(result, len(rec.get(value).shape))


@executes("tensor.reshape")
def _reshape(op: OpReader) -> Action:
    (value, given), (result,), type_ = op.operands, op.results, op.result_type()
    where = op.where

    def action(rec: Recording) -> None:
        tensor = repeat(rec, rec.tensor(value))
        shape = type_.shape
        if -1 in shape:
            sizes = rec.tensor(given)
            shape = tuple(_uniform(rec, rec.measure(sizes.moved(sizes.at.box(((d, 1),)).axes((0,))))) for d in range(len(shape)))
        if prod(shape) != prod(tensor.shape) or min(shape, default=0) < 0:
            raise KtirError(f"{where} gives {prod(tensor.shape)} elements the shape {list(shape)}", where.location)
        at = Strided.compact((rec.tiles, *shape), (tensor.at.present[0], *shape))
        rec.set(result, tensor.moved(Strided(at.shape, at.strides, tensor.at.offset)))

    return action


def _uniform(rec: Recording, number: Any) -> int:
    if isinstance(number, np.ndarray):
        raise NeedsTiles("has a shape that differs between tiles", rec)
    return int(number)


@executes("tensor.concat")
def _concat(op: OpReader) -> Action:
    axis = ir.IntegerAttr(op.attribute("dim")).value
    operands, (result,), type_ = op.operands, op.results, op.result_type()

    def action(rec: Recording) -> None:
        tensors = [rec.tensor(slot) for slot in operands]
        shape = list(tensors[0].shape)
        shape[axis] = sum(t.shape[axis] for t in tensors)
        base = rec.poison(tuple(shape), type_.element)
        base.empty = False
        pieces, start = [], 0
        for t in tensors:
            pieces.append((tuple((start, n) if d == axis else (0, n) for d, n in enumerate(t.shape)), t))
            start += t.shape[axis]
        rec.set(result, rec.overwrite(base, pieces))

    return action


@executes("tensor.generate")
def _generate(op: OpReader) -> Action:
    """Its body once, on all elements at once."""
    sizes, (result,), type_ = op.operands, op.results, op.result_type()
    body = compile_body(op, 0, "tensor.yield")

    def action(rec: Recording) -> None:
        given = iter(sizes)
        shape = tuple(rec.integer(next(given), "a size") if n < 0 else n for n in type_.shape)
        (value,) = evaluate(rec, body, grid_of(shape), shape, body.yields)
        rec.set(result, loop_tensor(rec, value, shape, type_.element))

    return action
