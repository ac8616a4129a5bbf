"""A kernel on NumPy, tile after tile: what it does can be printed, and looked at in a debugger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from ktir.lang.control import running
from ktir.lang.elements import element_of, is_float
from ktir.lang.keys import Gathered, Parts, parts_of
from ktir.lang.mistakes import Mistake, kind_of


class Array:
    """Memory of an eager run. Reading gives arrays of NumPy."""

    def __init__(self, array: np.ndarray, *, masked: bool = False) -> None:
        self._array, self._masked = array, masked
        self.shape, self.dtype, self.ndim, self.size = array.shape, array.dtype, array.ndim, array.size

    @property
    def masked(self) -> Array:
        """The same memory, for keys that may reach beyond it."""
        return Array(self._array, masked=True)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, key: Any) -> Any:
        parts = parts_of(self.shape, key, masked=self._masked)
        source, target, extents, shape = _places(parts, self.shape)
        found = np.zeros(extents, self.dtype)
        found[target] = self._array[source]
        found = found.reshape(shape)
        return found if shape else found[()]

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = parts_of(self.shape, key, masked=self._masked)
        source, target, extents, shape = _places(parts, self.shape)
        try:
            given = np.broadcast_to(np.asarray(value).astype(self.dtype), shape)
        except ValueError:
            raise Mistake(f"expects a tile that can be broadcast to shape {tuple(shape)}, but got shape {np.shape(value)}") from None
        self._array[source] = given.reshape(extents)[target]

    def __iter__(self) -> Any:
        raise Mistake("memory is read by keys, as x[0]; a loop over its rows is 'for i in range(x.shape[0])'")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *_: Any, **__: Any) -> Any:
        raise Mistake(f"'np.{ufunc.__name__}' works on tiles; load one of this argument: x[...]")

    def __array_function__(self, func: Any, *_: Any) -> Any:
        raise Mistake(f"'np.{func.__name__}' works on tiles; load one of this argument: x[...]")

    def __repr__(self) -> str:
        return f"<memory {kind_of(self)}>"


def _places(parts: Parts, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...], tuple[int, ...], tuple[int, ...]]:
    """Where in memory and in the tile the elements lie that are inside; the extents of the tile over the dims of memory; its shape."""
    source, target, extents, tile = [], [], [], []
    dim = 0
    for part in parts:
        if part is None:
            tile.append(1)
            continue
        if isinstance(part, Gathered):
            raise Mistake("the language has no gathers yet")
        start = int(part.start)
        if part.limit is None and not 0 <= start <= shape[dim] - part.size:
            raise Mistake(f"elements {start} to {start + part.size - 1} reach beyond dim {dim} of {shape[dim]}")
        limit = shape[dim] if part.limit is None else part.limit
        low, high = min(max(start, 0), limit), max(min(start + part.size, limit), 0)
        high = max(low, high)
        source.append(slice(low, high))
        target.append(slice(low - start, high - start) if high > low else slice(0, 0))
        extents.append(part.size)
        if not part.dropped:
            tile.append(part.size)
        dim += 1
    return tuple(source), tuple(target), tuple(extents), tuple(tile)


class EagerTile:
    """One tile of an eager run."""

    def __init__(self, grid: tuple[int, ...] | None, place: tuple[int, ...]) -> None:
        self.grid, self.place = grid, place

    def tile(self, axis: int | None) -> int:
        """The number of the tile, along an axis of the grid or over all."""
        if self.grid is None:
            raise Mistake("this kernel runs without a grid, so it has no tiles; give it one: kernel[4](..)")
        return self.place[axis] if axis is not None else int(np.ravel_multi_index(self.place, self.grid))

    def loop(self, start: Any, stop: Any, step: Any) -> Iterator[int]:
        """A loop."""
        if step <= 0:
            raise Mistake(f"a loop expects a step of at least 1, but got {step}")
        yield from range(int(start), int(stop), int(step))

    def branch(self, condition: Any, body: Callable[[], object]) -> None:
        """What runs where a condition holds."""
        if condition:
            body()

    def full(self, shape: tuple[int, ...], value: Any, dtype: Any) -> np.ndarray:
        """A tile of equal numbers."""
        return np.full(shape, value, dtype)

    def buffer(self, shape: tuple[int, ...], dtype: Any, address: int | None) -> Array:
        """Memory of the tile, with nothing in it: NaN, or -1."""
        if self.grid is None:
            raise Mistake("this kernel runs without a grid, so the compiler places what it computes; give it one: kernel[4](..)")
        return Array(np.full(shape, np.nan if is_float(element_of(dtype)) else -1, dtype))


def run(function: Callable[..., object], arguments: Mapping[str, Any], parameters: Mapping[str, Any], grid: tuple[int, ...] | None) -> None:
    """Run a kernel on NumPy; arrays are written in place, when all tiles are done."""
    copies = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in arguments.items()}
    for place in product(*map(range, grid or ())):
        memory = {name: Array(a) if isinstance(a, np.ndarray) else a for name, a in copies.items()}
        token = running.set(EagerTile(grid, place))
        try:
            function(**memory, **parameters)
        finally:
            running.reset(token)
    for name, array in arguments.items():
        if isinstance(array, np.ndarray):
            array[...] = copies[name]
