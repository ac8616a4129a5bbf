"""What a kernel says besides NumPy: how work is dealt to tiles, loops and conditions of the device, tiles of its own."""

from __future__ import annotations

from builtins import range as python_range
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import erf as one_erf
from math import prod
from typing import Any, Protocol

import numpy as np

from ktir.lang.base.mistakes import Mistake, here, kind_of
from ktir.lang.base.scalars import element_of, is_float
from ktir.lang.exchange import Exchange
from ktir.lang.keys import Block
from ktir.lang.tile import Tile, matmul, own_function


class Engine(Protocol):
    """What the language asks of whoever runs a kernel."""

    grid: tuple[int, ...] | None
    """None of a program whose division over the machine is left to the compiler."""
    dealt: tuple[int, ...]
    """Axes of the grid along which a loop of `blocks` around this point deals."""
    waiting: list[_When]
    """Conditions that have no function to run yet."""

    def tile(self, axis: int | None) -> Any: ...

    def loop(self, start: Any, stop: Any, step: Any) -> Iterator[Any]: ...

    def branch(self, condition: Any, body: Callable[[], object]) -> None: ...

    def full(self, shape: tuple[int, ...], value: Any, dtype: Any) -> Any: ...

    def buffer(self, shape: tuple[int, ...], dtype: Any, address: int | None) -> Any: ...

    def exchange(self, kind: Exchange, value: Any, axis: int | None) -> Any: ...


running: ContextVar[Engine | None] = ContextVar("ktir_lang_engine", default=None)


def engine(what: str) -> Engine:
    """Whoever runs the kernel. Raises Mistake outside of kernels."""
    found = running.get()
    if found is None:
        raise Mistake(f"'{what}' works inside of a kernel, which is a function with the decorator 'ktir.lang.kernel'")
    return found


def _extents(shape: Any, what: str) -> tuple[int, ...]:
    """A shape. Raises Mistake for what is none."""
    listed = (shape,) if isinstance(shape, int) else shape
    if not isinstance(listed, Sequence) or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in listed):
        raise Mistake(f"{what} expects a shape of numbers that are known when the kernel is traced, but got {shape!r:.60}")
    return tuple(listed)


