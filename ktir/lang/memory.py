"""Memory of a trace: the arguments of a kernel, and its buffers in the scratchpad. Reading loads a tile, writing stores one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.base.scalars import element_of
from ktir.lang.graph import Value
from ktir.lang.indices import Index
from ktir.lang.keys import Gathered, Part, Parts, Shaped, gathered_layout, parts_of
from ktir.lang.tile import Tile, as_tile
from ktir.lang.trace import Trace


class Memory(Shaped, NDArrayOperatorsMixin):
    """A tensor in memory: `x[key]` loads, `x[key] = tile` stores. All that a key takes must lie inside; with `x.masked[key]` what lies
    outside reads as 0 and is not written."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        trace: Trace,
        shape: tuple[int, ...],
        dtype: Any,
        base: Value,
        space: str = "global",
        *,
        masked: bool = False,
        laid: tuple[int, ...] | None = None,
    ) -> None:
        """`laid`: the shape as whose elements those of this one lie, where it is another one."""
        self._trace, self._base, self._space, self._masked = trace, base, space, masked
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._laid = laid or self.shape
        self._done: set[str] = set()

    @property
    def masked(self) -> Memory:
        """The same memory, for keys that may reach beyond it."""
        other = Memory(self._trace, self.shape, self.dtype, self._base, self._space, masked=True, laid=self._laid)
        other._done = self._done
        return other

    @property
    def role(self) -> str:
        """What the kernel does with an argument."""
        if not self._done and (self._trace.is_divided or not self.size):
            return "unused"
        if "store" not in self._done:
            return "input"
        return "input_output" if "load" in self._done else "output"

    def __len__(self) -> int:
        if not self.shape:
            raise Mistake("memory without dims has no length")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Tile:
        parts = self._parts(key)
        self._done.add("load")
        access, extents, shape, dims = self._access(parts)
        type_ = f"tensor<{''.join(f'{n}x' for n in extents)}{element_of(self.dtype)}>"
        value = self._trace.value(f"ktdp.load $0 : {_stripped(extents)} -> {type_}", (access,), type_)
        if self.dtype.kind == "i" and any(isinstance(p, Part) and p.limit is not None for p in parts):
            self._trace.ragged.add(value)
        elif self.dtype.kind == "i" and self._space == "global" and all(isinstance(p, Part) for p in parts):
            starts = [self._trace.index(p.start) for p in parts if isinstance(p, Part)]
            self._trace.origins[value] = (self._view(self.shape, [None] * self.ndim, 0), starts)
        tile = Tile.of(self._trace, value, self.dtype)
        if dims == list(range(len(shape))) and tuple(shape) == tile.shape:
            return tile
        own = [d for d in range(len(extents)) if dims[d] is not None]
        if [dims[d] for d in own] == list(range(len(shape))):  # without dims of one position alone
            return tile[tuple(slice(None) if d in own else 0 for d in range(len(extents)))]
        return tile._view(shape, lambda d: dims[d])

    def __setitem__(self, key: Any, value: Any) -> None:
        parts = self._parts(key)
        tile = as_tile(self._trace, value, self.dtype)
        access, extents, shape, dims = self._access(parts)
        kept = [dims.index(d) if d in dims else -1 for d in range(len(shape))]
        data = tile._placed_in(tuple(shape), extents, kept, self.dtype)
        self._trace.emit(f"ktdp.store $0, $1 : {data.type}, {_stripped(extents)}", (data, access))
        self._wrote()

    def _add(self, key: Any, value: Any) -> None:
        """Add to elements, to one of them as often as the key names it."""
        parts = self._parts(key)
        tile = as_tile(self._trace, value, self.dtype)
        self._done.add("load")
        access, extents, shape, dims = self._access(parts)
        kept = [dims.index(d) if d in dims else -1 for d in range(len(shape))]
        data = tile._placed_in(tuple(shape), extents, kept, self.dtype)
        self._trace.emit(f"ktir.scatter_add $0, $1 : {data.type}, {access.type}", (data, access))
        self._wrote()

    def _wrote(self) -> None:
        """Integers that were loaded from here are no longer what lies here."""
        self._done.add("store")
        own = {view for key, view in self._trace.views.items() if key[0] is self._base}
        self._trace.stale.update(value for value, (view, _) in self._trace.origins.items() if view in own)

    def __iter__(self) -> Any:
        raise Mistake("memory is read by keys, as x[0]; a loop over its rows is 'for i in range(x.shape[0])'")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Mistake("memory has no values while a kernel is traced; load a tile of it: x[...]")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **__: Any) -> Any:
        if ufunc is np.add and method == "at" and inputs[0] is self:
            return self._add(*inputs[1:])
        raise Mistake(f"'np.{ufunc.__name__}' works on tiles; load one of this argument: x[...]")

    def __array_function__(self, func: Any, *_: Any) -> Any:
        raise Mistake(f"'np.{func.__name__}' works on tiles; load one of this argument: x[...]")

    def __repr__(self) -> str:
        return f"<memory {kind_of(self)}>"

    def _parts(self, key: Any) -> Parts:
        return parts_of(self.shape, key, masked=self._masked)

    def _access(self, parts: Parts) -> tuple[Value, tuple[int, ...], list[int], list[int | None]]:
        """The access tile of a key, its extents, the shape of the tile that it takes, and the dims of that along which the extents lie."""
        if any(isinstance(p, Gathered) for p in parts):
            return self._indirect(parts)
        boxes = [replace(p, start=self._trace.index(p.start)) for p in parts if isinstance(p, Part)]
        extents = tuple(p.size for p in boxes)
        limits = tuple(p.limit if p.limit is not None and self._beyond(p) else None for p in boxes)
        starts = [p.start for p in boxes]
        for d, (start, extent, limit, size) in enumerate(zip(starts, extents, limits, self.shape, strict=True)):
            if start.known is not None and limit is None and not 0 <= start.known <= size - extent:
                raise Mistake(f"elements {start.known} to {start.known + extent - 1} reach beyond dim {d} of {size}")
        if self._trace.grid is None and all(s.known is not None for s in starts) and not any(limits):
            offset = sum(s.known * n for s, n in zip(starts, self._strides(), strict=True))
            view, sizes = self._view(extents, (None,) * len(extents), offset), extents
            starts = [self._trace.index(0)] * len(starts)
        else:
            view, sizes = self._view(self.shape, limits, 0), self.shape
        operands = [view]
        subscripts = ", ".join(s.subscript(operands) for s in starts)
        rank = len(extents)
        names = ", ".join(f"d{i}" for i in range(rank))
        type_ = f"!ktdp.access_tile{_stripped(extents)}"
        text = (
            f"ktdp.construct_access_tile $0[{subscripts}] {{access_tile_order = affine_map<({names}) -> ({names})>, "
            f"access_tile_set = {_box(extents)}}} : {_memref(sizes, limits if view.type.count('?') else (), self.dtype)} -> {type_}"
        )
        return self._trace.value(text, operands, type_), extents, *_loaded(parts)

    def _indirect(self, parts: Parts) -> tuple[Value, tuple[int, ...], list[int], list[int | None]]:
        """As `_access`, for a key with tiles of numbers."""
        trace = self._trace
        numbers = {i: as_tile(trace, p.numbers) for i, p in enumerate(parts) if isinstance(p, Gathered)}
        shape, first, dims, new = gathered_layout(parts, [t.shape for t in numbers.values()])
        loops = [d for d in range(len(shape)) if d not in new]
        extents = tuple(shape[d] for d in loops)
        common = len(np.broadcast_shapes(*[t.shape for t in numbers.values()]))
        view = self._view(self.shape, [None] * self.ndim, 0)
        operands, sources, subscripts = [view], [], []
        for i, part in enumerate(parts):
            if isinstance(part, Gathered):
                tile = numbers[i]
                source, starts, walked = self._numbers(tile)
                operands.insert(1 + len(sources), source)
                sources.append(source)
                subscripts.append((starts, [None if d is None or tile.shape[d] == 1 else first + common - tile.ndim + d for d in walked]))
            elif part is not None:
                subscripts.append(([trace.index(part.start)], [dims[i]]))
        texts, taken = [], 0
        for i, (starts, walked) in zip((i for i, p in enumerate(parts) if p is not None), subscripts, strict=True):
            inner = ", ".join(
                _sum(s.subscript(operands), None if d is None else loops.index(d)) for s, d in zip(starts, walked, strict=True)
            )
            taken += i in numbers
            texts.append(f"ind(${taken}[{inner}])" if i in numbers else f"({inner})")
        names = ", ".join(f"d{i}" for i in range(len(loops)))
        type_ = f"!ktdp.access_tile{_stripped(extents)}"
        text = (
            f"ktdp.construct_indirect_access_tile intermediate_variables({', '.join(f'%.k{i}' for i in range(len(loops)))}) "
            f"$0[{', '.join(texts)}] {{variables_space_order = affine_map<({names}) -> ({names})>, "
            f"variables_space_set = {_box(extents)}}} : {', '.join(v.type for v in (view, *sources))} -> {type_}"
        )
        return trace.value(text, operands, type_), extents, list(shape), [*loops]

    def _numbers(self, tile: Tile) -> tuple[Value, Sequence[Index], Sequence[int | None]]:
        """Memory in which numbers lie: from where on, and along which dims of the tile."""
        trace = self._trace
        value, dims = tile.placed()
        found = trace.origins.get(value)
        if value in trace.stale:
            raise Mistake("a key takes a tile of numbers that were loaded before their argument was written; load them again")
        if found is not None and found[0].region in trace.stack:
            return found[0], found[1], dims
        if value in trace.ragged:
            raise Mistake(
                "a key takes a tile of numbers that lies inside of its argument, but these may reach beyond it, in the last block or by "
                "'.masked'; take blocks of a size that divides the dim"
            )
        raise Mistake(
            "a key takes a tile of numbers as it was loaded from an argument, whole slices of it; computed ones stand in memory first"
        )

    @staticmethod
    def _beyond(part: Part) -> bool:
        """Whether a part may reach beyond its limit."""
        known = part.start.known
        return known is None or known < 0 or known + part.size > (part.limit or 0)

    def _strides(self) -> list[int]:
        return [prod(self._laid[i + 1 :]) for i in range(self.ndim)]

    def _view(self, sizes: Sequence[int], limits: Sequence[int | None], offset: int) -> Value:
        """The view of a part of this memory, made once."""
        trace = self._trace
        key = (self._base, self._space, self.shape, self.dtype, tuple(sizes), tuple(limits), offset)
        found = trace.views.get(key)
        if found is not None:
            return found
        operands = [self._base]
        if offset:
            operands = [trace.at_first("arith.addi $0, $1 : index", (self._base, trace.number(offset)), "index")[0]]
        listed = []
        for size, limit in zip(sizes, limits, strict=True):
            if limit is None:
                listed.append(str(size))
            else:
                operands.append(trace.number(limit))
                listed.append(f"${len(operands) - 1}")
        type_ = _memref(sizes, limits, self.dtype)
        text = (
            f"ktdp.construct_memory_view $0, sizes: [{', '.join(listed)}], strides: [{', '.join(map(str, self._strides()))}] "
            f"{{coordinate_set = {_box(sizes, limits)}{', masked' if any(n is not None for n in limits) else ''}, "
            f"memory_space = #ktdp.memory_space<{self._space}>}} : {type_}"
        )
        found = trace.views[key] = trace.at_first(text, operands, type_)[0]
        return found


