"""Numbers of one byte: their matmuls, by those of floats of 16 bits, which hold each of them, and where PyTorch's own functions differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

aten = torch.ops.aten

_EXACT = 512
"""Products of a uint8 with an int8 that float32 adds up exactly in any order: each is at most 2^15."""
_FLOATS = (torch.float8_e4m3fn, torch.float8_e5m2)
_BLOCK = 128
"""Elements along a dim that share a scale of blocks."""
_TENSOR, _ROW, _FINE, _COARSE = 0, 1, 4, 5
"""Recipes of `_scaled_mm_v2`: a scale for all, one per row, one per block of 1 x 128 and of 128 x 128."""
_MX, _MX_BLOCK, _TILES = 3, 32, 1
"""That of blocks of 1 x 32, and how their scales lie."""


def product_of_bytes(a: torch.Tensor, b: torch.Tensor) -> Any:
    """`_int_mm`: the product of integers; of unsigned ones parts of K that float32 adds up exactly, the sums of which are integers."""
    depth = a.shape[1]
    if a.dtype not in (torch.int8, torch.uint8) or b.dtype != torch.int8 or not depth:
        return NotImplemented
    if a.dtype == torch.int8:
        return torch.mm(a.to(torch.int32), b.to(torch.int32))
    total = None
    for first in range(0, depth, _EXACT):
        rows, columns = (t.narrow(d, first, min(_EXACT, depth - first)) for t, d in ((a, 1), (b, 0)))
        part = _sums(rows, columns).to(torch.int32)
        total = part if total is None else total + part
    return total


def weights_of_bytes(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> Any:
    """`_weight_int8pack_mm`: the sums in float32 times the scale of their column, rounded once."""
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return NotImplemented
    product = aten.mm.default if x.dtype == torch.float32 else partial(aten.mm.dtype, out_dtype=torch.float32)
    sums = product(x, weight.t().to(x.dtype))
    return (sums * scales.to(torch.float32)).to(x.dtype)


def scaled_product(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale_result: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Any:
    """`_scaled_mm`: sums of products in float32, times the scales, plus the bias, rounded once.

    a: [M, K], b: [K, N]. Each scale is one number, or has as its extents 1, that of the operand, or that in blocks of 128. A result of one
    byte is divided by `scale_result`. Scales of float8_e8m0fnu are those of blocks of 32.
    """
    if scale_a.dtype == scale_b.dtype == torch.float8_e8m0fnu and scale_result is None:
        return _of_small_blocks(a, b, scale_a, scale_b, (_TILES, _TILES), bias, out_dtype)
    scales = [s.reshape(1, 1) if s.numel() == 1 else s for s in (scale_a, scale_b)]
    if any(s.dim() != 2 for s in scales):
        return NotImplemented
    blocks = -(-a.shape[1] // _BLOCK)
    in_blocks = scales[0].shape[1] != 1 or scales[1].shape[0] != 1
    rows, columns = _spread(scales[0], 0, a.shape[0]), _spread(scales[1], 1, b.shape[1])
    return _scaled(a, b, rows[:, :blocks], columns[:blocks], in_blocks, bias, scale_result, out_dtype)


def _scaled(
    a: torch.Tensor,
    b: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    in_blocks: bool,
    bias: torch.Tensor | None,
    divisor: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> Any:
    """Sums of products in float32, of all of K or of each block of it, times the scales of rows [M or 1, blocks or 1] and of columns
    [blocks or 1, N or 1], plus the bias; a result of one byte is divided."""
    dtype = out_dtype or a.dtype
    if a.dtype not in _FLOATS or b.dtype not in _FLOATS or not a.shape[1] or not dtype.is_floating_point:
        return NotImplemented
    if rows.dtype != torch.float32 or columns.dtype != torch.float32 or (in_blocks and a.shape[1] % _BLOCK):
        return NotImplemented
    if in_blocks:
        sums = _sums(a.reshape(-1, a.shape[1] // _BLOCK, _BLOCK).transpose(0, 1), b.reshape(-1, _BLOCK, b.shape[1]))
        total = (sums * rows.t()[:, :, None] * columns[:, None, :]).sum(0)
    else:
        total = _sums(a, b) * rows * columns
    if bias is not None:
        total = total + bias.to(torch.float32)
    if divisor is not None and dtype in _FLOATS:
        total = total / divisor
    return total.to(dtype)


def scaled_product_by_recipes(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[torch.Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Any:
    """`_scaled_mm_v2`, of scales in float32 that lie as they are."""
    if recipe_a[0] == recipe_b[0] == _MX and len(recipe_a) == len(recipe_b) == len(scale_a) == len(scale_b) == 1 and not contraction_dim:
        return _of_small_blocks(a, b, scale_a[0], scale_b[0], (*swizzle_a, *swizzle_b), bias, out_dtype)
    alone = len(recipe_a) == len(recipe_b) == len(scale_a) == len(scale_b) == 1
    if not alone or any(swizzle_a) or any(swizzle_b) or contraction_dim:
        return NotImplemented
    factors = _factors(a, b, scale_a[0], scale_b[0], (recipe_a[0], recipe_b[0]))
    if factors is None:
        return NotImplemented
    in_blocks = recipe_a[0] not in (_TENSOR, _ROW)
    return _scaled(a, b, *factors, in_blocks, bias, None, out_dtype)


def _factors(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, recipes: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Scales of rows and columns, as `_scaled` takes them, where they have the shapes that the recipes want; None for others.

    Of 1 x 128 they are [M, blocks] and [N, blocks], of 128 x 128 [blocks rounded up to four, M / 128 or N / 128].
    """
    rows, depth, columns = a.shape[0], a.shape[1], b.shape[1]
    blocks = depth // _BLOCK

    def fine(scale: torch.Tensor, extent: int) -> torch.Tensor | None:
        return scale if tuple(scale.shape) == (extent, blocks) else None

    def coarse(scale: torch.Tensor, extent: int) -> torch.Tensor | None:
        whole = extent % _BLOCK == 0 and tuple(scale.shape) == (-(-blocks // 4) * 4, extent // _BLOCK)
        return scale[:blocks].t().repeat_interleave(_BLOCK, 0) if whole else None

    if recipes == (_TENSOR, _TENSOR):
        found = [s.reshape(1, 1) if s.numel() == 1 else None for s in (scale_a, scale_b)]
    elif recipes == (_ROW, _ROW):
        found = [s.reshape(-1, 1) if s.numel() == n else None for s, n in ((scale_a, rows), (scale_b, columns))]
    elif recipes in ((_FINE, _FINE), (_FINE, _COARSE), (_COARSE, _FINE)):
        kinds = {_FINE: fine, _COARSE: coarse}
        found = [kinds[r](s, n) for r, s, n in zip(recipes, (scale_a, scale_b), (rows, columns), strict=True)]
    else:
        return None
    of_rows, of_columns = found
    return None if of_rows is None or of_columns is None else (of_rows, of_columns.t())


def _of_small_blocks(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    swizzles: Sequence[int],
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> Any:
    """Powers of two for blocks of 32 along K (MX), in tiles of 128 x 4 of which four rows, 32 apart, lie together: sums in float32 per
    block."""
    scales, blocks = (scale_a, scale_b), a.shape[1] // _MX_BLOCK
    sizes = [-(-n // 128) * -(-blocks // 4) * 512 for n in (a.shape[0], b.shape[1])]
    if [s.numel() for s in scales] != sizes:
        return NotImplemented
    if a.dtype not in _FLOATS or b.dtype not in _FLOATS or any(s.dtype != torch.float8_e8m0fnu for s in scales):
        return NotImplemented
    if a.shape[1] % _MX_BLOCK or not blocks or tuple(swizzles) != (_TILES, _TILES):
        return NotImplemented
    rows, columns = (_in_rows(s, n, blocks).float().t() for s, n in ((scale_a, a.shape[0]), (scale_b, b.shape[1])))
    sums = _sums(a.reshape(-1, blocks, _MX_BLOCK).transpose(0, 1), b.reshape(blocks, _MX_BLOCK, -1))
    total = (sums * rows[:, :, None] * columns[:, None, :]).sum(0)
    if bias is not None:
        total = total + bias.to(torch.float32)
    return total.to(out_dtype or a.dtype)


def _in_rows(scale: torch.Tensor, rows: int, blocks: int) -> torch.Tensor:
    """Scales [rows, blocks] of tiles."""
    down, across = -(-rows // 128), -(-blocks // 4)
    tiles = scale.reshape(down, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(down * 128, across * 4)[:rows, :blocks]


def magnitude(x: torch.Tensor) -> Any:
    """`abs` of floats of one byte, of which PyTorch leaves -0 as it is."""
    return torch.where(x < 0, -x, x) if x.dtype in _FLOATS else NotImplemented


def _sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sums of products in float32."""
    product = aten.mm.dtype if a.dim() == 2 else aten.bmm.dtype
    return product(a.to(torch.float16), b.to(torch.float16), torch.float32)


def _spread(scale: torch.Tensor, dim: int, extent: int) -> torch.Tensor:
    """A scale per element along `dim`, or one for all of them."""
    return scale if scale.shape[dim] in (1, extent) else scale.repeat_interleave(_BLOCK, dim).narrow(dim, 0, extent)


DECOMPOSITIONS = {
    aten._int_mm.default: product_of_bytes,
    aten.abs.default: magnitude,
    aten._weight_int8pack_mm.default: weights_of_bytes,
    aten._scaled_mm.default: scaled_product,
    aten._scaled_mm_v2.default: scaled_product_by_recipes,
}
"""By operator."""
