"""Memory of a drawn kernel: how its arguments lie, and the views and tiles of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Array:
    """How an argument lies: distances of batch, rows and columns, of which it may lack some."""

    name: str
    strides: dict[str, int]
    size: int

    @property
    def dims(self) -> str:
        return "".join(self.strides)


@dataclass
class Kernel:
    choose: random.Random
    type: str
    grid: list[int]
    rows: int
    columns: int
    blocks: int
    height: int
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def emit(self, text: str) -> str:
        """A line that defines the next name."""
        self.count += 1
        self.lines.append(f"%{self.count} = {text}")
        return f"%{self.count}"


class Memory:
    """Writes views and access tiles of arrays, and of the scratchpad."""

    def __init__(self, k: Kernel, masked: bool) -> None:
        self.k, self.masked = k, masked
        self.batch = k.grid[0] if len(k.grid) == 3 else 1
        self.parts = k.grid[-1] if len(k.grid) > 1 else 1
        self.width = self.parts * k.columns
        self.arrays: list[Array] = []
        self.scratchpad = 64 * k.choose.randint(0, 40)
        """Elements from which on nothing is kept there."""

    def array(self, name: str, dims: str) -> Array:
        """An argument of these dims (b, r, c), which lies in some order with gaps."""
        extent = {"b": self.batch, "r": self.k.height, "c": self.width}
        order = list(dims)
        if self.k.choose.random() < 0.25:
            order = [*order[:-2], *reversed(order[-2:])]
        gap = self.k.choose.choice((0, 0, 3, 28))
        strides: dict[str, int] = {}
        step = 1
        for d in reversed(order):
            strides[d] = step
            step = step * extent[d] + (gap if d == order[-1] else 0)
        size = 1 + sum((extent[d] - 1) * strides[d] for d in dims)
        found = Array(name, {d: strides[d] for d in dims}, size)
        self.arrays.append(found)
        return found

    def places(self, array: Array) -> NDArray[np.int64]:
        """Where each element of the whole problem lies in an array."""
        at = np.zeros((self.batch, self.k.height, self.width), np.int64)
        extent = {"b": self.batch, "r": self.k.height, "c": self.width}
        for axis, d in enumerate("brc"):
            if d in array.strides:
                shape = [1, 1, 1]
                shape[axis] = -1
                at = at + (np.arange(extent[d]) * array.strides[d]).reshape(shape)
        return at

    def tile(self, array: Array) -> tuple[str, str, str]:
        """Ops for the view and access tile of the current block; the tile's name, its type and that of the tensor."""
        k, dims = self.k, array.dims.replace("b", "")
        base = f"%{array.name}"
        if "b" in array.strides:
            step = k.emit(f"arith.constant {array.strides['b']} : index")
            moved = k.emit(f"arith.muli %t0, {step} : index")
            base = k.emit(f"arith.addi {base}, {moved} : index")
        masked = self.masked and "r" in dims
        sizes = {"r": "%height" if masked else str(k.height), "c": str(self.width)}
        known = {"r": "?" if masked else str(k.height), "c": str(self.width)}
        tiles = {"r": k.rows, "c": k.columns}
        names = [f"d{i}" for i in range(len(dims))]
        bounds = [
            f"{n} >= 0, -{n} + " + ("s0 - 1 >= 0" if d == "r" and masked else f"{int(sizes[d]) - 1} >= 0")
            for n, d in zip(names, dims, strict=True)
        ]
        symbol = "[s0]" if masked else ""
        space = f"({', '.join(names)})"
        memory = f"memref<{'x'.join(known[d] for d in dims)}x{k.type}>"
        attribute = "masked, " if masked else ""
        given = f"{attribute}memory_space = #ktdp.memory_space<global>"
        strides = ", ".join(str(array.strides[d]) for d in dims)
        if "r" in dims and not masked and k.height > 1 and k.choose.random() < 0.2:
            view = self.parts_of_rows(base, array, memory, sizes, given)
        else:
            view = k.emit(
                f"ktdp.construct_memory_view {base}, sizes: [{', '.join(sizes[d] for d in dims)}], strides: [{strides}] "
                f"{{coordinate_set = affine_set<{space}{symbol} : ({', '.join(bounds)})>, {given}}} : {memory}"
            )
        box = ", ".join(f"{n} >= 0, -{n} + {tiles[d] - 1} >= 0" for n, d in zip(names, dims, strict=True))
        at = ", ".join({"r": "%row", "c": "%column"}[d] for d in dims)
        shape = "x".join(str(tiles[d]) for d in dims)
        tile = k.emit(
            f"ktdp.construct_access_tile {view}[{at}] {{access_tile_set = affine_set<{space} : ({box})>, "
            f"access_tile_order = affine_map<{space} -> {space}>}} : {memory} -> !ktdp.access_tile<{shape}xindex>"
        )
        return tile, f"<{shape}xindex>", f"tensor<{shape}x{k.type}>"

    def whole(self, array: Array) -> tuple[str, str]:
        """A view of all rows and columns, and its type."""
        k = self.k
        memory = f"memref<{k.height}x{self.width}x{k.type}>"
        view = k.emit(
            f"ktdp.construct_memory_view %{array.name}, sizes: [{k.height}, {self.width}], "
            f"strides: [{array.strides['r']}, {array.strides['c']}] "
            f"{{coordinate_set = affine_set<(r, c) : (r >= 0, -r + {k.height - 1} >= 0, "
            f"c >= 0, -c + {self.width - 1} >= 0)>, memory_space = #ktdp.memory_space<global>}} : {memory}"
        )
        return view, memory

    def listed(self, table: Array) -> tuple[str, str]:
        """A view of a table, and its type."""
        places = f"memref<{table.size}xi32>"
        view = self.k.emit(
            f"ktdp.construct_memory_view %{table.name}, sizes: [{table.size}], strides: [1] "
            f"{{coordinate_set = affine_set<(r) : (r >= 0, -r + {table.size - 1} >= 0)>, memory_space = #ktdp.memory_space<global>}} "
            f": {places}"
        )
        return view, places

    def table(self, name: str, size: int) -> Array:
        """An argument of integers."""
        found = Array(name, {"r": 1}, size)
        self.arrays.append(found)
        return found

    def gathered(self, array: Array, table: Array, columns: Array | None) -> tuple[str, str, str]:
        """As `tile`, of the rows that a table has the places of, perhaps of columns of another one."""
        k = self.k
        (view, memory), (listed, places) = self.whole(array), self.listed(table)
        second, types = "(%column + %q)", places
        if columns is not None:
            other, more = self.listed(columns)
            second, types = f"ind({other}[%column + %q])", f"{places}, {more}"
        shape = f"{k.rows}x{k.columns}"
        tile = k.emit(
            f"ktdp.construct_indirect_access_tile intermediate_variables(%p, %q) {view}[ind({listed}[%row + %p]), {second}] "
            f"{{variables_space_set = affine_set<(p, q) : (p >= 0, -p + {k.rows - 1} >= 0, q >= 0, -q + {k.columns - 1} >= 0)>, "
            f"variables_space_order = affine_map<(p, q) -> (p, q)>}} : {memory}, {types} -> !ktdp.access_tile<{shape}xindex>"
        )
        return tile, f"<{shape}xindex>", f"tensor<{shape}x{k.type}>"

    def of_block(self, table: Array) -> str:
        """The number that a table has of the current block, as an index."""
        k = self.k
        listed, places = self.listed(table)
        block = k.emit("arith.divui %row, %rows : index")
        tile = k.emit(
            f"ktdp.construct_access_tile {listed}[{block}] {{access_tile_set = affine_set<(r) : (r >= 0, -r >= 0)>, "
            f"access_tile_order = affine_map<(r) -> (r)>}} : {places} -> !ktdp.access_tile<1xindex>"
        )
        loaded = k.emit(f"ktdp.load {tile} : <1xindex> -> tensor<1xi32>")
        return k.emit(f"arith.index_cast {k.emit(f'tensor.extract {loaded}[%zero] : tensor<1xi32>')} : i32 to index")

    def rows_from(self, array: Array, first: str, rows: int) -> tuple[str, str, str]:
        """As `tile`, of rows from an index on."""
        k = self.k
        view, memory = self.whole(array)
        shape = f"{rows}x{k.columns}"
        tile = k.emit(
            f"ktdp.construct_access_tile {view}[{first}, %column] {{access_tile_set = affine_set<(r, c) : (r >= 0, -r + {rows - 1} >= 0, "
            f"c >= 0, -c + {k.columns - 1} >= 0)>, access_tile_order = affine_map<(r, c) -> (r, c)>}} : {memory} "
            f"-> !ktdp.access_tile<{shape}xindex>"
        )
        return tile, f"<{shape}xindex>", f"tensor<{shape}x{k.type}>"

    def parts_of_rows(self, base: str, array: Array, memory: str, sizes: dict[str, str], given: str) -> str:
        """The same as two views of some rows each."""
        k, dims = self.k, array.dims.replace("b", "")
        cut = k.choose.randint(1, k.height - 1)
        names = [f"d{i}" for i in range(len(dims))]
        views, types = [], []
        for low, high in ((0, cut), (cut, k.height)):
            step = k.emit(f"arith.constant {low * array.strides['r']} : index")
            first = k.emit(f"arith.addi {base}, {step} : index")
            own = sizes | {"r": str(high - low)}
            ends = [(low, high) if d == "r" else (0, int(sizes[d])) for d in dims]
            bounds = ", ".join(f"{n} - {a} >= 0, -{n} + {b - 1} >= 0" for n, (a, b) in zip(names, ends, strict=True))
            types.append(f"memref<{'x'.join(own[d] for d in dims)}x{k.type}>")
            views.append(
                k.emit(
                    f"ktdp.construct_memory_view {first}, sizes: [{', '.join(own[d] for d in dims)}], "
                    f"strides: [{', '.join(str(array.strides[d]) for d in dims)}] "
                    f"{{coordinate_set = affine_set<({', '.join(names)}) : ({bounds})>, {given}}} : {types[-1]}"
                )
            )
        return k.emit(f"ktdp.construct_distributed_memory_view({', '.join(views)} : {', '.join(types)}) : {memory}")

    def kept(self, name: str, tile_type: str, type_: str) -> str:
        """A tensor that goes through a place of its own in the scratchpad."""
        k = self.k
        pitch = k.columns + k.choose.choice((0, 0, 64))
        base = k.emit(f"arith.constant {self.scratchpad + 64 * k.choose.randint(0, 3)} : index")
        self.scratchpad += 64 * (8 + k.rows * (pitch // 64))
        memory = f"memref<{k.rows}x{k.columns}x{k.type}>"
        box = f"affine_set<(d0, d1) : (d0 >= 0, -d0 + {k.rows - 1} >= 0, d1 >= 0, -d1 + {k.columns - 1} >= 0)>"
        view = k.emit(
            f"ktdp.construct_memory_view {base}, sizes: [{k.rows}, {k.columns}], strides: [{pitch}, 1] "
            f"{{coordinate_set = {box}, memory_space = #ktdp.memory_space<ct_local>}} : {memory}"
        )
        tile = k.emit(
            f"ktdp.construct_access_tile {view}[%zero, %zero] {{access_tile_set = {box}, "
            f"access_tile_order = affine_map<(d0, d1) -> (d0, d1)>}} : {memory} -> !ktdp.access_tile{tile_type}"
        )
        k.lines.append(f"ktdp.store {name}, {tile} : {type_}, {tile_type}")
        return k.emit(f"ktdp.load {tile} : {tile_type} -> {type_}")
