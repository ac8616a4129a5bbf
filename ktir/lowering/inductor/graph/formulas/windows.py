"""Pooling and sampling of images at places that are computed: elements are gathered, then reduced."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten

_MOST_PLACES = 1 << 20
"""Elements that are gathered for one result."""


def _best(x: torch.Tensor, n_dim: int, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest element of each window, or NaN, and its number in the image; `places` has the numbers of a window's elements last."""
    batch = list(x.shape[:-n_dim])
    places = places.expand([*batch, *places.shape[-n_dim - 1 :]])
    found = x.flatten(-n_dim).gather(-1, places.reshape(*batch, -1)).reshape(places.shape)
    first = found.argmax(-1, keepdim=True)
    return found.gather(-1, first).squeeze(-1), places.gather(-1, first).squeeze(-1)


def _numbered(along: Sequence[torch.Tensor], sizes: Sequence[int]) -> torch.Tensor:
    """Numbers in an image of elements in windows, from their places along each dim: tensors [..., windows, elements]."""
    n_dim, total = len(sizes), torch.zeros((), dtype=torch.int64, device=along[0].device)
    for dim, places in enumerate(along):
        shape = list(places.shape[:-2]) + [1] * (2 * n_dim)
        shape[places.dim() - 2 + dim], shape[places.dim() - 2 + n_dim + dim] = places.shape[-2:]
        total = total + places.reshape(shape) * math.prod(sizes[dim + 1 :])
    return total.flatten(-n_dim)


def adaptive_max(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    """`adaptive_max_pool3d`; windows that are shorter than the longest one have their last element several times."""
    sizes = list(x.shape[-3:])
    if any(not isinstance(n, int) or n == 0 for n in (*x.shape, *output_size)) or math.prod(sizes) * 8 > _MOST_PLACES:
        return NotImplemented
    along = []
    for n, out in zip(sizes, output_size, strict=True):
        bounds = [(k * n // out, -(-(k + 1) * n // out)) for k in range(out)]
        longest = max(end - start for start, end in bounds)
        along.append(torch.tensor([[min(start + j, end - 1) for j in range(longest)] for start, end in bounds], device=x.device))
    return _best(x, 3, _numbered(along, sizes))


def fractional_max(n_dim: int) -> Callable[..., Any]:
    """`fractional_max_pool2d` and `3d`: windows of one size, which begin where random numbers say."""

    def pool(x: torch.Tensor, window: Sequence[int], output_size: Sequence[int], samples: torch.Tensor) -> Any:
        sizes = list(x.shape[-n_dim:])
        if x.dtype == torch.float64 or any(not isinstance(n, int) or n == 0 for n in (*x.shape, *output_size)):
            return NotImplemented
        if x.numel() * math.prod(window) > _MOST_PLACES:
            return NotImplemented
        samples = samples if x.dim() == n_dim + 2 else samples[0]
        along = []
        for dim, (n, k, out) in enumerate(zip(sizes, window, output_size, strict=True)):
            sample = samples[..., (n_dim - 1 - dim) if n_dim == 2 else dim, None]
            starts = _starts(sample, n - k, out)
            along.append(starts[..., None] + torch.arange(k, device=x.device))
        return _best(x, n_dim, _numbered(along, sizes))

    return pool


def _starts(sample: torch.Tensor, room: int, count: int) -> torch.Tensor:
    """Where windows begin, the last one at the end. PyTorch's kernel rounds each step to the type of the numbers."""
    window = torch.arange(count, device=sample.device)
    step = torch.tensor(room / (count - 1) if count > 1 else 0.0, dtype=sample.dtype, device=sample.device)
    start = ((window.to(sample.dtype) + sample) * step).trunc() - (sample * step).trunc()
    return torch.where(window < count - 1, start.clamp(0, room), float(room)).to(torch.int64)


def sample_volume(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align_corners: bool) -> Any:
    """`grid_sampler_3d`: the eight elements around each place with their weights (mode 0), or the nearest one (1)."""
    if mode not in (0, 1) or 0 in (*x.shape, *grid.shape) or x.dtype == torch.float64:
        return NotImplemented
    volume, sizes = x.float().flatten(2), list(x.shape[2:])
    at = [_unnormalized(grid[..., 2 - k].float(), n, padding, align_corners) for k, n in enumerate(sizes)]
    low = [c.round() if mode else c.floor() for c in at]
    total = torch.zeros((), device=x.device)
    for corner in itertools.product(*[[0] if mode else [0, 1]] * 3):
        places = [c + k for c, k in zip(low, corner, strict=True)]
        inside = [(p >= 0) & (p < n) for p, n in zip(places, sizes, strict=True)]
        number, weight = torch.zeros_like(low[0], dtype=torch.int64), torch.ones_like(low[0])
        for place, c, n, bit, where in zip(places, at, sizes, corner, low, strict=True):
            number = number * n + place.clamp(0, n - 1).to(torch.int64)
            weight = weight * (c - where if bit else where + 1 - c)
        channels = volume.gather(2, number.reshape(x.shape[0], 1, -1).expand(-1, x.shape[1], -1))
        channels = channels.reshape(*x.shape[:2], *grid.shape[1:4])
        term = channels if mode else channels * weight.unsqueeze(1)
        total = total + torch.where((inside[0] & inside[1] & inside[2]).unsqueeze(1), term, 0.0)
    return total.to(x.dtype)


def _unnormalized(c: torch.Tensor, size: int, padding: int, align_corners: bool) -> torch.Tensor:
    """Coordinates from -1 to 1 as those of elements; beyond the border as they are (padding 0), at the border (1) or reflected (2)."""
    c = (c + 1) / 2 * (size - 1) if align_corners else ((c + 1) * size - 1) / 2
    if padding == 2:
        least, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            return torch.zeros_like(c)
        c = (c - least).abs()
        rest, turns = torch.fmod(c, span), (c / span).floor()
        c = torch.where(torch.fmod(turns, 2) == 0, rest, span - rest) + least
    return c if padding == 0 else c.clamp(0, size - 1)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.adaptive_max_pool3d.default: adaptive_max,
    aten.fractional_max_pool2d.default: fractional_max(2),
    aten.fractional_max_pool3d.default: fractional_max(3),
    aten.grid_sampler_3d.default: sample_volume,
}
"""See `decompositions.DECOMPOSITIONS`."""