def _loaded(parts: Parts) -> tuple[list[int], list[int | None]]:
    """The shape of the tile that a key takes, and per dim of the memory the dim of the tile that it becomes."""
    shape: list[int] = []
    dims: list[int | None] = []
    for part in parts:
        if part is None:
            shape.append(1)
        elif isinstance(part, Part) and part.dropped:
            dims.append(None)
        else:
            dims.append(len(shape))
            shape.append(part.size if isinstance(part, Part) else 0)
    return shape, dims


def _sum(start: str, loop: int | None) -> str:
    """A subscript of an indirect tile: a start and a loop."""
    return start if loop is None else f"%.k{loop}" if start == "0" else f"{start} + %.k{loop}"


def _stripped(extents: Sequence[int]) -> str:
    return f"<{''.join(f'{n}x' for n in extents)}index>"


def _memref(sizes: Sequence[int], limits: Sequence[int | None], dtype: Any) -> str:
    listed = [str(n) if not limits or limits[i] is None else "?" for i, n in enumerate(sizes)]
    return f"memref<{''.join(f'{n}x' for n in listed)}{element_of(dtype)}>"


def _box(sizes: Sequence[int], limits: Sequence[int | None] = ()) -> str:
    """The set of coordinates from 0 to sizes, dynamic where there are limits."""
    if not sizes:
        return "affine_set<() : ()>"
    bounds, symbols = [], []
    for i, size in enumerate(sizes):
        if limits and limits[i] is not None:
            symbols.append(f"s{len(symbols)}")
            bounds.append(f"d{i} >= 0, -d{i} + {symbols[-1]} - 1 >= 0")
        else:
            bounds.append(f"d{i} >= 0, -d{i} + {size - 1} >= 0")
    names = ", ".join(f"d{i}" for i in range(len(sizes)))
    return f"affine_set<({names}){'[' + ', '.join(symbols) + ']' if symbols else ''} : ({', '.join(bounds)})>"
