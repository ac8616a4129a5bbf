"""What stands between brackets: `x[i, 2:5, None, block]`."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.base.values import tile_of


class Shaped:
    """What has a shape and a type, as arrays have."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("shape", "dtype") and name in self.__dict__:
            raise Mistake(f"'{name}' is what it is; a tile has 'reshape' and 'astype', which make another one")
        object.__setattr__(self, name, value)

    def __delitem__(self, key: Any) -> None:
        raise Mistake("elements cannot be deleted; a kernel stores others: y[key] = 0")

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)


class Number(int):
    """A number of the device where values are known, as in an eager run. Unlike Python's, none counts from the end as a key."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        found = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return Number(found) if isinstance(found, np.integer) and all(isinstance(x, int) for x in inputs) else tile_of(found)

    def __array_function__(self, function: Any, _: Any, given: Any, options: Any) -> Any:
        return function(*map(_plain, given), **{name: _plain(x) for name, x in options.items()})

    def _compared(self, found: Any) -> Any:
        return found if found is NotImplemented else np.bool_(found)

    def __lt__(self, other: Any) -> Any:
        return self._compared(int.__lt__(self, other))

    def __le__(self, other: Any) -> Any:
        return self._compared(int.__le__(self, other))

    def __gt__(self, other: Any) -> Any:
        return self._compared(int.__gt__(self, other))

    def __ge__(self, other: Any) -> Any:
        return self._compared(int.__ge__(self, other))

    def __eq__(self, other: object) -> Any:
        return self._compared(int.__eq__(self, other))

    def __ne__(self, other: object) -> Any:
        return self._compared(int.__ne__(self, other))

    __hash__ = int.__hash__

    def _same(self, found: Any) -> Any:
        return found if found is NotImplemented else Number(found)

    def __add__(self, other: Any) -> Any:
        return self._same(int.__add__(self, other))

    def __sub__(self, other: Any) -> Any:
        return self._same(int.__sub__(self, other))

    def __rsub__(self, other: Any) -> Any:
        return self._same(int.__rsub__(self, other))

    def __mul__(self, other: Any) -> Any:
        return self._same(int.__mul__(self, other))

    def __floordiv__(self, other: Any) -> Any:
        return self._same(int.__floordiv__(self, other))

    def __rfloordiv__(self, other: Any) -> Any:
        return self._same(int.__rfloordiv__(self, other))

    def __mod__(self, other: Any) -> Any:
        return self._same(int.__mod__(self, other))

    def __rmod__(self, other: Any) -> Any:
        return self._same(int.__rmod__(self, other))

    def __neg__(self) -> Number:
        return Number(int.__neg__(self))

    __radd__, __rmul__ = __add__, __mul__


def _plain(value: Any) -> Any:
    """A value as NumPy's promotion takes it, for which an integer of Python has no type of its own."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return int(value) if isinstance(value, Number) else value


def of_device(key: Any) -> Any:
    """A key in which integers of NumPy, which are loaded or computed where values are known, are numbers of the device."""
    if isinstance(key, tuple):
        return tuple(of_device(k) for k in key)
    if isinstance(key, slice):
        return slice(of_device(key.start), of_device(key.stop), key.step)
    return Number(key) if isinstance(key, np.integer) else key


@dataclass(frozen=True)
class Block:
    """One of the parts into which `blocks` cuts a dim, as a key: `x[block]`. The last part may stick out of the dim; reads of what lies
    outside give 0, and writes are dropped."""

    first: Any
    size: int
    """How many elements it has, those outside counted too."""
    extent: int
    """Of the dim."""
    whole: bool = False
    """Whether it is everything, though the kernel asks for blocks of another size: it has no grid."""

    @property
    def start(self) -> Any:
        """Where it begins."""
        if self.whole:
            raise Mistake(
                "without a grid there is one block with everything, whatever size is asked for; give the kernel a grid: kernel[4](..)"
            )
        return self.first

    @property
    def positions(self) -> Any:
        """The number of each of its elements."""
        return np.arange(self.size) + self.first

    @property
    def inside(self) -> Any:
        """Which of its elements lie inside of the dim."""
        return self.positions < self.extent

    @property
    def ragged(self) -> bool:
        """Whether a block may stick out."""
        return self.extent % self.size != 0


@dataclass(frozen=True)
class Part:
    """What a key takes of one dim: from `start` on `size` elements, of which those from `limit` on, if there is one, lie outside.
    `dropped`: one element, without the dim."""

    start: Any
    size: int
    limit: int | None = None
    dropped: bool = False


@dataclass(frozen=True)
class Gathered:
    """What a key takes of one dim by a tile of numbers."""

    numbers: Any


Parts = list[Part | Gathered | None]
"""Per dim of the key what it takes, None for a new dim."""


def parts_of(shape: tuple[int, ...], key: Any, *, masked: bool = False) -> Parts:
    """What a key takes of memory of a shape. Raises Mistake for a key that does not fit it."""
    listed = list(key) if isinstance(key, tuple) else [key]
    count = sum(k is not None and k is not Ellipsis for k in listed)
    if sum(k is Ellipsis for k in listed) > 1 or count > len(shape):
        raise Mistake(f"expects a key for {len(shape)} dims, but got {count}")
    if not any(k is Ellipsis for k in listed):
        listed.append(Ellipsis)
    at = next(i for i, k in enumerate(listed) if k is Ellipsis)
    listed[at : at + 1] = [slice(None)] * (len(shape) - count)
    found: Parts = []
    dim = 0
    for entry in listed:
        if entry is None:
            found.append(None)
            continue
        found.append(_part(shape[dim], entry, dim, masked))
        dim += 1
    return found


