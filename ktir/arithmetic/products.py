"""Matmuls in machine order: blocks of 64 along K, each an exact sum rounded once, are added in sequence to the accumulator."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from ktir.arithmetic.block_sums import block_sums, largest_norm, rounded_sums, scratch, widened
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
    """[.., M, K] x [.., K, N] -> float32 [.., M, N] for one block, K <= 64: exact sums, rounded once to f32. A zero is +0."""
    with quiet():
        return block_sums(a, b, elements) + np.float32(0)


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
    broadcast.
    """

    def __init__(self, a: F32, b: F32, out: F32, elements: Elements) -> None:
        self.out, self.elements = out, elements
        # Along some axes b alone repeats: a single product with the rows of all positions there.
        lead = range(out.ndim - 2)
        shared = [axis for axis in lead if b.shape[axis] == 1 < a.shape[axis]]
        order = (*(axis for axis in lead if axis not in shared), *shared, -2, -1)
        self.apart = apart = out.ndim - 2 - len(shared)
        a, b, out = (x.transpose(order) for x in (a, b, out))
        b = b.reshape(*b.shape[:apart], *b.shape[-2:])
        if _nested(a, apart) and _nested(out, apart):
            a, out = (x.reshape(*x.shape[:apart], -1, x.shape[-1]) for x in (a, out))
        self.pieces = [(right, list(parts)) for right, parts in self._cut(a, b, out)]
        """Blocks of b [.., blocks, K, N]; with each those of rows of a [.., blocks, rows.., K], and the rows of the result."""

    def _cut(self, a: F32, b: F32, out: F32) -> Iterator[tuple[F32, Iterator[tuple[F32, F32]]]]:
        """Pieces whose f64 products stay in cache.

        b is converted as it is needed: as f64 the whole of it would be four times what a caller's f16 array takes.
        """
        k, apart = a.shape[-1], self.apart
        full = k // STICK
        blocks = max(1, min(_PRODUCTS // out.size, _WIDE // max(1, b.size // k * STICK), full))
        rows = max(1, _PRODUCTS * out.shape[apart] // out.size)

        def parts(left: F32) -> Iterator[tuple[F32, F32]]:
            for top in range(0, out.shape[apart], rows):
                part = (slice(None),) * apart + (slice(top, top + rows),)
                yield left[(*part[:apart], slice(None), *part[apart:])], out[part]

        for first in range(0, k, blocks * STICK):
            span = slice(first, min(first + blocks * STICK, full * STICK) if first < full * STICK else k)
            length = min(STICK, span.stop - first)
            left = a[..., span].reshape(*a.shape[:-1], -1, length)
            yield b[..., span, :].reshape(*b.shape[:-2], -1, length, b.shape[-1]), parts(np.moveaxis(left, -2, apart))

    def add_to(self, acc: F32) -> None:
        """Compute `out`; the caller is inside `quiet()`. acc: may be `out`."""
        np.add(acc, np.float32(0), out=self.out)  # no -0: so the sign of a block's zero cannot be seen
        for b, parts in self.pieces:
            right, norm = widened(b, "right"), largest_norm(b, -2)
            for a, out in parts:
                own = self.apart + 1
                left = scratch("left", (*a.shape[:own], prod(a.shape[own:-1]), a.shape[-1]), np.float64)
                np.copyto(left.reshape(a.shape), a)
                sums = rounded_sums(left, right, (largest_norm(a, -1), norm), self.elements)
                _add_blocks(out, sums)


def _nested(x: F32, first: int) -> bool:
    """Whether axes `first` to the last but one are one axis."""
    return all(x.strides[i] == x.strides[i + 1] * x.shape[i + 1] for i in range(first, x.ndim - 2))


def _add_blocks(out: F32, sums: F32) -> None:
    """Add the blocks [.., blocks, M, N] to out [.., M.., N] one after the other."""
    count = sums.shape[-3]
    if count < _FEW:
        for i in range(count):
            np.add(out, sums[..., i, :, :].reshape(out.shape), out=out)
        return
    terms = np.empty((count + 1, *out.shape), np.float32)
    terms[0] = out
    terms[1:] = np.moveaxis(sums, -3, 0).reshape(count, *out.shape)
    np.copyto(out, sum_in_order(terms, 0))
