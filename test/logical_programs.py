"""Small logical programs as text, written op by op."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np


def _map(rank: int, dims: Sequence[int]) -> str:
    names = ", ".join(f"d{i}" for i in range(rank))
    return f"affine_map<({names}) -> ({', '.join(f'd{d}' for d in dims)})>"


def _set(shape: Sequence[int]) -> str:
    names = ", ".join(f"d{i}" for i in range(len(shape)))
    return f"affine_set<({names}) : ({', '.join(f'd{i} >= 0, -d{i} + {n - 1} >= 0' for i, n in enumerate(shape))})>"


class Logical:
    """A logical function. Values are names; `shape` and `dtype` know their types."""

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.shape: dict[str, tuple[int, ...]] = {}
        self.dtype: dict[str, str] = {}
        self.hosts: list[tuple[tuple[int, ...], str]] = []

    def _name(self, shape: Sequence[int], dtype: str) -> str:
        name = f"%v{len(self.shape)}"
        self.shape[name], self.dtype[name] = tuple(shape), dtype
        return name

    def _tile(self, shape: Sequence[int], strides: Sequence[int], dtype: str, role: str, host: Sequence[int]) -> str:
        n = len(self.arguments)
        self.hosts.append((tuple(host), dtype))
        kind = f"tensor<{'x'.join(map(str, host))}x{dtype}>"
        self.arguments.append(f'%a{n}: index {{ktir.name = "a{n}", ktir.role = "{role}", ktir.type = {kind}}}')
        memref, box = f"memref<{'x'.join(map(str, shape))}x{dtype}>", _set(shape)
        self.lines.append(
            f"%w{n} = ktdp.construct_memory_view %a{n}, sizes: {list(shape)}, strides: {list(strides)} "
            f"{{coordinate_set = {box}, memory_space = #ktdp.memory_space<global>}} : {memref}"
        )
        order = _map(len(shape), range(len(shape)))
        self.lines.append(
            f"%t{n} = ktdp.construct_access_tile %w{n}[{', '.join('0' for _ in shape)}] "
            f"{{access_tile_order = {order}, access_tile_set = {box}}} "
            f": {memref} -> !ktdp.access_tile<{'x'.join(map(str, shape))}xindex>"
        )
        return f"%t{n}"

    def input(self, *shape: int, dtype: str = "f16", transposed: bool = False) -> str:
        """An input of that shape; `transposed`: stored with its two dimensions exchanged."""
        host = shape[::-1] if transposed else shape
        strides = [prod(host[i + 1 :]) for i in range(len(host))]
        tile = self._tile(shape, strides[::-1] if transposed else strides, dtype, "input", host)
        value = self._name(shape, dtype)
        kind = "x".join(map(str, shape))
        self.lines.append(f"{value} = ktdp.load {tile} : <{kind}xindex> -> tensor<{kind}x{dtype}>")
        return value

    def output(self, value: str) -> None:
        """Store a value."""
        shape, dtype = self.shape[value], self.dtype[value]
        tile = self._tile(shape, [prod(shape[i + 1 :]) for i in range(len(shape))], dtype, "output", shape)
        kind = "x".join(map(str, shape))
        self.lines.append(f"ktdp.store {value}, {tile} : tensor<{kind}x{dtype}>, <{kind}xindex>")

    def _type(self, value: str) -> str:
        return f"tensor<{'x'.join(map(str, (*self.shape[value], self.dtype[value])))}>"

    def _generic(
        self, inputs: Sequence[str], maps: Sequence[Sequence[int]], kinds: Sequence[str], init: str, result: str, body: str
    ) -> None:
        rank = len(kinds)
        iterators = ", ".join(f'"{k}"' for k in kinds)
        arguments = ", ".join(f"%p{i}: {self.dtype[v]}" for i, v in enumerate(inputs))
        self.lines.append(
            f"{result} = linalg.generic {{indexing_maps = [{', '.join(_map(rank, m) for m in maps)}], iterator_types = [{iterators}]}} "
            f"ins({', '.join(inputs)} : {', '.join(map(self._type, inputs))}) outs({init} : {self._type(result)}) {{\n"
            f"^bb0({arguments}, %o: {self.dtype[result]}):\n{body}\n}} -> {self._type(result)}"
        )

    def _filled(self, value: str, number: str) -> str:
        n = len(self.shape)
        kind, dtype = self._type(value), self.dtype[value]
        self.lines += [
            f"%c{n} = arith.constant {number} : {dtype}",
            f"%e{n} = tensor.empty() : {kind}",
            f"%f{n} = linalg.fill ins(%c{n} : {dtype}) outs(%e{n} : {kind}) -> {kind}",
        ]
        return f"%f{n}"

    def matmul(self, a: str, b: str) -> str:
        """a [m, k] times b [k, n] in f32."""
        result = self._name((self.shape[a][0], self.shape[b][1]), "f32")
        body = "%x = arith.extf %p0 : f16 to f32\n%y = arith.extf %p1 : f16 to f32\n%m = arith.mulf %x, %y : f32\n"
        body += "%s = arith.addf %o, %m : f32\nlinalg.yield %s : f32"
        maps = [(0, 2), (2, 1), (0, 1)]
        self._generic([a, b], maps, ["parallel", "parallel", "reduction"], self._filled(result, "0.0"), result, body)
        return result

    def row_sum(self, x: str) -> str:
        """Sums over the second dimension, in f32."""
        result = self._name(self.shape[x][:1], "f32")
        body = f"%x = arith.extf %p0 : {self.dtype[x]} to f32\n%s = arith.addf %o, %x : f32\nlinalg.yield %s : f32"
        if self.dtype[x] == "f32":
            body = "%s = arith.addf %o, %p0 : f32\nlinalg.yield %s : f32"
        self._generic([x], [(0, 1), (0,)], ["parallel", "reduction"], self._filled(result, "0.0"), result, body)
        return result

    def row_max(self, x: str) -> str:
        """Largest elements of rows of f32."""
        result = self._name(self.shape[x][:1], "f32")
        body = "%s = arith.maximumf %o, %p0 : f32\nlinalg.yield %s : f32"
        self._generic([x], [(0, 1), (0,)], ["parallel", "reduction"], self._filled(result, "0xFF800000"), result, body)
        return result

    def apply(self, op: str, x: str) -> str:
        """An op on each element of an f32 tensor."""
        result = self._name(self.shape[x], "f32")
        dims = range(len(self.shape[x]))
        self.lines.append(f"%e{len(self.shape)} = tensor.empty() : {self._type(result)}")
        body = f"%r = {op} %p0 : f32\nlinalg.yield %r : f32"
        self._generic([x], [dims, dims], ["parallel"] * len(dims), f"%e{len(self.shape)}", result, body)
        return result

    def combine(self, op: str, a: str, b: str, dtype: str = "f32") -> str:
        """An `arith` op on two tensors in f32; an operand of rank one varies over columns, or over rows if it is as long as these."""
        shape = max(self.shape[a], self.shape[b], key=len)
        result = self._name(shape, dtype)
        n = len(self.shape)
        self.lines.append(f"%e{n} = tensor.empty() : {self._type(result)}")
        maps, body = [], ""
        for i, v in enumerate((a, b)):
            maps.append((0, 1) if len(self.shape[v]) == 2 else ((0,) if self.shape[v][0] == shape[0] else (1,)))
            body += f"%x{i} = arith.extf %p{i} : f16 to f32\n" if self.dtype[v] == "f16" else ""
        x, y = (f"%x{i}" if self.dtype[v] == "f16" else f"%p{i}" for i, v in enumerate((a, b)))
        body += f"%r = {op} {x}, {y} : f32\n"
        body += "%h = arith.truncf %r : f32 to f16\nlinalg.yield %h : f16" if dtype == "f16" else "linalg.yield %r : f32"
        self._generic([a, b], [*maps, (0, 1)], ["parallel"] * 2, f"%e{n}", result, body)
        return result

    def text(self) -> str:
        """The module."""
        inside = "\n".join(self.lines)
        return f'module attributes {{ktir.level = "logical"}} {{\nfunc.func @f({", ".join(self.arguments)}) {{\n{inside}\nreturn\n}}\n}}\n'

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """Random host arrays of the arguments."""
        rng = np.random.default_rng(seed)
        kinds = {"f16": np.float16, "f32": np.float32}
        return [(rng.standard_normal(shape) * 0.5).astype(np.float16).astype(kinds[dtype]) for shape, dtype in self.hosts]


def linear(m: int, k: int, n: int, *, transposed: bool = False, residual: bool = False) -> Logical:
    """x [m, k] times w [k, n] plus a bias, and plus x itself if it is `residual` (k = n)."""
    p = Logical()
    x, w, bias = p.input(m, k), p.input(k, n, transposed=transposed), p.input(n)
    y = p.combine("arith.addf", p.matmul(x, w), bias, "f32" if residual else "f16")
    p.output(p.combine("arith.addf", y, x, "f16") if residual else y)
    return p


def gated(m: int, k: int, n: int) -> Logical:
    """(x/sum x) w1 * ((x/sum x) w2), then times w3: a norm, two matmuls of one shape whose results meet, and one more."""
    p = Logical()
    x = p.input(m, k)
    h = p.combine("arith.subf", x, p.row_sum(x), "f16")
    gate, up = p.matmul(h, p.input(k, n)), p.matmul(h, p.input(k, n))
    g = p.combine("arith.mulf", gate, up, "f16")
    y = p.combine("arith.addf", p.matmul(g, p.input(n, k)), x, "f16")
    p.output(y)
    return p
