"""Checks of global memory that need the whole program: races, uninitialised reads, type confusion; and what a launch must copy.

They run once per plan, on addresses alone: one shadow array per fact, with one entry per *granule*, the largest number of bytes that
every access of the buffer touches as a whole (often a stick).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import Race, TypeConfusion, Uninitialized
from ktir.emulator.policy import Policy
from ktir.emulator.reference.memory import Access, Buffer, Run
from ktir.emulator.reference.values import ELEMENT_BYTES, Strided

__all__ = ["Traffic", "check"]

_BATCH = 1 << 21
"""Granule numbers held at once."""
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


def check(buffer: Buffer, accesses: list[Access], policy: Policy) -> Traffic:
    """Check all accesses to `buffer`, in order. Raises the first Finding."""
    return _Check(buffer, accesses, policy).run()


class _Check:
    def __init__(self, buffer: Buffer, accesses: list[Access], policy: Policy) -> None:
        self.buffer, self.accesses, self.policy = buffer, accesses, policy
        self.elements = sorted({a.tile.view.element for a in accesses})
        self.granule = _granule(accesses)
        end = max((high * ELEMENT_BYTES[a.tile.view.element] for a in accesses for _, high in _spans(a)), default=0)
        count = -(-max(end, buffer.size or 0) // self.granule)
        self.writing = np.full(count, -1, np.int32)
        """Number of the access that wrote a granule last."""
        self.kind = np.zeros(count, np.int8)
        """Element type that it was written as."""
        self.unwritten_read = {e: (count, 0) for e in self.elements}
        several = any(run.count > 1 or run.first for a in accesses for p in a.parts for run in p.runs)
        self.races = policy.races and several and any(a.write for a in accesses)
        size = count if self.races else 0
        self.writer = np.full(size, -1, np.int32)
        """Tile that wrote a granule in the current kernel."""
        self.reader = np.full(size, -1, np.int32)
        """Tile that read it in the current kernel; -2: several."""
        self.reading = np.full(size, -1, np.int32)

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
            key = (access.write, access.parts, access.tile.view.strides, access.tile.view.element)
            if len(self.elements) == 1:
                if key in done:
                    continue
                done.add(key)
            for tiles, ids in _granules(access, self.granule):
                if access.write:
                    self._write(number, tiles, ids)
                else:
                    self._read(number, tiles, ids)
        return self._traffic()

    def _read(self, number: int, tiles: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
        access = self.accesses[number]
        element = access.tile.view.element
        written = self.writing[ids]
        if len(self.elements) > 1:
            wrong = (written >= 0) & (self.kind[ids] != self.elements.index(element))
            if wrong.any():
                i = _first(wrong)
                held = self.elements[self.kind[ids[i]]]
                raise TypeConfusion(
                    f"reads '{self.buffer.name}' as {element} where it holds {held}",
                    access.where,
                    tiles=[int(tiles[i[0]])],
                    address=self._address(ids[i], element),
                    other=self.accesses[written[i]].where,
                    other_label="the write",
                )
        missing = written < 0
        if missing.any():
            if not self.buffer.initialized and self.policy.uninitialized:
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
        self._report((owner >= 0) & (owner != mine), owner, mine, ids, access, written, ("reads", "written", "the write"))
        flat, tile = ids.reshape(-1), mine.reshape(-1)
        before = self.reader[flat]
        self.reader[flat] = np.where((before == -1) | (before == tile), tile, -2)
        # Two tiles of one access: the later entry won above; whoever finds another's number makes it several.
        seen = self.reader[flat]
        self.reader[flat[(seen != tile)]] = -2
        self.reading[flat] = number

    def _write(self, number: int, tiles: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
        access = self.accesses[number]
        if self.races:
            mine = np.broadcast_to(tiles[:, None], ids.shape)
            owner, reader = self.writer[ids], self.reader[ids]
            self._report(
                (owner >= 0) & (owner != mine),
                owner,
                mine,
                ids,
                access,
                self.writing[ids],
                ("writes", "written", "the other write"),
            )
            self._report(
                (reader != -1) & (reader != mine),
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
        self.writing[ids] = number
        self.kind[ids] = self.elements.index(access.tile.view.element)

    def _report(
        self,
        bad: NDArray[np.bool_],
        other: NDArray[np.int32],
        mine: NDArray[np.int32],
        ids: NDArray[np.int64],
        access: Access,
        numbers: NDArray[np.int32],
        words: tuple[str, str, str],
    ) -> None:
        if not bad.any():
            return
        i = _first(bad)
        does, done, label = words
        address = self._address(ids[i], access.tile.view.element)
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


def _on(access: Access, tile: np.int32) -> str:
    return f" (tile {tile})" if any(r.count > 1 or r.first for p in access.parts for r in p.runs) else ""


def _spans(access: Access) -> Iterator[tuple[int, int]]:
    for part in access.parts:
        for run in part.runs:
            yield access.at(part, run).span()


def _blocks(at: Strided) -> tuple[int, list[tuple[int, int]]]:
    """Length of the contiguous runs of elements in the tile, and the other dims as (distance, extent)."""
    run, rest = 1, []
    for stride, extent in sorted((abs(s), n) for s, n in zip(at.strides[1:], at.shape[1:], strict=True) if n > 1 and s):
        if stride == run and not rest:
            run *= extent
        else:
            rest.append((stride, extent))
    return run, rest


def _granule(accesses: list[Access]) -> int:
    result = 0
    seen: set[object] = set()
    for access in accesses:
        key = (access.parts, access.tile.view.strides, access.tile.view.element)
        if key in seen:
            continue
        seen.add(key)
        size = ELEMENT_BYTES[access.tile.view.element]
        for part in access.parts:
            for run in part.runs:
                at = access.at(part, run)
                low = Strided(at.shape[1:], at.strides[1:], at.offset).span()[0]
                block, rest = _blocks(at)
                result = gcd(result, low * size, block * size, at.strides[0] * size, *(s * size for s, _ in rest))
    return result or 1


def _granules(access: Access, granule: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Tile ids and, per tile, numbers of the granules that it touches."""
    size = ELEMENT_BYTES[access.tile.view.element]
    for part in access.parts:
        for run in part.runs:
            at = access.at(part, Run(run.first, 1, run.start, 0))
            low = at.span()[0]
            block, rest = _blocks(at)
            ids = np.arange(block * size // granule, dtype=np.int64)
            for stride, extent in rest:
                ids = np.add.outer(np.arange(extent, dtype=np.int64) * (stride * size // granule), ids).reshape(-1)
            ids += low * size // granule
            step = max(1, _BATCH // ids.size)
            for first in range(0, run.count, step):
                tiles = np.arange(first, min(first + step, run.count))
                yield (run.first + tiles).astype(np.int32), ids + (tiles * run.step * size // granule)[:, None]
