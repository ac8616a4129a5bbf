"""Draws a kernel of the language by a seed, as text, with the arrays of a call.

What it draws: elements and rows in all types, in blocks of one or all dims on grids of one to three; loops with conditions and sums from
trip to trip; reads and writes beyond memory; rows that are gathered, scattered and added; exchanges; buffers; products of matrices. Numbers
are whole, normal, or with infinities, NaN and zeros of both signs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from campaign.lang_values import BF16, EPS
from ml_dtypes import bfloat16
from numpy.typing import NDArray

FLOATS = [np.dtype(t) for t in (np.float16, np.float32, bfloat16)]
INTEGERS = [np.dtype(t) for t in (np.int32, np.int8, np.int16)]
F32, I32, TRUTH = np.dtype(np.float32), np.dtype(np.int32), np.dtype(bool)
_BEYOND = [np.nan, np.inf, -np.inf, -0.0, -0.0, 0.0, 6e-8, 65504.0]
_MOST = 40000
_COLUMNS = (1, 2, 3, 5, 7, 16, 33, 64, 65, 70, 100, 128, 130)
_ROWS = (1, 2, 3, 5, 8, 12, 20, 33)
GRIDS: list[tuple[int, ...] | None] = [None, None, (1,), (3,), (4,), (7,), (2, 3), (3, 2, 2), (40,), (5, 9)]


@dataclass
class Tile:
    """A value of the text. `exact`: whether nothing in it is off."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    exact: bool = True

    @property
    def is_float(self) -> bool:
        return self.dtype in EPS


@dataclass
class Drawn:
    """A kernel: its text, the arrays and numbers of a call, and its grid."""

    text: str
    arrays: list[Any]
    grid: tuple[int, ...] | None
    kinds: set[str]


def name_of(dtype: np.dtype[Any]) -> str:
    return "bfloat16" if dtype == BF16 else f"np.{dtype.name}"


