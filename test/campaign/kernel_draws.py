"""Draws a kernel with a grid by a seed, with its inputs, and what it must come near to.

What it avoids: several reduced dims, matmuls, exchanges but reductions and what one tile hands out, tables of several dims, tiles whose
rows are no one dim in memory.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from campaign.kernel_data import EPS, MOST, TYPES, Data, Near
from campaign.kernel_memory import Array, Kernel
from numpy.typing import NDArray

_FLOATS = ("add", "sub", "mul", "max", "min", "neg", "abs", "exp", "sqrt", "select", "scale", "reduce", "reduce", "loop")
NOTHING = 7


@dataclass
class Drawn:
    """A kernel: its text, arrays, and what the last one must be near where the tiles write it."""

    text: str
    inputs: list[NDArray[np.generic]]
    before: NDArray[np.generic]
    wanted: NDArray[np.float64]
    error: NDArray[np.float64]
    """As `wanted`, by element of the array's memory."""

    def wrong(self, found: NDArray[np.generic]) -> str:
        """What differs by more than it may; empty if nothing does."""
        off = np.abs(found.astype(np.float64) - self.wanted) > self.error
        return f"{int(off.sum())} elements are off, the first at {int(np.argmax(off))}" if off.any() else ""


def draw(seed: int) -> Drawn:
    """The kernel of a seed."""
    choose = random.Random(seed)
    grid = _grid(choose)
    rows = choose.choice((1, 2, 2, 3, 4, 5, 8, 9))
    columns = choose.choice((1, 2, 7, 32, 63, 64, 64, 65, 100, 128, 130))
    parts = grid[-2] if len(grid) > 1 else grid[0]
    looped = choose.choice(("once", "once", "share", "strided"))
    blocks = parts * {"once": 1, "share": choose.randint(1, 3), "strided": 1}[looped]
    if looped == "strided":
        blocks = choose.randint(1, 3 * parts)
    masked = choose.random() < 0.4
    height = max(1, blocks * rows - (choose.randint(0, rows * 2) if masked else 0))
    k = Kernel(choose, choose.choice(("f16", "f16", "f32", "i32")), grid, rows, columns, blocks, height)
    return _Writer(k, looped, masked, np.random.default_rng(seed)).drawn()


def _grid(choose: random.Random) -> list[int]:
    match choose.randint(0, 4):
        case 0:
            return [choose.choice((1, 3, 32, 33, 40, 64, 70))]
        case 1 | 2:
            return [choose.randint(1, 9)]
        case 3:
            return [choose.randint(1, 8), choose.randint(1, 5)]
        case _:
            return [choose.randint(1, 3), choose.randint(1, 4), choose.randint(1, 3)]