def _whole(value: Any, what: str) -> int:
    """A whole number. Raises Mistake for what is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Mistake(f"{what} expects a whole number that is known when the kernel is traced, but got {kind_of(value)}")
    return value


def _type(dtype: Any) -> np.dtype[Any]:
    """An element type. Raises Mistake for what is none."""
    element_of(dtype)
    return np.dtype(dtype)


def blocks(extent: Any, size: Any = None, *, axis: int | None = None) -> Iterator[Any]:
    """The blocks of a dim, dealt to the tiles of the grid: `for rows in blocks(x.shape[0], 8): y[rows] = ..`.

    extent: of the dim, or a tuple of several, whose blocks are tuples; size: of a block, None for equal shares; axis: deals along one dim
    of the grid only. No block may depend on another. Blocks inside of blocks are dealt along those axes that are left; where none is, each
    tile takes all of them. In a kernel without a grid there is one block with everything. A dim without elements has no block.
    """
    run = engine("blocks")
    several = isinstance(extent, Sequence)
    dims = _extents(extent, "'blocks'")
    if 0 in dims:
        return
    if run.grid is None:
        asked = size if isinstance(size, Sequence) else (size,) * len(dims)
        whole = tuple(Block(0, n, n, wanted not in (None, n)) for n, wanted in zip(dims, asked, strict=False))
        yield whole if several else whole[0]
        return
    axes = _left(run, run.grid, axis)
    tiles = prod(run.grid[a] for a in axes)
    sizes = (size if several else (size,)) if size is not None else (-(-dims[0] // tiles) or 1, *dims[1:])
    sizes = _extents(sizes, "the size of 'blocks'")
    if len(sizes) != len(dims) or min(sizes, default=1) < 1:
        raise Mistake(f"'blocks' expects {len(dims)} sizes of at least 1, but got {size!r:.40}")
    counts = [-(-n // s) for n, s in zip(dims, sizes, strict=True)]
    around, run.dealt = run.dealt, (*run.dealt, *axes)
    for number in run.loop(_number(run, run.grid, axes), prod(counts), tiles):
        places = []
        for d in python_range(len(dims)):
            inner = prod(counts[d + 1 :])
            place = number // inner if inner > 1 else number
            places.append(place % counts[d] if d else place)
        found = tuple(Block(p * s, s, n) for p, s, n in zip(places, sizes, dims, strict=True))
        yield found if several else found[0]
    run.dealt = around


def _left(run: Engine, grid: tuple[int, ...], axis: Any) -> list[int]:
    """The axes of the grid along which blocks are dealt at this point."""
    asked = python_range(len(grid)) if axis is None else [_axis(axis, grid)]
    return [a for a in asked if a not in run.dealt]


def _number(run: Engine, grid: tuple[int, ...], axes: list[int]) -> Any:
    """The number of this tile among those along some axes."""
    if len(axes) == len(grid):
        return run.tile(None)
    return sum(run.tile(a) * prod(grid[b] for b in axes[i + 1 :]) for i, a in enumerate(axes))


def range(start: Any, stop: Any = None, step: Any = 1) -> Iterator[Any]:
    """A loop of the device; bounds may be numbers of the device. What outlives a trip is changed in place."""
    if stop is None:
        start, stop = 0, start
    return engine("range").loop(start, stop, step)


def when(condition: Any) -> Callable[[Callable[[], object]], None]:
    """Runs a function at once, where a condition on numbers of the device holds. What it changes, it changes in place.

    @when(i > 0)
    def _():
        acc[...] = acc + y[i - 1]
    """
    if callable(condition):
        raise Mistake("'when' expects a condition in brackets before the function that it runs: '@when(i > 0)'")
    run = engine("when")
    run.waiting.append(found := _When(run, condition, here()))
    return found


@dataclass(frozen=True, eq=False)
class _When:
    """What runs a function where a condition holds."""

    run: Engine
    condition: Any
    place: str | None

    def __call__(self, body: Callable[[], object]) -> None:
        if self in self.run.waiting:
            self.run.waiting.remove(self)
        if not callable(body):
            raise Mistake(f"'when' expects a function to run, but got {kind_of(body)}")
        self.run.branch(self.condition, body)

    def __enter__(self) -> Any:
        raise Mistake("'when' runs a function, and Python runs what stands in a 'with' in any case: write '@when(..)' before 'def _():'")

    def __exit__(self, *_: Any) -> None: ...


def ended(run: Engine) -> None:
    """Raises Mistake where a kernel ends with conditions that have run nothing."""
    for when_ in run.waiting:
        raise Mistake("'when' runs the function before which it stands, as in '@when(i > 0)', but got none", when_.place)


def tile_id(axis: int | None = None) -> Any:
    """The number of this tile, along an axis of the grid or over all (the last axis is the fastest)."""
    run = engine("tile_id")
    return run.tile(None if axis is None or run.grid is None else _axis(axis, run.grid))


def tiles(axis: int | None = None) -> int:
    """The number of tiles, along an axis of the grid or over all; 1 without a grid."""
    grid = engine("tiles").grid or (1,)
    return prod(grid) if axis is None else grid[_axis(axis, grid)]


def _axis(axis: Any, grid: tuple[int, ...]) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < len(grid):
        raise Mistake(f"expects an axis of the grid {list(grid)}, but got {axis!r:.40}")
    return axis


def full(shape: Any, value: Any, dtype: Any = np.float32) -> Any:
    """A tile of equal numbers."""
    run = engine("full")
    if not isinstance(value, bool | int | float | np.generic):
        raise Mistake(f"'full' expects a number that is known when the kernel is traced, but got {kind_of(value)}")
    return run.full(_extents(shape, "'full'"), value, _type(dtype))


def zeros(shape: Any, dtype: Any = np.float32) -> Any:
    """A tile of zeros."""
    return engine("zeros").full(_extents(shape, "'zeros'"), 0, _type(dtype))


def buffer(shape: Any, dtype: Any = np.float32, *, slots: int | None = None, address: int | None = None) -> Any:
    """Memory in the scratchpad of each tile. slots: that many of them, as first dim; address: in bytes, else behind the others."""
    run, dims = engine("buffer"), _extents(shape, "'buffer'")
    for name, number in (("slots", slots), ("address", address)):
        if number is not None:
            _whole(number, f"'{name}' of 'buffer'")
    if slots is not None and slots < 1:
        raise Mistake(f"'slots' of 'buffer' is at least 1, but got {slots}")
    return run.buffer(dims if slots is None else (slots, *dims), _type(dtype), address)


# Exchanges between tiles: along an axis of the grid, or among all


def all_reduce(value: Any, fold: Any = np.add, *, axis: int | None = None) -> Any:
    """The values of all tiles, folded by `np.add`, `np.multiply`, `np.maximum` or `np.minimum`; in which order is not defined."""
    return _exchanged(Exchange("reduce", fold=fold), value, axis)


def reduce_scatter(value: Any, fold: Any = np.add, dim: int = 0, *, axis: int | None = None) -> Any:
    """The share of this tile, along a dim, of the folded values of all tiles."""
    return _exchanged(Exchange("reduce_scatter", dim, fold=fold), value, axis)


def all_gather(value: Any, dim: int = 0, *, axis: int | None = None) -> Any:
    """The values of all tiles, side by side along a dim."""
    return _exchanged(Exchange("gather", dim), value, axis)


def all_to_all(value: Any, split: int = 0, concat: int = 0, *, axis: int | None = None) -> Any:
    """The share of this tile, along `split`, of the value of each tile, side by side along `concat`."""
    return _exchanged(Exchange("all_to_all", split, concat), value, axis)


def broadcast(value: Any, source: int = 0, *, axis: int | None = None) -> Any:
    """The value of one tile."""
    return _exchanged(Exchange("broadcast", source=_whole(source, "'source' of 'broadcast'")), value, axis)


def shift(value: Any, by: int = 1, *, axis: int | None = None) -> Any:
    """The value of the tile that is `by` before this one; the first ones get those of the last."""
    return _exchanged(Exchange("shift", by=_whole(by, "'by' of 'shift'")), value, axis)


def _exchanged(exchange: Exchange, value: Any, axis: int | None) -> Any:
    run = engine(exchange.kind)
    return run.exchange(exchange, value, None if axis is None or run.grid is None else _axis(axis, run.grid))


# Functions that NumPy lacks, on tiles and, in an eager run, on arrays


def _wide(x: Any) -> tuple[np.ndarray, np.dtype[Any]]:
    """Numbers in f64, and the type that `np.exp` has for them."""
    if not isinstance(x, np.ndarray | np.generic | float | int):
        raise Mistake(f"expects tiles and numbers, but got {kind_of(x)}")
    array = np.asarray(x)
    return array.astype(np.float64), np.exp(np.ones(1, array.dtype)).dtype


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x), rounded once."""
    if isinstance(x, Tile):
        return own_function(x._build, "rsqrt", x)
    wide, dtype = _wide(x)
    return (1 / np.sqrt(wide)).astype(dtype)


