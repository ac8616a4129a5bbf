"""Matmuls in machine order: blocks of 64 along K (128 of bytes), each an exact sum rounded once, are added in turn to the accumulator."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ktir.arithmetic.block_sums import Block, Widened, largest_norm, rounded_sums, scratch
from ktir.arithmetic.floats import F32, deliver, quiet
from ktir.arithmetic.numerics import STICK, sum_in_order

__all__ = ["Product", "matmul_block", "matmul_machine"]

Elements = tuple[str, str]
"""The formats on whose grids the operands lie; nothing but the time depends on them."""

_PRODUCTS = 1 << 18
"""Elements of the f64 products that are held at once: 2 MiB."""
_FEW = 8
"""Blocks that are added one by one."""
_WIDE = 1 << 20
"""Elements of the right matrix that are held as f64 at once: 8 MiB."""


def matmul_block(a: F32, b: F32, elements: Elements = ("f32", "f32")) -> F32:
    """[.., M, K] x [.., K, N] -> float32 [.., M, N] for one block, K <= 128: exact sums, rounded once to f32. A zero is +0."""
    with quiet():
        sums = Block(a, b, elements).sums() + np.float32(0)
    return sums.reshape(*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def matmul_machine(a: F32, b: F32, acc: F32, out: F32 | None = None, elements: Elements = ("f32", "f32")) -> F32:
    """acc + a x b in machine order: blocks of 64 along K, each as `matmul_block`, added in sequence to the accumulator.

    a: float32 [.., M, K], b: float32 [.., K, N], acc: float32 [.., M, N]; leading axes broadcast. out: float32 of the result's shape,
    may be `acc`. A last partial block counts as filled with zeros. Raises ValueError if the K differ.
    """
    if b.shape[-2] != a.shape[-1]:
        raise ValueError(f"matmul_machine expects operands with the same K, but got {a.shape} and {b.shape}")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2], acc.shape[:-2])
    result = np.empty((*lead, a.shape[-2], b.shape[-1]), np.float32) if out is None else out
    if not result.size or not a.shape[-1]:
        return deliver(acc, result)
    a, b = (x.reshape((1,) * (result.ndim - x.ndim) + x.shape) for x in (a, b))
    with quiet():
        Product(a, b, result, elements).add_to(acc)
    return result


class Product:
    """acc + a x b for arrays that stay where they are: what is cut how is found out once.

    a: float32 [.., M, K], b: float32 [.., K, N], out: float32 [.., M, N], of the same rank and not empty; leading axes of a and b
    broadcast. block: how many of K are added exactly, 64 or 128.
    """

    def __init__(self, a: F32, b: F32, out: F32, elements: Elements, block: int = STICK) -> None:
        self.out, self.elements = out, elements
        # Along some axes b alone repeats: a single product with the rows of all positions there.
        lead = range(out.ndim - 2)
        shared = [axis for axis in lead if b.shape[axis] == 1 < a.shape[axis]]
        order = (*(axis for axis in lead if axis not in shared), *shared, -2, -1)
        apart = out.ndim - 2 - len(shared)
        a, b, rows = (x.transpose(order) for x in (a, b, out))
        b = b.reshape(*b.shape[:apart], *b.shape[-2:])
        if _nested(a, apart) and _nested(rows, apart):
            a, rows = (x.reshape(*x.shape[:apart], -1, x.shape[-1]) for x in (a, rows))
        self.pieces = [
            (right, Widened(right, "right"), _parts(a[..., span], rows, apart, count))
            for span, count in _spans(b, out.size, block)
            for right in [b[..., span, :].reshape(*b.shape[:-2], count, -1, b.shape[-1])]
        ]
        """Blocks of b, [.., blocks, K, N], and what they are multiplied with."""

    def add_to(self, acc: F32) -> None:
        """Compute `out`; the caller is inside `quiet()`. acc: may be `out`."""
        np.add(acc, np.float32(0), out=self.out)  # no -0: so the sign of a block's zero cannot be seen
        for b, widened, parts in self.pieces:
            right, norm = widened(), largest_norm(b, -2)
            for part in parts:
                left = scratch("left", part.shape)
                np.copyto(left.reshape(part.rows.shape), part.rows)
                _add_blocks(part.out, rounded_sums(left, right, (largest_norm(part.rows, -1), norm), self.elements))


@dataclass(frozen=True)
class _Part:
    """Rows [.., blocks, M.., K] of an operand, their shape with M as one axis, and what they become rows of, [.., M.., N]."""

    rows: F32
    shape: tuple[int, ...]
    out: F32


def _spans(b: F32, size: int, block: int) -> list[tuple[slice, int]]:
    """Where K is cut, and into how many blocks each part is, so that operands and products in f64 stay in cache.

    b is converted as it is needed: as f64 the whole of it would be four times what a caller's f16 array takes. size: of the result.
    """
    k = b.shape[-2]
    full = k // block
    blocks = max(1, min(_PRODUCTS // size, _WIDE // max(1, b.size // k * block)))
    counts = [min(blocks, full - first) for first in range(0, full, blocks)]
    ends = np.cumsum(counts, dtype=int).tolist()
    whole = [(slice((end - count) * block, end * block), count) for end, count in zip(ends, counts, strict=True)]
    return whole + [(slice(full * block, k), 1)] * (k % block > 0)


def _parts(a: F32, out: F32, apart: int, count: int) -> list[_Part]:
    """`count` blocks of a, [.., M.., K], by rows whose products stay in cache."""
    blocks = np.moveaxis(a.reshape(*a.shape[:-1], count, -1), -2, apart)
    step = max(1, _PRODUCTS * out.shape[apart] // out.size)
    parts: list[_Part] = []
    for top in range(0, out.shape[apart], step):
        every = (slice(None),) * apart
        rows = blocks[(*every, slice(None), slice(top, top + step))]
        shape = (*rows.shape[: apart + 1], prod(rows.shape[apart + 1 : -1]), rows.shape[-1])
        parts.append(_Part(rows, shape, out[(*every, slice(top, top + step))]))
    return parts


def _nested(x: F32, first: int) -> bool:
    """Whether axes `first` to the last but one are one axis."""
    return all(x.strides[i] == x.strides[i + 1] * x.shape[i + 1] for i in range(first, x.ndim - 2))


def _add_blocks(out: F32, sums: F32) -> None:
    """Add the blocks [.., blocks, M, N] to out [.., M.., N] one after the other; along leading axes sums may repeat."""
    count, apart = sums.shape[-3], sums.shape[:-3]
    shape = (*apart, *out.shape[len(apart) :])
    if count < _FEW:
        for i in range(count):
            np.add(out, sums[..., i, :, :].reshape(shape), out=out)
        return
    terms = np.empty((count + 1, *out.shape), np.float32)
    terms[0] = out
    terms[1:] = np.moveaxis(sums, -3, 0).reshape(count, *shape)
    np.copyto(out, sum_in_order(terms, 0))
