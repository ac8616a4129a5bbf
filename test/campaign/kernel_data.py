"""What drawn kernels do with numbers that count: positions as data, places and trips that data decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from campaign.kernel_memory import Array, Kernel, Memory
from numpy.typing import NDArray

EPS = {"f16": 2.0**-11, "f32": 2.0**-24, "i32": 0.0}
TINY = {"f16": 2.0**-24, "f32": 2.0**-149, "i32": 0.0}
TYPES = {"f16": np.float16, "f32": np.float32, "i32": np.int32}
MOST = 1000.0


@dataclass
class Near:
    """Numbers of the whole problem [batch, rows, columns of tiles, columns], in float64 or int64, and how far off they may be."""

    value: NDArray[Any]
    error: NDArray[np.float64]


class Data(Memory):
    """Writes such ops, and computes the same beside them."""

    def __init__(self, k: Kernel, masked: bool, rng: np.random.Generator) -> None:
        super().__init__(k, masked)
        self.rng = rng
        self.inputs: list[NDArray[np.generic]] = []

    @property
    def tensor(self) -> str:
        return f"tensor<{self.k.rows}x{self.k.columns}x{self.k.type}>"

    def near(self, x: NDArray[Any], error: NDArray[np.float64] | float) -> Near:
        """A result with its own rounding."""
        type_ = self.k.type
        if type_ == "i32":
            x = (x.astype(np.int64) + 2**31) % 2**32 - 2**31
            return Near(x, np.zeros(x.shape))
        return Near(x, 1.01 * (error + EPS[type_] * (np.abs(x) + error) + TINY[type_]))

    def looked_up(self, array: Array, number: int, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> tuple[str, str, str]:
        """A tile whose place a table has: row by row, perhaps of columns that another one has, or block by block. Writes what it takes into
        `rows` and `columns`."""
        k = self.k
        form = k.choose.choice(("rows", "rows", "elements", "block"))
        if form == "block":
            first = self.rng.integers(0, k.height - k.rows + 1, k.height // k.rows)
            rows[:] = (first[:, None] + np.arange(k.rows)).reshape(-1)
            table = self.table(f"z{number}", len(first))
            self.inputs.append(first.astype(np.int32))
            return self.rows_from(array, self.of_block(table), k.rows)
        rows[:] = self.rng.integers(0, k.height, k.height)
        table, second = self.table(f"z{number}", k.height), None
        self.inputs.append(rows.astype(np.int32))
        if form == "elements" and k.rows * k.columns <= 256:
            columns[:] = self.rng.integers(0, self.width, self.width)
            second = self.table(f"w{number}", self.width)
            self.inputs.append(columns.astype(np.int32))
        return self.gathered(array, table, second)

    def counted(self, x: Near) -> tuple[Callable[[str, str], str], Near]:
        """Where an element is, along either dim, and the first row of the block: added, or a condition."""
        k, dim = self.k, self.k.choose.randint(0, 1)
        at = np.arange(k.height)[:, None, None] % k.rows if dim == 0 else np.arange(k.columns)[None, None, :]
        bound, same = k.choose.randint(0, (k.rows, k.columns)[dim]), "affine_map<(d0, d1) -> (d0, d1)>"
        first = np.arange(k.height)[:, None, None] // k.rows * k.rows
        decides = k.choose.random() < 0.5 or k.height > MOST
        predicate, holds = k.choose.choice((("ult", np.less), ("sge", np.greater_equal), ("eq", np.equal), ("ne", np.not_equal)))

        def body(a: str, _: str) -> str:
            like = k.emit(f"tensor.empty() : {self.tensor}")
            ops = [f"%e = linalg.index {dim} : index"]
            if decides:
                zero = "0" if k.type == "i32" else "0.0"
                ops += [f"%n = arith.constant {bound} : index", f"%h = arith.cmpi {predicate}, %e, %n : index"]
                ops += [f"%z = arith.constant {zero} : {k.type}", f"%s = arith.select %h, %p, %z : {k.type}"]
            else:
                ops += ["%w = arith.addi %e, %row : index", "%m = arith.index_cast %w : index to i32"]
                ops += ["%s = arith.addi %p, %m : i32"] if k.type == "i32" else []
                ops += [f"%f = arith.sitofp %m : i32 to {k.type}", f"%s = arith.addf %p, %f : {k.type}"] if k.type != "i32" else []
            return k.emit(
                f'linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = ["parallel", "parallel"]}} '
                f"ins({a} : {self.tensor}) outs({like} : {self.tensor}) {{\n^bb0(%p: {k.type}, %o: {k.type}):\n"
                + "\n".join(ops)
                + f"\nlinalg.yield %s : {k.type}\n}} -> {self.tensor}"
            )

        if decides:
            live = np.broadcast_to(holds(at, bound), x.value.shape)
            return body, Near(np.where(live, x.value, 0), np.where(live, x.error, 0.0))
        return body, self.near(x.value + at + first, x.error)

    def repeated(self, x: Near) -> tuple[Callable[[str, str], str], Near]:
        """A loop of as many trips as a table says of the block: each adds a row of an array, of floats to a half."""
        k, floats = self.k, self.k.type != "i32"
        number = len(self.arrays)
        array, table = self.array(f"a{number}", "rc"), self.table(f"n{number}", k.height // k.rows)
        data = self.rng.integers(-50, 50, array.size) if not floats else self.rng.uniform(-2, 2, array.size)
        data = data.astype(TYPES[k.type])
        counts = self.rng.integers(0, min(k.height, 3) + 1, table.size)
        self.inputs += [data, counts.astype(np.int32)]
        added = data[self.places(array)].astype(np.float64 if floats else np.int64).reshape(1, k.height, self.parts, k.columns)
        trips = counts[np.arange(k.height) // k.rows][None, :, None, None]
        found = x
        for j in range(int(counts.max(initial=0))):
            half = self.near(found.value * 0.5, 0.5 * found.error) if floats else found
            new = self.near(half.value + added[:, j : j + 1], half.error)
            found = Near(np.where(j < trips, new.value, found.value), np.where(j < trips, new.error, found.error))

        def loop(a: str, _: str) -> str:
            made = k.emit(f"scf.for %j = %zero to {self.of_block(table)} step %one iter_args(%c = {a}) -> ({self.tensor}) {{")
            tile, tile_type, type_ = self.rows_from(array, "%j", 1)
            row = k.emit(f"ktdp.load {tile} : {tile_type} -> {type_}")
            flat = f"tensor<{k.columns}x{k.type}>"
            row = k.emit(f"tensor.collapse_shape {row} [[0, 1]] : {type_} into {flat}")
            like = k.emit(f"tensor.empty() : {self.tensor}")
            row = k.emit(f"linalg.broadcast ins({row} : {flat}) outs({like} : {self.tensor}) dimensions = [0]")
            carried = "%c"
            if floats:
                half = k.emit(f"arith.constant dense<0.5> : {self.tensor}")
                carried = k.emit(f"arith.mulf %c, {half} : {self.tensor}")
            total = k.emit(f"arith.add{'f' if floats else 'i'} {carried}, {row} : {self.tensor}")
            k.lines += [f"scf.yield {total} : {self.tensor}", "}"]
            return made

        return loop, found
