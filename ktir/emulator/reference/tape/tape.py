"""The tape: what a launch replays. A list of NumPy calls on arrays that were all made beforehand.

Recording leaves a list of steps, which `ktir.emulator.reference.binding` turns into calls on prepared views; a replay then costs little
more than the NumPy calls themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import Where
from ktir.emulator.reference.tape.values import Storage, Strided, Tensor

__all__ = ["Assemble", "Binder", "Call", "Place", "PlainStep", "Step", "clipped_of"]

Call = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Place:
    """What a step touches: elements of a storage."""

    tensor: Tensor
    written: bool


@dataclass(eq=False)
class Step:
    """One recorded operation on data: tensors read and written, and the calls that do it."""

    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    reuse: int | None = field(default=None, kw_only=True)
    """Index of the read whose memory the first write may take over if it is the last use and has the same layout."""
    origin: Where | None = field(default=None, kw_only=True)
    """The op that it was recorded for."""
    trips: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)
    """The loops around it that carry nothing from trip to trip, outermost first: number of the loop, number of the trip."""

    def calls(self, binder: Binder) -> Iterable[Call]:
        raise NotImplementedError

    def clip(self) -> None:
        """Mark what is clipped in the results, where an operand has clipped elements. By default results have none."""

    def copies(self) -> list[Storage]:
        """Storages between which it moves elements as they are, and with which it does nothing else. By default there are none."""
        return []

    # Trips of a loop done together (`ktir.emulator.reference.record.trips`); by default a step does not take part

    def places(self) -> list[Place] | None:
        """All that it touches, reads first; None if it cannot be stacked."""
        return None

    def details(self) -> object:
        """All else that decides what it does: equal for steps that do the same on other places."""
        raise NotImplementedError

    def stacked(self, tensors: Sequence[Tensor], count: int) -> Step:
        """The step on `tensors`, which stand for its places and have an axis of `count` trips in front."""
        raise NotImplementedError

    def _moved(self, tensors: Sequence[Tensor]) -> Self:
        """A copy on other tensors: those of the reads, then those of the writes."""
        result = copy.copy(self)
        result.reads, result.writes = tuple(tensors[: len(self.reads)]), tuple(tensors[len(self.reads) :])
        return result

    def _plain_places(self) -> list[Place]:
        return [*(Place(t, False) for t in self.reads), *(Place(t, True) for t in self.writes)]


class PlainStep(Step):
    """One that touches what it reads and writes, and does the same on tensors of several trips."""

    def places(self) -> list[Place] | None:
        return self._plain_places()

    def stacked(self, tensors: Sequence[Tensor], count: int) -> Step:
        return self._moved(tensors)


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
            array = binder.array(target)
            yield np.copyto, (array, array.dtype.type(self.fill))  # zero is all zero bits where the caller's are kept
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

    def copies(self) -> list[Storage]:
        zero = self.fill is None or (self.fill == 0 and not np.signbit(np.real(self.fill)))
        return [t.storage for t in (*self.reads, *self.writes)] if zero else []

    @property
    def _in_pieces(self) -> bool:
        """Whether it touches nothing of the target but the pieces."""
        return self.fill is None and not self.based

    def places(self) -> list[Place] | None:
        target = self.writes[0]
        whole = [] if self._in_pieces else [Place(target, True)]
        return [*(Place(t, False) for t in self.reads), *whole, *(Place(target.moved(at), True) for at, _ in self.pieces)]

    def details(self) -> object:
        return self.fill, self.based, self.reuse, tuple(source for _, source in self.pieces)

    def stacked(self, tensors: Sequence[Tensor], count: int) -> Step:
        reads = len(self.reads)
        result = self._moved(tensors[: reads + 1])  # without pieces there is a target, and with them any piece names it
        pieces = tensors[reads if self._in_pieces else reads + 1 :]
        result.pieces = tuple((t.at, source) for t, (_, source) in zip(pieces, self.pieces, strict=True))
        return result


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
