"""What lies in scratchpads, and what accesses are held against: races between tiles, types, bytes that nothing has written."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import Race, TypeConfusion, Uninitialized, Where
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.values import ELEMENT_BYTES, Overlay, Strided, Tensor

__all__ = ["Entry", "check_holes", "check_read", "check_write", "meet", "pad"]


@dataclass(eq=False)
class Entry:
    """A stored value: element addresses `at` (axis 0 is empty of meaning), byte interval, scratchpads that hold it.

    `writer`: the tile that put it there; None: each tile into its own. `kernel` and `epoch` say when. `readers`: for a scratchpad
    and a tile that has read there the kernel, epoch and op of its last read.
    """

    at: Strided
    element: str
    low: int
    high: int
    value: Tensor | Overlay
    tiles: NDArray[np.bool_]
    where: Where
    dense: bool
    kernel: int
    epoch: int
    writer: int | None = None
    readers: dict[tuple[int, int], tuple[int, int, Where]] = field(default_factory=dict)

    def overlaps(self, low: int, high: int) -> bool:
        return self.low < high and low < self.high


def check_read(rec: Recording, found: list[Entry], tiles: NDArray[np.bool_], owner: int | None, where: Where) -> None:
    """Raises Race where tiles read what another one may not have written yet."""
    for entry in found:
        for reader in (int(t) for t in np.flatnonzero(tiles)):
            lies = reader if owner is None else owner
            if lies >= entry.tiles.size or not entry.tiles[lies]:
                continue
            writer = lies if entry.writer is None else entry.writer
            if entry.kernel == rec.kernel and not rec.ordered(writer, entry.epoch, reader):
                raise Race(
                    f"reads LX byte {entry.low} of tile {lies} on tile {reader}, and it is written by tile {writer} of the same kernel",
                    where,
                    tiles=[reader, writer],
                    address=entry.low,
                    other=entry.where,
                    other_label="the write",
                )
            entry.readers[lies, reader] = rec.kernel, rec.epoch, where


def check_write(
    rec: Recording, entries: list[Entry], low: int, high: int, tiles: NDArray[np.bool_], writer: int | None, where: Where
) -> None:
    """Raises Race where tiles write what another one may still read or write."""
    for entry in entries:
        if not entry.overlaps(low, high) or not meet(entry.tiles, tiles):
            continue
        for lies in np.flatnonzero(pad(entry.tiles, tiles.size)[: tiles.size] & tiles).tolist():
            by = lies if writer is None else writer
            before = lies if entry.writer is None else entry.writer
            others = [(before, entry.epoch, entry.where, "written", "the other write")] if entry.kernel == rec.kernel else []
            read = [(r, *last) for (at, r), last in entry.readers.items() if at == lies]
            others += [(r, e, w, "read", "the read") for r, k, e, w in read if k == rec.kernel]
            for other, epoch, place, done, label in others:
                if not rec.ordered(other, epoch, by):
                    raise Race(
                        f"writes LX byte {max(low, entry.low)} of tile {lies} on tile {by}, and it is {done} by tile {other} of the"
                        " same kernel",
                        where,
                        tiles=[by, other],
                        address=max(low, entry.low),
                        other=place,
                        other_label=label,
                    )


def check_holes(
    rec: Recording,
    source: NDArray[np.int32],
    wanted: NDArray[np.int64],
    reading: NDArray[np.bool_],
    found: list[Entry],
    element: str,
    where: Where,
) -> None:
    """Raises a finding for the first byte of a read that has another type than what lies there, or that nothing has written.

    source: per tile and wanted element the number of the entry that it comes from, -1 if from none, beyond that -2 less the number of one
    of another type.
    """
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
    missing = (source == -1) & pad(reading, source.shape[0])[: source.shape[0], None]
    if missing.any() and rec.policy.uninitialized:
        tile, i = (int(x[0]) for x in np.nonzero(missing))
        address = int(wanted[i]) * ELEMENT_BYTES[element]
        raise Uninitialized(
            f"reads LX byte {address}, which nothing has written",
            where,
            tiles=np.flatnonzero(missing.any(1)).tolist(),
            address=address,
        )


def meet(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> bool:
    """Whether a tile is in both sets, which may be of grids of other sizes."""
    count = min(a.size, b.size)
    return bool((a[:count] & b[:count]).any())


def pad(tiles: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """A set of tiles of a grid of `count` tiles at least."""
    return tiles if tiles.size >= count else np.concatenate([tiles, np.zeros(count - tiles.size, np.bool_)])
