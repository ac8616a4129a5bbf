"""Gathers that are done together, or for several rows of a grid once.

What a loop looks up in tables of the caller is there when a launch begins: `join_lookups` brings all of it by one call.

On a grid of two dims what depends on one of them repeats from row to row, which no stride from tile to tile can say. Gathered, it would
be brought once for each of the rows. Where matmuls alone read it, `share_repeats` holds one row of it, and the matmuls have an axis of
rows of the grid more, along which that operand repeats.
"""

from __future__ import annotations

import copy
from collections import Counter

import numpy as np

from ktir.emulator.reference.ops.indirect_steps import Gather
from ktir.emulator.reference.ops.structured_steps import Matmul
from ktir.emulator.reference.tape.tape import Step
from ktir.emulator.reference.tape.values import Buffer, Storage, Strided, Tensor

__all__ = ["join_lookups", "share_repeats"]

_FEW = 1 << 8
"""Elements for which a call of their own is not worth it."""
_MOST = 1 << 16
"""Elements that are looked up by one call."""


def join_lookups(steps: list[Step]) -> list[Step]:
    """`steps` with the gathers whose addresses are known, from arrays of the caller that are read in place, at the beginning."""
    groups: dict[tuple[Buffer | None, str, int], list[Gather]] = {}
    sizes: Counter[tuple[Buffer | None, str]] = Counter()
    for step in steps:
        if isinstance(step, Gather) and step.is_lookup and step.fixed.size <= _FEW:
            source = step.source.buffer, step.source.element
            groups.setdefault((*source, sizes[source] // _MOST), []).append(step)
            sizes[source] += step.fixed.size
    places: dict[Storage, tuple[Storage, int]] = {}
    joined: list[Step] = []
    for group in groups.values():
        ends = np.cumsum([step.fixed.size for step in group]).tolist()
        held = Storage(group[0].writes[0].storage.dtype, ends[-1])
        joined.append(group[0].joined(np.concatenate([step.fixed.reshape(-1) for step in group]), held))
        places.update((step.writes[0].storage, (held, end - step.fixed.size)) for step, end in zip(group, ends, strict=True))
    for step in steps:
        if any(t.storage in places for t in step.reads):
            step.reads = tuple(_elsewhere(t, *places[t.storage]) if t.storage in places else t for t in step.reads)
    return joined + [step for step in steps if not (step.writes and step.writes[0].storage in places)]


def _elsewhere(tensor: Tensor, storage: Storage, first: int) -> Tensor:
    return tensor.held_in(storage, Strided(tensor.at.shape, tensor.at.strides, tensor.at.offset + first))


def share_repeats(steps: list[Step]) -> list[Step]:
    """`steps` without what gathers would bring several times for matmuls alone."""
    found = {step.writes[0].storage: step for step in steps if isinstance(step, Gather) and step.period < step.tiles}
    if not found:
        return steps
    for step in steps:
        read = [t for t in step.reads if t.storage in found]
        if read and not _takes(step, read, found):
            found = {storage: gather for storage, gather in found.items() if all(t.storage is not storage for t in read)}
    if not found:
        return steps
    held = {storage: Storage(storage.dtype, storage.size // step.tiles * step.period) for storage, step in found.items()}
    result: list[Step] = []
    for step in steps:
        shared = [t for t in step.reads if t.storage in held]
        if shared:
            step = _in_rows(step, found[shared[0].storage].period, held)
        elif step.writes and step.writes[0].storage in held:
            assert isinstance(step, Gather)
            step.hold_one_row(held[step.writes[0].storage])
        result.append(step)
    return result


def _takes(step: Step, read: list[Tensor], found: dict[Storage, Gather]) -> bool:
    """Whether the step is a matmul of whole rows of the grid, each tile of which reads what has been gathered for it."""
    gathers = [found[t.storage] for t in read]
    if not isinstance(step, Matmul) or step.reads[2] in read or len({g.period for g in gathers}) > 1:
        return False
    for tensor, gather in zip(read, gathers, strict=True):
        size, period = gather.writes[0].at.strides[0], gather.period
        low, high = tensor.at.tiles(0, 1).span()
        if tensor.at.strides[0] != size or high > size * (low // size + 1) or tensor.at.shape[0] % period or low // size % period:
            return False
    return True


def _in_rows(step: Step, period: int, held: dict[Storage, Storage]) -> Step:
    """The step with the axis of tiles as rows of `period` tiles."""

    def rows(tensor: Tensor) -> Tensor:
        at = tensor.at.expand(0, (tensor.at.shape[0] // period, period))
        if tensor.storage not in held:
            return tensor.moved(at)
        storage = held[tensor.storage]
        return tensor.held_in(storage, Strided(at.shape, (0, *at.strides[1:]), at.offset % storage.size))

    result = copy.copy(step)
    result.reads, result.writes = tuple(map(rows, step.reads)), tuple(map(rows, step.writes))
    return result
