"""Decoder layers of a transformer as logical KTIR: one function, whole tensors, one tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import kernel_texts as k
import numpy as np
from numpy.typing import NDArray

from programs.kernels import Case

__all__ = ["Sizes", "chain", "decode", "pointwise_chain"]

F16, F32 = np.float16, np.float32
CONTRACT = k.PRODUCTS
SQUARES = "%x = arith.extf %a : f16 to f32\n%y = arith.mulf %x, %x : f32\n%z = arith.addf %o, %y : f32\nlinalg.yield %z : f32"


@dataclass(frozen=True)
class Sizes:
    """A decoder: `keys` key heads, each shared by heads // keys query heads; `context` tokens are in the cache, the new one included."""

    layers: int = 2
    hidden: int = 256
    heads: int = 8
    keys: int = 4
    inner: int = 512
    context: int = 64

    @property
    def size(self) -> int:
        return self.hidden // self.heads


class _Function:
    """Text of a function that grows, and the arrays that its arguments stand for."""

    def __init__(self) -> None:
        self.text = ""
        self.arrays: list[NDArray[Any]] = []
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"%n{self._count}"

    def argument(self, array: NDArray[Any]) -> str:
        self.arrays.append(array)
        return f"%arg{len(self.arrays) - 1}"

    def load(self, array: NDArray[Any]) -> str:
        name = self.name()
        self.text += k.load(name, self.argument(array), array.shape)
        return name

    def op(self, op: str, operands: Sequence[str], shape: Sequence[int], element: str = "f16") -> str:
        name = self.name()
        self.text += f"{name} = {op} {', '.join(operands)} : {k.tensor(shape, element)}\n"
        return name

    def generic(
        self, inputs: Sequence[tuple[str, Sequence[int], str, str]], out: Sequence[int], map_: str, iterators: str, body: str, element: str
    ) -> str:
        """inputs: (value, shape, element type, map). Sums start at zero, everything else in an empty tensor."""
        start, name = self.name(), self.name()
        self.text += k.filled(start, "0.0", out, element) if "r" in iterators else k.empty(start, out, element)
        operands = [(v, k.tensor(s, e), m) for v, s, e, m in inputs]
        self.text += k.generic(name, operands, (start, k.tensor(out, element), map_), iterators, body)
        return name

    def narrow(self, x: str, shape: Sequence[int]) -> str:
        name = self.name()
        self.text += f"{name} = arith.truncf {x} : {k.tensor(shape, 'f32')} to {k.tensor(shape)}\n"
        return name

    def matmul(self, x: str, m: int, weight: NDArray[Any]) -> str:
        depth, n = weight.shape
        inputs = [(x, (m, depth), "f16", "d0, d2"), (self.load(weight), weight.shape, "f16", "d2, d1")]
        return self.narrow(self.generic(inputs, (m, n), "d0, d1", "ppr", CONTRACT, "f32"), (m, n))

    def reshape(self, op: str, x: str, groups: str, old: Sequence[int], new: Sequence[int]) -> str:
        name = self.name()
        sizes = f" output_shape {list(new)}" if op == "expand_shape" else ""
        self.text += f"{name} = tensor.{op} {x} {groups}{sizes} : {k.tensor(old)} into {k.tensor(new)}\n"
        return name

    def norm(self, x: str, rows: int, weight: NDArray[Any]) -> str:
        (n,) = weight.shape
        total = self.generic([(x, (rows, n), "f16", "d0, d1")], (rows,), "d0", "pr", SQUARES, "f32")
        body = f"%n = arith.constant {1.0 / n:e} : f32\n%eps = arith.constant 1.0e-5 : f32\n%m = arith.mulf %b, %n : f32\n"
        body += "%e = arith.addf %m, %eps : f32\n%r = math.rsqrt %e : f32\n%x = arith.extf %a : f16 to f32\n%y = arith.mulf %x, %r : f32\n"
        body += "%z = arith.truncf %y : f32 to f16\nlinalg.yield %z : f16"
        inputs = [(x, (rows, n), "f16", "d0, d1"), (total, (rows,), "f32", "d0")]
        scaled = self.generic(inputs, (rows, n), "d0, d1", "pp", body, "f16")
        inputs = [(scaled, (rows, n), "f16", "d0, d1"), (self.load(weight), (n,), "f16", "d1")]
        return self.generic(inputs, (rows, n), "d0, d1", "pp", "%x = arith.mulf %a, %b : f16\nlinalg.yield %x : f16", "f16")

    def case(self, name: str, result: str, shape: Sequence[int], plain: Any) -> Case:
        self.text += k.store(result, self.argument(np.zeros(shape, F16)), shape)
        text = k.kernel([f"%arg{i}" for i in range(len(self.arrays))], self.text)
        return Case(name, text, list(self.arrays), plain, len(self.arrays) - 1, 0.1)


