"""Checks of global memory that need the whole program: races, uninitialised reads, type confusion; and what a launch must copy.

They run once per plan, on addresses alone: one shadow array per fact, with one entry per *granule*, the largest number of bytes that
every access of the buffer touches as a whole (often a stick).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import Race, TypeConfusion, Uninitialized
from ktir.emulator.policy import Policy
from ktir.emulator.reference.record.access import AnyAccess
from ktir.emulator.reference.tape.values import ELEMENT_BYTES, Buffer

__all__ = ["Traffic", "check"]

_MOST_RANGES = 256
"""Ranges that are written back one by one; beyond, the whole span is."""

Ranges = list[tuple[int, int]]


@dataclass
class Traffic:
    """What a launch moves between a buffer and its carriers, per element type and in elements.

    `fill`: range whose initial content is read (or must survive); `write_back`: ranges that were written.
    """

    fill: dict[str, tuple[int, int]] = field(default_factory=dict)
    write_back: dict[str, Ranges] = field(default_factory=dict)


def check(buffer: Buffer, accesses: list[AnyAccess], policy: Policy) -> Traffic:
    """Check all accesses to `buffer`, in order. Raises the first Finding."""
    return _Check(buffer, accesses, policy).run()


class _Check:
    def __init__(self, buffer: Buffer, accesses: list[AnyAccess], policy: Policy) -> None:
        self.buffer, self.accesses, self.policy = buffer, accesses, policy
        self.elements = sorted({a.element for a in accesses} | {p[2] for p in buffer.placed})
        self.granule = _granule(buffer, accesses)
        end = max((high * ELEMENT_BYTES[a.element] for a in accesses for _, high in a.spans()), default=0)
        end = max([end, *(p[0] + p[3] * ELEMENT_BYTES[p[2]] for p in buffer.placed)])
        count = -(-end // self.granule)
        self.writing = np.full(count, -1, np.int32)
        """Number of the access that wrote a granule last."""
        self.kind = np.zeros(count, np.int8)
        """Element type that it was written as."""
        self.unwritten_read = {e: (count, 0) for e in self.elements}
        self.held = np.zeros(count, np.bool_)
        """Whether the caller has put something there."""
        for start, _, element, n in buffer.placed:
            part = slice(start // self.granule, (start + n * ELEMENT_BYTES[element]) // self.granule)
            self.held[part] = True
            self.kind[part] = self.elements.index(element)
        several = any(a.several for a in accesses)
        self.races = policy.races and several and any(a.write for a in accesses)
        size = count if self.races else 0
        self.writer = np.full(size, -1, np.int32)
        """Tile that wrote a granule in the current kernel."""
        self.reader = np.full(size, -1, np.int32)
        """Tile that read it in the current kernel; -2: several."""
        self.reading = np.full(size, -1, np.int32)
        self.times = self.races and any(a.epoch > 1 for a in accesses)
        """Whether tiles have waited for each other within a kernel: then the epoch of an access counts."""
        self.write_epoch = np.zeros(size if self.times else 0, np.int64)
        self.read_epoch = np.zeros(size if self.times else 0, np.int64)

    def run(self) -> Traffic:
        kernel = None
        done: set[object] = set()
        for number, access in enumerate(self.accesses):
            if access.kernel != kernel:
                kernel = access.kernel
                done = set()
                self.writer.fill(-1)
                self.reader.fill(-1)
            # The same access again in the same kernel finds nothing new, unless types change in between.
            if len(self.elements) == 1:
                if access.key in done:
                    continue
                done.add(access.key)
            for tiles, ids in access.granules(self.granule):
                if access.write:
                    self._write(number, tiles, ids)
                else:
                    self._read(number, tiles, ids)
        return self._traffic()

    def _read(self, number: int, tiles: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
        access = self.accesses[number]
        element = access.element
        written = self.writing[ids]
        if len(self.elements) > 1:
            wrong = ((written >= 0) | self.held[ids]) & (self.kind[ids] != self.elements.index(element))
            if wrong.any():
                i = _first(wrong)
                held = self.elements[self.kind[ids[i]]]
                before = int(written[i])
                raise TypeConfusion(
                    f"reads '{self.buffer.name}' as {element} where it holds {held}",
                    access.where,
                    tiles=[int(tiles[i[0]])],
                    address=self._address(ids[i], element),
                    other=self.accesses[before].where if before >= 0 else None,
                    other_label="the write",
                )
        missing = written < 0
        if missing.any():
            bare = missing & ~self.held[ids]
            if not self.buffer.initialized and self.policy.uninitialized and bare.any():
                missing = bare
                i = _first(missing)
                address = self._address(ids[i], element)
                raise Uninitialized(
                    f"reads element {address} of '{self.buffer.name}', which nothing has written{_on(access, tiles[i[0]])}",
                    access.where,
                    tiles=sorted({int(t) for t in tiles[missing.any(1)]}),
                    address=address,
                )
            low, high = self.unwritten_read[element]
            bare = ids[missing]
            self.unwritten_read[element] = (min(low, int(bare.min())), max(high, int(bare.max()) + 1))
        if not self.races:
            return
        mine = np.broadcast_to(tiles[:, None], ids.shape)
        owner = self.writer[ids]
        bad = (owner >= 0) & (owner != mine) & ~self._after_write(ids, mine, owner, access)
        self._report(bad, owner, mine, ids, access, written, ("reads", "written", "the write"))
        flat, tile = ids.reshape(-1), mine.reshape(-1)
        before = self.reader[flat]
        self.reader[flat] = np.where((before == -1) | (before == tile), tile, -2)
        # Two tiles of one access: the later entry won above; whoever finds another's number makes it several.
        seen = self.reader[flat]
        self.reader[flat[(seen != tile)]] = -2
        self.reading[flat] = number
        if self.times:
            self.read_epoch[flat] = access.epoch

    def _after_write(
        self, ids: NDArray[np.int64], mine: NDArray[np.int32], owner: NDArray[np.int32], access: AnyAccess
    ) -> NDArray[np.bool_]:
        """Where the write of a granule is known to have happened before this access."""
        if not self.times:
            return np.zeros((), np.bool_)
        return access.clock[mine, np.maximum(owner, 0)] >= self.write_epoch[ids]

    def _after_read(
        self, ids: NDArray[np.int64], mine: NDArray[np.int32], reader: NDArray[np.int32], access: AnyAccess
    ) -> NDArray[np.bool_]:
        """Where the reads of a granule are known to have happened before this access; of several readers, all must be."""
        if not self.times:
            return np.zeros((), np.bool_)
        clock = access.clock.copy()
        np.fill_diagonal(clock, np.iinfo(np.int64).max)
        epoch = self.read_epoch[ids]
        return np.where(reader >= 0, clock[mine, np.maximum(reader, 0)] >= epoch, clock.min(1)[mine] >= epoch)

    def _write(self, number: int, tiles: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
        access = self.accesses[number]
        if self.races:
            mine = np.broadcast_to(tiles[:, None], ids.shape)
            owner, reader = self.writer[ids], self.reader[ids]
            self._report(
                (owner >= 0) & (owner != mine) & ~self._after_write(ids, mine, owner, access),
                owner,
                mine,
                ids,
                access,
                self.writing[ids],
                ("writes", "written", "the other write"),
            )
            self._report(
                (reader != -1) & (reader != mine) & ~self._after_read(ids, mine, reader, access),
                reader,
                mine,
                ids,
                access,
                self.reading[ids],
                ("writes", "read", "the read"),
            )
            self.writer[ids] = mine
            owner = self.writer[ids]
            same = np.full(ids.shape, number)
            self._report(owner != mine, owner, mine, ids, access, same, ("writes", "written", "the other write"))
            if self.times:
                self.write_epoch[ids] = access.epoch
        self.writing[ids] = number
        self.kind[ids] = self.elements.index(access.element)

    def _report(
        self,
        bad: NDArray[np.bool_],
        other: NDArray[np.int32],
        mine: NDArray[np.int32],
        ids: NDArray[np.int64],
        access: AnyAccess,
        numbers: NDArray[np.int32],
        words: tuple[str, str, str],
    ) -> None:
        if not bad.any():
            return
        i = _first(bad)
        does, done, label = words
        address = self._address(ids[i], access.element)
        tiles = [int(mine[i])] + ([int(other[i])] if other[i] >= 0 else [])
        by = f"tile {tiles[1]}" if len(tiles) > 1 else "other tiles"
        raise Race(
            f"{does} element {address} of '{self.buffer.name}' on tile {tiles[0]}, and it is {done} by {by} of the same kernel",
            access.where,
            tiles=tiles,
            address=address,
            other=self.accesses[int(numbers[i])].where,
            other_label=label,
        )

    def _address(self, granule: np.int64 | NDArray[np.int64], element: str) -> int:
        return int(granule) * self.granule // ELEMENT_BYTES[element]

    def _traffic(self) -> Traffic:
        traffic = Traffic()
        for code, element in enumerate(self.elements):
            size = ELEMENT_BYTES[element]

            def elements(low: int, high: int, size: int = size) -> tuple[int, int]:
                limit = (self.buffer.size or high * self.granule) // size
                return low * self.granule // size, min(limit, -(-high * self.granule // size))

            low, high = self.unwritten_read[element]
            mask = (self.writing >= 0) & (self.kind == code)
            edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
            if len(edges) > 2 * _MOST_RANGES and len(self.elements) == 1:
                first, end = int(edges[0]), int(edges[-1])
                traffic.write_back[element] = [elements(first, end)]
                low, high = min(low, first), max(high, end)
            elif len(edges):
                traffic.write_back[element] = [elements(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
            if low < high:
                traffic.fill[element] = elements(low, high)
        return traffic


def _first(bad: NDArray[np.bool_]) -> tuple[int, int]:
    row, column = np.nonzero(bad)
    return int(row[0]), int(column[0])


def _on(access: AnyAccess, tile: np.int32) -> str:
    return f" (tile {tile})" if access.several else ""


def _granule(buffer: Buffer, accesses: list[AnyAccess]) -> int:
    result = 0
    seen: set[object] = set()
    for access in accesses:
        if access.key not in seen:
            seen.add(access.key)
            result = gcd(result, access.distance())
    for start, _, element, count in buffer.placed:
        result = gcd(result, start, count * ELEMENT_BYTES[element])
    return result or 1
