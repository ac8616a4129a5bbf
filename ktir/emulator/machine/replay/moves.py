"""Transfers between memory and buffers on the tape: boxes by strides, what is left by one index per entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.carriers import put, waits, wide
from ktir.arithmetic.floats import f16_to_f32, round_to, widening
from ktir.emulator.machine.memory.indexing import Claims, IndexReader
from ktir.emulator.machine.memory.transfer import Transfer
from ktir.emulator.machine.replay.ops import Call, Launch, window
from ktir.emulator.machine.replay.values import F32, Buffer, Ints, Value, View, runs, together
from ktir.target import LANES

_WORTH = 512
"""Halves from which on there is a faster way to widen them than NumPy's."""
_MOST = 1 << 15
"""Halves up to which the values stay in cache while they are widened."""


@dataclass(frozen=True)
class Box:
    """Entries that strides describe in memory and in the buffer; the last axis are their live lanes."""

    memory: View
    buffer: View


@dataclass(frozen=True)
class Part:
    """Some entries with the same number of live lanes: the element of lane 0 of each, in memory and in the buffer."""

    lanes: int
    memory: Ints
    buffer: Ints


def cut(t: Transfer, extent: Sequence[int], buffer: Ints, lane: int, *, loads: bool) -> tuple[list[Box], list[Part]]:
    """The boxes and parts of a transfer; `buffer` has the elements of lane 0 [cores, entries], `lane` the distance of lanes there.

    There is at most one box per number of live lanes: of those cores, from the first on, whose live positions are core 0's.
    """
    boxes: list[Box] = []
    parts: list[Part] = []
    alike = (t.live == t.live[:1]).all(1)
    cores = len(alike) if alike.all() else int(np.argmin(alike))
    for lanes in np.unique(t.live[t.live > 0]).tolist():
        rest = t.live == lanes
        spans = _spans(rest[0].reshape(extent))
        if t.indices is None and spans is not None:
            of = (slice(None), *spans)
            memory, inside = (a[:cores].reshape(cores, *extent)[of] for a in (t.at, buffer))
            walks = (memory, t.lane), (inside, lane)
            of, to = walks if loads else walks[::-1]
            views = together(*of, *to, lanes)
            if views is not None:
                boxes.append(Box(*(views if loads else views[::-1])))
                rest[:cores] = False
        if rest.any():
            parts.append(Part(lanes, t.at[rest], buffer[rest]))
    return boxes, parts


def _spans(where: np.ndarray) -> tuple[slice, ...] | None:
    """The box that holds exactly the marked positions, or None."""
    if not where.any():
        return None
    found = np.nonzero(where) if where.ndim else ()
    spans = tuple(slice(int(i.min()), int(i.max()) + 1) for i in found)
    return spans if where[spans].all() else None


def _copy(target: NDArray[Any], to: Ints, to_lane: int, source: NDArray[Any], of: Ints, of_lane: int, lanes: int) -> None:
    """Copy runs of `lanes` elements that begin at `of` to `to`; where runs overlap, the last one stays."""
    rows, shift = runs(target, to_lane, lanes)
    source_rows, source_shift = runs(source, of_lane, lanes)
    found = source_rows[of + source_shift]
    rows[to + shift] = wide(np.ascontiguousarray(found)) if waits(found) else found


@dataclass(frozen=True)
class Gather:
    """Where entries lie by indices: `at` is where index 0 would be [cores, entries]."""

    reader: IndexReader
    at: Ints


