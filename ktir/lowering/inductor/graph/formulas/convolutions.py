"""Convolutions as matmuls of patches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ktir.lowering.inductor.graph.formulas import pooling
from ktir.lowering.inductor.graph.formulas.sequences import HALVES

aten = torch.ops.aten

_LIBRARY = torch.library.Library("ktir", "FRAGMENT")
_LIBRARY.define(
    "window_dot(Tensor x, Tensor weight, int[] stride, int[] pads, int[] dilation, int groups) -> Tensor",
    tags=(torch.Tag.flexible_layout,),
)
_LIBRARY.impl("window_dot", lambda *operands: _window_dot(*operands), "CompositeExplicitAutograd")
WINDOW_DOT = torch.ops.ktir.window_dot.default
"""A convolution that is lowered to a matmul of channels per place of the window, summed up. `pads`: zeros around x as `pad` has them, the
last dim first."""

_FEWEST_CHANNELS = 16
"""Channels that lie next to each other from which on patches are copied by them: memory moves 32 bytes at least."""


def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Patches times weights: a matmul of copied patches, or a sum over the window where each channel has a filter of its own.

    x: [batch, channels, ...], weight: [filters, channels / groups, ...]. A transposed convolution is one over x spread out with zeros.
    """
    spatial = x.dim() - 2
    if spatial < 1 or x.is_complex() or any(not isinstance(n, int) for n in (*x.shape, *weight.shape)) or 0 in x.shape:
        return NotImplemented
    stride, padding, dilation, output_padding = (_per_dim(v, spatial) for v in (stride, padding, dilation, output_padding))
    window = list(weight.shape[2:])
    if transposed:
        inputs, filters = weight.shape[0] // groups, weight.shape[1]
        weight = weight.reshape(groups, inputs, filters, *window).transpose(1, 2).reshape(groups * filters, inputs, *window)
        weight = weight.flip(list(range(2, 2 + spatial)))
        x = spread(x, stride)
        reach = [d * (w - 1) for d, w in zip(dilation, window, strict=True)]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
        stride = [1] * spatial
    else:
        pads = [(p, p) for p in padding]
    single = any(n == 1 and low + high for n, (low, high) in zip(x.shape[2:], pads, strict=True))
    flat = [n for pair in reversed(pads) for n in pair]
    if groups == x.shape[1] == weight.shape[0] and pooling.takes(x.shape, x.dtype, window):
        return pooling.WINDOW_FILTER(x, weight, bias, stride, flat, dilation)
    reach = [n + low + high - d * (w - 1) for n, (low, high), w, d in zip(x.shape[2:], pads, window, dilation, strict=True)]
    single |= x.shape[0] == 1 and all(n <= s for n, s in zip(reach, stride, strict=True))  # a row alone is a product of a vector
    if x.dtype in HALVES and not groups == x.shape[1] == weight.shape[0] and not single:
        result = WINDOW_DOT(x, weight, stride, flat, dilation, groups)
        return result if bias is None else result + bias.reshape(-1, *[1] * spatial)
    if any(low or high for low, high in pads):
        x = torch.nn.functional.pad(x, [n for pair in reversed(pads) for n in pair])
    patches = x
    for dim, (w, s, d) in enumerate(zip(window, stride, dilation, strict=True)):
        patches = patches.unfold(2 + dim, d * (w - 1) + 1, s)
        if d > 1:
            patches = patches[..., ::d]
    result = _windows(patches, weight, groups, spatial)
    return result if bias is None else result + bias.reshape(-1, *[1] * spatial)


def _per_dim(values: Sequence[int], count: int) -> list[int]:
    return list(values) * count if len(values) == 1 else list(values)


def spread(x: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Elements `stride` apart with zeros between them."""
    for dim, step in enumerate(stride):
        if step > 1:
            place = 2 + dim
            padded = torch.nn.functional.pad(x.unsqueeze(place + 1), [0, 0] * (x.dim() - place - 1) + [0, step - 1])
            x = padded.flatten(place, place + 1).narrow(place, 0, (x.shape[place] - 1) * step + 1)
    return x


def _window_dot(
    x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int], groups: int
) -> torch.Tensor:
    x, none = torch.nn.functional.pad(x, list(pads)), [0] * len(stride)
    return aten.convolution(x, weight, None, stride, none, dilation, False, none, groups)


def _windows(patches: torch.Tensor, weight: torch.Tensor, groups: int, spatial: int) -> torch.Tensor:
    """patches: [batch, channels, places ..., window ...] -> [batch, filters, places ...]."""
    batch, channels = patches.shape[:2]
    places, window = list(patches.shape[2 : 2 + spatial]), list(patches.shape[2 + spatial :])
    filters = weight.shape[0]
    if groups == channels == filters:
        work = torch.float32 if patches.dtype in HALVES else patches.dtype
        products = patches.to(work) * weight.to(work).reshape(filters, *[1] * spatial, *window)
        return products.sum(list(range(2 + spatial, 2 + 2 * spatial))).to(patches.dtype)
    inner = channels // groups * math.prod(window)
    rows = patches.reshape(batch, groups, channels // groups, *places, *window)
    inside = [2, *range(3 + spatial, 3 + 2 * spatial)]
    columns = weight.reshape(groups, filters // groups, channels // groups, *window)
    if channels // groups >= _FEWEST_CHANNELS and batch * math.prod(places) > filters:
        # patches are most of what is copied, and channels lie in sticks
        inside = [*inside[1:], 2]
        columns = columns.permute(0, 1, *range(3, 3 + spatial), 2)
    rows = rows.permute(1, 0, *range(3, 3 + spatial), *inside).reshape(groups, batch * math.prod(places), inner)
    columns = columns.reshape(groups, filters // groups, inner).transpose(1, 2)
    product = torch.mm(rows[0], columns[0])[None] if groups == 1 else torch.bmm(rows, columns)
    result = product.reshape(groups, batch, *places, filters // groups)
    return result.permute(1, 0, 2 + spatial, *range(2, 2 + spatial)).reshape(batch, filters, *places)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {aten.convolution.default: convolution}
