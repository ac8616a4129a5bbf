"""Pooling with channels in the lanes, and convolutions with a filter per channel: calls of one operator each (`window_taps.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ktir.lowering.inductor.graph.formulas.sequences import HALVES

aten = torch.ops.aten

_LIBRARY = torch.library.Library("ktir", "FRAGMENT")
_LIBRARY.define(
    "window_filter(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] pads, int[] dilation) -> Tensor",
    tags=(torch.Tag.flexible_layout,),
)
_LIBRARY.define("window_sum(Tensor x, int[] window, int[] stride, int[] pads) -> Tensor", tags=(torch.Tag.flexible_layout,))
_LIBRARY.impl("window_filter", lambda *operands: _window_filter(*operands), "CompositeExplicitAutograd")
_LIBRARY.impl("window_sum", lambda *operands: _window_sum(*operands), "CompositeExplicitAutograd")
WINDOW_FILTER = torch.ops.ktir.window_filter.default
"""A convolution with a filter per channel, weight: [channels, 1, window ..], rounded behind the bias. `pads`: zeros around x as `pad` has
them, the last dim first."""
WINDOW_SUM = torch.ops.ktir.window_sum.default
"""The sums of windows in float32; `pads` as above."""


_FEWEST_CHANNELS = 16
"""Channels from which on they lie in the lanes: a granule of memory, of which fewer would use a part."""
_WRITTEN_OUT, _MOST_TAPS = 25, 64
"""Places of a window that are written out, by Inductor and here; of more it sends average pooling to ATen."""
_TYPES = (*HALVES, torch.float32)


def takes(sizes: Sequence[Any], dtype: torch.dtype, window: Sequence[int]) -> bool:
    """Whether windows over a tensor of `sizes`, [batch, channels, spatial ..], are read with channels in the lanes."""
    if any(isinstance(n, torch.SymInt) or n == 0 for n in sizes) or len(sizes) != len(window) + 2:
        return False
    taps = math.prod(window)
    return dtype in _TYPES and 1 < taps <= _MOST_TAPS and (sizes[1] >= _FEWEST_CHANNELS or taps > _WRITTEN_OUT)


def _window_filter(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    x, none = torch.nn.functional.pad(x, list(pads)), [0] * len(stride)
    return aten.convolution(x, weight, bias, stride, none, dilation, False, none, x.shape[1])


def _window_sum(x: torch.Tensor, window: Sequence[int], stride: Sequence[int], pads: Sequence[int]) -> torch.Tensor:
    x = torch.nn.functional.pad(x.float(), list(pads))
    for dim, (n, step) in enumerate(zip(window, stride, strict=True)):
        x = x.unfold(2 + dim, n, step)
    return x.sum([*range(2 + len(window), 2 + 2 * len(window))])


def pooled_sizes(
    sizes: Sequence[int], window: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], *, ceil_mode: bool
) -> list[int]:
    """Places of windows along each dim, as PyTorch counts them: with `ceil_mode` the last one may hang over, if it begins inside."""
    found = []
    for n, w, s, p, d in zip(sizes, window, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (w - 1) - 1
        places = (room + (s - 1 if ceil_mode else 0)) // s + 1
        found.append(places - (ceil_mode and (places - 1) * s >= n + p))
    return found


def pads_of(
    sizes: Sequence[int], window: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], *, ceil_mode: bool
) -> list[tuple[int, int]]:
    """Elements before and behind each dim that windows reach."""
    places = pooled_sizes(sizes, window, stride, padding, dilation, ceil_mode=ceil_mode)
    dims = zip(sizes, places, window, stride, padding, dilation, strict=True)
    reach = [(m - 1) * s + d * (w - 1) + 1 - n - p for n, m, w, s, p, d in dims]
    return [(p, max(behind, 0)) for p, behind in zip(padding, reach, strict=True)]


def average(n_dim: int) -> Callable[..., Any]:
    """`avg_pool1d` to `3d`: the sum of a window, divided by the elements that count."""

    def pool(
        x: torch.Tensor,
        window: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        window, stride, padding = (_per_dim(v, n_dim) for v in (window, stride or window, padding))
        batched = x if x.dim() == n_dim + 2 else x.unsqueeze(0)
        if not takes(batched.shape, batched.dtype, window):
            return NotImplemented
        sizes, ones = list(batched.shape[2:]), [1] * n_dim
        pads = pads_of(sizes, window, stride, padding, ones, ceil_mode=ceil_mode)
        total = WINDOW_SUM(batched, window, stride, [n for pair in reversed(pads) for n in pair])
        result = (total / (divisor_override or _counts(batched, window, stride, padding, total.shape[2:], count_include_pad))).to(x.dtype)
        return result if x.dim() == n_dim + 2 else result.squeeze(0)

    return pool


def _counts(
    x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int], places: Sequence[int], count_include_pad: bool
) -> int | torch.Tensor:
    """Elements of each window that count: those inside of the image, or of the image with its padding; a number if all have as many."""
    along = []
    for n, m, w, s, p in zip(x.shape[2:], places, window, stride, padding, strict=True):
        low, high = (-p, n + p) if count_include_pad else (0, n)
        along.append([min(k * s - p + w, high) - max(k * s - p, low) for k in range(m)])
    if all(len(set(counts)) == 1 for counts in along):
        return math.prod(counts[0] for counts in along)
    total = torch.ones((), device=x.device)
    for counts in along:
        total = total.unsqueeze(-1) * torch.tensor(counts, dtype=torch.float32, device=x.device)
    return total


def _per_dim(values: Sequence[int], count: int) -> list[int]:
    return list(values) * count if len(values) == 1 else list(values)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.avg_pool1d.default: average(1),
    aten.avg_pool2d.default: average(2),
    aten.avg_pool3d.default: average(3),
}
"""See `decompositions.DECOMPOSITIONS`."""