def _part(extent: int, entry: Any, dim: int, masked: bool) -> Part | Gathered:
    if isinstance(entry, Block):
        if entry.extent > extent:
            raise Mistake(f"a block of a dim of {entry.extent} reaches beyond dim {dim} of {extent}")
        return Part(entry.first, entry.size, entry.extent if entry.ragged or masked else None)
    if isinstance(entry, slice):
        return _span(extent, entry, dim, masked)
    if isinstance(entry, bool | float | str) or not (
        isinstance(entry, int | np.integer) or hasattr(entry, "_as_index") or hasattr(entry, "known")
    ):
        if not isinstance(entry, np.ndarray) or entry.dtype.kind != "i":
            raise Mistake(f"dim {dim} expects an integer, a slice, a block or a tile of integers, but got {kind_of(entry)}")
    if getattr(entry, "ndim", 0):
        return Gathered(entry)
    if isinstance(entry, int | np.integer) and not isinstance(entry, Number) and not masked:
        _inside(extent, int(entry), dim)
        return Part(int(entry) % extent, 1, dropped=True)
    return Part(entry, 1, extent if masked else None, dropped=True)


def _inside(extent: int, number: int, dim: int) -> None:
    if not -extent <= number < extent:
        raise Mistake(f"{number} is beyond dim {dim} of {extent}")


def _span(extent: int, entry: slice, dim: int, masked: bool) -> Part:
    if entry.step not in (None, 1):
        raise Mistake(f"dim {dim} expects a slice of step 1, but got {entry.step!r:.40}")
    start = 0 if entry.start is None else entry.start
    stop = extent if entry.stop is None else entry.stop
    for end in (start, stop):
        if isinstance(end, bool) or not (isinstance(end, int | np.integer) or hasattr(end, "_as_index") or hasattr(end, "known")):
            raise Mistake(f"dim {dim} expects a slice between integers, but got {kind_of(end)}")
    if all(isinstance(end, int | np.integer) and not isinstance(end, Number) for end in (start, stop)):
        start, stop = (int(x) + extent if x < 0 and not masked else int(x) for x in (start, stop))
        if not masked and (not 0 <= start <= extent or stop > extent):
            raise Mistake(f"{start}:{stop} reaches beyond dim {dim} of {extent}; use a block, or '.masked[..]'")
        size: int | None = stop - start
    else:
        distance = stop - start
        size = distance if isinstance(distance, int) else getattr(distance, "known", None)
    if size is None:
        raise Mistake(f"dim {dim} expects a slice of known size: start and stop at a fixed distance, as i:i + 8")
    if extent == 0:
        raise Mistake(f"dim {dim} has no elements to take; 'lang.blocks' gives no block of such a dim")
    if size <= 0:
        before = "; a number below 0 lies before the dim in '.masked[..]'" if masked and isinstance(stop, int) and stop < 0 else ""
        raise Mistake(f"dim {dim} expects a slice of at least one element, but got {size}{before}")
    return Part(start, size, extent if masked else None)


def gathered_layout(parts: Parts, shapes: list[tuple[int, ...]]) -> tuple[tuple[int, ...], int, list[int | None], set[int]]:
    """What a key with tiles of numbers, of these shapes, takes: its shape, the dim at which those of the numbers begin, per part its dim,
    and the dims that are new. The numbers stand side by side, as those of NumPy do whose dims stay in place."""
    at = [i for i, p in enumerate(parts) if isinstance(p, Gathered)]
    if at[-1] - at[0] != len(at) - 1:
        raise Mistake("tiles of numbers in a key expect to stand side by side")
    if any(isinstance(p, Part) and (p.limit is not None or p.dropped) for p in parts):
        raise Mistake("a key with a tile of numbers expects whole slices beside it: no ragged block, no '.masked[..]', no single number")
    try:
        common = np.broadcast_shapes(*shapes)
    except ValueError:
        raise Mistake(
            f"tiles of numbers in a key expect shapes that can be broadcast together, but got {' and '.join(map(str, shapes))}"
        ) from None
    shape: list[int] = []
    dims: list[int | None] = []
    new: set[int] = set()
    first = 0
    for i, part in enumerate(parts):
        dims.append(len(shape) if isinstance(part, Part) else None)
        if i == at[0]:
            first = len(shape)
            shape += common
        elif part is None:
            new.add(len(shape))
            shape.append(1)
        elif isinstance(part, Part):
            shape.append(part.size)
    return tuple(shape), first, dims, new


def static_part(shape: tuple[int, ...], key: Any) -> tuple[list[int], tuple[int, ...], list[int], tuple[int, ...]]:
    """Begin and extents of a part of a tile; of the part's dims with new ones, where those that stay lie; the shape of the part.

    Raises Mistake for keys that are not known when the kernel is traced.
    """
    parts = parts_of(shape, key)
    begin, extents, kept, result = [], [], [], []
    for part in parts:
        if part is None:
            kept.append(-1)
            result.append(1)
            continue
        if isinstance(part, Gathered) or not isinstance(part.start, int):
            raise Mistake("a tile is indexed by numbers that are known when the kernel is traced; load what changes from memory")
        if not part.dropped:
            kept.append(len(begin))
            result.append(part.size)
        begin.append(part.start)
        extents.append(part.size)
    return begin, tuple(extents), kept, tuple(result)