def _rotate(f: _Function, x: str, heads: int, half: int, cos: str, sin: str) -> str:
    """x [heads, 2, half] turned by the angles of the position."""
    shape, part = (heads, 2, half), (heads, half)
    halves = []
    for i in range(2):
        name = f.name()
        f.text += f"{name} = tensor.extract_slice {x}[0, {i}, 0] [{heads}, 1, {half}] [1, 1, 1] : {k.tensor(shape)} to {k.tensor(part)}\n"
        halves.append(name)
    result = f.name()
    f.text += k.empty(result, shape)
    for i, (op, first, second) in enumerate((("subf", cos, sin), ("addf", sin, cos))):
        body = f"%x = arith.mulf %a, %c : f16\n%y = arith.mulf %b, %d : f16\n%z = arith.{op} %x, %y : f16\nlinalg.yield %z : f16"
        inputs = [(v, part, "f16", "d0, d1") for v in halves] + [(v, (half,), "f16", "d1") for v in (first, second)]
        turned, whole = f.generic(inputs, part, "d0, d1", "pp", body, "f16"), f.name()
        f.text += f"{whole} = tensor.insert_slice {turned} into {result}[0, {i}, 0] [{heads}, 1, {half}] [1, 1, 1] : "
        f.text += f"{k.tensor(part)} into {k.tensor(shape)}\n"
        result = whole
    return result


def _attention(f: _Function, s: Sizes, q: str, keys: str, values: str) -> str:
    """q [heads, size] on the cache [context, keys, size]; the softmax in f32."""
    shared = s.heads // s.keys
    q_shape, scores, cache = (s.keys, shared, s.size), (s.keys, shared, s.context), (s.context, s.keys, s.size)
    q = f.reshape("expand_shape", q, "[[0, 1], [2]]", (s.heads, s.size), q_shape)
    inputs = [(q, q_shape, "f16", "d0, d1, d3"), (keys, cache, "f16", "d2, d0, d3")]
    score = f.generic(inputs, scores, "d0, d1, d2", "pppr", CONTRACT, "f32")
    body = f"%n = arith.constant {s.size**-0.5:e} : f32\n%x = arith.mulf %a, %n : f32\nlinalg.yield %x : f32"
    score = f.generic([(score, scores, "f32", "d0, d1, d2")], scores, "d0, d1, d2", "ppp", body, "f32")
    low, most = f.name(), f.name()
    f.text += k.filled(low, "0xFF800000", scores[:2], "f32")
    out = (low, k.tensor(scores[:2], "f32"), "d0, d1")
    body = "%x = arith.maximumf %o, %a : f32\nlinalg.yield %x : f32"
    f.text += k.generic(most, [(score, k.tensor(scores, "f32"), "d0, d1, d2")], out, "ppr", body)
    body = "%x = arith.subf %a, %b : f32\n%y = math.exp %x : f32\nlinalg.yield %y : f32"
    both = [(score, scores, "f32", "d0, d1, d2"), (most, scores[:2], "f32", "d0, d1")]
    e = f.generic(both, scores, "d0, d1, d2", "ppp", body, "f32")
    body = "%x = arith.addf %o, %a : f32\nlinalg.yield %x : f32"
    total = f.generic([(e, scores, "f32", "d0, d1, d2")], scores[:2], "d0, d1", "ppr", body, "f32")
    body = "%x = arith.divf %a, %b : f32\n%y = arith.truncf %x : f32 to f16\nlinalg.yield %y : f16"
    both = [(e, scores, "f32", "d0, d1, d2"), (total, scores[:2], "f32", "d0, d1")]
    p = f.generic(both, scores, "d0, d1, d2", "ppp", body, "f16")
    inputs = [(p, scores, "f16", "d0, d1, d3"), (values, cache, "f16", "d3, d0, d2")]
    mixed = f.narrow(f.generic(inputs, q_shape, "d0, d1, d2", "pppr", CONTRACT, "f32"), q_shape)
    flat = f.reshape("collapse_shape", mixed, "[[0, 1, 2]]", q_shape, (s.hidden,))
    return f.reshape("expand_shape", flat, "[[0, 1]]", (s.hidden,), (1, s.hidden))


