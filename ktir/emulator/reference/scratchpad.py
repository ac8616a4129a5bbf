"""The scratchpad (LX) while a program is recorded: which value lies where.

A store puts a value at addresses and a load finds it again, so no memory is simulated: the load's result *is* the stored value if
the addresses agree, otherwise it is put together from the values that lie there. Addresses are the same on all tiles, so one map
serves all of them; an entry knows which tiles have written it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import Unsupported
from ktir.emulator.findings import LxOverflow, OutOfBounds, TypeConfusion, Uninitialized, Where
from ktir.emulator.reference.memory import Access, Part, resolve
from ktir.emulator.reference.tape import Binder, Call, Step
from ktir.emulator.reference.values import CARRIERS, ELEMENT_BYTES, AccessTile, Overlay, Strided, Tensor

if TYPE_CHECKING:
    from ktir.emulator.reference.recorder import Recorder

__all__ = ["Scratchpad"]


@dataclass(eq=False)
class _Entry:
    """A stored value: element addresses `at` (axis 0 is empty of meaning), byte interval, tiles that have written it."""

    at: Strided
    element: str
    low: int
    high: int
    value: Tensor | Overlay
    tiles: NDArray[np.bool_]
    where: Where
    dense: bool

    def overlaps(self, low: int, high: int) -> bool:
        return self.low < high and low < self.high


class Scratchpad:
    """The map of one scratchpad, valid for all tiles."""

    def __init__(self, rec: Recorder) -> None:
        self.rec = rec
        self.entries: list[_Entry] = []
        self.peak = 0

    def store(self, value: Tensor | Overlay, tile: AccessTile, where: Where) -> None:
        rec = self.rec
        access, part = self._access(tile, where, write=True)
        if part is None:
            return
        active = np.zeros(rec.tiles, np.bool_)
        for run in part.runs:
            active[run.first : run.first + run.count] = True
        at = access.at(part, part.runs[0])
        at = Strided((1, *at.shape[1:]), (0, *at.strides[1:]), at.offset)
        low, high = self._bytes(at, value.element, where)
        rec.counts.written["ct_local"] += access.elements * ELEMENT_BYTES[value.element]
        if part.extents != tile.extents:
            whole = rec.plain(value)
            value = whole.moved(whole.at.box(access.box(part)))
        dense = at.present_size * ELEMENT_BYTES[value.element] == high - low and _injective(at)
        kept: list[_Entry] = []
        for entry in self.entries:
            hidden = (dense and low <= entry.low and entry.high <= high) or (entry.at == at and entry.element == value.element)
            if hidden:
                entry.tiles = _pad(entry.tiles, rec.tiles)
                entry.tiles[: rec.tiles] &= ~active
                if not entry.tiles.any():
                    continue
            kept.append(entry)
        kept.append(_Entry(at, value.element, low, high, value, active, where, dense))
        self.entries = kept

    def load(self, tile: AccessTile, element: str, where: Where) -> Tensor | Overlay:
        rec = self.rec
        access, part = self._access(tile, where, write=False)
        if part is None:
            return rec.constant(np.zeros((), CARRIERS[element]), tile.shape, element)
        at = access.at(part, part.runs[0])
        at = Strided((1, *at.shape[1:]), (0, *at.strides[1:]), at.offset)
        low, high = self._bytes(at, element, where)
        rec.counts.read["ct_local"] += access.elements * ELEMENT_BYTES[element]
        reading = np.zeros(rec.tiles, np.bool_)
        for run in part.runs:
            reading[run.first : run.first + run.count] = True
        found = [e for e in self.entries if e.overlaps(low, high) and (_pad(e.tiles, rec.tiles)[: rec.tiles] & reading).any()]
        if found and found[-1].at == at and found[-1].element == element:
            newest = found[-1]
            if _pad(newest.tiles, rec.tiles)[: rec.tiles][reading].all():
                value = self._for_tiles(newest.value)
                return value if part.extents == tile.extents else self._zero_padded(rec.plain(value), access, part)
        value = self._assemble(found, at, element, reading, where)
        return value if part.extents == tile.extents else self._zero_padded(value, access, part)

    def _zero_padded(self, value: Tensor, access: Access, part: Part) -> Tensor:
        zeros = self.rec.constant(np.zeros((), CARRIERS[value.element]), access.tile.shape, value.element)
        return self.rec.overwrite(zeros, [(access.box(part), value)])

    def _access(self, tile: AccessTile, where: Where, write: bool) -> tuple[Access, Part | None]:
        """The access and its live part, which must be the same for all tiles."""
        access = resolve(self.rec, tile, where, write)
        if not access.parts:
            return access, None
        first, *others = access.parts
        if others or any(run.step or run.start != first.runs[0].start for run in first.runs):
            what = "touches LX at places that differ between tiles, which the executor does not support"
            raise Unsupported(f"{where} {what}", where.location)
        return access, first

    def _bytes(self, at: Strided, element: str, where: Where) -> tuple[int, int]:
        size = ELEMENT_BYTES[element]
        low, high = (x * size for x in at.span())
        if low < 0:
            raise OutOfBounds(f"touches LX at byte {low}", where, address=low)
        budget = self.rec.policy.lx_bytes
        if high > budget:
            raise LxOverflow(f"touches LX up to byte {high} of {budget}", where, address=high)
        self.peak = max(self.peak, high)
        return low, high

    def _for_tiles(self, value: Tensor | Overlay) -> Tensor | Overlay:
        """`value` on the tiles of the current kernel, which may be more or fewer than those of the kernel that stored it."""
        if isinstance(value, Overlay):
            if value.base.at.shape[0] == self.rec.tiles == value.patch.at.shape[0]:
                return value
            value = self.rec.plain(value)
        count = self.rec.tiles
        at = value.at
        if at.shape[0] == count:
            return value
        if at.strides[0] == 0 or count < at.shape[0]:
            return value.moved(Strided((count, *at.shape[1:]), at.strides, at.offset))
        raise AssertionError("a value on fewer tiles than read it")

    def _assemble(self, found: list[_Entry], at: Strided, element: str, reading: NDArray[np.bool_], where: Where) -> Tensor:
        """The value at addresses that no single store has written as they are read now."""
        rec = self.rec
        shape = at.shape[1:]
        wanted = _addresses(at)
        # Per tile and element: which entry, and which of its elements.
        source = np.full((rec.tiles, wanted.size), -1, np.int32)
        position = np.zeros((rec.tiles, wanted.size), np.int64)
        size = ELEMENT_BYTES[element]
        for number, entry in enumerate(found):
            tiles = np.flatnonzero(_pad(entry.tiles, rec.tiles)[: rec.tiles] & reading)
            held = _addresses(entry.at)
            entry_size = ELEMENT_BYTES[entry.element]
            if entry.element == element:
                table = np.full(int(held.max()) - int(held.min()) + 1, -1, np.int64)
                table[held - held.min()] = np.arange(held.size)
                relative = wanted - held.min()
                inside = (relative >= 0) & (relative < table.size)
                at_entry = np.where(inside, table[np.where(inside, relative, 0)], -1)
                hit = at_entry >= 0
                code = number
            else:
                covered = np.zeros(entry.high - entry.low, np.bool_)
                starts = held * entry_size - entry.low
                for k in range(entry_size):
                    covered[starts + k] = True
                first = wanted * size - entry.low
                hit = np.zeros(wanted.size, np.bool_)
                for k in range(size):
                    inside = (first + k >= 0) & (first + k < covered.size)
                    hit |= inside & covered[np.where(inside, first + k, 0)]
                at_entry, code = np.zeros_like(wanted), -2 - number
            rows = np.ix_(tiles, np.flatnonzero(hit))
            source[rows] = code
            position[rows] = at_entry[hit]
        self._report(source, wanted, reading, found, element, where)
        values = [self._widened(rec.plain(e.value)) for e in found]
        result = rec.temporary((rec.tiles, *shape), (rec.tiles, *shape), element)
        step = _Collect(tuple(values), (result,))
        step.source, step.position = source, position
        step.empty = float("nan") if rec.policy.poison and CARRIERS[element] is np.float32 else 0
        rec.emit(step)
        return result

    def _widened(self, value: Tensor) -> Tensor:
        """`value` on the tiles of the current kernel, or on fewer if it has fewer: those are never read."""
        at, count = value.at, self.rec.tiles
        if at.shape[0] < count and at.strides[0] != 0:
            return value
        return value.moved(Strided((count, *at.shape[1:]), at.strides, at.offset))

    def _report(
        self,
        source: NDArray[np.int32],
        wanted: NDArray[np.int64],
        reading: NDArray[np.bool_],
        found: list[_Entry],
        element: str,
        where: Where,
    ) -> None:
        confused = source < -1
        if confused.any():
            tile, i = (int(x[0]) for x in np.nonzero(confused))
            entry = found[-2 - int(source[tile, i])]
            address = int(wanted[i]) * ELEMENT_BYTES[element]
            raise TypeConfusion(
                f"reads LX byte {address} as {element}, but it holds {entry.element}",
                where,
                tiles=np.flatnonzero(confused.any(1)).tolist(),
                address=address,
                other=entry.where,
                other_label="the write",
            )
        missing = (source == -1) & reading[:, None]
        if missing.any() and self.rec.policy.uninitialized:
            tile, i = (int(x[0]) for x in np.nonzero(missing))
            address = int(wanted[i]) * ELEMENT_BYTES[element]
            raise Uninitialized(
                f"reads LX byte {address}, which nothing has written",
                where,
                tiles=np.flatnonzero(missing.any(1)).tolist(),
                address=address,
            )


class _Collect(Step):
    """writes[0][t, i] = element position[t, i] of reads[source[t, i]] on tile t, or `empty` where source is -1."""

    source: NDArray[np.int32]
    position: NDArray[np.int64]
    empty: float

    def calls(self, binder: Binder) -> Iterable[Call]:
        target = binder.flat(self.writes[0]).reshape(self.source.shape)
        values = [binder.array(t, range(len(t.at.shape))) for t in self.reads]
        hits = [np.nonzero(self.source == number) for number in range(len(values))]

        def collect() -> None:
            target[...] = self.empty
            for value, hit in zip(values, hits, strict=True):
                if hit[0].size:
                    target[hit] = value.reshape(value.shape[0], -1)[hit[0], self.position[hit]]

        yield collect, ()


def _addresses(at: Strided) -> NDArray[np.int64]:
    """All element addresses in row-major order."""
    result = np.asarray(at.offset)
    for n, s in zip(at.shape[1:], at.strides[1:], strict=True):
        result = np.add.outer(result, np.arange(n) * s)
    return result.reshape(-1)


def _injective(at: Strided) -> bool:
    """Whether no two positions share an address, judged by nesting of the strides."""
    reach = 1
    for s, n in sorted((abs(s), n) for s, n in zip(at.strides[1:], at.shape[1:], strict=True) if n > 1):
        if s < reach:
            return False
        reach = s * n
    return True


def _pad(tiles: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    return tiles if tiles.size >= count else np.concatenate([tiles, np.zeros(count - tiles.size, np.bool_)])
