"""The scratchpad (LX) while a program is recorded: which value lies where.

A store puts a value at addresses and a load finds it again, so no memory is simulated: the load's result *is* the stored value if
the addresses agree, otherwise it is put together from the values that lie there. One map serves all tiles: an entry knows in which
tiles' scratchpads it lies. Where addresses differ between tiles, an access is done once per group of tiles with the same address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import LxOverflow, OutOfBounds, Where
from ktir.emulator.reference.compile.program import Program
from ktir.emulator.reference.record.access import Access, Part, resolve
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.record.scratchpad_checks import Entry, check_holes, check_read, check_write, meet, pad
from ktir.emulator.reference.tape.tape import Assemble, Binder, Call, Step
from ktir.emulator.reference.tape.values import ELEMENT_BYTES, AccessTile, Box, Overlay, Strided, Tensor, View, is_float

__all__ = ["Scratchpad"]


class Scratchpad:
    """The map of all scratchpads."""

    def __init__(self, rec: Recording, program: Program) -> None:
        self.rec = rec
        self.entries: list[Entry] = []
        self.peak = 0
        self.peaks = np.zeros(1, np.int64)
        """Highest byte used, per tile."""
        self.remote = program.remote
        """Whether tiles touch each other's scratchpads: only then can there be races."""
        self.program_bytes = program.lx_bytes
        self.logical = program.level is not None and program.level.of_host
        """Whether the program is of a level at which scratchpads have no end."""

    # Tiles

    def store(self, value: Tensor | Overlay, tile: AccessTile, where: Where) -> None:
        access = resolve(self.rec, tile, where, write=True)
        if access.parts:
            self.rec.counts.moved(tile.view, "ct_local", access.elements * ELEMENT_BYTES[value.element], write=True)
        self.store_parts(value, access, where)

    def store_parts(self, value: Tensor | Overlay, access: Access, where: Where) -> None:
        """Write the live parts of an access, whose view is one of scratchpads."""
        rec, owner = self.rec, _owner(access)
        for part in access.parts:
            piece = value
            if part.extents != access.tile.extents:
                whole = rec.plain(value)
                piece = whole.moved(whole.at.box(access.box(part)))
            for at, tiles in _groups(access, part, rec.tiles):
                if owner is None:
                    self.write(at, piece, tiles, where)
                    continue
                for writer in np.flatnonzero(tiles):
                    own = rec.on_tile(rec.plain(piece), int(writer))
                    self.write(at, own, _only(owner, max(owner + 1, rec.tiles)), where, int(writer))

    def load(self, tile: AccessTile, element: str, where: Where) -> Tensor | Overlay:
        rec = self.rec
        access = resolve(rec, tile, where, write=False)
        rec.counts.moved(tile.view, "ct_local", access.elements * ELEMENT_BYTES[element], write=False)
        if not access.parts:
            return rec.clipped_zero(tile.shape, element)
        groups = [(part, at, tiles) for part in access.parts for at, tiles in _groups(access, part, rec.tiles)]
        if len(groups) == 1:
            ((part, at, tiles),) = groups
            value = self.read(at, element, tiles, where, _owner(access))
            return value if part.extents == tile.extents else self._zero_padded(rec.plain(value), access, part)
        result = rec.clipped_zero(tile.shape, element)
        for part, at, tiles in groups:
            value = rec.plain(self.read(at, element, tiles, where, _owner(access)))
            result = rec.overwrite(result, [(access.box(part), value)], tiles)
        return result

    def pieces(self, access: Access, element: str, where: Where) -> Iterator[tuple[Part, NDArray[np.bool_], Tensor]]:
        """The values of an access, group by group: part, tiles, value of the part's shape."""
        for part in access.parts:
            for at, tiles in _groups(access, part, self.rec.tiles):
                yield part, tiles, self.rec.plain(self.read(at, element, tiles, where, _owner(access)))

    def _zero_padded(self, value: Tensor, access: Access, part: Part) -> Tensor:
        zeros = self.rec.clipped_zero(access.tile.shape, value.element)
        return self.rec.overwrite(zeros, [(access.box(part), value)])

    # Addresses

    def write(self, at: Strided, value: Tensor | Overlay, tiles: NDArray[np.bool_], where: Where, writer: int | None = None) -> None:
        """Put `value` at the addresses `at` of the scratchpads of `tiles`; `writer`: the tile that does it, if it is another's."""
        rec = self.rec
        low, high = self._bytes(at, value.element, where, tiles)
        if self.remote and rec.policy.races:
            check_write(self.rec, self.entries, low, high, tiles, writer, where)
        dense = at.present_size * ELEMENT_BYTES[value.element] == high - low and _injective(at)
        kept: list[Entry] = []
        for entry in self.entries:
            hidden = (dense and low <= entry.low and entry.high <= high) or (entry.at == at and entry.element == value.element)
            if hidden:
                count = max(tiles.size, entry.tiles.size)
                entry.tiles = pad(entry.tiles, count) & ~pad(tiles, count)
                if not entry.tiles.any():
                    continue
            kept.append(entry)
        kept.append(Entry(at, value.element, low, high, value, tiles.copy(), where, dense, rec.kernel, rec.epoch, writer))
        self.entries = kept

    def read(self, at: Strided, element: str, tiles: NDArray[np.bool_], where: Where, owner: int | None = None) -> Tensor | Overlay:
        """What lies at the addresses `at`: for `tiles` in their own scratchpads, or else in that of tile `owner`."""
        rec = self.rec
        held = tiles if owner is None else _only(owner, max(owner + 1, rec.tiles))
        low, high = self._bytes(at, element, where, held)
        found = [e for e in self.entries if e.overlaps(low, high) and meet(e.tiles, held)]
        if self.remote and rec.policy.races:
            check_read(self.rec, found, tiles, owner, where)
        if found and found[-1].at == at and found[-1].element == element:
            newest = found[-1]
            whole = owner is not None or _tiles_of(newest.value) >= rec.tiles
            if whole and pad(newest.tiles, held.size)[held.nonzero()[0]].all():
                return self._for_tiles(newest.value, owner)
        if owner is None:
            return self._assemble(found, at, element, tiles, where)
        # On the owner alone; then everybody takes its value.
        count, outer = max(owner + 1, rec.tiles), rec.tiles
        rec.tiles = count
        try:
            value = self._assemble(found, at, element, held, where)
        finally:
            rec.tiles = outer
        return rec.on_tile(value, owner)

    def holes(self, at: Strided, element: str, tiles: NDArray[np.bool_], owner: int | None) -> NDArray[np.bool_] | None:
        """Where nothing lies in the region `at`, one axis of addresses: [tiles, n], or None if something lies everywhere."""
        size, count = ELEMENT_BYTES[element], self.rec.tiles
        low, n = at.offset, at.shape[1]
        missing = np.ones((count, n), np.bool_)
        for entry in self.entries:
            if not entry.overlaps(low * size, (low + n) * size):
                continue
            members = pad(entry.tiles, max(count, 1 + (owner or 0)))
            if owner is not None:
                members = np.full(count, members[owner])
            first = _addresses(entry.at) * ELEMENT_BYTES[entry.element] // size - low
            missing[np.ix_(members[:count], first[(first >= 0) & (first < n)])] = False
        missing &= tiles[:count, None]
        return missing if missing.any() else None

    def _bytes(self, at: Strided, element: str, where: Where, tiles: NDArray[np.bool_]) -> tuple[int, int]:
        size = ELEMENT_BYTES[element]
        low, high = (x * size for x in at.span())
        members = np.flatnonzero(tiles)
        if low < 0:
            raise OutOfBounds(f"touches LX at byte {low}", where, tiles=members.tolist(), address=low)
        budget = self.rec.policy.lx_bytes
        if budget is None and not self.logical:
            budget = self.program_bytes
        if budget is not None and high > budget:
            raise LxOverflow(f"touches LX up to byte {high} of {budget}", where, tiles=members.tolist(), address=high)
        self.peak = max(self.peak, high)
        if self.peaks.size < tiles.size:
            self.peaks = np.concatenate([self.peaks, np.zeros(tiles.size - self.peaks.size, np.int64)])
        self.peaks[members] = np.maximum(self.peaks[members], high)
        return low, high

    # Values

    def _for_tiles(self, value: Tensor | Overlay, owner: int | None) -> Tensor | Overlay:
        """`value` on the tiles of the current kernel, which may be more or fewer than those of the kernel that stored it."""
        if owner is not None:
            return self.rec.on_tile(self.rec.plain(value), owner)
        if isinstance(value, Overlay):
            if value.base.at.shape[0] == self.rec.tiles == value.patch.at.shape[0]:
                return value
            value = self.rec.plain(value)
        return self._widened(value)

    def _assemble(self, found: list[Entry], at: Strided, element: str, reading: NDArray[np.bool_], where: Where) -> Tensor:
        """The value at addresses that no single store has written as they are read now."""
        rec = self.rec
        if (whole := self._of_boxes(found, at, element, reading)) is not None:
            return whole
        shape = at.shape[1:]
        wanted = _addresses(at)
        # Per tile and element: which entry, and which of its elements.
        source = np.full((rec.tiles, wanted.size), -1, np.int32)
        position = np.zeros((rec.tiles, wanted.size), np.int64)
        size = ELEMENT_BYTES[element]
        for number, entry in enumerate(found):
            tiles = np.flatnonzero(pad(entry.tiles, rec.tiles)[: rec.tiles] & pad(reading, rec.tiles)[: rec.tiles])
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
        check_holes(self.rec, source, wanted, reading, found, element, where)
        values = [self._widened(rec.plain(e.value)) for e in found]
        result = rec.temporary((rec.tiles, *shape), (rec.tiles, *shape), element)
        step = _Collect(tuple(values), (result,))
        step.source, step.position = source, position
        step.empty = float("nan") if rec.policy.poison and is_float(element) else 0
        rec.emit(step)
        return result

    def _of_boxes(self, found: list[Entry], at: Strided, element: str, reading: NDArray[np.bool_]) -> Tensor | None:
        """The same where it is a part of a stored value, or put together from whole ones, alike on all tiles that read; else None.

        A tensor that is stored stick by stick and read as a whole, or the other way round, needs no table of elements then.
        """
        rec = self.rec
        base: Tensor | None = None
        parts: list[tuple[Box, Tensor]] = []
        for entry in found:
            value = self._widened(rec.plain(entry.value))
            alike = entry.element == element and value.at.shape[0] == rec.tiles
            if not alike or not (pad(entry.tiles, reading.size)[: reading.size] | ~reading).all():
                return None
            if (box := box_within(at, entry.at)) is not None:
                base, parts = value.moved(value.at.box(box)), []
            elif (box := box_within(entry.at, at)) is not None:
                parts.append((box, value))
            else:
                return None
        if base is not None:
            return rec.overwrite(base, parts) if parts else base
        covered = np.zeros(at.shape[1:], np.bool_)
        for box, _ in parts:
            covered[tuple(slice(low, low + extent) for low, extent in box)] = True
        if not covered.all():
            return None
        empty = rec.temporary((rec.tiles, *at.shape[1:]), (rec.tiles, *at.shape[1:]), element)
        pieces = tuple((empty.at.box(box), i) for i, (box, _) in enumerate(parts))
        rec.emit(Assemble(tuple(value for _, value in parts), (empty,), pieces=pieces))
        return empty

    def _widened(self, value: Tensor) -> Tensor:
        """`value` on the tiles of the current kernel, or on fewer if it has fewer: those are never read."""
        at, count = value.at, self.rec.tiles
        if at.shape[0] == count:
            return value
        if at.shape[0] < count and at.strides[0] != 0:
            return value
        return value.moved(Strided((count, *at.shape[1:]), at.strides, at.offset))


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


