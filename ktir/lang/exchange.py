"""Exchanges between tiles: what each tile gets of the values of its group, and the KTIR that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from ktir.lang.base.mistakes import Mistake
from ktir.lang.base.scalars import element_of, family, literal, tensor
from ktir.lang.graph import Builder, Region, Value
from ktir.lang.structured import shape_of

FOLDS: dict[Any, tuple[dict[str, str], Any]] = {
    np.add: ({"f": "arith.addf", "i": "arith.addi"}, 0),
    np.multiply: ({"f": "arith.mulf", "i": "arith.muli"}, 1),
    np.maximum: ({"f": "arith.maximumf", "i": "arith.maxsi"}, "least"),
    np.minimum: ({"f": "arith.minimumf", "i": "arith.minsi"}, "most"),
}
"""Functions by which values of tiles are folded: the op, and what leaves a value as it is."""


@dataclass(frozen=True)
class Exchange:
    """A kind of exchange. `dim`: along which values are put side by side, or cut; `source`: the tile of the group that sends; `by`: how far
    away that is which sends; `fold`: a function of NumPy."""

    kind: Literal["reduce", "reduce_scatter", "gather", "broadcast", "shift", "all_to_all"]
    dim: int = 0
    concat: int = 0
    source: int = 0
    by: int = 1
    fold: Any = None

    def result(self, shape: Sequence[int], tiles: int) -> tuple[int, ...]:
        """The shape that a tile of a group gets. Raises Mistake for what does not fit."""
        found = list(shape)
        if self.kind in ("reduce", "reduce_scatter") and self.fold not in FOLDS:
            raise Mistake(f"an exchange folds by one of {', '.join('np.' + f.__name__ for f in FOLDS)}, but got {self.fold!r:.40}")
        if self.kind == "broadcast" and not 0 <= self.source < tiles:
            raise Mistake(f"an exchange expects one of its {tiles} tiles as source, but got {self.source}")
        for dim in (self.dim, self.concat):
            if self.kind in ("gather", "reduce_scatter", "all_to_all") and not 0 <= dim < len(found):
                raise Mistake(f"an exchange of tiles of shape {tuple(shape)} expects one of their dims, but got {dim}")
        if self.kind in ("reduce_scatter", "all_to_all"):
            if found[self.dim] % tiles:
                raise Mistake(f"an exchange among {tiles} tiles expects dim {self.dim} to be a multiple of that, but got {found[self.dim]}")
            found[self.dim] //= tiles
        if self.kind in ("gather", "all_to_all"):
            found[self.concat if self.kind == "all_to_all" else self.dim] *= tiles
        return tuple(found)

    def deliver(self, values: Sequence[np.ndarray], position: int) -> np.ndarray:
        """What the tile at a position of its group gets of the group's values."""
        if self.kind in ("reduce", "reduce_scatter"):
            folded = values[0]
            for value in values[1:]:
                folded = self.fold(folded, value)
            return folded if self.kind == "reduce" else np.split(folded, len(values), self.dim)[position]
        if self.kind == "gather":
            return np.concatenate(values, self.dim)
        if self.kind == "all_to_all":
            return np.concatenate([np.split(v, len(values), self.dim)[position] for v in values], self.concat)
        return values[self.source if self.kind == "broadcast" else (position - self.by) % len(values)].copy()


def members(grid: tuple[int, ...], place: tuple[int, ...], axis: int | None) -> tuple[list[int], int]:
    """The numbers of the tiles that exchange with one, itself among them, and its position: along an axis of the grid, or all."""
    linear = int(np.ravel_multi_index(place, grid))
    if axis is None:
        return list(range(prod(grid))), linear
    group = [(*place[:axis], i, *place[axis + 1 :]) for i in range(grid[axis])]
    return [int(np.ravel_multi_index(p, grid)) for p in group], place[axis]


