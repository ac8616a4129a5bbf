"""Text of logical programs, line by line: values, memory, generics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

DTYPES = {"f16": np.float16, "f32": np.float32, "i64": np.int64, "i32": np.int32, "i8": np.int8, "i1": np.bool_}


def tensor(shape: Sequence[int], element: str) -> str:
    """A tensor type."""
    return f"tensor<{'x'.join(map(str, (*shape, element)))}>"


@dataclass(frozen=True)
class Value:
    """A tensor of the program: its name, shape and element type."""

    name: str
    shape: tuple[int, ...]
    element: str = "f16"

    @property
    def type(self) -> str:
        """The tensor type as text."""
        return tensor(self.shape, self.element)


@dataclass
class Text:
    """A program under construction."""

    lines: list[str] = field(default_factory=list)
    arguments: list[tuple[str, Value]] = field(default_factory=list)
    """Role and host buffer of each argument."""
    values: list[Value] = field(default_factory=list)
    unused: dict[str, Value] = field(default_factory=dict)
    count: int = 0

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

    def moved(self, text: str, shape: tuple[int, ...], operand: Value, between: str = "into") -> Value:
        """Write an op that only moves the elements of `operand`."""
        return self.define(f"{text} : {operand.type} {between} {tensor(shape, operand.element)}", shape, operand.element, operand)

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

    def filled(self, shape: tuple[int, ...], element: str, number: str | None) -> str:
        """A tensor without content, or of one number everywhere."""
        type_ = tensor(shape, element)
        empty = self.line(f"tensor.empty() : {type_}")
        if number is None:
            return empty
        scalar = self.line(f"arith.constant {number} : {element}" if element != "i1" else f"arith.constant {number}")
        return self.line(f"linalg.fill ins({scalar} : {element}) outs({empty} : {type_}) -> {type_}")

    def generic(
        self,
        inputs: list[tuple[Value, tuple[int | None, ...]]],
        result: tuple[tuple[int, ...], str],
        kinds: str,
        body: list[str],
        init: str | Value | None = None,
    ) -> Value:
        """A `linalg.generic` whose body yields %r; `inputs` come with the loop of each dim, None = the constant 0, the result has the
        parallel loops. `init` is what a reduction begins from: a number, or a tensor."""
        shape, element = result
        type_ = tensor(shape, element)
        out = init.name if isinstance(init, Value) else self.filled(shape, element, init)
        loops = ", ".join(f"d{i}" for i in range(len(kinds)))
        targets = [i for i, k in enumerate(kinds) if k == "p"]
        every = [", ".join("0" if i is None else f"d{i}" for i in m) for m in (*(m for _, m in inputs), targets)]
        maps = [f"affine_map<({loops}) -> ({results})>" for results in every]
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
            *((init,) if isinstance(init, Value) else ()),
        )

    def pointwise(self, value: Value, element: str, body: list[str]) -> Value:
        """A generic over one value, in its own order."""
        loops = tuple(range(len(value.shape)))
        return self.generic([(value, loops)], (value.shape, element), "p" * len(loops), body)

    def module(self) -> str:
        """The whole program."""
        arguments = ", ".join(
            f'{v.name}: index {{ktir.name = "{v.name[1:]}", ktir.role = "{role}", ktir.type = {v.type}}}' for role, v in self.arguments
        )
        body = "\n".join(self.lines)
        return f'module attributes {{ktir.level = "logical"}} {{\n  func.func @f({arguments}) {{\n{body}\n    return\n  }}\n}}\n'
