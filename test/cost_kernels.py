"""Kernels of many kinds and sizes to hold the cost model against the emulator: as logical programs, some under several divisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from campaign.graph_text import Text, Value, tensor

BYTES = ("f8E4M3FN", "f8E5M2", "i8")
"""Elements of weights that are widened in front of the array."""


@dataclass(frozen=True)
class CostCase:
    """A program; `work_div` is the division that is asked for, as `ktir-divide-work` takes it."""

    kind: str
    name: str
    text: str
    work_div: str = ""


class Program(Text):
    """A program written op by op, on tensors of f16 unless it is said otherwise."""

    def read(self, *shape: int, order: Sequence[int] = (), element: str = "f16") -> Value:
        """A load of an input whose dims lie in memory in the given order."""
        order = list(order) or list(range(len(shape)))
        host = tuple(shape[d] for d in order)
        strides = pitches(host)
        buffer = self.buffer("input", host, element)
        tile = self.tile(buffer, shape, tuple(strides[order.index(d)] for d in range(len(shape))))
        return self.define(f"ktdp.load {tile} : <{self.extents(shape)}> -> {tensor(shape, element)}", shape, element)

    def compute(self, body: Sequence[str], *inputs: tuple[Value, Sequence[int]], result: str = "f16") -> Value:
        """`body` computes %r from %x0, %x1, .. in f32; inputs come with the loops of their dims, the first one has them all."""
        shape = inputs[0][0].shape
        lines = [f"%x{i} = arith.extf %i{i} : f16 to f32" for i, (v, _) in enumerate(inputs) if v.element == "f16"]
        wide = {f"%x{i}": f"%i{i}" for i, (v, _) in enumerate(inputs) if v.element == "f32"}
        for line in body:
            lines.append(" ".join(wide.get(word.rstrip(","), word.rstrip(",")) + "," * word.endswith(",") for word in line.split(" ")))
        if result == "f16":
            lines[-1] = lines[-1].replace("%r =", "%w =")
            lines.append("%r = arith.truncf %w : f32 to f16")
        return self.generic([(v, tuple(m)) for v, m in inputs], (shape, result), "p" * len(shape), lines)

    def reduce(self, combine: str, value: Value) -> Value:
        """Over the last dim, in f32."""
        rank = len(value.shape)
        start = "0.0" if combine == "addf" else "0xFF800000"
        body = ["%w = arith.extf %i0 : f16 to f32", f"%r = arith.{combine} %o, %w : f32"]
        if value.element == "f32":
            body = [f"%r = arith.{combine} %o, %i0 : f32"]
        return self.generic([(value, tuple(range(rank)))], (value.shape[:-1], "f32"), "p" * (rank - 1) + "r", body, start)

    def multiply(self, a: Value, b: Value, loops: Sequence[int]) -> Value:
        """The contraction of a's last dim with `b`. Loops: a's dims but the last, then columns, then the reduced one."""
        rank = len(a.shape)
        (columns,) = (b.shape[i] for i, loop in enumerate(loops) if loop == rank - 1)
        body = ["%a = arith.extf %i0 : f16 to f32", "%b = arith.extf %i1 : f16 to f32"]
        body += ["%m = arith.mulf %a, %b : f32", "%r = arith.addf %o, %m : f32"]
        first = (*range(rank - 1), rank)
        return self.generic([(a, first), (b, tuple(loops))], ((*a.shape[:-1], columns), "f32"), "p" * rank + "r", body, "0.0")

    def text(self) -> str:
        """The program; what nothing uses is stored."""
        for value in list(self.unused.values()):
            tile = self.tile(self.buffer("output", value.shape, value.element), value.shape, pitches(value.shape))
            self.lines.append(f"    ktdp.store {value.name}, {tile} : {value.type}, <{self.extents(value.shape)}>")
        return self.module()


def pitches(shape: Sequence[int]) -> tuple[int, ...]:
    """Distances between neighbours of a tensor that lies in memory in order."""
    found = [1]
    for extent in reversed(shape[1:]):
        found.insert(0, found[0] * extent)
    return tuple(found)


def matmul(m: int, k: int, n: int, *, bias: bool = False, transposed: bool = False, weights: str = "f16") -> str:
    """x w, perhaps plus a bias, rounded."""
    p = Program()
    w = p.read(k, n, order=(1, 0) if transposed else (), element=weights)
    if weights != "f16":
        convert = "sitofp" if weights == "i8" else "extf"
        w = p.generic([(w, (0, 1))], ((k, n), "f16"), "pp", [f"%r = arith.{convert} %i0 : {weights} to f16"])
    product = p.multiply(p.read(m, k), w, (2, 1))
    if bias:
        p.compute(["%r = arith.addf %x0, %x1 : f32"], (product, (0, 1)), (p.read(n), (1,)))
    else:
        p.compute(["%r = arith.negf %x0 : f32"], (product, (0, 1)))
    return p.text()


def gated(m: int, k: int, n: int) -> str:
    """The product of two products of the same rows."""
    p = Program()
    x = p.read(m, k)
    first, second = (p.multiply(x, p.read(k, n), (2, 1)) for _ in range(2))
    p.compute(["%r = arith.mulf %x0, %x1 : f32"], (first, (0, 1)), (second, (0, 1)))
    return p.text()


def softmax(*shape: int) -> str:
    """Along the last dim."""
    p = Program()
    every, rows = range(len(shape)), range(len(shape) - 1)
    x = p.read(*shape)
    body = ["%d = arith.subf %x0, %x1 : f32", "%r = math.exp %d : f32"]
    e = p.compute(body, (x, every), (p.reduce("maximumf", x), rows), result="f32")
    p.compute(["%r = arith.divf %x0, %x1 : f32"], (e, every), (p.reduce("addf", e), rows))
    return p.text()


def norm(m: int, n: int) -> str:
    """RMS norm with a weight."""
    p = Program()
    x = p.read(m, n)
    squares = p.reduce("addf", p.compute(["%r = arith.mulf %x0, %x0 : f32"], (x, (0, 1)), result="f32"))
    mean = [f"%n = arith.constant {float(n)} : f32", "%q = arith.divf %x0, %n : f32", "%r = math.rsqrt %q : f32"]
    scale = p.compute(mean, (squares, (0,)), result="f32")
    body = ["%s = arith.mulf %x0, %x1 : f32", "%r = arith.mulf %s, %x2 : f32"]
    p.compute(body, (x, (0, 1)), (scale, (0,)), (p.read(n), (1,)))
    return p.text()


def chain(m: int, n: int, operands: int, function: str = "") -> str:
    """A sum of tensors, and a function of it."""
    p = Program()
    body, last = [], "%x0"
    for i in range(1, operands):
        body.append(f"%s{i} = arith.addf {last}, %x{i} : f32")
        last = f"%s{i}"
    body.append(f"%r = {function} {last} : f32" if function else f"%r = arith.negf {last} : f32")
    p.compute(body, *((p.read(m, n), (0, 1)) for _ in range(operands)))
    return p.text()


def sums(*shape: int, combine: str = "addf") -> str:
    """A reduction of the last dim."""
    p = Program()
    p.reduce(combine, p.read(*shape))
    return p.text()


def relayout(m: int, n: int) -> str:
    """A sum along rows of what is a product along columns: one of them must be moved."""
    p = Program()
    x = p.compute(["%r = math.exp %x0 : f32"], (p.read(m, n), (0, 1)))
    p.reduce("addf", x)
    p.generic([(x, (1, 0))], ((n,), "f32"), "pr", ["%w = arith.extf %i0 : f16 to f32", "%r = arith.addf %o, %w : f32"], "0.0")
    return p.text()


def attention(heads: int, m: int, n: int, d: int) -> str:
    """Softmax of q k, times v."""
    p = Program()
    q, k, v = p.read(heads, m, d), p.read(heads, n, d), p.read(heads, n, d)
    every, rows = (0, 1, 2), (0, 1)
    scores = p.multiply(q, k, (0, 2, 3))
    body = ["%d = arith.subf %x0, %x1 : f32", "%r = math.exp %d : f32"]
    e = p.compute(body, (scores, every), (p.reduce("maximumf", scores), rows), result="f32")
    weights = p.compute(["%r = arith.divf %x0, %x1 : f32"], (e, every), (p.reduce("addf", e), rows))
    p.compute(["%r = arith.negf %x0 : f32"], (p.multiply(weights, v, (0, 3, 2)), every))
    return p.text()


def embedding(words: int, width: int, tokens: int) -> str:
    """Rows of a table, and something done to them."""
    p = Program()
    table, indices = p.buffer("input", (words, width), "f16"), p.buffer("input", (tokens,), "i64")
    index, view = p.view(indices, (tokens,), (1,), 0), p.view(table, (words, width), (width, 1), 0)
    dims, box = p.box((tokens, width))
    tile = p.line(
        f"ktdp.construct_indirect_access_tile intermediate_variables(%x, %y) {view}[ind({index}[%x]), (%y)] "
        f"{{variables_space_order = affine_map<({dims}) -> ({dims})>, variables_space_set = affine_set<({dims}) : ({box})>}} : "
        f"{p.memref(table.shape, 'f16')}, {p.memref(indices.shape, 'i64')} -> !ktdp.access_tile<{p.extents((tokens, width))}>"
    )
    shape = (tokens, width)
    rows = p.define(f"ktdp.load {tile} : <{p.extents(shape)}> -> tensor<{tokens}x{width}xf16>", shape, "f16")
    p.compute(["%r = arith.negf %x0 : f32"], (rows, (0, 1)))
    return p.text()


def cases() -> Iterator[CostCase]:
    """A hundred and fifty kernels."""
    for m, k, n in [(2, 768, 768), (7, 128, 4096), (48, 640, 1280), (384, 256, 768), (2048, 64, 256)]:
        yield CostCase("matmul", f"{m}x{k}x{n}", matmul(m, k, n))
    for m, k, n in [(1, 512, 1024), (1, 1024, 4096), (4, 512, 512), (8, 1024, 3072), (16, 256, 2048), (33, 300, 700), (64, 512, 512)]:
        yield CostCase("matmul", f"{m}x{k}x{n}", matmul(m, k, n))
    for m, k, n in [
        (128, 512, 1536),
        (200, 1000, 1000),
        (256, 256, 256),
        (512, 512, 512),
        (512, 1024, 256),
        (1000, 130, 700),
        (1024, 1024, 512),
    ]:
        yield CostCase("matmul", f"{m}x{k}x{n}", matmul(m, k, n))
    for m, k, n in [(1, 512, 1024), (64, 512, 1024), (512, 512, 1024)]:
        yield CostCase("gated", f"{m}x{k}x{n}", gated(m, k, n))
    for m, k, n in [(64, 512, 1024), (300, 256, 640), (5, 640, 2560), (1000, 64, 320)]:
        yield CostCase("matmul with bias", f"{m}x{k}x{n}", matmul(m, k, n, bias=True))
        yield CostCase("matmul transposed", f"{m}x{k}x{n}", matmul(m, k, n, transposed=True))
    for m, k, n, divisions in [
        (128, 512, 2048, [(1, 32), (2, 16), (4, 8), (8, 4), (16, 2), (32, 1), (4, 4), (1, 8), (8, 1)]),
        (512, 512, 512, [(1, 8), (2, 8), (4, 8), (8, 4), (16, 2), (32, 1), (4, 1), (16, 1)]),
        (16, 1024, 2048, [(1, 32), (2, 16), (4, 8), (8, 4), (16, 2), (16, 1), (1, 4), (1, 16)]),
        (250, 700, 900, [(1, 15), (2, 15), (5, 5), (10, 3), (25, 1), (2, 5)]),
    ]:
        for rows, columns in divisions:
            yield CostCase("divisions", f"{m}x{k}x{n}", matmul(m, k, n), f"m={rows},n={columns}")
    for weights in BYTES:
        yield CostCase("matmul with bytes", f"1x1024x2048 {weights}", matmul(1, 1024, 2048, weights=weights))
        yield CostCase("matmul with bytes", f"200x512x512 {weights}", matmul(200, 512, 512, weights=weights))
        for division in ("m=8,n=4", "m=32,n=1", "m=1,n=1"):
            yield CostCase("matmul with bytes", f"64x512x512 {weights}", matmul(64, 512, 512, weights=weights), division)
    for shape in [(57, 100), (512, 1024), (1000, 1000), (128, 4096), (3, 130), (4, 96, 300), (2048, 64), (1, 8000)]:
        yield CostCase("softmax", "x".join(map(str, shape)), softmax(*shape))
    for cores in (1, 4, 16):
        yield CostCase("softmax", "512x512", softmax(512, 512), f"m={cores}")
    for m, n in [(64, 512), (1024, 1024), (100, 3000), (1, 4096), (2000, 300), (7, 65), (300, 1536)]:
        yield CostCase("norm", f"{m}x{n}", norm(m, n))
    for m, n, operands in [(512, 1024, 1), (512, 1024, 2), (512, 1024, 3), (512, 1024, 5), (1, 5000, 2), (65, 66, 1), (4000, 130, 2)]:
        yield CostCase("pointwise", f"{m}x{n}, {operands} operands", chain(m, n, operands))
    for m, n, operands, function in [(333, 777, 2, "math.exp"), (1024, 2048, 1, "math.sin"), (2048, 64, 1, "math.tanh")]:
        yield CostCase("pointwise", f"{m}x{n}, {operands} operands {function}".strip(), chain(m, n, operands, function))
    for shape in [(512, 2048), (2000, 100), (64, 64), (33, 5000), (16, 128, 256), (1, 20000), (700, 700)]:
        yield CostCase("reduction", "x".join(map(str, shape)), sums(*shape))
        yield CostCase("reduction", "x".join(map(str, shape)) + " max", sums(*shape, combine="maximumf"))
    for m, n in [(256, 256), (130, 700), (64, 2000), (500, 100), (100, 1000)]:
        yield CostCase("relayout", f"{m}x{n}", relayout(m, n))
    for heads, m, n, d in [(12, 64, 64, 64), (4, 128, 1024, 128)]:
        yield CostCase("attention", f"{heads} heads {m}x{n}x{d}", attention(heads, m, n, d))
    for heads, m, n, d in [(8, 128, 128, 64), (4, 64, 512, 64), (16, 33, 100, 32), (32, 16, 256, 128), (2, 256, 256, 64), (8, 1, 700, 64)]:
        yield CostCase("attention", f"{heads} heads {m}x{n}x{d}", attention(heads, m, n, d))
    for division in ("m=32", "m=16,b0=2", "m=8,b0=4", "m=4,b0=8", "m=2,b0=16"):
        yield CostCase("attention", "16 heads 512x512x64", attention(16, 512, 512, 64), division)
    for words, width, tokens in [(1000, 512, 64), (500, 100, 300), (3000, 1024, 16), (100, 64, 2000), (2000, 256, 500)]:
        yield CostCase("gather", f"{tokens} of {words}x{width}", embedding(words, width, tokens))