@dataclass
class Load:
    """Memory -> buffer [cores, entries, 64]. `pads` has (live lanes, entries): the lanes from there on hold the pad value."""

    argument: int
    lane: int
    """Elements between lanes in memory."""
    target: Buffer
    boxes: list[Box]
    parts: list[Part]
    pad: np.float32
    pads: list[tuple[int, Ints]]
    gathers: Gather | None = None
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writes = [self.target]

    def calls(self, launch: Launch) -> list[Call]:
        """One call for each box and each part, one for the pads of each number of lanes."""
        flat, rows = self.target.flat, self.target.rows
        out: list[Call] = [(_from_box(launch, self.argument, box.memory, box.buffer.of(flat)), ()) for box in self.boxes]
        if self.gathers is not None:
            out.append((self._gathered(launch, self.gathers, flat), ()))
        else:
            out += [(_from_part(launch, self.argument, self.lane, flat, part), ()) for part in self.parts]
        out += [(rows.__setitem__, ((entries, slice(lanes, None)), self.pad)) for lanes, entries in self.pads]
        return out

    def _gathered(self, launch: Launch, gathers: Gather, flat: F32) -> Callable[[], None]:
        reader, at = gathers.reader, gathers.at

        def run() -> None:
            shift = np.broadcast_to(reader.indices.moved(at, reader.read(launch.arguments)) - at, at.shape).ravel()
            memory = launch.arguments[self.argument].reshape(-1)
            for part in self.parts:
                _copy(flat, part.buffer, 1, memory, part.memory + shift[part.buffer // LANES], self.lane, part.lanes)

        return run


def _from_box(launch: Launch, argument: int, memory: View, target: F32) -> Callable[[], None]:
    many, dense = target.size >= _WORTH, target.flags.c_contiguous and target.size <= _MOST
    halves, offset, widened = tuple(2 * s for s in memory.strides), 2 * memory.offset, widening(target)

    def run() -> None:
        whole = launch.arguments[argument]
        if not many or whole.dtype != np.float16:
            put(target, window(whole, memory))
            return
        largest = launch.largest(argument)
        if dense and largest is not None and largest < inf:
            widened(np.ndarray(memory.shape, np.float16, whole, offset, halves))
        else:
            f16_to_f32(window(whole, memory), target)

    return run


def _from_part(launch: Launch, argument: int, lane: int, flat: F32, part: Part) -> Callable[[], None]:
    return lambda: _copy(flat, part.buffer, 1, launch.arguments[argument].reshape(-1), part.memory, lane, part.lanes)


@dataclass
class Store:
    """Buffer -> memory, the entries of `value` [cores | 1, 1, entries]."""

    argument: int
    lane: int
    """Elements between lanes in memory."""
    value: Value
    boxes: list[Box]
    parts: list[Part]
    narrow: str = ""
    """The float of one byte that memory has, to which what is stored is rounded; empty where elements go as they are."""
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [self.value.buffer]

    def calls(self, launch: Launch) -> list[Call]:
        """One call for each box and each part."""
        flat = self.value.buffer.flat
        out: list[Call] = [(_to_box(launch, self.argument, box.memory, box.buffer.of(flat), self.narrow), ()) for box in self.boxes]
        return out + [(_to_part(launch, self, flat, part), ()) for part in self.parts]

    def mark(self, memory: NDArray[np.bool_]) -> None:
        """Note which elements of the argument it writes, whatever the values."""
        for box in self.boxes:
            window(memory, box.memory)[...] = True
        for part in self.parts:
            rows, shift = runs(memory, self.lane, part.lanes)
            rows[part.memory + shift] = True


def _to_box(launch: Launch, argument: int, memory: View, source: F32, narrow: str) -> Callable[[], None]:
    if narrow:
        return lambda: launch.write(argument, window(launch.arguments[argument], memory), ..., round_to(narrow, np.array(source)))
    return lambda: launch.write(argument, window(launch.arguments[argument], memory), ..., source)


def _to_part(launch: Launch, store: Store, flat: F32, part: Part) -> Callable[[], None]:
    def run() -> None:
        rows, shift = runs(launch.arguments[store.argument].reshape(-1), store.lane, part.lanes)
        source, of = runs(flat, store.value.lane, part.lanes)
        found = source[part.buffer + of]
        launch.write(store.argument, rows, part.memory + shift, round_to(store.narrow, np.array(found)) if store.narrow else found)

    return run


@dataclass
class Scatter:
    """Buffer -> memory through indices: entries in order, of one element a core's last one stays."""

    transfer: Transfer
    value: Value
    reader: IndexReader
    claims: Claims
    narrow: str = ""
    """As of `Store`."""
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [self.value.buffer]

    def calls(self, launch: Launch) -> list[Call]:
        """One call."""
        t, lane = self.transfer, np.arange(LANES)
        live = t.live[..., None] > lane
        core = np.broadcast_to(np.arange(len(t.live))[:, None, None], live.shape)[live]
        source = np.broadcast_to(self.value.elements()[:, 0], live.shape)[live]
        inside = lane * t.lane

        def run() -> None:
            at = self.reader.indices.moved(t.at, self.reader.read(launch.arguments))
            elements = (at[..., None] + inside)[live]
            memory = launch.arguments[t.argument].reshape(-1)
            self.claims.claim(memory.size, elements, core, self.reader.site)
            launch.write(t.argument, memory, elements, round_to(self.narrow, self.value.buffer.flat[source]))

        return [(run, ())]


@dataclass
class BeginKernel:
    """Forgets what the last launch or kernel scattered."""

    claims: list[Claims]
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def calls(self, launch: Launch) -> list[Call]:
        """One call per argument that the kernel scatters to."""
        return [(c.start, ()) for c in self.claims]
