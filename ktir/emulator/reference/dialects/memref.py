"""memref: parts of views, and what is known of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ktir.diagnostics import Unsupported
from ktir.emulator.findings import OutOfBounds
from ktir.emulator.reference.compiler import OpReader
from ktir.emulator.reference.recorder import Recorder
from ktir.emulator.reference.registry import Action, executes
from ktir.emulator.reference.values import View, simplify
from ktir.mlir import ir

_DYNAMIC = -(2**63)


def _view(rec: Recorder, slot: int) -> View:
    view = rec.get(slot)
    if not isinstance(view, View):
        raise Unsupported(f"{rec.where} is applied to a distributed view, which the executor does not support", rec.where.location)
    return view


@executes("memref.subview")
def _subview(op: OpReader) -> Action:
    """Sizes and strides count in elements of the view; dims of size 1 that the type lacks are dropped."""
    rows = [op.integers(f"static_{name}") for name in ("offsets", "sizes", "strides")]
    dynamic = iter(op.operands[1:])
    offsets, sizes, strides = ([(False, next(dynamic)) if n == _DYNAMIC else (True, n) for n in row] for row in rows)
    source, (result,), where = op.operands[0], op.results, op.where
    type_ = ir.MemRefType(op.op.results[0].type)
    shape = [-1 if type_.is_dynamic_dim(i) else n for i, n in enumerate(type_.shape)]

    def action(rec: Recorder) -> None:
        view = _view(rec, source)
        first, extent = ([n if fixed else rec.known(n) for fixed, n in row] for row in (offsets, sizes))
        step = [n if fixed else rec.integer(n, "a stride") for fixed, n in strides]
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
        rec.set(
            result,
            replace(
                view,
                offset=simplify(offset),
                sizes=tuple(simplify(extent[d]) for d in kept),
                strides=tuple(view.strides[d] * step[d] for d in kept),
                masked=tuple(view.masked[d] for d in kept),
                origin=tuple(0 for _ in kept),
                owned=tuple(simplify(extent[d]) for d in kept),
            ),
        )

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
