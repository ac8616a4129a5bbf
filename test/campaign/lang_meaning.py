"""Runs the text of a kernel of the language on numbers that are near: memory, blocks, loops, buffers, exchanges; tiles in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import product as every
from math import prod
from typing import Any

import numpy as np
from campaign.lang_values import EPS, ERF, NUMPY, Known, Near, added, of, product, reduced, sigmoid
from ml_dtypes import bfloat16
from numpy.typing import NDArray

_WAIT = 60.0
_EXCHANGES = ("all_", "reduce_scatter", "broadcast(", "shift(")


class Block:
    """A block of a dim; the last one may reach beyond."""

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size


class Memory:
    """An argument: what it holds, and how far off that may be."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self.value: NDArray[Any] = array.astype(np.float64 if array.dtype in EPS else np.int64)
        self.error = np.zeros(array.shape)
        self.clips = False

    @property
    def masked(self) -> Memory:
        other = Memory.__new__(Memory)
        other.__dict__ = {**self.__dict__, "clips": True}
        return other

    def _places(self, key: Any) -> tuple[tuple[Any, ...], NDArray[np.bool_], tuple[int, ...]]:
        """The indices that a key takes, which of them lie inside, and the dims that it drops."""
        given = [] if key is Ellipsis else list(key) if isinstance(key, tuple) else [key]
        given += [slice(None)] * (len(self.shape) - len(given))
        lists, inside, dropped = [], np.ones(1, bool), []
        for dim, (entry, extent) in enumerate(zip(given, self.shape, strict=True)):
            if isinstance(entry, Block):
                at = np.arange(entry.start, entry.start + entry.size)
            elif isinstance(entry, slice):
                start, stop = (whole if end is None else int(end) for end, whole in ((entry.start, 0), (entry.stop, extent)))
                at = np.arange(start, stop)
            elif isinstance(entry, Near) and entry.shape:
                at = entry.exact()
            else:
                at = np.array([int(entry)])
                dropped.append(dim)
            there = (at >= 0) & (at < extent)
            if not (self.clips or isinstance(entry, Block) or there.all()):
                raise Known("reaches beyond its memory")
            lists.append(np.where(there, at, 0))
            inside = np.logical_and.outer(inside, there)
        return np.ix_(*lists), inside[0], tuple(dropped)

    def __getitem__(self, key: Any) -> Near:
        at, inside, dropped = self._places(key)
        value, error = (np.where(inside, a[at], 0).squeeze(dropped) for a in (self.value, self.error))
        return Near(value, error, self.dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        at, inside, dropped = self._places(key)
        new = of(value, self.dtype).astype(self.dtype)
        shape = tuple(n for d, n in enumerate(inside.shape) if d not in dropped)
        chosen = tuple(index[inside] for index in np.broadcast_arrays(*at))
        for held, given in ((self.value, new.value), (self.error, new.error)):
            held[chosen] = np.broadcast_to(given, shape).reshape(inside.shape)[inside]


class Language:
    """What `lang` is in a kernel, on the tiles of a grid, each of which is a thread where they exchange values."""

    erf, sigmoid = staticmethod(ERF), staticmethod(sigmoid)
    float32 = np.float32

    def __init__(self, grid: tuple[int, ...] | None) -> None:
        self.grid, self.shape = grid, grid or (1,)
        self.count = prod(self.shape)
        self.meeting = threading.Barrier(self.count)
        self.own = threading.local()
        self.met: dict[int, Near] = {}

    @staticmethod
    def kernel(function: Callable[..., None]) -> Callable[..., None]:
        return function

    def tile_id(self) -> int:
        return self.own.tile

    def zeros(self, shape: Any, dtype: Any = np.float32) -> Near:
        return Near(np.zeros(shape), 0, dtype)

    def full(self, shape: Any, value: float, dtype: Any = np.float32) -> Near:
        return Near(np.full(shape, value), 0, dtype)

    def buffer(self, shape: Any, dtype: Any, slots: int | None = None, address: int | None = None) -> Near:
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        return self.zeros(extents if slots is None else (slots, *extents), dtype)

    def range(self, *bounds: Any) -> range:
        return range(*map(int, bounds))

    def when(self, condition: Any) -> Callable[[Callable[[], None]], None]:
        return lambda function: function() if condition else None

    def dot(self, a: Near, b: Near, acc: Near | None = None) -> Near:
        return product(a, b, acc, wide=True)

    def blocks(self, extent: Any, size: Any = None) -> Iterator[Any]:
        """Without a grid one of everything. Which tile has which block is not defined: here each has every so many."""
        several = isinstance(extent, tuple)
        extents: list[int] = list(extent) if several else [extent]
        sizes: list[int] = list(size) if several else [size or -(-extents[0] // self.count)]
        if self.grid is None:
            sizes = extents
        dealt = every(*([Block(at, n) for at in range(0, whole, n)] for whole, n in zip(extents, sizes, strict=True)))
        for number, block in enumerate(dealt):
            if number % self.count == self.own.tile:
                yield block if several else block[0]

    def _others(self, value: Near, axis: int | None) -> tuple[list[Near], int]:
        """The values of the tiles with which this one exchanges, and which of them it is."""
        self.met[self.own.tile] = value
        self.meeting.wait(_WAIT)
        place = list(np.unravel_index(self.own.tile, self.shape))
        if axis is None:
            found = [self.met[k] for k in range(self.count)], self.own.tile
        else:
            line = [[*place[:axis], k, *place[axis + 1 :]] for k in range(self.shape[axis])]
            found = [self.met[int(np.ravel_multi_index(p, self.shape))] for p in line], int(place[axis])
        self.meeting.wait(_WAIT)
        return found

    def all_reduce(self, value: Near, fold: Any = NUMPY.add, axis: int | None = None) -> Near:
        values, _ = self._others(value, axis)
        stacked = Near(np.stack([v.value for v in values]), np.stack([v.error for v in values]), value.dtype)
        if fold is not NUMPY.add:
            return reduced("max" if fold is NUMPY.maximum else "min", stacked, 0)
        if value.dtype not in EPS:
            return added(stacked, 0, value.dtype)
        found = added(stacked, 0, value.dtype, value.dtype)
        negative = np.signbit(stacked.value).all(0) & (stacked.value == 0).all(0)  # what a tile receives is folded, and nothing else
        return Near(np.where(negative, -0.0, found.value), found.error, found.dtype)

    def reduce_scatter(self, value: Near, fold: Any = NUMPY.add, axis: int | None = None) -> Near:
        values, own = self._others(value, axis)
        return _share(self.all_reduce(value, fold, axis), own, len(values))

    def all_gather(self, value: Near, axis: int | None = None) -> Near:
        return NUMPY.concatenate(self._others(value, axis)[0], 0)

    def all_to_all(self, value: Near, axis: int | None = None) -> Near:
        values, own = self._others(value, axis)
        return NUMPY.concatenate([_share(v, own, len(values)) for v in values], 0)

    def broadcast(self, value: Near, source: int, axis: int | None = None) -> Near:
        return self._others(value, axis)[0][source]

    def shift(self, value: Near, by: int, axis: int | None = None) -> Near:
        values, own = self._others(value, axis)
        return values[(own - by) % len(values)]


def _share(value: Near, own: int, count: int) -> Near:
    size = value.shape[0] // count
    return value[own * size : (own + 1) * size]


def meaning(text: str, arrays: Sequence[Any], grid: tuple[int, ...] | None) -> list[Any]:
    """What a kernel leaves in its arguments. Raises Known for what is not said."""
    language, given = Language(grid), [Memory(a) if isinstance(a, np.ndarray) else a for a in arrays]
    scope: dict[str, Any] = {"np": NUMPY, "lang": language, "bfloat16": bfloat16}
    exec(compile(text, "meaning.py", "exec"), scope)
    faults: list[BaseException] = []

    def tile(number: int) -> None:
        language.own.tile = number
        try:
            with np.errstate(all="ignore"):
                scope["kernel"](*given)
        except (Known, ValueError, threading.BrokenBarrierError) as fault:
            faults.append(fault)
            language.meeting.abort()

    if any(word in text for word in _EXCHANGES):
        threads = [threading.Thread(target=tile, args=(k,)) for k in range(language.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        for k in range(language.count):
            tile(k)
    if faults:
        raise Known(str(faults[0])) from faults[0]
    return given


def wrong(found: NDArray[Any], meant: Memory, *, zeros: bool) -> str:
    """What is further off than it may be; empty if nothing is. `zeros`: whether the sign of an exact zero counts."""
    got = found.astype(np.float64 if found.dtype in EPS else np.int64)
    with np.errstate(invalid="ignore"):
        fine = (got == meant.value) | (np.abs(got - meant.value) <= meant.error) | np.isinf(meant.error)
    if found.dtype in EPS:
        fine |= np.isnan(got) & np.isnan(meant.value)
        if zeros:
            fine &= ~((meant.error == 0) & (meant.value == 0) & (np.signbit(got) != np.signbit(meant.value)))
    if fine.all():
        return ""
    at = tuple(int(k) for k in np.argwhere(~fine)[0])
    return f"{int((~fine).sum())} elements are off, at {at} {got[at]} and not {meant.value[at]} (+- {meant.error[at]:.2g})"
