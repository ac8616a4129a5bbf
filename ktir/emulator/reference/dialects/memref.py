"""memref: parts of views, what is known of them, and their elements."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.findings import OutOfBounds, Where
from ktir.emulator.reference.compile.op_reader import DYNAMIC, SLICE, OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.record.recorder import Recorder
from ktir.emulator.reference.record.recording import NeedsTiles
from ktir.emulator.reference.tape.values import AccessTile, Distributed, Tensor, View, element_name, simplify
from ktir.mlir import ir


def _view(rec: Recorder, slot: int) -> View:
    view = rec.get(slot)
    if not isinstance(view, View):
        raise Unsupported(f"{rec.where} is applied to a distributed view, which the executor does not support", rec.where.location)
    return view


@executes("memref.subview")
def _subview(op: OpReader) -> Action:
    """Sizes and strides count in elements of the view; dims of size 1 that the type lacks are dropped."""
    offsets, sizes, strides = op.entries(1, *SLICE)
    source, (result,), where = op.operands[0], op.results, op.where
    type_ = ir.MemRefType(op.op.results[0].type)
    shape = [-1 if type_.is_dynamic_dim(i) else n for i, n in enumerate(type_.shape)]

    def action(rec: Recorder) -> None:
        view = _view(rec, source)
        first, extent, step = rec.numbers(offsets), rec.numbers(sizes), rec.integers(strides, "a stride")
        offset: Any = view.offset
        for d, (low, n, s) in enumerate(zip(first, extent, step, strict=True)):
            last = np.add(low, np.multiply(np.subtract(n, 1), s))
            beyond = (np.less(low, 0) | np.greater_equal(last, view.sizes[d])) & np.greater(n, 0)
            if np.any(beyond) and not view.masked[d] and rec.policy.bounds:
                raise OutOfBounds(f"takes elements up to {int(np.max(last))} in dim {d} of a view of size {view.sizes[d]}", where)
            offset = np.add(offset, np.multiply(low, view.strides[d]))
        kept: list[int] = []
        for d, n in enumerate(extent):
            left = len(extent) - d
            if (
                len(kept) < len(shape)
                and (left == len(shape) - len(kept) or shape[len(kept)] in (-1, n))
                and not (n == 1 and shape[len(kept)] != 1 and left > len(shape) - len(kept))
            ):
                kept.append(d)
        sizes_, strides_ = tuple(simplify(extent[d]) for d in kept), tuple(view.strides[d] * step[d] for d in kept)
        _set_view(rec, result, view, offset, sizes_, strides_, tuple(view.masked[d] for d in kept))

    return action


@executes("memref.cast", "memref.memory_space_cast")
def _cast(op: OpReader) -> Action:
    (source,), (result,) = op.operands, op.results
    return lambda rec: rec.set(result, rec.get(source))


@executes("memref.dim")
def _dim(op: OpReader) -> Action:
    source, axis = op.operands
    (result,), where = op.results, op.where

    def action(rec: Recorder) -> None:
        sizes, dim = rec.get(source).sizes, rec.integer(axis, "a dim")
        if not 0 <= dim < len(sizes):
            raise Unsupported(f"{where} asks for dim {dim} of a view of rank {len(sizes)}", where.location)
        rec.set(result, sizes[dim])

    return action


@executes("memref.transpose")
def _transpose(op: OpReader) -> Action:
    order = [r.position for r in ir.AffineMapAttr(op.attribute("permutation")).value.results if isinstance(r, ir.AffineDimExpr)]
    (source,), (result,) = op.operands, op.results

    def action(rec: Recorder) -> None:
        view = _view(rec, source)
        sizes, strides, masked = (tuple(x[d] for d in order) for x in (view.sizes, view.strides, view.masked))
        rec.set(result, replace(view, sizes=sizes, strides=strides, masked=masked, origin=None, owned=()))

    return action


@executes("memref.rank")
def _rank(op: OpReader) -> Action:
    (source,), (result,) = op.operands, op.results
    return lambda rec: rec.set(result, len(rec.get(source).sizes))


@executes("memref.assume_alignment")
def _alignment(op: OpReader) -> Action:
    (source,), results = op.operands, op.results

    def action(rec: Recorder) -> None:
        for slot in results:
            rec.set(slot, rec.get(source))

    return action


@executes("memref.prefetch")
def _prefetch(op: OpReader) -> Action:
    return lambda rec: None


def _layout_offset(type_: Any) -> int | None:
    """Elements from the base of a memref of this type to its first one; None: dynamic."""
    _, offset = ir.MemRefType(type_).get_strides_and_offset()
    return None if offset == DYNAMIC else offset


@executes("memref.reinterpret_cast")
def _reinterpret(op: OpReader) -> Action:
    """Other sizes and strides at the base of a view."""
    offsets, sizes, strides = op.entries(1, *SLICE)
    base = _layout_offset(op.op.operands[0].type)
    if base is None:
        raise op.unsupported("begins at a base that the type does not tell")
    source, (result,) = op.operands[0], op.results

    def action(rec: Recorder) -> None:
        view = _view(rec, source)
        (start,), extents, steps = rec.numbers(offsets), rec.numbers(sizes), rec.integers(strides, "a stride")
        _set_view(rec, result, view, np.add(np.subtract(view.offset, base), start), tuple(map(simplify, extents)), tuple(steps))

    return action


def _set_view(
    rec: Recorder,
    result: int,
    view: View,
    offset: Any,
    sizes: tuple[Any, ...],
    strides: tuple[int, ...],
    masked: tuple[bool, ...] | None = None,
) -> None:
    """The same memory seen in other dims. `masked`: which of them clip; by default all do if one of the view's does."""
    masked, origin = masked or (any(view.masked),) * len(sizes), (0,) * len(sizes)
    rec.set(result, replace(view, offset=simplify(offset), sizes=sizes, strides=strides, masked=masked, origin=origin, owned=sizes))


