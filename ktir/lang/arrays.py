"""Functions of NumPy on whole tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ktir.lang.base import functions
from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.base.scalars import element_of, tensor
from ktir.lang.derived import METHODS
from ktir.lang.graph import Builder
from ktir.lang.indices import Index
from ktir.lang.structured import constant
from ktir.lang.tile import WHOLE, Tile, as_tile, computed, fits, matmul

functions.OTHERS.update(METHODS)


def function(theirs: Any) -> Callable[[Callable[..., Tile]], Callable[..., Tile]]:
    """Let tiles have a function of NumPy."""

    def known(ours: Callable[..., Tile]) -> Callable[..., Tile]:
        WHOLE[theirs] = ours
        functions.OTHERS.add(theirs.__name__)
        return ours

    return known


def _build(given: Sequence[Any]) -> Builder:
    return next(x._build for x in given if isinstance(x, Tile))


@function(np.where)
def where(*given: Any) -> Tile:
    """The elements of one where a condition holds, else of the other."""
    if len(given) != 3:
        raise Mistake("the language has no 'np.where' of these arguments: it takes a condition and what stands for true and for false")
    build, (condition, one, other) = _build(given), given
    kinds = [int if isinstance(x, Index) else functions.operand_type(x) for x in (one, other)]
    dtype = np.maximum.resolve_dtypes((*kinds, None))[-1] if float in kinds or int in kinds else np.result_type(*kinds)
    element = element_of(dtype)
    return computed(build, [f"%y = arith.select %x0, %x1, %x2 : {element}"], [condition, one, other], [np.dtype(bool), dtype, dtype], dtype)


@function(np.concatenate)
def joined(tiles: Sequence[Any], axis: int = 0) -> Tile:
    """Tiles one after the other along a dim."""
    build = _build(tiles)
    parts = [as_tile(build, t) for t in tiles]
    dtype = np.result_type(*[t.dtype for t in parts])
    along = parts[0]._axis(axis)
    rest = {t.shape[:along] + t.shape[along + 1 :] for t in parts}
    if len(rest) != 1 or len({t.ndim for t in parts}) != 1:
        raise Mistake(
            f"'np.concatenate' expects shapes that differ in dim {along} only, but got {' and '.join(str(t.shape) for t in parts)}"
        )
    values = [t._placed_in(t.shape, t.shape, list(range(t.ndim)), dtype) for t in parts]
    shape = (*parts[0].shape[:along], sum(t.shape[along] for t in parts), *parts[0].shape[along + 1 :])
    type_ = tensor(shape, element_of(dtype))
    holes = ", ".join(f"${i}" for i in range(len(values)))
    text = f"tensor.concat dim({along}) {holes} : ({', '.join(v.type for v in values)}) -> {type_}"
    return Tile.of(build, build.value(text, values, type_), dtype)


@function(np.broadcast_to)
def spread(tile: Any, shape: Any) -> Tile:
    """A tile broadcast to a shape."""
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    fits(tile.shape, wanted)
    first = len(wanted) - tile.ndim
    return tile._view(wanted, lambda d: None if tile.shape[d] == 1 else d + first)


@function(np.stack)
def stacked(tiles: Sequence[Any], axis: int = 0) -> Tile:
    """Tiles of one shape side by side along a new dim."""
    build = _build(tiles)
    parts = [as_tile(build, t) for t in tiles]
    if len({t.shape for t in parts}) != 1:
        raise Mistake(f"'np.stack' expects tiles of one shape, but got {' and '.join(str(t.shape) for t in parts)}")
    return joined([expanded(t, axis) for t in parts], axis)


@function(np.expand_dims)
def expanded(tile: Any, axis: int) -> Tile:
    """A tile with a new dim of one element."""
    if isinstance(axis, bool) or not isinstance(axis, int) or not -tile.ndim - 1 <= axis <= tile.ndim:
        raise Mistake(f"'np.expand_dims' expects a place among {tile.ndim} dims, but got {axis!r:.40}")
    return tile[(slice(None),) * (axis % (tile.ndim + 1)) + (None,)]


@function(np.full_like)
def full_like(tile: Any, value: Any, dtype: Any = None) -> Tile:
    """A tile of equal numbers, of the shape and type of another one."""
    if not isinstance(value, bool | int | float | np.generic):
        raise Mistake(f"'np.full_like' expects a number that is known when the kernel is traced, but got {kind_of(value)}")
    own = tile.dtype if dtype is None else np.dtype(dtype)
    return Tile.of(tile._build, constant(tile._build, value, tile.shape, own), own)


@function(np.zeros_like)
def zeros_like(tile: Any, dtype: Any = None) -> Tile:
    """A tile of zeros, of the shape and type of another one."""
    return full_like(tile, 0, dtype)


@function(np.ones_like)
def ones_like(tile: Any, dtype: Any = None) -> Tile:
    """A tile of ones, of the shape and type of another one."""
    return full_like(tile, 1, dtype)


@function(np.dot)
def dot(a: Any, b: Any) -> Tile:
    """A product of matrices."""
    tiles = [as_tile(_build((a, b)), x) for x in (a, b)]
    if any(t.ndim != 2 for t in tiles):
        raise Mistake(f"'np.dot' expects two matrices, but got shapes {a.shape} and {b.shape}; sums of products are (a * b).sum()")
    return matmul(*tiles)


@function(np.outer)
def outer(a: Any, b: Any) -> Tile:
    """Products of each element of one with each of the other."""
    one, other = (as_tile(_build((a, b)), x).reshape(-1) for x in (a, b))
    return one[:, None] * other
