"""From recorded steps to calls.

`bind` puts trips together that do the same, finds out how long each temporary lives, gives temporaries of disjoint lifetimes the same
memory, and turns each step into calls on prepared views.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import Where
from ktir.emulator.reference.ops.gathers import join_lookups, share_repeats
from ktir.emulator.reference.ops.runs import split_runs
from ktir.emulator.reference.record.trips import merge_trips
from ktir.emulator.reference.tape.tape import Assemble, Binder, Call, Step
from ktir.emulator.reference.tape.values import Storage, Strided, Tensor

__all__ = ["bind"]


def bind(steps: list[Step]) -> tuple[list[Call], list[Where | None]]:
    """Give all temporaries memory; the calls of all steps in order, and the op that each is made for. `steps` becomes what is called."""
    steps[:] = merge_trips(share_repeats(join_lookups(split_runs(_protect_loads(steps)))))
    last: dict[Storage, int] = {}
    for i, step in enumerate(steps):
        for tensor in (*step.reads, *step.writes):
            if tensor.storage.is_temporary:
                last[tensor.storage] = i
    dying: dict[int, list[Storage]] = defaultdict(list)
    for storage, i in last.items():
        dying[i].append(storage)
    binder = Binder()
    free: dict[tuple[type, int], list[NDArray[Any]]] = defaultdict(list)
    calls: list[Call] = []
    origins: list[Where | None] = []
    for i, step in enumerate(steps):
        passed_on: Storage | None = None
        for k, written in enumerate(step.writes):
            storage = written.storage
            if storage.array is not None or storage not in last:
                continue
            if k == 0 and (source := _reusable(step, i, last)) is not None:
                storage.array, passed_on = source.array, source
                continue
            available = free[storage.dtype, storage.size]
            storage.array = available.pop() if available else np.empty(storage.size, storage.dtype)
        calls.extend(step.calls(binder))
        origins.extend([step.origin] * (len(calls) - len(origins)))
        for storage in dying[i]:
            if storage is not passed_on and storage.array is not None:
                free[storage.dtype, storage.size].append(storage.array)
    return calls, origins


def _reusable(step: Step, i: int, last: dict[Storage, int]) -> Storage | None:
    """The storage of a read that ends with this step and that the step's first result may overwrite."""
    if step.reuse is None:
        return None
    source, target = step.reads[step.reuse], step.writes[0]
    storage = source.storage
    fits = (
        last.get(storage) == i
        and storage.size == target.storage.size
        and storage.dtype is target.storage.dtype
        and source.at == target.at
        and source.at.is_compact()
        and sum(r.storage is storage for r in step.reads) == 1
    )
    return storage if fits else None


def _protect_loads(steps: list[Step]) -> list[Step]:
    """A load is a view of the buffer; where a later store may change what a use still needs, the load copies.

    Store regions are taken as intervals over all tiles, which is conservative.
    """
    stores: dict[Storage, list[tuple[int, int, int]]] = defaultdict(list)
    for i, step in enumerate(steps):
        for written in step.writes:
            if written.storage.owner is not None:
                stores[written.storage].append((i, *_reach(step, written)))
    if not stores:
        return steps
    copies: dict[tuple[int, Storage, int, int], Storage] = {}
    inserted: dict[int, list[Step]] = defaultdict(list)
    result = list(steps)
    for i, step in enumerate(steps):
        # A store in several pieces may overwrite what its own later pieces read.
        until = i + 1 if isinstance(step, Assemble) and len(step.pieces) > 1 else i
        exposed = [t for t in step.reads if t.storage in stores and _overwritten(stores[t.storage], t, until)]
        for tensor in exposed:
            low, high = tensor.at.span()
            key = (tensor.born, tensor.storage, low, high)
            if key not in copies:
                copies[key] = copy = Storage(tensor.storage.dtype, high - low)
                region = Strided((1, high - low), (0, 1), low)
                inserted[tensor.born].append(
                    Assemble(
                        (tensor.moved(region),),
                        (Tensor(copy, Strided((1, high - low), (0, 1)), tensor.element),),
                        based=True,
                        origin=step.origin,
                        trips=steps[tensor.born].trips,
                    )
                )
            at = tensor.at
            moved = tensor.held_in(copies[key], Strided(at.shape, at.strides, at.offset - low))
            step.reads = tuple(moved if t is tensor else t for t in step.reads)
    if not inserted:
        return steps
    result = []
    for i, step in enumerate(steps):
        result.extend(inserted[i])
        result.append(step)
    return result


def _reach(step: Step, written: Tensor) -> tuple[int, int]:
    if isinstance(step, Assemble) and step.pieces and step.fill is None and not step.based:
        spans = [at.span() for at, _ in step.pieces]
        return min(s[0] for s in spans), max(s[1] for s in spans)
    return written.at.span()


def _overwritten(stores: list[tuple[int, int, int]], tensor: Tensor, use: int) -> bool:
    """Whether a store between the load of `tensor` and step `use` touches its region."""
    low, high = tensor.at.span()
    first = bisect.bisect_left(stores, (tensor.born,))
    for i, store_low, store_high in stores[first:]:
        if i >= use:
            return False
        if store_low < high and low < store_high:
            return True
    return False