class _Writer(Data):
    """Writes the text and computes the same beside it."""

    def __init__(self, k: Kernel, looped: str, masked: bool, rng: np.random.Generator) -> None:
        super().__init__(k, masked, rng)
        self.looped = looped
        self.values: list[tuple[str, Near]] = []

    # Values

    def load(self, number: int) -> None:
        """One more input: of the whole problem, or a vector along columns or rows that is broadcast."""
        k = self.k
        kind = k.choose.choice(("rc", "rc", "rc", "c", "r")) if number else "rc"
        array = self.array(f"x{number}", ("b" if self.batch > 1 and kind == "rc" else "") + kind)
        if k.type == "i32":
            data = self.rng.integers(-50, 50, array.size).astype(np.int32)
        else:
            data = self.rng.uniform(-2, 2, array.size).astype(TYPES[k.type])
        self.inputs.append(data)
        rows, columns = np.arange(k.height), np.arange(self.width)
        if kind == "rc" and self.batch == 1 and not self.masked and k.choose.random() < 0.4:
            tile, tile_type, type_ = self.looked_up(array, number, rows, columns)
        else:
            tile, tile_type, type_ = self.tile(array)
        name = k.emit(f"ktdp.load {tile} : {tile_type} -> {type_}")
        if kind == "rc" and k.columns % 64 == 0 and (k.rows == 1 or k.rows % 2 == 0) and k.choose.random() < 0.3:
            name = self.kept(name, tile_type, type_)
        if kind != "rc":
            like = k.emit(f"tensor.empty() : {self.tensor}")
            added = 0 if kind == "c" else 1
            name = k.emit(f"linalg.broadcast ins({name} : {type_}) outs({like} : {self.tensor}) dimensions = [{added}]")
        whole = data[self.places(array)][:, rows][..., columns if "c" in kind else np.arange(self.width)]
        whole = np.broadcast_to(whole, (self.batch, k.height, self.width)).reshape(self.batch, k.height, self.parts, k.columns)
        exact = whole.astype(np.int64 if k.type == "i32" else np.float64)
        self.values.append((name, Near(exact, np.zeros(exact.shape))))

    def step(self) -> None:
        """One more op on values that there are, unless it leaves the range."""
        k = self.k
        (a, x), (b, y) = k.choose.choice(self.values), k.choose.choice(self.values)
        if self._exchanges() and k.choose.random() < 0.5:
            op, found = self._handed(x) if k.choose.random() < 0.4 else self._folded(x)
        elif k.choose.random() < 0.1:
            op, found = self._uniform(x)
        elif k.choose.random() < 0.15:
            op, found = self.counted(x)
        elif k.choose.random() < 0.1 and self.batch == 1 and not self.masked:
            op, found = self.repeated(x)
        else:
            op, found = self._integer(x, y) if k.type == "i32" else self._float(x, y)
        if found is None or (np.abs(found.value).max() > MOST and k.type != "i32"):
            return
        self.values.append((op(a, b), found))

    def _binary(self, name: str) -> Callable[[str, str], str]:
        if self.k.choose.random() < 0.3:
            maps = "affine_map<(d0, d1) -> (d0, d1)>"

            def generic(a: str, b: str) -> str:
                like = self.k.emit(f"tensor.empty() : {self.tensor}")
                return self.k.emit(
                    f'linalg.generic {{indexing_maps = [{maps}, {maps}, {maps}], iterator_types = ["parallel", "parallel"]}} '
                    f"ins({a}, {b} : {self.tensor}, {self.tensor}) outs({like} : {self.tensor}) {{\n"
                    f"^bb0(%p: {self.k.type}, %q: {self.k.type}, %o: {self.k.type}):\n%s = {name} %p, %q : {self.k.type}\n"
                    f"linalg.yield %s : {self.k.type}\n}} -> {self.tensor}"
                )

            return generic
        return lambda a, b: self.k.emit(f"{name} {a}, {b} : {self.tensor}")

    def _unary(self, name: str) -> Callable[[str, str], str]:
        return lambda a, _: self.k.emit(f"{name} {a} : {self.tensor}")

    def _integer(self, x: Near, y: Near) -> tuple[Callable[[str, str], str], Near | None]:
        functions = {
            "arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply, "arith.maxsi": np.maximum,
            "arith.minsi": np.minimum, "arith.andi": np.bitwise_and, "arith.xori": np.bitwise_xor,
        }  # fmt: skip
        name = self.k.choose.choice(list(functions))
        return self._binary(name), self.near(functions[name](x.value, y.value), 0.0)

    def _float(self, x: Near, y: Near) -> tuple[Callable[[str, str], str], Near | None]:
        p, q, e, f = x.value, y.value, x.error, y.error
        match self.k.choose.choice(
            ("add", "sub", "mul", "max", "min", "neg", "abs", "exp", "sqrt", "select", "scale", "reduce", "reduce", "loop")
        ):
            case "add":
                return self._binary("arith.addf"), self.near(p + q, e + f)
            case "sub":
                return self._binary("arith.subf"), self.near(p - q, e + f)
            case "mul":
                return self._binary("arith.mulf"), self.near(p * q, np.abs(p) * f + np.abs(q) * e + e * f)
            case "max":
                return self._binary("arith.maximumf"), self.near(np.maximum(p, q), np.maximum(e, f))
            case "min":
                return self._binary("arith.minimumf"), self.near(np.minimum(p, q), np.maximum(e, f))
            case "neg":
                return self._unary("arith.negf"), self.near(-p, e)
            case "abs":
                return self._unary("math.absf"), self.near(np.abs(p), e)
            case "exp":
                if p.max() > 5 or e.max() > 0.5:
                    return self._unary("math.exp"), None
                return self._unary("math.exp"), self.near(np.exp(p), np.exp(p) * np.expm1(e))
            case "sqrt":
                return self._root, self.near(np.sqrt(np.abs(p)), np.sqrt(np.abs(p) + e) - np.sqrt(np.maximum(np.abs(p) - e, 0)))
            case "select":
                close = np.abs(p - q) <= e + f
                return self._select, self.near(np.where(p < q, q, -p), np.where(close, np.abs(p + q), 0) + e + f)
            case "scale":
                return self._scaled, self.near(p * 0.5 + 0.25, 0.5 * e + EPS[self.k.type])
            case "loop":
                trips, near = self.k.choose.randint(1, 4), x
                for _ in range(trips):
                    half = self.near(near.value * 0.5, 0.5 * near.error)
                    near = self.near(half.value + q, half.error + f)
                return lambda a, b: self._carried(a, b, trips), near
            case _:
                return self._reduced(p, e)

    def _root(self, a: str, _: str) -> str:
        return self.k.emit(f"math.sqrt {self.k.emit(f'math.absf {a} : {self.tensor}')} : {self.tensor}")

    def _select(self, a: str, b: str) -> str:
        less = self.k.emit(f"arith.cmpf olt, {a}, {b} : {self.tensor}")
        other = self.k.emit(f"arith.negf {a} : {self.tensor}")
        flags = self.tensor.replace(self.k.type, "i1")
        return self.k.emit(f"arith.select {less}, {b}, {other} : {flags}, {self.tensor}")

    def _scaled(self, a: str, _: str) -> str:
        half = self.k.emit(f"arith.constant dense<0.5> : {self.tensor}")
        number = self.k.emit(f"arith.constant 0.25 : {self.k.type}")
        quarter = self.k.emit(f"tensor.splat {number} : {self.tensor}")
        return self.k.emit(f"arith.addf {self.k.emit(f'arith.mulf {a}, {half} : {self.tensor}')}, {quarter} : {self.tensor}")

    def _carried(self, a: str, b: str, trips: int) -> str:
        """A loop that carries a tensor: half of it and another one, some times."""
        k = self.k
        n = k.emit(f"arith.constant {trips} : index")
        made = k.emit(f"scf.for %j = %zero to {n} step %one iter_args(%c = {a}) -> ({self.tensor}) {{")
        half = k.emit(f"arith.constant dense<0.5> : {self.tensor}")
        total = k.emit(f"arith.addf {k.emit(f'arith.mulf %c, {half} : {self.tensor}')}, {b} : {self.tensor}")
        k.lines += [f"scf.yield {total} : {self.tensor}", "}"]
        return made

    def _reduced(self, p: NDArray[np.float64], e: NDArray[np.float64]) -> tuple[Callable[[str, str], str], Near | None]:
        """The largest of a row, or its sum, on all of its columns; sums in f16 round each of their steps."""
        k = self.k
        column = f"tensor<{k.rows}x{k.type}>"
        start = k.choose.choice(("identity", "0.5"))
        if k.choose.random() < 0.5:
            combine = k.choose.choice(("arith.maximumf", "arith.maxnumf"))
            lowest = {"f16": "0xFC00", "f32": "0xFF800000"}[k.type] if start == "identity" else "0.5"

            def largest(a: str, _: str) -> str:
                init = k.emit(f"arith.constant dense<{lowest}> : {column}")
                made = k.emit(f"linalg.reduce {{ {combine} }} ins({a} : {self.tensor}) outs({init} : {column}) dimensions = [1]")
                return self._spread(made, column)

            top = p.max(-1, keepdims=True)
            top = top if start == "identity" else np.maximum(top, 0.5)
            return largest, self.near(np.broadcast_to(top, p.shape), np.broadcast_to(e.max(-1, keepdims=True), p.shape))

        def total(a: str, _: str) -> str:
            init = k.emit(f"arith.constant dense<{'0.0' if start == 'identity' else start}> : {column}")
            made = k.emit(f"linalg.reduce {{ arith.addf }} ins({a} : {self.tensor}) outs({init} : {column}) dimensions = [1]")
            return self._spread(made, column)

        n = k.columns
        sums = p.sum(-1, keepdims=True) + (0.0 if start == "identity" else 0.5)
        off = e.sum(-1, keepdims=True) + (n + 1) * EPS[k.type] * (np.abs(p) + e).sum(-1, keepdims=True) + EPS[k.type]
        if (np.abs(p) + e).sum(-1).max() > MOST:
            return total, None
        return total, self.near(np.broadcast_to(sums, p.shape), np.broadcast_to(off, p.shape))

    def _exchanges(self) -> bool:
        """Whether all tiles run at once, each on a block of its own."""
        return self.looped == "once" and not self.masked and len(self.k.grid) == 1 and 1 < self.k.grid[0] <= 32

    def _folded(self, x: Near) -> tuple[Callable[[str, str], str], Near]:
        """A reduction over the tiles of each group, neighbours or tiles that lie apart, which all of them get."""
        k, tiles, sums = self.k, self.k.grid[0], self.k.choose.random() < 0.6
        count = k.choose.choice([n for n in range(2, tiles + 1) if tiles % n == 0])
        groups, apart = tiles // count, k.choose.random() < 0.5
        near = f"i - {count} * g >= 0, -i + {count} * g + {count - 1} >= 0"
        far = f"(i - g) mod {groups} == 0, i - g >= 0, -i + g + {tiles - groups} >= 0"
        members = f"affine_set<(i)[g] : ({far if apart and groups > 1 else near})>"
        name = ("arith.addi" if sums else "arith.maxsi") if k.type == "i32" else "arith.addf" if sums else "arith.maximumf"

        def fold(a: str, _: str) -> str:
            future = f"<({self.tensor}), groups = affine_set<(g) : (g >= 0, -g + {groups - 1} >= 0)>>"
            zero = k.emit(f"arith.constant dense<{0 if k.type == 'i32' else '0.0'}> : {self.tensor}")
            made = k.emit(f"ktdp.inter_tile_produce producer_tiles_per_group = {members} -> {future} {{")
            k.lines += ["^bb0(%g: index):", f"ktdp.yield_partial {a} : {self.tensor}", "}"]
            total = k.emit(
                f"ktdp.inter_tile_reduce({made}) consumer_tiles_per_group = {members}, identity({zero} : {self.tensor}) : {future} "
                f"-> {self.tensor} {{"
            )
            k.lines += [f"^bb0(%p: {self.tensor}, %q: {self.tensor}):", f"%s = {name} %p, %q : {self.tensor}"]
            k.lines += [f"ktdp.yield_reduced %s : {self.tensor}", "}"]
            return total

        split, axis = ((count, groups), 0) if apart and groups > 1 else ((groups, count), 1)

        def over(values: NDArray[Any], sums: bool) -> NDArray[Any]:
            parts = values.reshape(*split, -1)
            total = parts.sum(axis, keepdims=True) if sums else parts.max(axis, keepdims=True)
            return np.broadcast_to(total, parts.shape).reshape(values.shape)

        error = over(x.error, sums)
        if sums and k.type != "i32":
            error = error + count * EPS[k.type] * over(np.abs(x.value) + x.error, True)
        return fold, self.near(over(x.value, sums), error)

    def _handed(self, x: Near) -> tuple[Callable[[str, str], str], Near]:
        """What the first tile of each group of neighbours hands out to all of them."""
        k, tiles = self.k, self.k.grid[0]
        count = k.choose.choice([n for n in range(2, tiles + 1) if tiles % n == 0])
        future = f"<({self.tensor}), groups = affine_set<(g) : (g >= 0, -g + {tiles // count - 1} >= 0)>>"

        def hand(a: str, _: str) -> str:
            first, members = (f"i - {count} * g {rest}" for rest in ("== 0", f">= 0, -i + {count} * g + {count - 1} >= 0"))
            made = k.emit(f"ktdp.inter_tile_produce producer_tiles_per_group = affine_set<(i)[g] : ({first})> -> {future} {{")
            k.lines += ["^bb0(%g: index):", f"ktdp.yield_partial {a} : {self.tensor}", "}"]
            consumers = f"affine_set<(i)[g] : ({members})>"
            return k.emit(f"ktdp.inter_tile_consume({made}) consumer_tiles_per_group = {consumers} : {future} -> {self.tensor}")

        def of_first(values: NDArray[Any]) -> NDArray[Any]:
            parts = values.reshape(tiles // count, count, -1)
            return np.broadcast_to(parts[:, :1], parts.shape).reshape(values.shape)

        return hand, Near(of_first(x.value), of_first(x.error))

    def _uniform(self, x: Near) -> tuple[Callable[[str, str], str], Near]:
        """An integer of the text, and an intrinsic where there is one."""
        k = self.k
        sigmoid = k.type != "i32" and k.choose.random() < 0.5

        def add(a: str, _: str) -> str:
            number = k.emit("arith.index_cast %rows : index to i32")
            if k.type != "i32":
                number = k.emit(f"arith.sitofp {number} : i32 to {k.type}")
            whole = k.emit(f"tensor.splat {number} : {self.tensor}")
            return k.emit(f"arith.{'addi' if k.type == 'i32' else 'addf'} {a}, {whole} : {self.tensor}")

        def squash(a: str, _: str) -> str:
            like, same = k.emit(f"tensor.empty() : {self.tensor}"), "affine_map<(d0, d1) -> (d0, d1)>"
            return k.emit(
                f'linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = ["parallel", "parallel"]}} '
                f"ins({a} : {self.tensor}) outs({like} : {self.tensor}) {{\n^bb0(%p: {k.type}, %o: {k.type}):\n"
                f"%s = spyreop.sigmoid %p : {k.type}\nlinalg.yield %s : {k.type}\n}} -> {self.tensor}"
            )

        if sigmoid:
            return squash, self.near(1 / (1 + np.exp(-np.clip(x.value, -700, 700))), x.error / 4 + 8 * EPS["f32"])
        return add, self.near(x.value + k.rows, x.error)

    def _spread(self, column: str, type_: str) -> str:
        like = self.k.emit(f"tensor.empty() : {self.tensor}")
        return self.k.emit(f"linalg.broadcast ins({column} : {type_}) outs({like} : {self.tensor}) dimensions = [1]")

    # The kernel

    def drawn(self) -> Drawn:
        """The whole of it."""
        k = self.k
        for number in range(k.choose.randint(1, 4)):
            self.load(number)
        for _ in range(k.choose.randint(0, 7)):
            self.step()
        name, near = self.values[-1]
        out = self.array("y", ("b" if self.batch > 1 else "") + "rc")
        before = np.full(out.size, NOTHING, TYPES[k.type])
        written, guard = self._store(name, out)
        wanted, error = before.astype(np.float64), np.zeros(out.size)
        at = self.places(out)[written]
        shape = (self.batch, k.height, self.width)
        wanted[at] = near.value.reshape(shape)[written]
        error[at] = near.error.reshape(shape)[written]
        return Drawn(self._text(guard), self.inputs, before, wanted, error)

    def _store(self, name: str, out: Array) -> tuple[NDArray[np.bool_], str]:
        """The store, perhaps of some tiles or trips only; which elements are written, and the condition."""
        k, choose = self.k, self.k.choose
        at = len(k.lines)
        tile, tile_type, type_ = self.tile(out)
        k.lines.append(f"ktdp.store {name}, {tile} : {type_}, {tile_type}")
        block = np.broadcast_to((np.arange(k.height) // k.rows)[None, :, None], (self.batch, k.height, self.width))
        written = block < k.blocks
        if choose.random() > 0.3:
            return written, ""
        own = block // max(1, k.blocks // self._owners()) if self.looped == "share" else block % self._owners()
        bound = choose.randint(0, self._owners())
        k.lines[at:at] = ["scf.if %some {"]
        k.lines.append("}")
        return written & (own < bound), f"%bound = arith.constant {bound} : index\n%some = arith.cmpi ult, {self._owner()}, %bound : index"

    def _owners(self) -> int:
        return self.k.grid[-2] if len(self.k.grid) > 1 else self.k.grid[0]

    def _owner(self) -> str:
        return f"%t{max(0, len(self.k.grid) - 2)}"

    def _text(self, condition: str) -> str:
        k, owner = self.k, self._owner()
        ids = ", ".join(f"%t{d}" for d in range(len(k.grid)))
        lines = [f"{ids} = ktdp.get_compute_tile_id : {', '.join(['index'] * len(k.grid))}", condition]
        numbers = {
            "rows": k.rows,
            "height": k.height,
            "columns": k.columns,
            "blocks": k.blocks,
            "owners": self._owners(),
            "zero": 0,
            "one": 1,
        }
        lines += [f"%{name} = arith.constant {n} : index" for name, n in numbers.items()]
        lines.append(f"%column = arith.muli {f'%t{len(k.grid) - 1}' if len(k.grid) > 1 else '%zero'}, %columns : index")
        each = k.blocks // self._owners()
        match self.looped:
            case "once":
                lines.append(f"%row = arith.muli {owner}, %rows : index")
            case "share":
                lines += [f"%each = arith.constant {each} : index", f"%first = arith.muli {owner}, %each : index"]
                lines += ["scf.for %i = %zero to %each step %one {", "%block = arith.addi %first, %i : index"]
                lines.append("%row = arith.muli %block, %rows : index")
            case _:
                lines += [f"scf.for %block = {owner} to %blocks step %owners {{", "%row = arith.muli %block, %rows : index"]
        lines += k.lines
        lines += ["}"] if self.looped != "once" else []
        arguments = ", ".join(f"%{a.name}: index" for a in self.arrays)
        body = "\n".join(f"  {line}" for line in lines if line)
        return f"func.func @kernel({arguments}) attributes {{grid = {k.grid}}} {{\n{body}\n  return\n}}\n"