def erf(x: Any) -> Any:
    """The error function."""
    if isinstance(x, Tile):
        return own_function(x._build, "erf", x)
    wide, dtype = _wide(x)
    return np.vectorize(one_erf, otypes=[np.float64])(wide).astype(dtype)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), each step rounded to f32, and the result to the type of x."""
    if isinstance(x, Tile):
        narrow = np.result_type(x.dtype).itemsize < 4 and is_float(element_of(x.dtype))
        return own_function(x._build, "sigmoid", x.astype(np.float32)).astype(x.dtype) if narrow else own_function(x._build, "sigmoid", x)
    wide, dtype = _wide(x)
    steps = wide.astype(np.float32 if dtype.itemsize < 4 else dtype)
    return (1 / (1 + np.exp(-steps))).astype(dtype)


def dot(a: Any, b: Any, acc: Any = None) -> Any:
    """acc + a @ b, for f16 and bf16 in f32: what a kernel accumulates. `a @ b` has NumPy's type instead."""
    for x in (a, b):
        if not hasattr(x, "dtype"):
            raise Mistake(f"'dot' expects tiles, but got {kind_of(x)}")
    if any(isinstance(x, Tile) for x in (a, b)):
        narrow = np.result_type(a.dtype, b.dtype).itemsize < 4
        return matmul(a, b, acc, np.float32 if narrow else None)
    dtype = np.result_type(a.dtype, b.dtype)
    wide = np.float32 if dtype.itemsize < 4 else dtype
    found = np.matmul(a.astype(wide), b.astype(wide))
    return found if acc is None else acc + found