@executes("memref.extract_strided_metadata")
def _metadata(op: OpReader) -> Action:
    """The base as a view of rank 0, then offset, sizes and strides as numbers."""
    base = _layout_offset(op.op.operands[0].type)
    if base is None:
        raise op.unsupported("begins at a base that the type does not tell")
    (source,), (buffer, *numbers) = op.operands, op.results

    def action(rec: Recorder) -> None:
        view = _view(rec, source)
        _set_view(rec, buffer, view, np.subtract(view.offset, base), (), ())
        rec.set_all(numbers, (base, *view.sizes, *view.strides))

    return action


@executes("memref.expand_shape")
def _expand(op: OpReader) -> Action:
    groups, (shape,) = op.groups(), op.entries(1, "static_output_shape")
    source, (result,) = op.operands[0], op.results

    def action(rec: Recorder) -> None:
        view = _view(rec, source)
        sizes = rec.integers(shape, "a size")
        strides = [1] * len(sizes)
        for dim, group in enumerate(groups):
            step = view.strides[dim]
            for d in reversed(group):
                strides[d] = step
                step *= sizes[d]
        _set_view(rec, result, view, view.offset, tuple(sizes), tuple(strides))

    return action


@executes("memref.collapse_shape")
def _collapse(op: OpReader) -> Action:
    groups = op.groups()
    (source,), (result,), where = op.operands, op.results, op.where

    def action(rec: Recorder) -> None:
        view = _view(rec, source)
        sizes: list[Any] = []
        strides: list[int] = []
        for group in groups:
            size, stride = 1, view.strides[group[-1]]
            for d in reversed(group):
                n = view.sizes[d]
                if isinstance(n, np.ndarray):
                    raise NeedsTiles("collapses dims whose sizes differ between tiles", rec)
                if n != 1 and size != 1 and view.strides[d] != stride * size:
                    raise KtirError(f"{where} collapses dims {group}, which do not lie next to each other", where.location)
                if size == 1 and n != 1:
                    stride = view.strides[d]
                size *= int(n)
            sizes.append(size)
            strides.append(stride)
        _set_view(rec, result, view, view.offset, tuple(sizes), tuple(strides))

    return action


def _read(rec: Recorder, tile: AccessTile, element: str, where: Where) -> Tensor:
    if isinstance(tile.view, Distributed):
        return rec.memory.load_distributed(tile, element, where)
    if tile.view.buffer is None:
        return rec.plain(rec.scratchpad.load(tile, element, where))
    return rec.memory.load(tile, element, where)


def _write(rec: Recorder, value: Tensor, tile: AccessTile, where: Where) -> None:
    if isinstance(tile.view, Distributed):
        rec.memory.store_distributed(value, tile, where)
    elif tile.view.buffer is None:
        rec.scratchpad.store(value, tile, where)
    else:
        rec.memory.store(value, tile, where)


def _element(rec: Recorder, view: View | Distributed, indices: list[int]) -> AccessTile:
    ones = (1,) * len(indices)
    return AccessTile(view, tuple(rec.known(i) for i in indices), ones, tuple(range(len(indices))))


@executes("memref.load")
def _load(op: OpReader) -> Action:
    source, *indices = op.operands
    (result,), where, element = op.results, op.where, op.result_type().element

    def action(rec: Recorder) -> None:
        value = _read(rec, _element(rec, rec.get(source), indices), element, where)
        rec.set(result, value.moved(value.at.axes((0,))))

    return action


@executes("memref.store")
def _store(op: OpReader) -> Action:
    value, target, *indices = op.operands
    where, element = op.where, op.operand_type(0).element

    def action(rec: Recorder) -> None:
        scalar = rec.plain(rec.get(value), element)
        _write(rec, scalar.moved(scalar.at.spread((1,) * len(indices)), element), _element(rec, rec.get(target), indices), where)

    return action


@executes("memref.copy")
def _copy(op: OpReader) -> Action:
    (source, target), where = op.operands, op.where
    element = element_name(ir.MemRefType(op.op.operands[0].type).element_type)

    def whole(rec: Recorder, slot: int) -> AccessTile:
        view = rec.get(slot)
        for n in view.sizes:
            if isinstance(n, np.ndarray):
                raise NeedsTiles("copies a view whose sizes differ between tiles", rec)
        rank = len(view.sizes)
        return AccessTile(view, (0,) * rank, tuple(int(n) for n in view.sizes), tuple(range(rank)))

    def action(rec: Recorder) -> None:
        given, taken = whole(rec, source), whole(rec, target)
        if given.extents != taken.extents:
            raise KtirError(f"{where} copies a view of sizes {list(given.extents)} to one of {list(taken.extents)}", where.location)
        _write(rec, _read(rec, given, element, where), taken, where)

    return action
