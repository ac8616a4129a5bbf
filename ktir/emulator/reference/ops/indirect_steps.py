"""What a launch does for an indirect access: it finds addresses, checks them, and moves blocks.

Variables that only address linearly form a block, the others say where blocks lie. A buffer of the caller's that the program only
reads this way is read in place, without conversion of the whole; one that it only writes this way is written when everything has
been checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.arithmetic.integers import fit
from ktir.emulator.findings import DuplicateTarget, OutOfBounds, OutOfBuffer, Uninitialized, Where
from ktir.emulator.reference.record.access import Points
from ktir.emulator.reference.tape.tape import Binder, Call, Step
from ktir.emulator.reference.tape.values import ELEMENT_BYTES, Buffer, Storage, Strided, Tensor, is_odd

__all__ = ["Cover", "Gather", "Indirect", "LocalScatter", "Scatter", "Source"]


@dataclass(eq=False)
class Source:
    """Where blocks lie: a carrier (`raw`: the caller's own array, given at launch), or a tensor with an axis of tiles."""

    buffer: Buffer | None
    element: str
    raw: NDArray[Any] | None = None

    @property
    def memory(self) -> NDArray[Any]:
        """All of the carrier."""
        assert self.buffer is not None
        array = self.buffer.carrier(self.element).array
        assert array is not None
        return array


@dataclass(eq=False)
class Cover:
    """Several accesses that are one through a distributed view: which points a partition has owned so far.

    `wanted`: the points [tiles, *variables] that need an owner.
    """

    wanted: NDArray[np.bool_]
    owned: NDArray[np.bool_] | None = None

    def add(self, valid: NDArray[np.bool_] | None, first: bool) -> None:
        if self.owned is None or first:
            self.owned = np.zeros(self.wanted.shape, np.bool_)
        np.logical_or(self.owned, True if valid is None else valid, out=self.owned)

    def check(self, where: Where, write: bool) -> None:
        missing = self.wanted & ~self.owned if self.owned is not None else self.wanted
        if missing.any():
            tiles = np.flatnonzero(missing.reshape(missing.shape[0], -1).any(1)).tolist()
            point = [int(x) for x in np.argwhere(missing)[0][1:]]
            raise OutOfBounds(
                f"{'writes' if write else 'reads'} coordinates that no partition of the distributed view owns, at {point} of its variables"
                + (f" (tile {tiles[0]})" if missing.shape[0] > 1 else ""),
                where,
                tiles=tiles,
            )


class Indirect(Step):
    """What gathers and scatters share. Reads: the index tensors, then what else the step needs.

    `fixed`: the part of the addresses that recording knows, [tiles, *variables] with length 1 where it does not vary; variables of
    the block are left out (length 1). `terms`: per index tensor its stride, size, dim, whether it is clipped, and the coordinate that
    is the view's first one.
    """

    source: Source
    fixed: NDArray[np.int64]
    terms: tuple[tuple[int, NDArray[np.int64], int, bool, NDArray[np.int64]], ...]
    block: tuple[tuple[int, int, int], ...]
    """(variable, stride, extent) of the dims of a block."""
    order: tuple[int, ...]
    mask: NDArray[np.bool_] | None
    active: NDArray[np.bool_] | None
    points: Points
    count: int = 0
    """Elements that the last launch has moved."""
    where: Where
    tiles: int
    bounds: bool
    limit: int | None = None
    cover: Cover | None = None
    first: bool = True
    """Whether it is the first, the last of the accesses that `cover` joins."""
    last: bool = True

    _known: tuple[NDArray[np.int64], NDArray[np.bool_] | None] | None = None

    def addresses(self, index: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Address of each block [tiles or 1, *variables], and which of them are live. Raises OutOfBounds."""
        if self._known is not None:
            return self._known
        found = self._found(index)
        if not self.terms and self.cover is None:  # every launch finds the same
            self._known = found
        return found

    def _found(self, index: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        total: Any = self.fixed
        valid: Any = self.mask
        if self.active is not None:
            live = self.active.reshape((-1,) + (1,) * (self.fixed.ndim - 1))
            valid = live if valid is None else live & valid
        for values, (stride, size, dim, clipped, origin) in zip(index, self.terms, strict=True):
            wide = values.astype(np.int64) - origin
            if not (wide.view(np.uint64) < size.view(np.uint64)).all():
                beyond = (wide < 0) | (wide >= size)
                wrong = beyond if valid is None else beyond & valid
                if not clipped and self.bounds and wrong.any():
                    at = np.argwhere(wrong)[0]
                    found = int(np.broadcast_to(wide, wrong.shape)[tuple(at)])
                    tiles = sorted({int(t) for t in np.argwhere(wrong)[:, 0]})
                    raise OutOfBounds(
                        f"has index {found} in dim {dim} of a view of size {int(np.broadcast_to(size, wrong.shape)[tuple(at)])}"
                        + (f" (tile {tiles[0]})" if self.tiles > 1 and wrong.shape[0] > 1 else ""),
                        self.where,
                        tiles=tiles if wrong.shape[0] > 1 else range(self.tiles),
                        address=found,
                    )
                valid = ~beyond if valid is None else valid & ~beyond
                wide = np.where(beyond, 0, wide)
            total = total + wide * stride
        if valid is not None:
            shape = np.broadcast_shapes(total.shape, valid.shape)
            valid = np.broadcast_to(valid, shape)
            total = np.where(valid, total, 0)
        if self.cover is not None:
            self.cover.add(valid, self.first)
            if self.last:
                self.cover.check(self.where, self.points.write)
        moved = total.shape if valid is None else valid.shape
        self.count = prod(self._inside[1]) * (prod(moved) if valid is None else int(valid.sum())) * (self.tiles // max(1, moved[0]))
        if total.size and not self._contained:
            low, high = int(total.min()), int(total.max()) + self._inside[0] + 1
            if low < 0 or (self.limit is not None and high > self.limit and (valid is None or valid.any())):
                name = self.source.buffer.name if self.source.buffer is not None else "LX"
                raise OutOfBuffer(
                    f"touches elements {low} to {high - 1} of '{name}' of {self.limit} elements",
                    self.where,
                    address=low if low < 0 else self.limit,
                )
        return total, valid

    @cached_property
    def _contained(self) -> bool:
        """Whether coordinates within the view, which others are set to, never lead out of the memory."""
        if self.limit is None or not self.fixed.size:
            return False
        ends = [(int(size.max()) - 1) * stride for stride, size, *_ in self.terms]
        ends += [(extent - 1) * stride for _, stride, extent in self.block]
        low, high = sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
        return int(self.fixed.min()) + low >= 0 and int(self.fixed.max()) + high < self.limit

    def remember(self, total: NDArray[np.int64], valid: NDArray[np.bool_] | None) -> None:
        """Keep the addresses for the checks of the whole launch."""
        if not self.points.dynamic:
            return
        shape = (self.tiles, *total.shape[1:])
        self.points.addresses = np.broadcast_to(total, shape).reshape(self.tiles, -1)
        self.points.valid = None if valid is None else np.broadcast_to(valid, shape).reshape(self.tiles, -1)

    def window(self, flat: NDArray[Any]) -> NDArray[Any]:
        """`flat` as blocks: element [a, ...] is that of the block at address a."""
        flat = np.ascontiguousarray(flat)  # what repeats has no memory of its own
        reach, extents, strides = self._inside
        size = flat.itemsize
        return np.ndarray((max(0, flat.size - reach), *extents), flat.dtype, flat, 0, [s * size for s in strides])

    @cached_property
    def _inside(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Of a block: the distance of its last element, extents, and strides after that from block to block."""
        strides, extents = tuple(s for _, s, _ in self.block), tuple(n for _, _, n in self.block)
        return sum((n - 1) * s for s, n in zip(strides, extents, strict=True)), extents, (1, *strides)

    def laid_out(self, array: NDArray[Any]) -> NDArray[Any]:
        """A tile [tiles, *tile dims] as [tiles, *variables outside of the block, *block]."""
        rank = len(self.order)
        variables = array.transpose(0, *(1 + self.order.index(v) for v in range(rank)))
        inside = [v for v, _, _ in self.block]
        outside = [v for v in range(rank) if v not in inside]
        return variables.transpose(0, *(1 + v for v in outside), *(1 + v for v in inside))

    def flat_addresses(self, total: NDArray[Any]) -> NDArray[Any]:
        """Addresses without the axes of the block."""
        inside = [v for v, _, _ in self.block]
        return total.reshape([n for axis, n in enumerate(total.shape) if axis == 0 or axis - 1 not in inside])


class Gather(Indirect):
    """writes[0] = the blocks at the addresses; reads: index tensors, then the tensor gathered from if there is no buffer.

    `holes`: of a scratchpad, where nothing has been written [tiles, n].
    """

    in_place: bool = False
    """Whether a launch reads the caller's own array, which nothing in the program writes."""
    holes: NDArray[np.bool_] | None = None
    low: int = 0
    """Address of the first element of a scratchpad that is gathered from."""

    def copies(self) -> list[Storage]:
        buffer, held = self.source.buffer, [t.storage for t in self.reads[len(self.terms) :]]
        return [self.writes[0].storage, *held, *([] if buffer is None else [buffer.carrier(self.source.element)])]

    def calls(self, binder: Binder) -> Iterable[Call]:
        count = len(self.terms)
        index = [binder.array(t) for t in self.reads[:count]]
        held = binder.array(self.reads[count], range(1, 2)) if len(self.reads) > count else None
        place = self.laid_out(binder.array(self.writes[0]))

        def run() -> None:
            total, valid = self.addresses(index)
            if self.source.raw is None:  # else nothing is written there, so there is nothing to check
                self.remember(total, valid)
            addresses = self.flat_addresses(total)
            out = place
            if not self.first:  # what others own is there already
                out = np.empty(place.shape, place.dtype)
            alive = None if valid is None else self.flat_addresses(np.broadcast_to(valid, total.shape))
            if len(place) < len(addresses):  # one row of the grid is held
                addresses, alive = addresses[: len(place)], None if alive is None else alive[: len(place)]
            if held is not None:
                tiles = held.shape[0]
                for t in range(len(out)):
                    flat, mine = held[t if tiles > 1 else 0], addresses[t if addresses.shape[0] > 1 else 0]
                    np.copyto(out[t], self.window(flat)[mine])
                    if self.holes is not None:
                        self._check_holes(t, mine, None if alive is None else alive[t if alive.shape[0] > 1 else 0])
            elif self.source.raw is not None:
                self._raw_once(addresses, out, alive)
            else:
                out[...] = self.window(self.source.memory)[addresses]
            if alive is not None:
                alive = np.broadcast_to(alive, out.shape[: alive.ndim])
            if self.first and alive is not None:
                out[~alive] = 0
            elif not self.first:
                place[... if alive is None else alive] = out[... if alive is None else alive]

        yield run, ()

    @property
    def is_lookup(self) -> bool:
        """Whether it brings single elements, row by row, from known addresses of an array of the caller that is read in place."""
        known = self.in_place and not self.terms and not self.points.dynamic
        whole = self.mask is None and self.active is None and self.cover is None
        target = self.writes[0].at
        in_order = self.order == tuple(range(len(self.order))) and target.present == self.fixed.shape
        return known and whole and not self.block and in_order and target.is_compact()

    def joined(self, addresses: NDArray[np.int64], storage: Storage) -> Gather:
        """A lookup as this one, of other addresses, into all of `storage`."""
        target = Tensor(storage, Strided((1, addresses.size), (0, 1)), self.source.element)
        result = Gather((), (target,), origin=self.origin)
        result.source, result.fixed, result.points, result.where = self.source, addresses[None], self.points, self.where
        result.terms, result.block, result.order, result.mask, result.active = (), (), (0,), None, None
        result.tiles, result.bounds, result.in_place = 1, self.bounds, True
        return result

    @cached_property
    def period(self) -> int:
        """After how many tiles what is gathered from a buffer repeats: rows of a grid often share what they read."""
        tiles = len(self.fixed)
        known = self.source.buffer is not None and self.mask is None and self.active is None and self.cover is None
        if not known or any(t.at.present[0] > 1 for t in self.reads):
            return self.tiles
        own = (self.fixed, *(x for _, size, _, _, origin in self.terms for x in (size, origin)))
        for period in range(1, tiles):
            if tiles % period == 0 and all(len(x) == 1 or (x[period:] == x[:-period]).all() for x in own):
                return period
        return self.tiles

    def hold_one_row(self, storage: Storage) -> None:
        """Put into `storage` only what is different: `period` tiles of the result."""
        target = self.writes[0]
        self.writes = (target.held_in(storage, target.at.tiles(0, self.period)),)

    def _raw_once(self, addresses: NDArray[np.int64], out: NDArray[Any], alive: NDArray[np.bool_] | None) -> None:
        """Read what repeats once."""
        if alive is not None or not self.period < len(out) == len(addresses):
            self._raw(addresses, out, alive)
            return
        self._raw(addresses[: self.period], out[: self.period], None)
        for first in range(self.period, len(out), self.period):
            np.copyto(out[first : first + self.period], out[: self.period])

    def _check_holes(self, tile: int, addresses: NDArray[np.int64], alive: NDArray[np.bool_] | None) -> None:
        assert self.holes is not None
        found = self.window(self.holes[tile if self.holes.shape[0] > 1 else 0])[addresses]
        if alive is not None:
            found = found[alive]
            addresses = addresses[alive]
        if found.any():
            block = found.reshape(addresses.size, -1).any(1)
            byte = (int(addresses.reshape(-1)[block][0]) + self.low) * ELEMENT_BYTES[self.source.element]
            raise Uninitialized(
                f"reads a block at LX byte {byte}, of which nothing has written all" + (f" (tile {tile})" if self.tiles > 1 else ""),
                self.where,
                tiles=[tile],
                address=byte,
            )

    def _raw(self, addresses: NDArray[np.int64], out: NDArray[Any], alive: NDArray[np.bool_] | None) -> None:
        raw, element = self.source.raw, self.source.element
        assert raw is not None
        window = self.window(raw)
        rows = prod(addresses.shape[1:])
        size = max(1, rows * prod(self._inside[1]))
        step = max(1, (1 << 18) // size)
        for first in range(0, addresses.shape[0], step):
            part = slice(first, first + step) if addresses.shape[0] > 1 else slice(None)
            found = window[addresses[part]]
            if alive is not None:
                found[~alive[part]] = 0
            into(found, out[part] if addresses.shape[0] >= out.shape[0] else out, element)


def into(found: NDArray[Any], out: NDArray[Any], element: str) -> None:
    """Values from the caller's array, whose elements are of type `element`, into carrier memory."""
    if found.shape != out.shape:
        found = np.broadcast_to(found, out.shape)
    if out.dtype == found.dtype:
        np.copyto(out, found)
    elif element == "f16":
        numerics.f16_to_f32(found, out=out)
    elif element in numerics.NARROW:
        out[...] = numerics.decode(element, found)
    elif is_odd(element):
        out[...] = fit(found, element)
    else:
        out[...] = found


class Scatter(Indirect):
    """Puts the blocks of the value at the addresses. Reads: index tensors, then the value.

    `deferred`: nothing else touches the buffer, which is written when the launch has passed all checks.
    """

    deferred: bool = False
    kept: Any = None
    duplicates: bool = True

    def copies(self) -> list[Storage]:
        return [t.storage for t in (*self.reads[len(self.terms) :], *self.writes)]

    def calls(self, binder: Binder) -> Iterable[Call]:
        index, value = self._bound(binder)

        def run() -> None:
            addresses, alive, data = self.targets(index, value)
            if self.deferred:
                self.kept = (addresses, alive, data.copy())
                return
            self._put(self.window(self.source.memory), addresses, alive, data)

        yield run, ()

    def _bound(self, binder: Binder) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """The index tensors, and the value."""
        *index, value = self.reads[: len(self.terms) + 1]
        return [binder.array(t) for t in index], binder.array(value, range(len(value.at.shape)))

    def targets(self, index: list[NDArray[Any]], value: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None, NDArray[Any]]:
        """Addresses of the blocks [tiles, ...], which of them are live, and the blocks. Raises DuplicateTarget."""
        total, valid = self.addresses(index)
        self.remember(total, valid)
        shape = (self.tiles, *self._outside())
        addresses = np.broadcast_to(self.flat_addresses(total), shape)
        alive = None if valid is None else np.broadcast_to(self.flat_addresses(np.broadcast_to(valid, total.shape)), shape)
        if self.duplicates:
            self.points.apart = self.points.dynamic and self.source.buffer is not None and self.points.all_apart()
            if not self.points.apart:
                self._check(addresses, alive)
        return addresses, alive, self.laid_out(value)

    def _outside(self) -> list[int]:
        inside = [v for v, _, _ in self.block]
        return [n for v, n in enumerate(self._extents) if v not in inside]

    _extents: tuple[int, ...]

    @staticmethod
    def _put(window: NDArray[Any], addresses: NDArray[np.int64], alive: NDArray[np.bool_] | None, data: NDArray[Any]) -> None:
        if alive is None:
            window[addresses] = data
        else:
            window[addresses[alive]] = data[alive]

    def finish(self, flat: NDArray[Any]) -> None:
        """Write what a deferred scatter has kept to the caller's array."""
        addresses, alive, data = self.kept
        self.kept = None
        element = self.source.element
        if data.dtype == flat.dtype:
            pass
        elif element == "f16":
            data = numerics.f32_to_f16(data, on_grid=True)
        elif element in numerics.NARROW:
            data = numerics.encode(element, data)
        self._put(self.window(flat), addresses, alive, data)

    def _check(self, addresses: NDArray[np.int64], alive: NDArray[np.bool_] | None) -> None:
        """No two places of one tile's store may be the same."""
        for t in range(self.tiles):
            mine = addresses[t].reshape(-1) if alive is None else addresses[t][alive[t]].reshape(-1)
            if mine.size < 2:
                continue
            ordered = np.sort(mine)
            same = np.flatnonzero(ordered[1:] == ordered[:-1])
            if same.size:
                address = int(ordered[same[0]])
                name = self.source.buffer.name if self.source.buffer is not None else "LX"
                raise DuplicateTarget(
                    f"stores twice to element {address} of '{name}'" + (f" (tile {t})" if self.tiles > 1 else ""),
                    self.where,
                    tiles=[t],
                    address=address,
                )


class LocalScatter(Scatter):
    """writes[0] = the base [tiles, n] with the blocks of the value at the addresses. Reads: index tensors, the value, the base.

    `only`: the one tile that writes, to the scratchpad of another; the base is that scratchpad's.
    """

    only: int | None = None

    def calls(self, binder: Binder) -> Iterable[Call]:
        index, value = self._bound(binder)
        base, out = binder.array(self.reads[-1], range(1, 2)), binder.array(self.writes[0], range(2))

        def run() -> None:
            addresses, alive, data = self.targets(index, value)
            out[...] = base
            for tile in range(self.tiles) if self.only is None else (self.only,):
                mine = None if alive is None else alive[tile]
                self._put(self.window(out[tile if self.only is None else 0]), addresses[tile], mine, data[tile])

        yield run, ()