def shape_of(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """What shapes are together; None for those that are not."""
    try:
        found = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        return None
    return found if prod(found) <= _MOST else None


@dataclass
class Writer:
    """Writes a kernel."""

    choose: random.Random
    rng: np.random.Generator
    numbers: str
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    depth: int = 1
    made: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def argument(self, shape: Sequence[int], dtype: np.dtype[Any], data: NDArray[Any] | None = None) -> str:
        """An array that the kernel reads."""
        self.names.append(f"x{len(self.names)}")
        self.arrays.append(self._data(tuple(shape), dtype) if data is None else data)
        return self.names[-1]

    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> str:
        self.names.append(f"y{len(self.names)}")
        self.arrays.append(self.rng.integers(-3, 4, tuple(shape)).astype(dtype))
        return self.names[-1]

    def _data(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        if dtype not in EPS or self.numbers == "whole":
            side = self.choose.choice((-9, -9, 1))  # on both sides of zero, or on one
            return (self.rng.integers(side, 10, shape) * self.choose.choice((-1, 1))).astype(dtype)
        found = self.rng.standard_normal(shape)
        if self.numbers == "beyond":
            found = np.where(self.rng.random(shape) < 0.3, self.rng.choice(_BEYOND, shape), found * 10.0 ** self.rng.integers(-3, 3))
        return found.astype(dtype)

    def tile(self, text: str, shape: Sequence[int], dtype: np.dtype[Any], *, exact: bool = True) -> Tile:
        """A line that makes a value."""
        self.made += 1
        self.line(f"v{self.made} = {text}")
        return Tile(f"v{self.made}", tuple(shape), dtype, exact)

    def more(self, pool: list[Tile], count: int) -> list[Tile]:
        """What is computed from values, one after the other."""
        for _ in range(count):
            found = self.choose.choice(OPERATIONS)(self, pool, self.choose.choice(pool))
            if found is not None:
                pool.append(found)
        return pool

    def fitting(self, pool: list[Tile], shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> Tile:
        """The last value that can be stored as a shape, and type; the first one has these."""
        fits = [t for t in pool if shape in (t.shape, shape_of(t.shape, shape)) and t.dtype != TRUTH and dtype in (None, t.dtype)]
        return fits[-1]

    def store(self, pool: list[Tile], shape: tuple[int, ...], whole: Sequence[int], key: str) -> None:
        found = self.fitting(pool, shape)
        self.line(f"{self.result(whole, found.dtype)}[{key}] = {found.name}")

    def drawn(self, grid: tuple[int, ...] | None) -> Drawn:
        text = "\n".join(["@lang.kernel", f"def kernel({', '.join(self.names)}):", *self.lines, ""])
        return Drawn(text, self.arrays, grid, self.kinds)


# Operations


def _operator(w: Writer, pool: list[Tile], a: Tile) -> Tile | None:
    b = w.choose.choice(pool)
    if TRUTH in (a.dtype, b.dtype) or (BF16 in (a.dtype, b.dtype) and a.dtype != b.dtype):
        return None
    shape, dtype = shape_of(a.shape, b.shape), np.result_type(a.dtype, b.dtype)
    if shape is None or dtype not in (*FLOATS, *INTEGERS):
        return None
    kind = w.choose.choice(["+", "-", "*", "maximum", "minimum", *(["/"] if dtype in EPS else ["&", "|", "^"])])
    w.kinds.add(kind)
    text = f"np.{kind}({a.name}, {b.name})" if len(kind) > 1 else f"{a.name} {kind} {b.name}"
    return w.tile(text, shape, dtype, exact=a.exact and b.exact)


def _number(w: Writer, _: list[Tile], a: Tile) -> Tile | None:
    if a.dtype == TRUTH:
        return None
    if a.is_float:
        number, kind = w.choose.choice(("0.5", "2", "1.25", "-3", "0.1", "1e-3")), w.choose.choice("+-*/")
        dtype = F32 if a.dtype == BF16 and any(c in number for c in ".e") else a.dtype
        text = f"{number} {kind} {a.name}" if w.choose.random() < 0.2 and kind != "/" else f"{a.name} {kind} {number}"
        return w.tile(text, a.shape, dtype, exact=a.exact)
    kind = w.choose.choice(("+", "-", "*", "//", "%", "&", "<<", ">>"))
    w.kinds.add(kind)
    number = w.choose.choice((0, 1, 2, 3)) if kind in ("<<", ">>") else w.choose.choice((1, 2, 3, 5, 7))
    if kind in ("//", "%") and w.choose.random() < 0.3:
        number = -number
    return w.tile(f"{a.name} {kind} {number}", a.shape, a.dtype)


def _function(w: Writer, _: list[Tile], a: Tile) -> Tile | None:
    if not a.is_float:
        return None
    name = w.choose.choice(("np.exp", "np.tanh", "lang.sigmoid", "lang.erf", "np.sin", "np.cos", "np.arctan", "np.expm1"))
    w.kinds.add(name)
    within = {"np.exp": "np.minimum({}, 3)", "np.expm1": "np.minimum({}, 3)"}.get(name, "{}")
    if name in ("np.sin", "np.cos"):
        within = "np.maximum(np.minimum({}, 30), -30)"
    return w.tile(f"{name}({within.format(a.name)})", a.shape, a.dtype, exact=False)


def _exact_function(w: Writer, _: list[Tile], a: Tile) -> Tile | None:
    if not a.is_float or not a.exact:
        return None
    name = w.choose.choice(("floor", "ceil", "trunc", "rint", "sign", "absolute", "square", "negative", "sqrt"))
    return w.tile(f"np.{name}({a.name if name != 'sqrt' else f'np.absolute({a.name})'})", a.shape, a.dtype)


def _comparison(w: Writer, pool: list[Tile], a: Tile) -> Tile | None:
    b = w.choose.choice([t for t in pool if t.dtype == a.dtype])
    shape = shape_of(a.shape, b.shape)
    if not (a.exact and b.exact) or a.dtype == TRUTH or shape is None:
        return None
    kind, number = w.choose.choice(("<", "<=", ">", ">=", "==", "!=")), w.choose.random() < 0.3
    return w.tile(f"{a.name} {kind} {w.choose.choice('01') if number else b.name}", a.shape if number else shape, TRUTH)


def _choice(w: Writer, pool: list[Tile], a: Tile) -> Tile | None:
    truths, alike = [t for t in pool if t.dtype == TRUTH], [t for t in pool if t.dtype == a.dtype]
    if not truths or a.dtype == TRUTH:
        return None
    truth, b = w.choose.choice(truths), w.choose.choice(alike)
    zero = w.choose.random() < 0.4
    shape = shape_of(truth.shape, a.shape, () if zero else b.shape)
    if shape is None:
        return None
    w.kinds.add("where")
    return w.tile(f"np.where({truth.name}, {a.name}, {0 if zero else b.name})", shape, a.dtype, exact=a.exact and (zero or b.exact))


def _reduction(w: Writer, _: list[Tile], a: Tile) -> Tile | None:
    if not a.shape:
        return None
    axis, keeps = w.choose.randrange(len(a.shape)), w.choose.random() < 0.7
    kind = w.choose.choice(("any", "all") if a.dtype == TRUTH else ("sum", "max", "min", "mean") if a.is_float else ("sum", "max", "min"))
    w.kinds.add(kind)
    more = ", dtype=np.int32" if kind == "sum" and not a.is_float else ""
    shape = a.shape[:axis] + ((1,) if keeps else ()) + a.shape[axis + 1 :]
    text = f"{a.name}.{kind}({axis}{', keepdims=True' if keeps else ''}{more})"
    return w.tile(text, shape, I32 if more else a.dtype, exact=a.exact and (kind not in ("sum", "mean") or not a.is_float))


def _cast(w: Writer, _: list[Tile], a: Tile) -> Tile | None:
    if a.dtype == TRUTH:
        return None
    dtype = w.choose.choice(FLOATS if a.is_float else [F32, *INTEGERS])
    return w.tile(f"{a.name}.astype({name_of(dtype)})", a.shape, dtype, exact=a.exact)


def _moved(w: Writer, _: list[Tile], a: Tile) -> Tile | None:
    if len(a.shape) < 2:
        return None
    match w.choose.choice(("turned", "part", "together")):
        case "turned":
            return w.tile(f"np.swapaxes({a.name}, -1, -2)", (*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype, exact=a.exact)
        case "part" if a.shape[0] > 1:
            first = w.choose.randrange(a.shape[0] - 1)
            end = w.choose.randrange(first + 1, a.shape[0] + 1)
            return w.tile(f"{a.name}[{first}:{end}]", (end - first, *a.shape[1:]), a.dtype, exact=a.exact)
        case _ if 2 * prod(a.shape) <= _MOST:
            return w.tile(f"np.concatenate([{a.name}, {a.name}], 0)", (2 * a.shape[0], *a.shape[1:]), a.dtype, exact=a.exact)
    return None


Operation = Callable[[Writer, list[Tile], Tile], Tile | None]
OPERATIONS: list[Operation] = [
    _operator, _operator, _operator, _number, _function, _exact_function, _comparison, _choice, _reduction, _reduction, _cast, _moved,
]  # fmt: skip


# Kernels


def blocks(w: Writer) -> tuple[int, ...] | None:
    """Elements and rows, in blocks of one dim or of all."""
    rank, grid = w.choose.choice((1, 2, 2, 2, 3)), w.choose.choice(GRIDS)
    shape = (*(w.choose.choice(_ROWS) for _ in range(rank - 1)), w.choose.choice(_COLUMNS))
    dtypes = [w.choose.choice(FLOATS + INTEGERS)]
    dtypes.append(w.choose.choice(FLOATS) if dtypes[0] in EPS else dtypes[0])
    if rank == 1 or w.choose.random() < 0.5:
        axis = w.choose.randrange(max(1, rank - 1))
        size = w.choose.choice((None, 1, 2, 3, 5)) if grid else None
        own = shape[axis] if grid is None else size or -(-shape[axis] // prod(grid))
        w.line(f"for b in lang.blocks({shape[axis]}, {size}):")
        key, part = ", ".join([":"] * axis + ["b"]), (*shape[:axis], own, *shape[axis + 1 :])
    else:
        part = shape if grid is None else (*(w.choose.choice((1, 2, 3, 5, 8)) for _ in range(rank - 1)), w.choose.choice((4, 16, 64, 100)))
        w.line(f"for b in lang.blocks({shape}, {part}):")
        key = "b"
    w.depth = 2
    pool = [w.tile(f"{w.argument(shape, dtype)}[{key}]", part, dtype) for dtype in dtypes]
    w.store(w.more(pool, w.choose.randint(2, 9)), part, shape, key)
    return grid


def loops(w: Writer) -> tuple[int, ...] | None:
    """Sums from trip to trip, and conditions, of the trip and of the tile."""
    grid = w.choose.choice([None, (1,), (2,), (4,), (35,), (2, 2)])
    trips, columns, tiles = w.choose.choice((1, 2, 5, 9)), w.choose.choice((3, 16, 64, 65, 100)), prod(grid or (1,))
    dtype = w.choose.choice([*FLOATS, I32])
    own = F32 if dtype in EPS else I32
    w.line(f"t = {'lang.tile_id()' if grid else '0'}")
    w.line(f"total = lang.zeros({columns}, {name_of(own)})")
    first, end, step = w.choose.choice(((0, trips, 1), (0, trips, 2), (trips // 2, trips, 1)))
    x, y = w.argument((tiles * trips, columns), dtype), w.result((tiles * trips, columns), own)
    w.line(f"for i in lang.range({first}, {end}, {step}):")
    w.depth = 2
    pool = w.more([w.tile(f"{x}[t * {trips} + i].astype({name_of(own)})", (columns,), own)], w.choose.randint(0, 4))
    w.line(f"total[...] = {w.choose.choice(('total * 2 + ', 'total + ', 'total - '))}{w.fitting(pool, (columns,), own).name}")
    if w.choose.random() < 0.5:
        truth = w.choose.choice(("i % 2 == 0", "i > 0", "(i > 0) & (i < 3)", "i == t"))
        w.lines += [f"        @lang.when({truth})", "        def _():"]
        w.depth = 3
        w.line(w.choose.choice((f"{y}[t * {trips} + i] = total", "total[...] = total + 1")))
    w.depth = 1
    w.line(f"{w.result((tiles, columns), own)}[t] = total")
    w.kinds.add("loop")
    return grid


def beyond(w: Writer) -> tuple[int, ...] | None:
    """What is read, and written, before and behind memory."""
    rows, columns, tiles, own = w.choose.choice((5, 9, 20)), w.choose.choice((5, 64, 70, 130)), w.choose.choice((1, 2, 4, 6, 33)), 2
    dtype, width = w.choose.choice(FLOATS + INTEGERS), w.choose.choice((columns, 4, 64))
    up, left = w.choose.choice((0, 1, -1, -3, rows - 1, rows, 2)), w.choose.choice((0, 0, 3, -2, 64))
    w.line(f"i = lang.tile_id() * {own}")
    w.line(f"j = i + {up}")
    place = f"j : j + {own}, {left} : {left + width}"
    pool = [w.tile(f"{w.argument((rows, columns), dtype)}.masked[{place}]", (own, width), dtype)]
    if w.choose.random() < 0.5:
        w.line(f"{w.result((rows, columns), dtype)}.masked[{place}] = {pool[0].name}")
    w.store(w.more(pool, w.choose.randint(0, 5)), (own, width), (tiles * own, width), f"i : i + {own}")
    w.kinds.add("masked")
    return (tiles,)


def rows_by_number(w: Writer) -> tuple[int, ...] | None:
    """Rows that are gathered, scattered, and added."""
    height, columns, count = w.choose.choice((5, 9, 40)), w.choose.choice((3, 64, 70, 128)), w.choose.choice((8, 12, 40))
    grid, dtype, part = w.choose.choice([None, None, (1,), (2,), (4,)]), w.choose.choice(FLOATS + INTEGERS), w.choose.choice((1, 2, 4))
    ids = w.argument((count,), I32, w.rng.integers(0, height, count).astype(np.int32))
    key, own = ("b", part) if grid else (":", count)
    if grid:
        w.line(f"for b in lang.blocks({count}, {part}):")
        w.depth = 2
    pool = w.more([w.tile(f"{w.argument((height, columns), dtype)}[{ids}[{key}]]", (own, columns), dtype)], w.choose.randint(0, 4))
    found = w.fitting(pool, (own, columns))
    kind = w.choose.choice(("stored", "scattered", "added"))
    if kind == "scattered":
        to = w.argument((count,), I32, w.rng.permutation(count + 4)[:count].astype(np.int32))
        w.line(f"{w.result((count + 4, columns), found.dtype)}[{to}[{key}]] = {found.name}")
    elif kind == "added" and grid is None and found.dtype in (F32, I32):
        to = w.argument((count,), I32, w.rng.integers(0, 6, count).astype(np.int32))
        w.line(f"np.add.at({w.result((6, columns), found.dtype)}, {to}[:], {found.name})")
    else:
        kind = "stored"
        w.line(f"{w.result((count, columns), found.dtype)}[{key}] = {found.name}")
    w.kinds.add(kind)
    return grid


def exchanges(w: Writer) -> tuple[int, ...] | None:
    """What tiles send each other, among all or along an axis."""
    grid = w.choose.choice([(2,), (3,), (4,), (2, 3), (2, 2, 2), (8,)])
    axis, tiles = w.choose.choice([None, *range(len(grid))]), prod(grid)
    count = tiles if axis is None else grid[axis]
    rows, columns, dtype = count * w.choose.choice((1, 2)), w.choose.choice((4, 16, 64, 65, 128)), w.choose.choice([*FLOATS, I32])
    w.line("t = lang.tile_id()")
    pool = w.more([w.tile(f"{w.argument((tiles, rows, columns), dtype)}[t]", (rows, columns), dtype)], w.choose.randint(0, 3))
    given = w.fitting(pool, (rows, columns))
    rows = given.shape[0] if len(given.shape) == 2 and given.shape[0] % count == 0 else 0
    kind = w.choose.choice(("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "shift"))
    if not rows or given.shape[1] != columns:
        given, rows = pool[0], pool[0].shape[0]
    fold = w.choose.choice(("", ", np.maximum", ", np.add"))
    more = {
        "all_reduce": fold,
        "reduce_scatter": fold,
        "broadcast": f", {w.choose.randrange(count)}",
        "shift": f", {w.choose.choice((1, 2, -1))}",
    }
    along = "" if axis is None else f", axis={axis}"
    out = {"reduce_scatter": rows // count, "all_gather": rows * count}.get(kind, rows)
    w.line(f"{w.result((tiles, out, columns), given.dtype)}[t] = lang.{kind}({given.name}{more.get(kind, '')}{along})")
    w.kinds.add(kind)
    return grid


def buffers(w: Writer) -> tuple[int, ...] | None:
    """Rows that go through the scratchpad, in slots or not, one or several at once, written and read as a whole or by rows."""
    tiles, trips, columns = w.choose.choice((1, 2, 4, 33)), w.choose.choice((2, 4, 6)), w.choose.choice((16, 64, 65, 128))
    rows = w.choose.choice((None, None, 1, 2, 3, 4, 5))
    dtype, slots, address = w.choose.choice([*FLOATS, I32]), w.choose.choice((None, 2, 3)), w.choose.choice((None, None, 4096))
    address = None if rows and columns % 64 else address  # rows begin at a stick
    part = (columns,) if rows is None else (rows, columns)
    x, y = w.argument((tiles * trips, *part), dtype), w.result((tiles * trips, *part), dtype)
    w.line("t = lang.tile_id()")
    w.line(f"own = lang.buffer({part}, {name_of(dtype)}, slots={slots}, address={address})")
    w.line(f"for i in {w.choose.choice(('lang.range', 'range'))}({trips}):")
    w.depth = 2
    slot = "" if slots is None else f"i % {slots}"
    place = f"own[{slot or '...'}]"
    by_rows = rows is not None and w.choose.random() < 0.5
    if rows is not None and by_rows:
        for row in range(rows):
            w.line(f"own[{', '.join(filter(None, (slot, str(row))))}] = {x}[t * {trips} + i, {row}]")
    else:
        w.line(f"{place} = {x}[t * {trips} + i]")
    pool = w.more([w.tile(place, part, dtype)], w.choose.randint(0, 3))
    if rows is not None and not by_rows and w.choose.random() < 0.5:
        for row in range(rows):
            w.line(f"{y}[t * {trips} + i, {row}] = own[{', '.join(filter(None, (slot, str(row))))}]")
    else:
        w.line(f"{y}[t * {trips} + i] = {w.fitting(pool, part, dtype).name}")
    w.kinds.add("buffer")
    return (tiles,)


def products(w: Writer) -> tuple[int, ...] | None:
    """Products of matrices, and what follows on them."""
    dtype, grid = w.choose.choice([*FLOATS, np.dtype(np.float16)]), w.choose.choice([None, (1,), (3,), (4,), (2, 2)])
    rows, inner, columns = (
        w.choose.choice((1, 3, 8, 20, 33)),
        w.choose.choice((3, 16, 64, 65, 130)),
        w.choose.choice((1, 4, 16, 64, 70, 128)),
    )
    turned, size = w.choose.random() < 0.3, w.choose.choice((None, 1, 2, 8)) if grid else None
    own = rows if grid is None else size or -(-rows // prod(grid))
    a, b = w.argument((rows, inner), dtype), w.argument((columns, inner) if turned else (inner, columns), dtype)
    w.line(f"for b in lang.blocks({rows}, {size}):")
    w.depth = 2
    right = f"np.swapaxes({b}[:], 0, 1)" if turned else f"{b}[:]"
    match w.choose.choice(("@", "dot", "added")):
        case "@":
            made = w.tile(f"lang.dot({a}[b], {right}).astype({name_of(dtype)})", (own, columns), dtype, exact=False)
        case "dot":
            made = w.tile(f"lang.dot({a}[b], {right})", (own, columns), F32, exact=False)
        case _:
            made = w.tile(f"lang.dot({a}[b], {right}, {w.argument((rows, columns), F32)}[b])", (own, columns), F32, exact=False)
    w.store(w.more([made], w.choose.randint(0, 4)), (own, columns), (rows, columns), "b")
    w.kinds.add("product")
    return grid


KERNELS = [blocks, blocks, blocks, loops, beyond, rows_by_number, exchanges, buffers, products]


def draw(seed: int) -> Drawn:
    """The kernel of a seed."""
    choose = random.Random(seed)
    kind = choose.choice(KERNELS)
    numbers = choose.choice(("whole", "normal", "normal", "normal" if kind is products else "beyond"))
    w = Writer(choose, np.random.default_rng(seed), numbers)
    return w.drawn(kind(w))
