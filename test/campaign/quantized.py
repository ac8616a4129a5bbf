"""Random linear layers with quantised operands: weights of one byte or four bits in any layout, scales per tensor, channel or group before
or behind the product, zero points, activations quantised per token or tensor. PyTorch's float64 says what the products are.

What is done element by element rounds once per operation on the chip as in eager PyTorch, so quantised operands are eager's own, bit by
bit. What is left open is how a product and what follows it round: at each step at most half a unit, and to float32 within the product.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

SIZES = (1, 2, 3, 17, 32, 63, 64, 65, 96, 127, 128, 129, 130, 192, 200, 256, 257, 320, 384)
ROWS = (1, 1, 2, 3, 7, 31, 33, 64, 65, 100, 130)
HALVES = (torch.float16, torch.bfloat16)
CODES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8)
LAYOUTS = ("rows", "columns", "slice", "transposed slice")
_SMALLEST = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133, torch.float32: 2.0**-149}

Tensor = torch.Tensor


@dataclass
class Layer:
    """What a drawn layer computes: `function` of its tensors as the chip gets it, `operands` of the same tensors as eager PyTorch quantises
    them (activations, weights [n, k]), and what is multiplied with their product and added to it."""

    what: str
    tensors: list[Tensor]
    function: Callable[..., Tensor]
    operands: Callable[..., tuple[Tensor, Tensor]]
    behind: Callable[..., list[Tensor]]
    dtype: torch.dtype
    wide: bool = False
    """Whether the product is of float32 or i32, and only the result rounded to the type."""
    bias: Tensor | None = None

    def judged(self, got: Tensor) -> str:
        """What is wrong with a result."""
        a, w = (t.double() for t in self.operands(*self.tensors))
        exact, sums = a @ w.mT, a.abs() @ w.mT.abs()
        unit, smallest = torch.finfo(self.dtype).eps, _SMALLEST[self.dtype]
        step = 2.0**-24 if self.wide else unit / 2
        allowed = 2.0**-24 * (2 * -(-a.shape[-1] // 64) + 1) * sums + step * exact.abs() + smallest
        for scale in self.behind(*self.tensors):
            exact, allowed = exact * scale.double(), allowed * scale.double().abs() * (1 + step)
            allowed = allowed + step * exact.abs() + smallest
        if self.bias is not None:
            exact = exact + self.bias.double()
            allowed = allowed + step * exact.abs()
        allowed = 1.01 * (allowed + unit / 2 * exact.abs() + smallest)
        largest = torch.finfo(self.dtype).max
        right = ((got.double() - exact).abs() <= allowed) | (got.isinf() & (exact.abs() + allowed >= largest))
        if got.dtype != self.dtype or got.shape != exact.shape:
            return f"{self.what}: {got.dtype} {tuple(got.shape)}, but {self.dtype} {tuple(exact.shape)} is right"
        if right.all():
            return ""
        at = tuple((~right).nonzero()[0].tolist())
        many = f"{int((~right).sum())} of {right.numel()} elements"
        return f"{self.what}: {many}, {got[at]} at {at}, but {exact[at]} +- {allowed[at]} is right"


class _Draw:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.m, self.k, self.n = (self.draw.choice(s) for s in (ROWS, SIZES, SIZES))
        self.dtype = self.draw.choice(HALVES)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=self.generator) * scale

    def codes(self, dtype: torch.dtype, *shape: int) -> Tensor:
        """Any codes that are finite, in a layout of the host."""
        self.layout = layout = self.draw.choice(LAYOUTS)
        turned = layout in ("columns", "transposed slice")
        wanted = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        more = (0, 0) if "slice" not in layout else (self.draw.choice((0, 1, 5)), self.draw.choice((0, 1, 2, 64)))
        whole = (*wanted[:-2], wanted[-2] + more[0], wanted[-1] + more[1])
        if dtype.is_floating_point:
            found = (self.normal(*whole) * self.draw.choice((0.02, 1, 30))).to(dtype)
        else:
            found = torch.randint(0, 256, whole, generator=self.generator).to(torch.uint8).view(dtype)
        found = found[..., more[0] :, more[1] :]
        return found.mT if turned else found


def layer(seed: int) -> Layer:
    """A layer of one of the kinds."""
    d = _Draw(seed)
    kind = d.draw.choice((_weights, _weights, _weights, _nibbles, _int8, _fp8, _packed, _batches))
    return kind(d)


def _behind(d: _Draw, columns: int) -> tuple[list[Tensor], Tensor | None]:
    """Scales behind a product, and a bias."""
    scales = [d.normal(columns).abs().add(0.1).to(d.dtype) / 64] if d.draw.random() < 0.5 else []
    return scales, d.normal(columns).to(d.dtype) if d.draw.random() < 0.5 else None


def _finished(y: Tensor, scales: list[Tensor], bias: Tensor | None) -> Tensor:
    for scale in scales:
        y = y * scale
    return y if bias is None else y + bias


def _weights(d: _Draw) -> Layer:
    """Weights alone are quantised; they get scales and zero points per tensor, channel or group before the product, or scales behind it."""
    code = d.draw.choice(CODES)
    w = d.codes(code, d.n, d.k)
    size = d.draw.choice([g for g in (d.k, d.k, 16, 32, 64, 128) if d.k % g == 0])
    shape = d.draw.choice(((1, 1), (d.n, 1), (d.n, d.k // size)))
    before, zero = d.draw.random() < 0.6, not code.is_floating_point and d.draw.random() < 0.5
    s = (d.normal(*shape).abs() + 0.1).to(d.dtype) / 128
    z = torch.randint(0 if code == torch.uint8 else -128, 256 if code == torch.uint8 else 128, shape, generator=d.generator).to(code)
    scales, bias = _behind(d, d.n) if not before else ([], _behind(d, d.n)[1])
    x = d.normal(d.m, d.k).to(d.dtype)
    mid = d.draw.choice((None, None, torch.float8_e4m3fn, torch.float8_e5m2))

    within, apart = d.draw.choice((d.dtype, torch.float32)), d.draw.random() < 0.5

    def dequantised(w: Tensor, s: Tensor, z: Tensor) -> Tensor:
        """In the type of the activations or in float32, with groups as a dim of their own or numbers repeated for each."""
        shape, groups, half = w.shape, s.shape[1], s.dtype
        w, s, z = w.to(within), s.to(within), z.to(within)
        if apart:
            w, s, z = w.unflatten(1, (groups, -1)), s[:, :, None], z[:, :, None]
        else:
            s, z = (t.repeat_interleave(shape[1] // groups, 1) for t in (s, z))
        w = w - z if zero else w
        w = w * s if before else w
        return (w.flatten(1) if apart else w).to(half)

    def activation(x: Tensor) -> Tensor:
        return x if mid is None else x.to(mid).to(x.dtype)

    def function(x: Tensor, w: Tensor, s: Tensor, z: Tensor, *more: Tensor) -> Tensor:
        y = torch.nn.functional.linear(activation(x), dequantised(w, s, z))
        return _finished(y, list(more[: len(scales)]), more[-1] if bias is not None else None)

    what = f"{code} {d.layout} [{d.n}, {d.k}] with {d.m} rows of {d.dtype} through {mid}, scales {shape} {'before' if before else 'no'}"
    tensors = [x, w, s, z, *scales, *([bias] if bias is not None else [])]
    return Layer(
        f"{what}, zero points {zero}, behind {len(scales)}, bias {bias is not None}",
        tensors,
        function,
        lambda x, w, s, z, *_: (activation(x), dequantised(w, s, z)),
        lambda *_: scales,
        d.dtype,
        bias=bias,
    )


def _nibbles(d: _Draw) -> Layer:
    """Two weights in a byte, along K, with scales and zeros per group."""
    d.k = max(d.k // 2 * 2, 2)
    w = d.codes(torch.uint8, d.n, d.k // 2)
    size = d.draw.choice([g for g in (d.k, 16, 32, 64, 128) if d.k % g == 0])
    s, x = (d.normal(d.n, d.k // size).abs() + 0.1).to(d.dtype) / 32, d.normal(d.m, d.k).to(d.dtype)

    def dequantised(w: Tensor, s: Tensor) -> Tensor:
        codes = torch.stack((w & 15, w >> 4), -1).flatten(1)
        return ((codes.to(s.dtype) - 8).unflatten(1, (s.shape[1], -1)) * s[:, :, None]).flatten(1)

    def function(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, dequantised(w, s))

    what = f"four bits {d.layout} [{d.n}, {d.k}] in groups of {size} with {d.m} rows of {d.dtype}"
    return Layer(what, [x, w, s], function, lambda x, w, s: (x, dequantised(w, s)), lambda *_: [], d.dtype)


def _int8(d: _Draw) -> Layer:
    """Both operands in int8, activations quantised on the way, per token or tensor."""
    w, s = d.codes(torch.int8, d.n, d.k), (d.normal(d.n).abs() + 0.1) / 128
    x, tokens = d.normal(d.m, d.k).to(d.dtype), d.draw.random() < 0.7

    def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.float()
        largest = x.abs().amax(-1, keepdim=True) if tokens else x.abs().amax()
        scale = largest.clamp(min=1e-5) / 127
        return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8), scale

    def function(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        codes, scale = quantised(x)
        return (torch.ops.aten._int_mm(codes, w.t()).float() * scale * s).to(x.dtype)

    what = f"int8 x int8 {d.layout} [{d.n}, {d.k}] with {d.m} rows of {d.dtype}, per {'token' if tokens else 'tensor'}"
    return _quantising(d, what, [x, w, s], function, quantised)


def _fp8(d: _Draw) -> Layer:
    """Both operands in a float of one byte."""
    w, s = d.codes(torch.float8_e4m3fn, d.n, d.k), (d.normal(1, d.n).abs() + 0.1) / 64
    x = d.normal(d.m, d.k).to(d.dtype)

    def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-5) / 448
        return (x.float() / scale).to(torch.float8_e4m3fn), scale

    def function(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        codes, scale = quantised(x)
        return torch.ops.aten._scaled_mm(codes, w.t(), scale, s, out_dtype=x.dtype)

    what = f"fp8 x fp8 {d.layout} [{d.n}, {d.k}] with {d.m} rows of {d.dtype}"
    return _quantising(d, what, [x, w, s], function, quantised)


def _quantising(
    d: _Draw, what: str, tensors: list[Tensor], function: Callable[..., Tensor], quantised: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Layer:
    """A layer that quantises its rows itself: their codes are multiplied, and their scales come behind."""
    return Layer(what, tensors, function, lambda x, w, s: (quantised(x)[0], w), lambda x, w, s: [quantised(x)[1], s], d.dtype, wide=True)


def _packed(d: _Draw) -> Layer:
    """The operator that PyTorch has for weights in int8."""
    w, s = d.codes(torch.int8, d.n, d.k), (d.normal(d.n).abs() + 0.1).to(d.dtype) / 128
    x = d.normal(d.m, d.k).to(d.dtype)
    what = f"packed int8 {d.layout} [{d.n}, {d.k}] with {d.m} rows of {d.dtype}"
    function: Any = torch.ops.aten._weight_int8pack_mm
    return Layer(what, [x, w, s], lambda *t: function(*t), lambda x, w, s: (x, w), lambda x, w, s: [s], d.dtype)


def _batches(d: _Draw) -> Layer:
    """A matrix of weights per batch."""
    b, code = d.draw.choice((2, 3, 5)), d.draw.choice(CODES)
    w, x = d.codes(code, b, d.n, d.k), d.normal(b, d.m, d.k).to(d.dtype) / 64
    shape = d.draw.choice(((), (1, 1, 1), (b, 1, 1), (b, d.n, 1)))
    s = (d.normal(*shape).abs() + 0.1).to(d.dtype)
    what = f"{b} times {code} {d.layout} [{d.n}, {d.k}] with {d.m} rows of {d.dtype}, scales {shape}"

    def dequantised(w: Tensor, s: Tensor) -> Tensor:
        return w.to(s.dtype) * s if shape else w.to(s.dtype)

    def function(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        return torch.bmm(x, dequantised(w, s).mT)

    return Layer(what, [x, w, s], function, lambda x, w, s: (x, dequantised(w, s)), lambda *_: [], d.dtype)
