"""Matmuls whose operands the rows of a grid gather from the same places.

On a grid of two dims what depends on one of them repeats from row to row, which no stride from tile to tile can say. Gathered, it would
be brought once for each of the rows. Where matmuls alone read it, one row of it is held, and the matmuls have an axis of rows of the
grid more, along which that operand repeats.
"""

from __future__ import annotations

import copy

from ktir.emulator.reference.ops.indirect_steps import Gather
from ktir.emulator.reference.ops.structured_steps import Matmul
from ktir.emulator.reference.tape.tape import Step
from ktir.emulator.reference.tape.values import Storage, Strided, Tensor

__all__ = ["share_repeats"]


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
    """Whether the step is a matmul, each tile of which reads what has been gathered for it."""
    gathers = [found[t.storage] for t in read]
    if not isinstance(step, Matmul) or step.reads[2] in read or len({g.period for g in gathers}) > 1:
        return False
    for tensor, whole in zip(read, (g.writes[0].at for g in gathers), strict=True):
        if tensor.at.strides[0] != whole.strides[0] or tensor.at.tiles(0, 1).span()[1] > whole.strides[0]:
            return False
    return True


def _in_rows(step: Step, period: int, held: dict[Storage, Storage]) -> Step:
    """The step with the axis of tiles as rows of `period` tiles."""

    def rows(tensor: Tensor) -> Tensor:
        at = tensor.at.expand(0, (tensor.at.shape[0] // period, period))
        if tensor.storage not in held:
            return tensor.moved(at)
        return tensor.held_in(held[tensor.storage], Strided(at.shape, (0, *at.strides[1:]), at.offset))

    result = copy.copy(step)
    result.reads, result.writes = tuple(map(rows, step.reads)), tuple(map(rows, step.writes))
    return result
