"""Matmuls whose operands several runs of tiles load from different places.

On a grid of two dims the addresses of a load have no single distance from tile to tile, so a value is put together from one piece per
row of the grid. A matmul does not need that copy, which holds what tiles share once for each of them: it is cut into one per run of
tiles, and each reads where the piece lies.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from ktir.emulator.reference.ops.structured_steps import Matmul
from ktir.emulator.reference.tape.tape import Assemble, Step
from ktir.emulator.reference.tape.values import Storage, Strided, Tensor

__all__ = ["split_runs"]

_MOST_RUNS = 16


@dataclass
class _Pieces:
    """A value that lies in pieces: its layout, the step that puts it together, and per run of tiles the first tile and the piece."""

    at: Strided
    number: int
    runs: list[tuple[int, Tensor]]


def split_runs(steps: list[Step]) -> list[Step]:
    """`steps` without the copies that only matmuls read."""
    found: dict[Storage, _Pieces] = {}
    for i, step in enumerate(steps):
        if isinstance(step, Assemble) and (pieces := _pieces(step, i)) is not None:
            found[step.writes[0].storage] = pieces
    if not found:
        return steps
    written: dict[Storage, int] = {}
    for i, step in enumerate(steps):
        for tensor in step.reads:
            pieces = found.get(tensor.storage)
            if pieces is None:
                continue
            later = any(written.get(piece.storage, -1) > pieces.number for _, piece in pieces.runs)
            if later or not isinstance(step, Matmul) or not _reads_piecewise(step, tensor, pieces):
                del found[tensor.storage]
        written.update((tensor.storage, i) for tensor in step.writes)
    result: list[Step] = []
    for step in steps:
        if isinstance(step, Matmul) and any(t.storage in found for t in step.reads[:2]):
            result += _cut(step, found)
        elif not (isinstance(step, Assemble) and step.writes[0].storage in found):
            result.append(step)
    return result


def _pieces(step: Assemble, number: int) -> _Pieces | None:
    """The pieces of a value that several runs of tiles load whole."""
    target = step.writes[0]
    if step.fill is not None or step.based or not target.storage.is_temporary or not 2 <= len(step.pieces) <= _MOST_RUNS:
        return None
    runs: list[tuple[int, Tensor]] = []
    tile = 0
    for at, source in sorted(step.pieces, key=lambda piece: piece[0].offset):
        same = at.shape[1:] == target.at.shape[1:] and (at.shape[0] == 1 or at.strides == target.at.strides)
        if not same or at.offset != target.at.offset + tile * target.at.strides[0] or not target.at.is_compact():
            return None
        runs.append((tile, step.reads[source]))
        tile += at.shape[0]
    return _Pieces(target.at, number, runs) if tile == target.at.shape[0] else None


def _reads_piecewise(step: Matmul, tensor: Tensor, pieces: _Pieces) -> bool:
    return tensor is not step.reads[2] and _axes(tensor.at, pieces.at) is not None


def _axes(at: Strided, whole: Strided) -> tuple[int | None, ...] | None:
    """Which axis of `whole` each axis of `at` is, None for one of extent 1; None if `at` is not `whole` with its axes in some order."""
    if at.shape[0] != whole.shape[0] or at.strides[0] != whole.strides[0] or at.offset != whole.offset:
        return None
    axes: list[int | None] = [0]
    for extent, stride in zip(at.shape[1:], at.strides[1:], strict=True):
        if extent == 1:
            axes.append(None)
            continue
        fits = [i for i in range(1, len(whole.shape)) if (whole.shape[i], whole.strides[i]) == (extent, stride) and i not in axes]
        if not fits:
            return None
        axes.append(fits[0])
    missing = [n for i, n in enumerate(whole.shape) if i not in axes]
    return tuple(axes) if all(n == 1 for n in missing) else None


def _cut(step: Matmul, found: dict[Storage, _Pieces]) -> list[Step]:
    """One matmul per run of tiles in which both operands lie in one piece."""
    tiles = step.writes[0].at.shape[0]
    starts = {0}
    for tensor in step.reads[:2]:
        if tensor.storage in found:
            starts |= {first for first, _ in found[tensor.storage].runs}
    cuts = sorted(starts)
    result: list[Step] = []
    for first, end in zip(cuts, [*cuts[1:], tiles], strict=True):
        part = copy.copy(step)
        part.reads = (
            *(_part(t, found.get(t.storage), first, end - first) for t in step.reads[:2]),
            _part(step.reads[2], None, first, end - first),
        )
        part.writes = (_part(step.writes[0], None, first, end - first),)
        result.append(part)
    return result


def _part(tensor: Tensor, pieces: _Pieces | None, first: int, count: int) -> Tensor:
    """`tensor` on `count` tiles from tile `first`."""
    if pieces is None:
        return tensor.moved(tensor.at.tiles(first, count))
    axes = _axes(tensor.at, pieces.at)
    assert axes is not None
    start, piece = max((run for run in pieces.runs if run[0] <= first), key=lambda run: run[0])
    at = piece.at.tiles(first - start, count)
    strides = tuple(0 if i is None else at.strides[i] for i in axes)
    return piece.moved(Strided((count, *tensor.at.shape[1:]), strides, at.offset))