def _owner(access: Access) -> int | None:
    view = access.tile.view
    assert isinstance(view, View)
    return view.owner


def _groups(access: Access, part: Part, count: int) -> Iterator[tuple[Strided, NDArray[np.bool_]]]:
    """Addresses and the tiles that touch them."""
    by_start: dict[int, NDArray[np.bool_]] = {}
    for run in part.runs:
        for i in range(run.count if run.step else 1):
            tiles = by_start.setdefault(run.start + i * run.step, np.zeros(count, np.bool_))
            tiles[run.first + i : run.first + (i + 1 if run.step else run.count)] = True
    base = access.at(part, part.runs[0])
    for start, tiles in by_start.items():
        yield Strided((1, *base.shape[1:]), (0, *base.strides[1:]), base.offset - part.runs[0].start + start), tiles


def _tiles_of(value: Tensor | Overlay) -> int:
    """On how many tiles a value is there."""
    parts = [value] if isinstance(value, Tensor) else [value.base, value.patch]
    return min(part.at.shape[0] if part.at.strides[0] else 1 << 30 for part in parts)


def _only(tile: int, count: int) -> NDArray[np.bool_]:
    return np.arange(count) == tile


def _addresses(at: Strided) -> NDArray[np.int64]:
    """All element addresses in row-major order."""
    result = np.asarray(at.offset)
    for n, s in zip(at.shape[1:], at.strides[1:], strict=True):
        result = np.add.outer(result, np.arange(n) * s)
    return result.reshape(-1)


def box_within(inner: Strided, outer: Strided) -> Box | None:
    """The box of `outer` that `inner` is, per dim the first position and the extent; None if its addresses are no such box."""
    if len(inner.shape) != len(outer.shape) or not _injective(outer):
        return None
    left = inner.offset - outer.offset
    dims = list(zip(inner.shape[1:], inner.strides[1:], outer.shape[1:], outer.strides[1:], strict=True))
    box = [(0, n) for n, *_ in dims]
    for d in sorted(range(len(dims)), key=lambda d: -dims[d][3]):
        extent, step, most, stride = dims[d]
        if extent > most or stride < 0 or (extent > 1 and step != stride):
            return None
        first = min(left // stride, most - extent) if stride and left > 0 else 0
        box[d] = (first, extent)
        left -= first * stride
    return tuple(box) if left == 0 else None


def _injective(at: Strided) -> bool:
    """Whether no two positions share an address, judged by nesting of the strides."""
    reach = 1
    for s, n in sorted((abs(s), n) for s, n in zip(at.strides[1:], at.shape[1:], strict=True) if n > 1):
        if s < reach:
            return False
        reach = s * n
    return True
