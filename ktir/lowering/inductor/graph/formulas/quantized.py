"""Matmuls of numbers of one byte, by those of floats of 16 bits, which hold each of them."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

_EXACT = 1024
"""Products of two int8 that float32 adds up without a rounding, in any order: each is at most 2^14."""


def product_of_bytes(a: torch.Tensor, b: torch.Tensor) -> Any:
    """`_int_mm`: parts of K that float32 adds up exactly, the sums of which are integers."""
    depth = a.shape[1]
    if a.dtype != torch.int8 or b.dtype != torch.int8 or not depth:
        return NotImplemented
    total = None
    for first in range(0, depth, _EXACT):
        rows, columns = (t.narrow(d, first, min(_EXACT, depth - first)).to(torch.float16) for t, d in ((a, 1), (b, 0)))
        part = aten.mm.dtype(rows, columns, torch.float32).to(torch.int32)
        total = part if total is None else total + part
    return total


def weights_of_bytes(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> Any:
    """`_weight_int8pack_mm`: the sums in float32 times the scale of their column, rounded once."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    sums = aten.mm.dtype(x, weight.t().to(x.dtype), torch.float32)
    return (sums * scales.to(torch.float32)).to(x.dtype)


DECOMPOSITIONS = {aten._int_mm.default: product_of_bytes, aten._weight_int8pack_mm.default: weights_of_bytes}
"""By operator."""