SILU = (
    "%x = arith.extf %a : f16 to f32\n%m = arith.negf %x : f32\n%e = math.exp %m : f32\n%one = arith.constant 1.0 : f32\n"
    "%p = arith.addf %e, %one : f32\n%y = arith.divf %x, %p : f32\n%z = arith.truncf %y : f32 to f16\nlinalg.yield %z : f16"
)


def decode(s: Sizes) -> Case:
    """One new token through all layers, appended to caches that are given."""
    f, rng = _Function(), np.random.default_rng(0)

    def weight(*shape: int) -> NDArray[Any]:
        return (rng.standard_normal(shape) * shape[0] ** -0.5).astype(F16)

    x0 = rng.standard_normal((1, s.hidden)).astype(F16)
    angle = s.context * 10000.0 ** -np.linspace(0, 1, s.size // 2)
    turns = np.cos(angle).astype(F16), np.sin(angle).astype(F16)
    x, (cos, sin) = f.load(x0), map(f.load, turns)
    width, half, past = s.keys * s.size, s.size // 2, s.context - 1
    row, inner = (1, s.hidden), (1, s.inner)
    layers: list[dict[str, NDArray[Any]]] = []
    for _ in range(s.layers):
        w = {n: weight(*shape) for n, shape in (("q", (s.hidden, s.hidden)), ("k", (s.hidden, width)), ("v", (s.hidden, width)))}
        w |= {n: weight(*shape) for n, shape in (("o", (s.hidden, s.hidden)), ("g", (s.hidden, s.inner)), ("u", (s.hidden, s.inner)))}
        w |= {"d": weight(s.inner, s.hidden), "n1": 1 + weight(s.hidden), "n2": 1 + weight(s.hidden)}
        w |= {n: rng.standard_normal((past, s.keys, s.size)).astype(F16) for n in ("ck", "cv")}
        layers.append(w)
        h = f.norm(x, 1, w["n1"])
        q, key, value = (f.matmul(h, 1, w[n]) for n in "qkv")
        parts = []
        for v, heads, turned in ((q, s.heads, True), (key, s.keys, True), (value, s.keys, False)):
            flat = f.reshape("collapse_shape", v, "[[0, 1]]", (1, heads * s.size), (heads * s.size,))
            if turned:
                cut = f.reshape("expand_shape", flat, "[[0, 1, 2]]", (heads * s.size,), (heads, 2, half))
                cut = _rotate(f, cut, heads, half, cos, sin)
                parts.append(f.reshape("collapse_shape", cut, "[[0], [1, 2]]", (heads, 2, half), (heads, s.size)))
            else:
                parts.append(f.reshape("expand_shape", flat, "[[0, 1]]", (heads * s.size,), (heads, s.size)))
        cached = []
        for new, old in zip(parts[1:], ("ck", "cv"), strict=True):
            before, grown, whole = f.load(w[old]), f.name(), f.name()
            shape, full = (past, s.keys, s.size), (s.context, s.keys, s.size)
            f.text += k.empty(f"{grown}e", full)
            f.text += f"{grown} = tensor.insert_slice {before} into {grown}e[0, 0, 0] [{past}, {s.keys}, {s.size}] [1, 1, 1] : "
            f.text += f"{k.tensor(shape)} into {k.tensor(full)}\n"
            f.text += f"{whole} = tensor.insert_slice {new} into {grown}[{past}, 0, 0] [1, {s.keys}, {s.size}] [1, 1, 1] : "
            f.text += f"{k.tensor((s.keys, s.size))} into {k.tensor(full)}\n"
            cached.append(whole)
        mixed = _attention(f, s, parts[0], *cached)
        x = f.op("arith.addf", [x, f.matmul(mixed, 1, w["o"])], row)
        h = f.norm(x, 1, w["n2"])
        gate = f.generic([(f.matmul(h, 1, w["g"]), inner, "f16", "d0, d1")], inner, "d0, d1", "pp", SILU, "f16")
        x = f.op("arith.addf", [x, f.matmul(f.op("arith.mulf", [gate, f.matmul(h, 1, w["u"])], inner), 1, w["d"])], row)

    def norm(v: NDArray[Any], g: NDArray[Any]) -> NDArray[Any]:
        return v / np.sqrt((v * v).mean(1, keepdims=True) + F32(1e-5)) * g.astype(F32)

    def turn(v: NDArray[Any], heads: int) -> NDArray[Any]:
        a, b = np.split(v.reshape(heads, s.size), 2, 1)
        c, d = (t.astype(F32) for t in turns)
        return np.concatenate([a * c - b * d, a * d + b * c], 1)

    def plain() -> NDArray[Any]:
        y = x0.astype(F32)
        for w in layers:
            wide = {n: v.astype(F32) for n, v in w.items()}
            h = norm(y, w["n1"])
            q, key, value = turn(h @ wide["q"], s.heads), turn(h @ wide["k"], s.keys), (h @ wide["v"]).reshape(s.keys, s.size)
            ck, cv = (np.concatenate([wide[n], v[None]]).transpose(1, 0, 2) for n, v in (("ck", key), ("cv", value)))
            score = np.matmul(q.reshape(s.keys, -1, s.size), ck.transpose(0, 2, 1)) * F32(s.size**-0.5)
            e = np.exp(score - score.max(-1, keepdims=True))
            y = y + np.matmul(e / e.sum(-1, keepdims=True), cv).reshape(row) @ wide["o"]
            h = norm(y, w["n2"])
            g = h @ wide["g"]
            y = y + (g / (1 + np.exp(-g)) * (h @ wide["u"])) @ wide["d"]
        return y.astype(F16)

    return f.case(f"decode, {s.layers} layers, hidden {s.hidden}, {s.context} tokens", x, row, plain)


def chain(tokens: int, hidden: int, inner: int) -> Case:
    """The matmuls of one decoder layer one after the other: q, k, v and o of `hidden`, gate, up and down of `inner`."""
    f, rng = _Function(), np.random.default_rng(0)
    x0 = rng.standard_normal((tokens, hidden)).astype(F16)
    shapes = [(hidden, hidden)] * 4 + [(hidden, inner)] * 2 + [(inner, hidden)]
    weights = [(rng.standard_normal(s, F32) * s[0] ** -0.5).astype(F16) for s in shapes]
    x = f.load(x0)
    q, key, value = (f.matmul(x, tokens, w) for w in weights[:3])
    mixed = f.op("arith.addf", [q, f.op("arith.addf", [key, value], (tokens, hidden))], (tokens, hidden))
    y = f.matmul(mixed, tokens, weights[3])
    gate, up = (f.matmul(y, tokens, w) for w in weights[4:6])
    z = f.matmul(f.op("arith.mulf", [gate, up], (tokens, inner)), tokens, weights[6])
    work = [np.empty(s, F32) for s in shapes]

    def plain() -> NDArray[Any]:
        for target, w in zip(work, weights, strict=True):
            np.copyto(target, w)
        v = x0.astype(F32)
        v = (v @ work[0] + (v @ work[1] + v @ work[2])) @ work[3]
        return (((v @ work[4]) * (v @ work[5])) @ work[6]).astype(F16)

    return f.case(f"decoder matmuls {tokens}x{hidden}x{inner}", z, (tokens, hidden), plain)


def pointwise_chain(ops: int, elements: int) -> Case:
    """`ops` dependent f16 ops on a vector: what an op costs beyond its arithmetic."""
    f, x0 = _Function(), k.random_f16(elements, scale=0.1)
    x = y = f.load(x0)
    for i in range(ops):
        y = f.op(("arith.addf", "arith.mulf", "arith.subf")[i % 3], [y, x], (elements,))

    def plain() -> NDArray[Any]:
        value = first = x0
        for i in range(ops):
            value = (np.add, np.multiply, np.subtract)[i % 3](value, first)
        return value

    return f.case(f"{ops} ops on {elements} elements", y, (elements,), plain)
