"""The tape: what a launch replays. A list of NumPy calls on arrays that were all made beforehand.

Recording leaves a list of steps. `bind` finds out how long each temporary lives, gives temporaries of disjoint lifetimes the same
memory, and turns each step into calls on prepared views; a replay then costs little more than the NumPy calls themselves.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import Where
from ktir.emulator.reference.values import Storage, Strided, Tensor

__all__ = ["Assemble", "Binder", "Call", "Step", "bind", "clipped_of"]

Call = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(eq=False)
class Step:
    """One recorded operation on data: tensors read and written, and the calls that do it."""

    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    reuse: int | None = field(default=None, kw_only=True)
    """Index of the read whose memory the first write may take over if it is the last use and has the same layout."""
    origin: Where | None = field(default=None, kw_only=True)
    """The op that it was recorded for."""

    def calls(self, binder: Binder) -> Iterable[Call]:
        raise NotImplementedError

    def clip(self) -> None:
        """Mark what is clipped in the results, where an operand has clipped elements. By default results have none."""


def clipped_of(tensor: Tensor) -> NDArray[np.bool_] | None:
    """Which elements of `tensor` are clipped (`Storage.clipped`), with extent 1 on the axes along which it repeats."""
    memory = tensor.storage.clipped
    if memory is None or 0 in tensor.at.present:
        return None
    return np.ndarray(tensor.at.present, np.bool_, memory, tensor.at.offset, tensor.at.strides)


@dataclass(eq=False)
class Assemble(Step):
    """Builds `writes[0]`: first filled (`fill`), or a copy of `reads[0]` (`based`), or left as it is; then `pieces` on top.

    A piece is a place in the target's storage and the index of the read that goes there; the two have the same shape.
    """

    pieces: tuple[tuple[Strided, int], ...] = ()
    fill: Any = None
    based: bool = False

    def calls(self, binder: Binder) -> Iterable[Call]:
        target = self.writes[0]
        if self.fill is not None:
            yield np.copyto, (binder.array(target), self.fill)
        elif self.based and not binder.same_memory(self.reads[0], target):
            yield np.copyto, (binder.array(target), binder.array(self.reads[0]))
        for at, source in self.pieces:
            value = self.reads[source]
            yield np.copyto, (binder.array(target.moved(at)), binder.array(value))

    def clip(self) -> None:
        target = self.writes[0]
        if target.storage.owner is not None:
            return
        target.storage.clipped = np.zeros(target.storage.size, np.bool_)

        def put(at: Strided, value: NDArray[np.bool_] | bool | None) -> None:
            place = clipped_of(target.moved(at))
            if place is not None:
                place[...] = False if value is None else value

        if self.fill is not None:
            put(target.at, True)
        elif self.based:
            put(target.at, clipped_of(self.reads[0]))
        for at, source in self.pieces:
            put(at, clipped_of(self.reads[source]))


class Binder:
    """Makes arrays of tensors whose storages have memory."""

    def __init__(self) -> None:
        self._scratch: dict[tuple[Any, ...], NDArray[Any]] = {}

    def array(self, tensor: Tensor, full: Sequence[int] = ()) -> NDArray[Any]:
        """A view of `tensor` with extent 1 on the axes along which it repeats, except those in `full`."""
        at = tensor.at
        shape = list(at.present)
        for axis in full:
            shape[axis] = at.shape[axis]
        memory = tensor.storage.array
        assert memory is not None, "a step reads a tensor that no step has written"
        if 0 in shape:
            return np.empty(shape, memory.dtype)
        size = memory.itemsize
        return np.ndarray(shape, memory.dtype, memory, at.offset * size, [s * size for s in at.strides])

    def flat(self, tensor: Tensor) -> NDArray[Any]:
        """The distinct elements of a compact tensor as one axis."""
        memory = tensor.storage.array
        assert memory is not None
        return memory[tensor.at.offset : tensor.at.offset + tensor.at.present_size]

    def scratch(self, key: Any, size: int, dtype: type) -> NDArray[Any]:
        """A flat array shared by all steps that ask for the same key and type; holds nothing between calls."""
        found = self._scratch.get((key, dtype))
        if found is None or found.size < size:
            found = self._scratch[key, dtype] = np.empty(size, dtype)
        return found[:size]

    @staticmethod
    def same_memory(a: Tensor, b: Tensor) -> bool:
        return a.storage.array is b.storage.array and a.at == b.at


def bind(steps: list[Step]) -> tuple[list[Call], list[Where | None]]:
    """Give all temporaries memory; the calls of all steps in order, and the op that each is made for."""
    steps = _protect_loads(steps)
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
                    )
                )
            at = tensor.at
            moved = Tensor(copies[key], Strided(at.shape, at.strides, at.offset - low), tensor.element)
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
