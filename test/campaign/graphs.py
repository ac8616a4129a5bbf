"""Random logical programs on tensors of any rank: what a front end may write, with awkward sizes; extents are at least two, as the
logical level has them.

A `Graph` draws ops one by one: views of inputs (transposed, sliced, repeated), pointwise chains with permuted and broadcast operands in f16
and f32, reductions over any dim, batched contractions, reshapes, slices, concatenations, gathers of rows, masks by position. What no op
used is stored at the end, so nothing is dead.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np

SIZES = (2, 3, 4, 5, 7, 16, 17, 33, 63, 64, 65, 66, 96, 128, 130)
LARGEST = 30_000
"""Elements of a tensor, at most."""

FLOAT_UNARY = ("math.exp", "math.absf", "arith.negf", "math.tanh", "math.sin", "math.floor")
FLOAT_BINARY = ("arith.addf", "arith.subf", "arith.mulf", "arith.maximumf", "arith.minimumf")
DTYPES = {"f16": np.float16, "f32": np.float32, "i64": np.int64}


@dataclass(frozen=True)
class Value:
    """A tensor of the program: its name, shape and element type."""

    name: str
    shape: tuple[int, ...]
    element: str = "f16"

    @property
    def type(self) -> str:
        """The tensor type as text."""
        return f"tensor<{'x'.join(map(str, (*self.shape, self.element)))}>"


@dataclass
class Graph:
    """A program under construction; `random` decides. `run` gives text and arguments."""

    random: random.Random
    lines: list[str] = field(default_factory=list)
    arguments: list[tuple[str, Value]] = field(default_factory=list)
    """Role and host buffer of each argument."""
    values: list[Value] = field(default_factory=list)
    unused: dict[str, Value] = field(default_factory=dict)
    below: dict[int, int] = field(default_factory=dict)
    """Argument of indices -> the number that they stay below."""
    count: int = 0

    # Text

    def line(self, text: str) -> str:
        """Write `%n = text`; the name."""
        self.count += 1
        self.lines.append(f"    %v{self.count} = {text}")
        return f"%v{self.count}"

    def define(self, text: str, shape: tuple[int, ...], element: str, *operands: Value) -> Value:
        """Write an op whose result later ops may use."""
        value = Value(self.line(text), shape, element)
        for operand in operands:
            self.unused.pop(operand.name, None)
        self.values.append(value)
        self.unused[value.name] = value
        return value

    def buffer(self, role: str, shape: tuple[int, ...], element: str) -> Value:
        """A new argument."""
        value = Value(f"%b{len(self.arguments)}", shape, element)
        self.arguments.append((role, value))
        return value

    @staticmethod
    def box(shape: tuple[int, ...]) -> tuple[str, str]:
        """The dims of a box and its constraints."""
        dims = ", ".join(f"d{i}" for i in range(len(shape)))
        return dims, ", ".join(f"d{i} >= 0, -d{i} + {n - 1} >= 0" for i, n in enumerate(shape))

    def view(self, buffer: Value, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> str:
        """A memory view of a buffer."""
        base = buffer.name
        if offset:
            base = self.line(f"arith.addi {base}, {self.line(f'arith.constant {offset} : index')} : index")
        dims, box = self.box(shape)
        return self.line(
            f"ktdp.construct_memory_view {base}, sizes: {list(shape)}, strides: {list(strides)} {{coordinate_set = affine_set<({dims}) : "
            f"({box})>, memory_space = #ktdp.memory_space<global>}} : {self.memref(shape, buffer.element)}"
        )

    @staticmethod
    def memref(shape: tuple[int, ...], element: str) -> str:
        """A memref type."""
        return f"memref<{'x'.join(map(str, (*shape, element)))}>"

    def tile(self, buffer: Value, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> str:
        """The whole view as an access tile."""
        view = self.view(buffer, shape, strides, offset)
        dims, box = self.box(shape)
        return self.line(
            f"ktdp.construct_access_tile {view}[{', '.join('0' for _ in shape)}] {{access_tile_order = affine_map<({dims}) -> "
            f"({dims})>, access_tile_set = affine_set<({dims}) : ({box})>}} : {self.memref(shape, buffer.element)} -> "
            f"!ktdp.access_tile<{self.extents(shape)}>"
        )

    @staticmethod
    def extents(shape: tuple[int, ...]) -> str:
        """The shape of an access tile as text."""
        return "x".join(map(str, (*shape, "index")))

    def generic(
        self, inputs: list[tuple[Value, tuple[int, ...]]], result: tuple[tuple[int, ...], str], kinds: str, body: list[str], init: str = ""
    ) -> Value:
        """A `linalg.generic` whose body yields %r; `inputs` come with the loop of each dim, the result has the parallel loops."""
        shape, element = result
        type_ = Value("", shape, element).type
        out = self.line(f"tensor.empty() : {type_}")
        if init:
            number = self.line(f"arith.constant {init} : {element}")
            out = self.line(f"linalg.fill ins({number} : {element}) outs({out} : {type_}) -> {type_}")
        loops = ", ".join(f"d{i}" for i in range(len(kinds)))
        targets = [i for i, k in enumerate(kinds) if k == "p"]
        maps = [f"affine_map<({loops}) -> ({', '.join(f'd{i}' for i in m)})>" for m in (*(m for _, m in inputs), targets)]
        iterators = ", ".join('"parallel"' if k == "p" else '"reduction"' for k in kinds)
        names, types = ", ".join(v.name for v, _ in inputs), ", ".join(v.type for v, _ in inputs)
        block = ", ".join([*(f"%i{i}: {v.element}" for i, (v, _) in enumerate(inputs)), f"%o: {element}"])
        lines = "\n".join(f"      {b}" for b in body)
        ins = f"ins({names} : {types}) " if inputs else ""
        return self.define(
            f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{iterators}]}} {ins}outs({out} : {type_}) {{\n"
            f"    ^bb0({block}):\n{lines}\n      linalg.yield %r : {element}\n    }} -> {type_}",
            shape,
            element,
            *(v for v, _ in inputs),
        )

    # Draws

    def shape(self, rank: int) -> tuple[int, ...]:
        """Extents of a tensor that is not too large."""
        while True:
            found = tuple(self.random.choice(SIZES) for _ in range(rank))
            if prod(found) <= LARGEST:
                return found

    def pick(self, ranks: range = range(1, 5), elements: tuple[str, ...] = ("f16", "f32")) -> Value:
        """A value of the program, or a new load."""
        found = [v for v in self.values if len(v.shape) in ranks and v.element in elements]
        if found and self.random.random() < 0.85:
            return self.random.choice(found[-4:])
        return self.load(self.shape(self.random.choice(ranks)), self.random.choice([e for e in elements if e != "f32"] or ["f32"]))

    def load(self, shape: tuple[int, ...], element: str = "f16") -> Value:
        """A view of a new input: as it is, transposed, a slice, or repeated along a dim."""
        order = list(range(len(shape)))
        way = self.random.choice(("whole", "whole", "permuted", "sliced", "repeated"))
        if way == "permuted":
            self.random.shuffle(order)
        host = [shape[d] for d in order]
        starts = [0] * len(shape)
        if way == "sliced" and shape:
            d = self.random.randrange(len(shape))
            starts[d] = self.random.choice((0, 1, 3, 64))
            host[d] += starts[d] + self.random.choice((0, 1, 5))
        repeated = self.random.randrange(len(shape)) if way == "repeated" and shape else None
        if repeated is not None:
            host[repeated] = 1
        pitches = [prod(host[i + 1 :]) for i in range(len(host))]
        strides = tuple(0 if d == repeated else pitches[order.index(d)] for d in range(len(shape)))
        offset = sum(s * p for s, p in zip(starts, pitches, strict=True))
        buffer = self.buffer("input", tuple(host), element)
        tile = self.tile(buffer, shape, strides, offset)
        return self.define(f"ktdp.load {tile} : <{self.extents(shape)}> -> {Value('', shape, element).type}", shape, element)

    def operand(self, shape: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
        """A value that fits loops of `shape`: some of its loops, in any order."""
        loops = [d for d in range(len(shape)) if self.random.random() < 0.6]
        self.random.shuffle(loops)
        wanted = tuple(shape[d] for d in loops)
        found = [v for v in self.values if v.shape == wanted and v.element in ("f16", "f32")]
        if found and self.random.random() < 0.6:
            return self.random.choice(found), tuple(loops)
        same = [
            v for v in self.values if sorted(v.shape) == sorted(shape) and len(set(shape)) == len(shape) and v.element in ("f16", "f32")
        ]
        if same and self.random.random() < 0.7:
            value = self.random.choice(same)
            return value, tuple(shape.index(n) for n in value.shape)
        return self.load(wanted), tuple(loops)

    # Ops

    def unary(self) -> None:
        """One op, with a change of type now and then, the result in another order of dims."""
        value = self.pick()
        loops = list(range(len(value.shape)))
        self.random.shuffle(loops)
        shape = tuple(value.shape[loops.index(i)] for i in range(len(loops)))
        element = self.random.choice(("f16", "f16", "f32"))
        body = [f"%u = {self.random.choice(FLOAT_UNARY)} %i0 : {value.element}", *self.cast("%u", value.element, element, "%r")]
        self.generic([(value, tuple(loops))], (shape, element), "p" * len(loops), body)

    @staticmethod
    def cast(name: str, source: str, target: str, result: str) -> list[str]:
        """Lines that bring a float to another type."""
        if source == target:
            zero = {"f16": "0.0", "f32": "0.0"}[target]
            return [f"%z_{result[1:]} = arith.constant {zero} : {target}", f"{result} = arith.addf {name}, %z_{result[1:]} : {target}"]
        return [f"{result} = arith.{'extf' if target == 'f32' else 'truncf'} {name} : {source} to {target}"]

    def binary(self) -> None:
        """Two or three operands, computed in f32."""
        value = self.pick()
        loops = tuple(range(len(value.shape)))
        inputs = [(value, loops), *(self.operand(value.shape) for _ in range(self.random.choice((1, 1, 2))))]
        body: list[str] = []
        for i, (v, _) in enumerate(inputs):
            body += self.cast(f"%i{i}", v.element, "f32", f"%w{i}")
        name = "%w0"
        for i in range(1, len(inputs)):
            body.append(f"%c{i} = {self.random.choice(FLOAT_BINARY)} {name}, %w{i} : f32")
            name = f"%c{i}"
        body += self.cast(name, "f32", element := self.random.choice(("f16", "f32")), "%r")
        self.generic(inputs, (value.shape, element), "p" * len(loops), body)

    def masked(self) -> None:
        """What lies beyond a diagonal, or behind a position, becomes a constant."""
        value = self.pick(range(2, 5))
        loops = tuple(range(len(value.shape)))
        a, b = self.random.sample(loops, 2)
        body = [
            f"%x = linalg.index {a} : index",
            f"%y = linalg.index {b} : index",
            "%p = arith.index_cast %x : index to i64",
            "%q = arith.index_cast %y : index to i64",
            f"%c = arith.cmpi {self.random.choice(('sgt', 'sle', 'eq'))}, %p, %q : i64",
            f"%k = arith.constant {self.random.choice(('0.0', '-1.0', '0.5'))} : {value.element}",
            f"%r = arith.select %c, %k, %i0 : {value.element}",
        ]
        self.generic([(value, loops)], (value.shape, value.element), "p" * len(loops), body)

    def reduction(self) -> None:
        """The sum or the maximum over one dim."""
        value = self.pick(range(1, 5))
        d = self.random.randrange(len(value.shape))
        combine, start = self.random.choice((("addf", "0.0"), ("maximumf", "0xFF800000")))
        body = [*self.cast("%i0", value.element, "f32", "%w"), f"%r = arith.{combine} %o, %w : f32"]
        kinds = "".join("r" if i == d else "p" for i in range(len(value.shape)))
        shape = tuple(n for i, n in enumerate(value.shape) if i != d)
        self.generic([(value, tuple(range(len(value.shape))))], (shape, "f32"), kinds, body, start)

    def contraction(self) -> None:
        """A product over the last dim of an f16 value, with or without batch dims in common, and the result in f16."""
        value = self.pick(range(1, 5), ("f16",))
        *rows, depth = value.shape
        batch = self.random.randrange(len(rows)) if len(rows) > 1 and self.random.random() < 0.6 else 0
        width = self.random.choice(SIZES)
        if prod(rows) * width > LARGEST or prod(rows[:batch]) * width * depth > LARGEST:
            return
        n, k = len(rows), len(rows) + 1
        loops = [*range(batch), *((n, k) if self.random.random() < 0.5 else (k, n))]
        wanted = tuple((*rows, width, depth)[i] for i in loops)
        found = [v for v in self.values if v.shape == wanted and v.element == "f16" and v != value]
        other = self.random.choice(found) if found and self.random.random() < 0.7 else self.load(wanted)
        body = [
            "%a = arith.extf %i0 : f16 to f32",
            "%b = arith.extf %i1 : f16 to f32",
            "%m = arith.mulf %a, %b : f32",
            "%r = arith.addf %o, %m : f32",
        ]
        kinds = "p" * (n + 1) + "r"
        product = self.generic([(value, (*range(n), k)), (other, tuple(loops))], ((*rows, width), "f32"), kinds, body, "0.0")
        self.generic([(product, tuple(range(n + 1)))], (product.shape, "f16"), "p" * (n + 1), ["%r = arith.truncf %i0 : f32 to f16"])

    def reshape(self) -> None:
        """Two neighbours become one dim, or one becomes two."""
        value = self.pick(range(1, 5))
        d = self.random.randrange(len(value.shape))
        if len(value.shape) < 4 and self.random.random() < 0.5:
            factors = [f for f in range(2, value.shape[d]) if value.shape[d] % f == 0]
            if not factors:
                return
            factor = self.random.choice(factors)
            shape = (*value.shape[:d], factor, value.shape[d] // factor, *value.shape[d + 1 :])
            groups = [[i + (i > d)] for i in range(len(value.shape))]
            groups[d] = [d, d + 1]
            text = f"tensor.expand_shape {value.name} {groups} output_shape {list(shape)}"
        elif d + 1 < len(value.shape):
            shape = (*value.shape[:d], value.shape[d] * value.shape[d + 1], *value.shape[d + 2 :])
            groups = [[i + (i > d)] for i in range(len(shape))]
            groups[d] = [d, d + 1]
            text = f"tensor.collapse_shape {value.name} {groups}"
        else:
            return
        self.define(f"{text} : {value.type} into {Value('', shape, value.element).type}", shape, value.element, value)

    def slice(self) -> None:
        """A box of a value."""
        value = self.pick()
        starts = [self.random.choice([s for s in (0, 0, 1, 2, 64) if s + 1 < n]) for n in value.shape]
        shape = tuple(
            self.random.choice([m for m in (n - s, n - s, (n - s + 1) // 2) if m > 1]) for n, s in zip(value.shape, starts, strict=True)
        )
        text = f"tensor.extract_slice {value.name}{starts} {list(shape)} {[1] * len(shape)}"
        self.define(f"{text} : {value.type} to {Value('', shape, value.element).type}", shape, value.element, value)

    def concatenation(self) -> None:
        """Two values that differ in one extent at most, joined along it."""
        value = self.pick()
        d = self.random.randrange(len(value.shape))
        extent = self.random.choice(SIZES)
        if prod(value.shape) // value.shape[d] * (value.shape[d] + extent) > LARGEST:
            return
        other = self.load((*value.shape[:d], extent, *value.shape[d + 1 :]), "f16")
        if value.element == "f32":
            loops = tuple(range(len(other.shape)))
            other = self.generic([(other, loops)], (other.shape, "f32"), "p" * len(loops), ["%r = arith.extf %i0 : f16 to f32"])
        shape = (*value.shape[:d], value.shape[d] + extent, *value.shape[d + 1 :])
        whole = Value(self.line(f"tensor.empty() : {Value('', shape, value.element).type}"), shape, value.element)
        start = [0] * len(shape)
        for piece in (value, other):
            box = f"{start} {list(piece.shape)} {[1] * len(shape)}"
            text = f"tensor.insert_slice {piece.name} into {whole.name}{box} : {piece.type} into {whole.type}"
            start[d] += piece.shape[d]
            self.unused.pop(whole.name, None)
            if piece is other:
                self.define(text, shape, value.element, piece)
            else:
                whole = Value(self.line(text), shape, value.element)
                self.unused.pop(piece.name, None)

    def gather(self) -> None:
        """Rows of a table by indices from memory."""
        rows, width, picked = self.random.choice(SIZES), self.random.choice(SIZES), self.random.choice(SIZES)
        table, indices = self.buffer("input", (rows, width), "f16"), self.buffer("input", (picked,), "i64")
        self.below[len(self.arguments) - 1] = rows
        index, view = self.view(indices, (picked,), (1,), 0), self.view(table, (rows, width), (width, 1), 0)
        dims, box = self.box((picked, width))
        tile = self.line(
            f"ktdp.construct_indirect_access_tile intermediate_variables(%x, %y) {view}[ind({index}[%x]), (%y)] "
            f"{{variables_space_order = affine_map<({dims}) -> ({dims})>, variables_space_set = affine_set<({dims}) : ({box})>}} : "
            f"{self.memref(table.shape, 'f16')}, {self.memref(indices.shape, 'i64')} -> !ktdp.access_tile<{self.extents((picked, width))}>"
        )
        self.define(f"ktdp.load {tile} : <{self.extents((picked, width))}> -> tensor<{picked}x{width}xf16>", (picked, width), "f16")

    def store(self, value: Value) -> None:
        """The value to a new output, its dims in some order in memory."""
        order = list(range(len(value.shape)))
        if self.random.random() < 0.3:
            self.random.shuffle(order)
        host = tuple(value.shape[d] for d in order)
        pitches = [prod(host[i + 1 :]) for i in range(len(host))]
        buffer = self.buffer("output", host, value.element)
        tile = self.tile(buffer, value.shape, tuple(pitches[order.index(d)] for d in range(len(host))))
        self.lines.append(f"    ktdp.store {value.name}, {tile} : {value.type}, <{self.extents(value.shape)}>")

    # All

    def run(self, ops: int) -> tuple[str, list[np.ndarray]]:
        """The program's text and its arguments."""
        kinds = {
            self.unary: 2,
            self.binary: 4,
            self.masked: 1,
            self.reduction: 2,
            self.contraction: 2,
            self.reshape: 2,
            self.slice: 2,
            self.concatenation: 1,
            self.gather: 1,
        }
        while ops or not self.unused:
            self.random.choices(list(kinds), list(kinds.values()))[0]()
            ops = max(ops - 1, 0)
        for value in list(self.unused.values()):
            self.store(value)
        arguments = ", ".join(
            f'{v.name}: index {{ktir.name = "{v.name[1:]}", ktir.role = "{role}", ktir.type = {v.type}}}' for role, v in self.arguments
        )
        body = "\n".join(self.lines)
        text = f'module attributes {{ktir.level = "logical"}} {{\n  func.func @f({arguments}) {{\n{body}\n    return\n  }}\n}}\n'
        return text, [self.array(i, v) for i, (_, v) in enumerate(self.arguments)]

    def array(self, number: int, buffer: Value) -> np.ndarray:
        """Data of an argument: small numbers, indices in range."""
        rng = np.random.default_rng(self.random.getrandbits(32))
        if buffer.element == "i64":
            return rng.integers(0, self.below[number], buffer.shape)
        return np.asarray(rng.standard_normal(buffer.shape) * 0.5, DTYPES[buffer.element])


def graph(seed: int, ops: int = 5) -> tuple[str, list[np.ndarray]]:
    """The program of a seed."""
    return Graph(random.Random(seed)).run(ops)


def each(seeds: range, check: Callable[[int], None]) -> None:
    """Check seeds in turn; an error names its seed."""
    for seed in seeds:
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(f"graph({seed})") from error
