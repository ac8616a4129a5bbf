"""What lies in LX while a tape is built: per class of cores and stick, which entry of which value.

Reading LX is looking up where the entries lie; nothing is copied unless they have several producers or some lanes are pads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.replay.emitter import Emitter, entries, whole_piece
from ktir.emulator.machine.replay.ops import Piece
from ktir.emulator.machine.replay.values import Ints, Value, shrink
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.access import Access
from ktir.target import LANES, STICK_BYTES

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class _Found:
    """The producers of some sticks [classes, corelets, entries, halves]: place in `LxMap.values` (-1 = none) and cell.

    A cell is corelet * entries + entry of the value, times 2, plus which half of the entry it is.
    """

    value: NDArray[np.int32]
    cell: NDArray[np.int32]


class LxMap:
    """The values in LX. `producer`, `cell` and `width` are [classes of cores, sticks]."""

    def __init__(self, trace: Trace, corelets: int, emitter: Emitter) -> None:
        self.trace = trace
        self.corelets = corelets
        self.emitter = emitter
        self.values: list[Value] = []
        shape = (max(trace.classes, default=0) + 1, trace.lx_sticks + 1)  # of an f32 pair at the end only half may be live
        self.producer = np.full(shape, -1, np.int32)
        self.cell = np.zeros(shape, np.int32)
        self.width = np.zeros(shape, np.int8)
        """Sticks of the entry that a stick belongs to."""

    def begin(self, cores: int) -> None:
        """Start a kernel on `cores` cores."""
        self.cores = cores
        class_of = np.array(self.trace.classes[:cores])
        self.classes = np.unique(class_of)
        self.member = np.searchsorted(self.classes, class_of)
        """Per core the place of its class in `classes`."""
        self.first = [int(np.argmax(class_of == c)) for c in self.classes]
        self._walks: dict[tuple[int, bool], Ints] = {}
        """Sticks relative to where a walk begins."""

    def write(self, access: Access, e: Event, value: Value) -> None:
        """Put the entries of `value` where `access` says; only sticks with live lanes change."""
        sticks, lanes = self._sticks(access, e), self._lanes(access, e)
        corelets, n = sticks.shape[1:]
        if corelets > value.at.shape[1]:
            value = Value(value.buffer, np.broadcast_to(value.at, (value.at.shape[0], corelets, n)), value.lane)
        if lanes is not None and ((lanes > 0) & (lanes < LANES)).any():
            value = self._merge(access, sticks, lanes, value)
        self.values.append(value)
        row = np.broadcast_to(self.classes[:, None, None], sticks.shape)
        cell = np.broadcast_to(np.arange(corelets * n).reshape(1, corelets, n), sticks.shape)
        for half in range(access.width):
            at, r, c = sticks + half, row, cell
            if lanes is not None:
                live = np.broadcast_to(lanes > half * (LANES // access.width), sticks.shape)
                at, r, c = at[live], r[live], c[live]
            self.producer[r, at] = len(self.values) - 1
            self.cell[r, at] = 2 * c + half
            self.width[r, at] = access.width

    def read(self, access: Access, e: Event) -> Value:
        """The entries that `access` reads."""
        sticks, lanes = self._sticks(access, e), self._lanes(access, e)
        live = None if lanes is None else lanes > 0
        if live is not None:
            sticks = np.where(live, sticks, 0)
        found = self._find(sticks, access.width)
        value = None if lanes is not None else self._forward(found)
        if value is None:
            value = self._gather(found, access, lanes)
        return Value(value.buffer, value.at, 0) if access.descriptor.splat else value

    # Addresses

    def _sticks(self, access: Access, e: Event) -> Ints:
        """First sticks per class [classes, corelets or 1, entries]."""
        key, origin = (access.index, e.unit.per_corelet), access.origin(e.counters) // STICK_BYTES
        if key not in self._walks:
            corelets = range(self.corelets) if e.unit.per_corelet else (0,)
            self._walks[key] = np.stack([self._per_class(access.sticks(e.counters, k)) for k in corelets], 1) - origin
        return self._walks[key] + origin

    def _lanes(self, access: Access, e: Event) -> Ints | None:
        """Live lanes per class [classes, corelets or 1, entries], or None."""
        corelets = range(self.corelets) if e.unit.per_corelet else (0,)
        lanes = [access.lanes(e.counters, k) for k in corelets]
        if all(x is None for x in lanes):
            return None
        full = np.full((1, access.entries), LANES)
        return np.stack([self._per_class(full if x is None else x) for x in lanes], 1)

    def _per_class(self, x: Ints) -> Ints:
        return x[self.first] if len(x) > 1 else np.broadcast_to(x, (len(self.classes), *x.shape[1:]))

    # Producers

    def _find(self, sticks: Ints, width: int) -> _Found:
        row = self.classes[:, None, None, None]
        at = sticks[..., None] + np.arange(width)
        # sticks of entries of the other width are left from an earlier kernel: nothing depends on what is read there
        producer = np.where(self.width[row, at] == width, self.producer[row, at], np.int32(-1))
        return _Found(producer, self.cell[row, at])

    def _forward(self, found: _Found) -> Value | None:
        """The one value that holds all entries, or None."""
        first = int(found.value.flat[0])
        halves = np.arange(found.cell.shape[-1])
        if (
            first < 0
            or (found.value != first).any()
            or (found.cell % 2 != halves).any()
            or (found.cell // 2 != found.cell[..., :1] // 2).any()
        ):
            return None
        cells = found.cell[..., 0] // 2
        source = self.values[first]
        k, i = np.divmod(cells, source.entries)
        k = np.minimum(k, source.at.shape[1] - 1)
        rows = np.minimum(np.arange(self.cores), source.at.shape[0] - 1)
        if len(self.classes) == 1 or (cells == cells[:1]).all():
            at = source.at[:, k[0], i[0]]
            at = at[rows] if len(at) > 1 else at
        else:
            at = source.at[rows[:, None, None], k[self.member], i[self.member]]
        return Value(source.buffer, shrink(at), source.lane)

    def _gather(self, found: _Found, access: Access, lanes: Ints | None) -> Value:
        """Live lanes from wherever they lie, pads for the others."""
        shape = (self.cores, *found.value.shape[1:3])
        if lanes is None:
            return self.emitter.assemble(shape, self._pieces(found, access.width), access.pad)
        live = np.broadcast_to(lanes[self.member], shape)
        pads = [(n, np.flatnonzero(live == n)) for n in np.unique(live[live < LANES]).tolist()]
        return self.emitter.assemble(shape, self._pieces(found, access.width, end=live), access.pad, pads)

    def _merge(self, access: Access, sticks: Ints, lanes: Ints, value: Value) -> Value:
        """`value` with the lanes that a write leaves alone as LX has them."""
        shape = (self.cores, *sticks.shape[1:])
        live = np.broadcast_to(lanes[self.member], shape)
        old = self._find(np.where(lanes > 0, sticks, 0), access.width)
        left = self._pieces(old, access.width, begin=np.where(live > 0, live, LANES))
        return self.emitter.assemble(shape, [whole_piece(value, entries(shape)), *left])

    def _pieces(self, found: _Found, width: int, begin: Ints | None = None, end: Ints | None = None) -> list[Piece]:
        """Copies of what LX holds at some entries to those of a new value: of the lanes from `begin` to `end` [cores, corelets, n]."""
        per = LANES // width
        pieces = []
        for half in range(width):
            producers, cells = found.value[self.member, ..., half], found.cell[self.member, ..., half]
            core = np.broadcast_to(np.arange(self.cores)[:, None, None], producers.shape)
            target = entries(producers.shape) + half * per
            first, last = (np.clip(x - half * per, 0, per) if x is not None else None for x in (begin, end))
            for p in np.unique(producers[producers >= 0]):
                source, which = self.values[p], _where(producers == p)
                k, i = np.divmod(cells[which] // 2, source.entries)
                c = np.minimum(core[which], source.at.shape[0] - 1)
                of = source.at[c, np.minimum(k, source.at.shape[1] - 1), i] + cells[which] % 2 * per * source.lane
                for lanes, rows in _spans(None if first is None else first[which], None if last is None else last[which], per):
                    at, n = of[rows] + lanes.start * source.lane, lanes.stop - lanes.start
                    pieces.append(Piece(source.buffer, at, target[which][rows] + lanes.start, n, source.lane))
        return pieces


def _spans(first: Ints | None, last: Ints | None, per: int) -> Iterator[tuple[range, Mask | EllipsisType]]:
    """Of entries whose lanes from `first` (0 by default) to `last` (`per`) are wanted: the ranges of lanes that there are, and which
    entries have them.
    """
    if first is None and last is None:
        yield range(per), ...
        return
    begin, end = np.broadcast_arrays(0 if first is None else first, per if last is None else last)
    for code in np.unique(begin * (per + 1) + end).tolist():
        lanes = range(*divmod(code, per + 1))
        if lanes:
            yield lanes, _where((begin == lanes.start) & (end == lanes.stop))


def _where(mask: Mask) -> Mask | EllipsisType:
    """What picks the marked entries: where all are, an index that leaves their axes apart."""
    return ... if mask.all() else mask