def emitted(build: Builder, exchange: Exchange, value: Value, dtype: Any, axis: int | None) -> Value:
    """The ops of an exchange of a tensor."""
    grid = build.grid or (1,)
    groups = _groups(grid, axis)
    tiles = len(members(grid, (0,) * len(grid), axis)[0])
    shape = exchange.result(shape_of(value), tiles)
    everyone, sender = _tiles(grid, axis, None), _tiles(grid, axis, exchange.source if exchange.kind == "broadcast" else None)
    future = f"<({value.type}), groups = {groups}>"
    region = Region("exchange")
    region.arguments.append(Value("index", region))
    text = (
        f"ktdp.inter_tile_produce producer_tiles_per_group = {sender} -> {future} {{\n  ^bb0($a0):\n"
        f"    ktdp.yield_partial $0 : {value.type}$L0\n  }}"
    )
    produced = build.emit(text, (value,), (f"!ktdp.tile_future{future}",), (region,))[0]
    result = tensor(shape, element_of(dtype))
    tail = f": {future} -> {result}"
    head = f"($0) consumer_tiles_per_group = {everyone}"
    if exchange.kind == "broadcast":
        return build.value(f"ktdp.inter_tile_consume{head} {tail}", (produced,), result)
    if exchange.kind == "shift":
        sources = _shifted(grid, axis, exchange.by)
        return build.value(f"ktdp.inter_tile_consume{head}, producer_dependency_per_consumer = {sources} {tail}", (produced,), result)
    if exchange.kind == "gather":
        return build.value(f"ktdp.inter_tile_gather{head}, gather_dimensions = [{exchange.dim}] {tail}", (produced,), result)
    if exchange.kind == "all_to_all":
        lists = f"split_dimensions = [{exchange.dim}], concat_dimensions = [{exchange.concat}]"
        return build.value(f"ktdp.inter_tile_all_to_all{head}, {lists} {tail}", (produced,), result)
    return _folded(build, exchange, produced, value.type, dtype, head, tail, result)


def _folded(build: Builder, exchange: Exchange, produced: Value, type_: str, dtype: Any, head: str, tail: str, result: str) -> Value:
    ops, start = FOLDS[exchange.fold]
    op = ops.get(family(element_of(dtype)))
    if op is None:
        raise Mistake(f"an exchange folds floats and integers, but got {np.dtype(dtype)}")
    if isinstance(start, str):
        limits = (-np.inf, np.inf) if family(element_of(dtype)) == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        start = limits[start == "most"]
    identity = build.value(f"arith.constant dense<{literal(start, dtype)}> : {type_}", (), type_)
    scattered = f", scatter_dimensions = [{exchange.dim}]" if exchange.kind == "reduce_scatter" else ""
    text = (
        f"ktdp.inter_tile_{exchange.kind}{head}{scattered}, identity($1 : {type_}) {tail} {{\n  ^bb0(%.a: {type_}, %.b: {type_}):\n"
        f"    %.c = {op} %.a, %.b : {type_}$L0\n    ktdp.yield_reduced %.c : {type_}$L0\n  }}"
    )
    return build.value(text, (produced, identity), result)


def _axis(grid: tuple[int, ...], axis: int | None) -> tuple[int, int, int]:
    """Tiles in all, tiles of a group, and how far the tiles of a group are from each other."""
    return (prod(grid), prod(grid), 1) if axis is None else (prod(grid), grid[axis], prod(grid[axis + 1 :]))


def _groups(grid: tuple[int, ...], axis: int | None) -> str:
    total, tiles, _ = _axis(grid, axis)
    return f"affine_set<(g) : (g >= 0, -g + {total // tiles - 1} >= 0)>"


def _tiles(grid: tuple[int, ...], axis: int | None, position: int | None) -> str:
    """The set of a group's tiles, or of the one at a position."""
    total, tiles, stride = _axis(grid, axis)
    bounds = f"i >= 0, -i + {total - 1} >= 0"
    if tiles != total:
        bounds += f", i floordiv {tiles * stride} - g floordiv {stride} == 0, i mod {stride} - g mod {stride} == 0"
    if position is not None:
        bounds += f", (i floordiv {stride}) mod {tiles} - {position} == 0"
    return f"affine_set<(i)[g] : ({bounds})>"


def _shifted(grid: tuple[int, ...], axis: int | None, by: int) -> str:
    """The set of the tile from which a tile gets."""
    total, tiles, stride = _axis(grid, axis)
    bounds = f"p >= 0, -p + {total - 1} >= 0, (p floordiv {stride}) mod {tiles} - (c floordiv {stride} + {-by % tiles}) mod {tiles} == 0"
    if tiles != total:
        bounds += f", p floordiv {tiles * stride} - c floordiv {tiles * stride} == 0, p mod {stride} - c mod {stride} == 0"
    return f"affine_set<(p)[c] : ({bounds})>"
