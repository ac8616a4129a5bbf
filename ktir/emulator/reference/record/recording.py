"""What a symbolic run of a program records: values, steps, counts, and where the run stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import Unsupported
from ktir.emulator.findings import Where
from ktir.emulator.policy import Policy
from ktir.emulator.reference.tape.tape import Assemble, Binder, Call, Step, clipped_of
from ktir.emulator.reference.tape.values import (
    CARRIERS,
    Box,
    Distributed,
    Entries,
    Known,
    Overlay,
    Storage,
    Strided,
    Tensor,
    Value,
    View,
    is_float,
    simplify,
    tile_runs,
)

__all__ = ["Counts", "NeedsData", "NeedsTiles", "Recording"]


@dataclass
class Counts:
    """What a run does: ops executed (one per trip, for all tiles together), bytes moved and scalar operations, over all tiles."""

    ops: int = 0
    read: dict[str, int] = field(default_factory=lambda: {"global": 0, "ct_local": 0})
    written: dict[str, int] = field(default_factory=lambda: {"global": 0, "ct_local": 0})
    views: dict[str, list[int]] = field(default_factory=dict)
    """Bytes read and written through each view, by its name."""
    arithmetic: dict[str, int] = field(default_factory=dict)
    """Scalar operations per op name, over all tiles that execute it."""
    shared: int = 0
    """Bytes of global memory that a load reads on a tile, and on an earlier tile too."""

    def copy(self) -> Counts:
        views = {name: list(entry) for name, entry in self.views.items()}
        return Counts(self.ops, dict(self.read), dict(self.written), views, dict(self.arithmetic), self.shared)

    def moved(self, view: View | Distributed, space: str, count: int, *, write: bool) -> None:
        """`count` bytes went through `view`."""
        side = self.written if write else self.read
        side[space] += count
        entry = self.views.setdefault(view.name if isinstance(view, View) else "distributed view", [0, 0])
        entry[int(write)] += count


class NeedsData(Exception):
    """A number that decides addresses or control flow depends on data: the program has to be recorded while it runs."""


class NeedsTiles(Unsupported):
    """A shape differs between the tiles of `kernel`, which has to be recorded tile by tile."""

    def __init__(self, message: str, rec: Recording) -> None:
        super().__init__(f"{rec.where} {message}", rec.where.location)
        self.kernel = rec.kernel_name


class Recording:
    """What has been recorded so far. Executors read and write SSA values with `get` and `set` and record data work with `emit`.

    `eager`: every step runs as soon as it is recorded, so that data can decide what is recorded next.
    """

    def __init__(self, policy: Policy, eager: bool = False) -> None:
        self.policy = policy
        self.eager = eager
        self.binder = Binder()
        self.steps: list[Step] = []
        self.counts = Counts()
        self.values: list[Value | None] = []
        self.tiles = 1
        self.grid: tuple[int, ...] = (1,)
        self.active: NDArray[np.bool_] | None = None
        """Tiles that execute the current trip of a loop whose trip count differs between tiles; None: all."""
        self.measured: list[tuple[Any, View, str, int, bool]] = []
        """Steps that count what they move: the step, the view, its space, bytes of an element, whether it writes."""
        self.single: int | None = None
        """The tile that a kernel is recorded for, alone; None: all at once."""
        self.kernel_name = ""
        self.kernel = 0
        """Number of the kernel call: between two of them there is a barrier."""
        self.epoch = 1
        """Grows with every delivery between tiles: what a tile did in an earlier epoch may be known to others."""
        self.clock = np.zeros((1, 1), np.int64)
        """clock[t, u]: the last epoch of tile u whose actions happened before what tile t does now. Replaced, never changed."""
        self.where = Where("func.func", None)
        self.trips: tuple[tuple[int, int], ...] = ()
        """The trips that are being recorded, of the loops that carry nothing: number of the loop, number of the trip."""
        self.disturbances = 0
        """Sums so far that are off (`Policy.disturbance`)."""
        self.turns = 0
        """Trips and calls so far."""

    # Values

    def get(self, slot: int) -> Any:
        """The value in a slot. Its class follows from the op that reads it, which the verifier has checked."""
        return self.values[slot]

    def set(self, slot: int, value: Value) -> None:
        self.values[slot] = value

    def set_all(self, slots: Iterable[int], values: Iterable[Value]) -> None:
        """As many values as slots."""
        for slot, value in zip(slots, values, strict=True):
            self.values[slot] = value

    def numbers(self, entries: Entries) -> list[Known]:
        """Indices of which some are constant."""
        return [n if fixed else self.known(n) for fixed, n in entries]

    def integers(self, entries: Entries, what: str) -> list[int]:
        """The same, as `integer`."""
        return [n if fixed else self.integer(n, what) for fixed, n in entries]

    def known(self, slot: int) -> Known:
        """An integer that must be known: an index."""
        value = self.get(slot)
        if isinstance(value, int | float | bool | np.ndarray):
            return value
        if isinstance(value, Tensor) and not value.shape:
            return self.measure(value)
        what = "an address" if type(value).__name__ == "Pointer" else "a value that depends on data"
        raise Unsupported(f"{self.where} uses {what} as a number, which the executor does not support", self.where.location)

    def measure(self, value: Tensor) -> Known:
        """The number that a scalar from data is. Raises NeedsData unless steps run as they are recorded."""
        if not self.eager:
            raise NeedsData
        found = np.array(self.binder.array(value)).reshape(-1)
        return found[self.single if found.size > 1 else 0].item() if self.single is not None else simplify(found)

    def integer(self, slot: int, what: str) -> int:
        """A known integer that is the same for all tiles."""
        value = self.known(slot)
        if isinstance(value, np.ndarray):
            raise NeedsTiles(f"has {what} that differs between tiles", self)
        return int(value)

    def tensor(self, slot: int) -> Tensor:
        """The tensor in a slot, in one piece. A known scalar becomes a constant of rank 0."""
        return self.plain(self.get(slot))

    def plain(self, value: Value | None, element: str | None = None) -> Tensor:
        """`value` as one tensor; an overlay is copied together, once."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Overlay):
            if value.flat is None:
                value.flat = self.overwrite(value.base, [(value.box, value.patch)])
            return value.flat
        assert isinstance(value, int | float | bool | np.ndarray), value
        return self.constant(np.asarray(value), (), element or "f32")

    def constant(self, array: NDArray[Any], shape: tuple[int, ...], element: str) -> Tensor:
        """A known tensor. `array` broadcasts to [tiles, *shape] if it has that rank; a lower rank has no tile axis or is a scalar."""
        array = np.asarray(array).astype(CARRIERS[element])
        if array.ndim == 1 and not shape and array.size == self.tiles:
            pass
        elif array.ndim <= len(shape):
            array = array.reshape((1,) * (1 + len(shape) - array.ndim) + array.shape)
        full = (self.tiles, *shape)
        at = Strided.compact(full, tuple(1 if a == 1 else n for a, n in zip(array.shape, full, strict=True)))
        return Tensor(Storage.constant(array), at, element)

    def poison(self, shape: tuple[int, ...], element: str) -> Tensor:
        """A tensor without content."""
        kind = CARRIERS[element]
        bad: Any = 0
        if self.policy.poison:
            bad = -1 if np.issubdtype(kind, np.integer) or kind is np.bool_ else np.nan
        result = self.constant(np.asarray(bad).astype(kind), shape, element)
        result.empty = True
        return result

    def ordered(self, tile: int, epoch: int, before: int) -> bool:
        """Whether what `tile` did in `epoch` of this kernel happened before what tile `before` does now."""
        return tile == before or bool(self.clock[before, tile] >= epoch)

    def live(self) -> NDArray[np.bool_]:
        """The tiles that execute the current op."""
        return np.ones(self.tiles, np.bool_) if self.active is None else self.active

    def on_tile(self, value: Tensor, tile: int) -> Tensor:
        """What tile `tile` holds, on all tiles."""
        at = value.at
        return value.moved(Strided((self.tiles, *at.shape[1:]), (0, *at.strides[1:]), at.offset + tile * at.strides[0]))

    def pick(self, value: Tensor, sources: NDArray[np.int64]) -> Tensor:
        """On tile t what tile sources[t] holds; a negative source leaves the tile its own."""
        if value.at.strides[0] == 0:
            return value
        sources = np.where(sources < 0, np.arange(self.tiles), sources)
        if (sources == np.arange(self.tiles)).all():
            return value
        if (sources == sources[0]).all():
            return self.on_tile(value, int(sources[0]))
        present = value.at.present
        result = self.temporary(value.at.shape, (self.tiles, *present[1:]), value.element)
        step = _Pick((value,), (result,))
        step.sources = sources
        self.emit(step)
        return result

    def temporary(self, shape: tuple[int, ...], present: tuple[int, ...], element: str) -> Tensor:
        """New memory for a tensor of `shape` (with tile axis) that repeats where `present` is 1."""
        at = Strided.compact(shape, present)
        return Tensor(Storage(CARRIERS[element], at.present_size), at, element)

    def clipped_zero(self, shape: tuple[int, ...], element: str) -> Tensor:
        """What a read through a masked view gives beyond its end."""
        result = self.constant(np.zeros((), CARRIERS[element]), shape, element)
        if not is_float(element):
            result.storage.clipped = np.ones(result.storage.size, np.bool_)
        return result

    # Steps

    def emit(self, step: Step) -> None:
        if any(t.storage.clipped is not None for t in step.reads):
            step.clip()
        if not self.eager:
            step.origin, step.trips = self.where, self.trips
            self.steps.append(step)
            return
        for written in step.writes:
            if written.storage.is_temporary:
                written.storage.array = np.empty(written.storage.size, written.storage.dtype)
        self.perform(step.calls(self.binder))

    def perform(self, calls: Iterable[Call]) -> None:
        """Make the calls of a step, where steps run as they are recorded."""
        for function, arguments in calls:
            function(*arguments)

    def count(self, name: str, elements: int) -> None:
        """`elements` scalar operations on each tile that executes the current op."""
        tiles = self.tiles if self.active is None else int(self.active.sum())
        self.counts.arithmetic[name] = self.counts.arithmetic.get(name, 0) + elements * tiles

    def loaded(self, tensor: Tensor) -> Tensor:
        """A view of memory as a value: later stores must not show in it, which a tape takes care of by itself."""
        return self.copy(tensor) if self.eager else tensor

    def copy(self, tensor: Tensor) -> Tensor:
        """`tensor` in memory of its own, row-major."""
        result = self.temporary(tensor.at.shape, tensor.at.present, tensor.element)
        self.emit(Assemble((tensor,), (result,), based=True))
        return result

    def overwrite(self, base: Tensor, parts: Sequence[tuple[Box, Tensor]], active: NDArray[np.bool_] | None = None) -> Tensor:
        """`base` with each (box, value) of `parts` written over it, for the tiles in `active` only."""
        shape = base.at.shape
        present = [n if base.at.present[i] != 1 else 1 for i, n in enumerate(shape)]
        for box, patch in parts:
            if patch.at.present[0] != 1 or active is not None:
                present[0] = shape[0]
            for axis, (low, extent) in enumerate(box, 1):
                if (low, extent) != (0, shape[axis]) or patch.at.present[axis] != 1:
                    present[axis] = shape[axis]
        result = self.temporary(shape, tuple(present), base.element)
        reads: list[Tensor] = [base]
        pieces: list[tuple[Strided, int]] = []
        for box, patch in parts:
            for first, count in tile_runs(active, shape[0]):
                target, source = result.at.box(box), patch.at
                if present[0] != 1:
                    target, source = target.tiles(first, count), source.tiles(first, count)
                pieces.append((target, len(reads)))
                reads.append(patch.moved(source))
        self.emit(Assemble(tuple(reads), (result,), based=True, pieces=tuple(pieces), reuse=0))
        return result

    def merge(self, old: Value, new: Value) -> Value:
        """`new` for the active tiles and `old` for the others: what a loop carries where some tiles have ended."""
        if self.active is None or self.single is not None or old is new:
            return new
        if isinstance(old, Tensor | Overlay) or isinstance(new, Tensor | Overlay):
            base, value = self.plain(old), self.plain(new)
            return self.overwrite(base, [(tuple((0, n) for n in base.shape), value)], self.active)
        if isinstance(old, int | float | bool | np.ndarray) and isinstance(new, int | float | bool | np.ndarray):
            return simplify(np.where(self.active, new, old))
        raise NeedsTiles("has addresses that differ between tiles", self)


class _Pick(Step):
    """writes[0][t] = reads[0][sources[t]]."""

    sources: NDArray[np.int64]

    def calls(self, binder: Binder) -> Iterable[Call]:
        source, target, sources = binder.array(self.reads[0]), binder.array(self.writes[0]), self.sources

        def pick() -> None:
            target[...] = source[sources]

        yield pick, ()

    def clip(self) -> None:
        if (held := clipped_of(self.reads[0])) is not None:
            self.writes[0].storage.clipped = np.ascontiguousarray(held[self.sources]).reshape(-1)
