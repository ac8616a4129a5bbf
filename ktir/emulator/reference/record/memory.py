"""Global memory while a program is recorded: loads and stores of tiles, also through distributed views."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import OutOfBounds, OutOfBuffer, TypeConfusion, Where
from ktir.emulator.reference.record.access import Access, AnyAccess, Run, resolve, tiles_text
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.record.scratchpad import Scratchpad
from ktir.emulator.reference.tape.tape import Assemble
from ktir.emulator.reference.tape.values import (
    CARRIERS,
    ELEMENT_BYTES,
    PAIRS,
    AccessTile,
    Buffer,
    Distributed,
    Storage,
    Strided,
    Tensor,
    is_float,
    is_odd,
    simplify,
    tile_runs,
)
from ktir.target import LANES

__all__ = ["Memory"]


class Memory:
    """All buffers of a recording and the accesses to them, in order."""

    def __init__(self, rec: Recording, scratchpad: Scratchpad) -> None:
        self.rec = rec
        self.scratchpad = scratchpad
        self.buffers: list[Buffer] = []
        self.accesses: dict[Buffer, list[AnyAccess]] = {}
        self._numbers: Buffer | None = None

    def new(self, buffer: Buffer) -> Buffer:
        self.buffers.append(buffer)
        return buffer

    def numbered(self) -> Buffer:
        """The memory that addresses without a base lie in."""
        if self._numbers is None:
            self._numbers = self.new(Buffer("global memory", None, initialized=False))
        return self._numbers

    def load(self, tile: AccessTile, element: str, where: Where) -> Tensor:
        """The elements of `tile`; positions that a masked view clips read as zero."""
        rec = self.rec
        access = self._resolve(tile, where, write=False)
        held = access.element
        rec.counts.moved(tile.view, "global", access.elements * ELEMENT_BYTES[held], write=False)
        rec.counts.shared += (access.elements - access.distinct_elements) * ELEMENT_BYTES[held]
        memory = self._carrier(access, held)
        if access.is_whole(rec.tiles):
            return rec.loaded(Tensor(memory, access.at(access.parts[0], access.parts[0].runs[0]), element, len(rec.steps)))
        return self._assembled([(access, memory)], [], tile, element)

    def _assembled(
        self,
        accesses: list[tuple[Access, Storage]],
        pieces: list[tuple[tuple[tuple[int, int], ...], NDArray[np.bool_], Tensor]],
        tile: AccessTile,
        element: str,
    ) -> Tensor:
        """A tile put together from global memory and from `pieces`: (box, tiles, value)."""
        rec = self.rec
        born = len(rec.steps)
        runs = [(access, memory, part, run) for access, memory in accesses for part in access.parts for run in part.runs]
        if not runs and not pieces:
            return rec.clipped_zero(tile.shape, element)
        alike = rec.single is not None or (len(runs) == 1 and not pieces and runs[0][3].count == rec.tiles and runs[0][3].step == 0)
        result = rec.temporary((rec.tiles, *tile.shape), (1 if alike else rec.tiles, *tile.shape), element)
        count = sum(access.elements for access, _ in accesses) + sum(int(t.sum()) * prod(n for _, n in box) for box, t, _ in pieces)
        reads: list[Tensor] = []
        targets: list[tuple[Strided, int]] = []
        for access, memory, part, run in runs:
            target = result.at.box(access.box(part))
            targets.append((target if alike else target.tiles(run.first, run.count), len(reads)))
            reads.append(Tensor(memory, access.at(part, run), element, born))
        for box, tiles, value in pieces:
            for first, n in tile_runs(tiles, rec.tiles):
                target = result.at.box(box)
                targets.append((target if alike else target.tiles(first, n), len(reads)))
                reads.append(value.moved(value.at.tiles(first, n)))
        covered = count == (rec.tiles if rec.single is None else 1) * prod(tile.shape)
        zero = None if covered else CARRIERS[element](0)
        step = Assemble(tuple(reads), (result,), pieces=tuple(targets), fill=zero)
        if not covered and not is_float(element):
            step.clip()
        rec.emit(step)
        return result

    def store(self, value: Tensor, tile: AccessTile, where: Where) -> None:
        """Write `value` to `tile`; what a masked view clips is dropped."""
        access = self._resolve(tile, where, write=True)
        self.rec.counts.moved(tile.view, "global", access.elements * ELEMENT_BYTES[value.element], write=True)
        self._write(value, access, where)

    def _write(self, value: Tensor, access: Access, where: Where) -> None:
        memory = self._carrier(access, value.element)
        reads: list[Tensor] = []
        pieces: list[tuple[Strided, int]] = []
        for part in access.parts:
            for run in part.runs:
                if run.step == 0 and run.count > 1:  # a race; if it is tolerated, the last tile wins
                    run = Run(run.first + run.count - 1, 1, run.start, 0)
                pieces.append((access.at(part, run), len(reads)))
                reads.append(value.moved(value.at.box(access.box(part)).tiles(run.first, run.count)))
        if pieces:
            target = Tensor(memory, pieces[0][0], value.element)
            self.rec.emit(Assemble(tuple(reads), (target,), pieces=tuple(pieces)))

    # Distributed views

    def load_distributed(self, tile: AccessTile, element: str, where: Where) -> Tensor:
        """The elements of `tile`, each from the view that owns it."""
        rec = self.rec
        found: list[tuple[Access, Storage]] = []
        pieces: list[tuple[tuple[tuple[int, int], ...], NDArray[np.bool_], Tensor]] = []
        for access in self._partitions(tile, where, write=False):
            space = "ct_local" if access.view.buffer is None else "global"
            rec.counts.moved(access.view, space, access.elements * ELEMENT_BYTES[element], write=False)
            if access.view.buffer is None:
                pieces += [(access.box(p), t, v) for p, t, v in self.scratchpad.pieces(access, element, where)]
            else:
                found.append((access, self._carrier(access, element)))
        return self._assembled(found, pieces, tile, element)

    def store_distributed(self, value: Tensor, tile: AccessTile, where: Where) -> None:
        """Write each element to the view that owns it; to every one of exact replicas."""
        rec = self.rec
        for access in self._partitions(tile, where, write=True):
            space = "ct_local" if access.view.buffer is None else "global"
            rec.counts.moved(access.view, space, access.elements * ELEMENT_BYTES[value.element], write=True)
            if access.view.buffer is None:
                self.scratchpad.store_parts(value, access, where)
            else:
                self._write(value, access, where)

    def _partitions(self, tile: AccessTile, where: Where, write: bool) -> list[Access]:
        """The accesses to the partitions of a distributed view that an access amounts to. Raises OutOfBounds where nobody owns."""
        rec, view = self.rec, tile.view
        assert isinstance(view, Distributed)
        covered = np.zeros(rec.tiles, np.int64)
        accesses: list[Access] = []
        boxes: list[tuple[Any, ...]] = []
        for part in view.parts:
            assert part.origin is not None
            box = tuple(_key(x) for x in (*part.origin, *part.owned))
            if box in boxes and not write:
                continue  # an exact replica
            anchor = tuple(simplify(np.subtract(a, o)) for a, o in zip(tile.anchor, part.origin, strict=True))
            clipped = replace(part, sizes=part.owned, masked=(True,) * len(part.owned))
            access = resolve(rec, AccessTile(clipped, anchor, tile.extents, tile.order), where, write)
            if not access.parts:
                continue
            if box not in boxes:
                for p in access.parts:
                    for run in p.runs:
                        covered[run.first : run.first + run.count] += p.elements
            boxes.append(box)
            if part.buffer is not None:
                self._keep(access, part.buffer)
            accesses.append(access)
        missing = (covered < prod(tile.extents)) & rec.live()
        if missing.any() and rec.policy.bounds:
            tiles = np.flatnonzero(missing)
            first = [int(np.broadcast_to(a, (rec.tiles,))[tiles[0]]) for a in tile.anchor]
            what = "writes" if write else "reads"
            raise OutOfBounds(
                f"{what} coordinates from {first} on, of which no partition of the distributed view owns all{tiles_text(rec, tiles)}",
                where,
                tiles=tiles.tolist(),
            )
        return accesses

    # Bookkeeping

    def _carrier(self, access: Access, element: str) -> Storage:
        buffer = access.view.buffer
        assert buffer is not None
        return buffer.carrier(element, max((high for _, high in access.spans()), default=0))

    def _resolve(self, tile: AccessTile, where: Where, write: bool) -> Access:
        access = resolve(self.rec, tile, where, write)
        assert access.view.buffer is not None
        self._keep(access, access.view.buffer)
        return access

    def _keep(self, access: Access, buffer: Buffer) -> None:
        self.check_type(buffer, access.element, access.where, access.write)
        self._check_buffer(access, buffer)
        self.accesses.setdefault(buffer, []).append(access)

    def check_type(self, buffer: Buffer, element: str, where: Where, write: bool) -> None:
        """Raises TypeConfusion if the buffer is an array of another type."""
        if buffer.element is None or buffer.element == element:
            return
        if (buffer.element in NUMPY_BITS and ELEMENT_BYTES[element] == 2) or (buffer.element, element) == ("i64", "index"):
            return
        if PAIRS.get(element) == buffer.element:
            return
        if is_odd(element) and CARRIERS[element] is CARRIERS.get(buffer.element):
            return
        what = "writes" if write else "reads"
        raise TypeConfusion(f"{what} '{buffer.name}' as {element}, but it is an array of {buffer.element}", where)

    def _check_buffer(self, access: Access, buffer: Buffer) -> None:
        limit = (_MOST_BYTES if buffer.size is None else buffer.size) // ELEMENT_BYTES[access.element]
        if access.element in PAIRS:
            limit -= limit % LANES  # they are what blocks of bytes are
        for part in access.parts:
            for run in part.runs:
                low, high = access.at(part, run).span()
                if low >= 0 and high <= limit:
                    continue
                tile = run.first
                for i in range(run.count):
                    one = access.at(part, Run(run.first + i, 1, run.start + run.step * i, 0)).span()
                    if one[0] < 0 or one[1] > limit:
                        tile, low, high = run.first + i, *one
                        break
                what = "writes" if access.write else "reads"
                size = f" of {limit} elements"
                raise OutOfBuffer(
                    f"{what} elements {low} to {high - 1} of '{buffer.name}'{size}" + (f" (tile {tile})" if self.rec.tiles > 1 else ""),
                    access.where,
                    tiles=[tile],
                    address=low if low < 0 else limit,
                )


_MOST_BYTES = 1 << 40
"""End of the memory that plain numbers address, in bytes."""

NUMPY_BITS = ("u16",)
"""Array types whose elements are the bits of a type of the same width that NumPy lacks."""


def _key(x: Any) -> Any:
    return tuple(x.tolist()) if isinstance(x, np.ndarray) else int(x)
