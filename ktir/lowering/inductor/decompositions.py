"""Operators as simpler ones, so that they arrive as loops: attention as two matmuls and a softmax, convolutions as matmuls of patches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten

_HALVES = (torch.float16, torch.bfloat16)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """softmax(q k^T * scale + mask) v on [batch, heads, rows, dim], and the log of the sums [batch, heads, rows].

    Scores, softmax and both matmuls are float32 for half precision, as in PyTorch's kernel; weights are rounded before the second matmul.
    """
    if dropout_p != 0.0:
        return NotImplemented
    work = torch.float32 if query.dtype in _HALVES else query.dtype
    if key.shape[1] != query.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    batch, heads, rows, inner = query.shape
    columns = key.shape[2]
    q, k, v = (t.reshape(batch * heads, t.shape[2], t.shape[3]) for t in (query, key, value))
    scores = _bmm(q, k.transpose(1, 2), work).reshape(batch, heads, rows, columns)
    scores = scores * (scale if scale is not None else 1 / math.sqrt(inner))
    if is_causal:
        positions = torch.arange(columns, device=query.device)
        future = positions > torch.arange(rows, device=query.device)[:, None]
        scores = torch.where(future, torch.full((), -math.inf, dtype=work, device=query.device), scores)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, torch.full((), -math.inf, dtype=work, device=query.device))
        else:
            scores = scores + attn_mask.to(work)
    largest = scores.amax(-1, keepdim=True)
    # a row that is masked completely gives zeros
    largest = torch.where(largest == -math.inf, torch.zeros((), dtype=work, device=query.device), largest)
    weights = torch.exp(scores - largest)
    sums = weights.sum(-1, keepdim=True)
    weights = torch.where(sums == 0, torch.zeros((), dtype=work, device=query.device), weights / sums).to(query.dtype)
    result = _bmm(weights.reshape(batch * heads, rows, columns), v, query.dtype).reshape(batch, heads, rows, v.shape[2])
    if query.transpose(1, 2).is_contiguous():  # PyTorch's kernel returns the layout of the query; views of the result rely on it
        result = result.transpose(1, 2).contiguous().transpose(1, 2)
    return result, (largest + torch.log(sums)).squeeze(-1)


def _bmm(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.bmm(a, b) if dtype == a.dtype else aten.bmm.dtype(a, b, dtype)


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
        x = _spread(x, stride)
        reach = [d * (w - 1) for d, w in zip(dilation, window, strict=True)]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding, strict=True)]
        stride = [1] * spatial
    else:
        pads = [(p, p) for p in padding]
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


def _spread(x: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Elements `stride` apart with zeros between them."""
    for dim, step in enumerate(stride):
        if step > 1:
            place = 2 + dim
            padded = torch.nn.functional.pad(x.unsqueeze(place + 1), [0, 0] * (x.dim() - place - 1) + [0, step - 1])
            x = padded.flatten(place, place + 1).narrow(place, 0, (x.shape[place] - 1) * step + 1)
    return x


def _windows(patches: torch.Tensor, weight: torch.Tensor, groups: int, spatial: int) -> torch.Tensor:
    """patches: [batch, channels, places ..., window ...] -> [batch, filters, places ...]."""
    batch, channels = patches.shape[:2]
    places, window = list(patches.shape[2 : 2 + spatial]), list(patches.shape[2 + spatial :])
    filters = weight.shape[0]
    if groups == channels == filters:
        work = torch.float32 if patches.dtype in _HALVES else patches.dtype
        products = patches.to(work) * weight.to(work).reshape(filters, *[1] * spatial, *window)
        return products.sum(list(range(2 + spatial, 2 + 2 * spatial))).to(patches.dtype)
    inner = channels // groups * math.prod(window)
    rows = patches.reshape(batch, groups, channels // groups, *places, *window)
    rows = rows.permute(1, 0, *range(3, 3 + spatial), 2, *range(3 + spatial, 3 + 2 * spatial))
    rows = rows.reshape(groups, batch * math.prod(places), inner)
    columns = weight.reshape(groups, filters // groups, inner).transpose(1, 2)
    product = torch.mm(rows[0], columns[0])[None] if groups == 1 else torch.bmm(rows, columns)
    result = product.reshape(groups, batch, *places, filters // groups)
    return result.permute(1, 0, 2 + spatial, *range(2, 2 + spatial)).reshape(batch, filters, *places)


def division(a: torch.Tensor, b: torch.Tensor | complex, *, rounding_mode: str | None) -> Any:
    """Division of floats rounded down, from the exact remainder as in eager.

    A rounded quotient may be whole where the true one is just below: 1 / 0.1 gives 9 here, as in Python, not 10.
    """
    dtype = torch.result_type(a, b)
    if rounding_mode != "floor" or not dtype.is_floating_point:
        return NotImplemented
    work = torch.float32 if dtype in _HALVES else dtype
    x = a.to(work)
    y = b.to(work) if isinstance(b, torch.Tensor) else torch.full((), b, dtype=work, device=a.device)
    zero = torch.zeros((), dtype=work, device=a.device)
    rest = torch.fmod(x, y)
    whole = (x - rest) / y
    whole = torch.where((rest != 0) & ((rest < 0) != (y < 0)), whole - 1, whole)
    floor = torch.floor(whole)
    floor = torch.where(whole - floor > 0.5, floor + 1, floor)  # the difference and the quotient were rounded
    floor = torch.where(whole == 0, torch.copysign(zero, x / y), floor)
    return torch.where(y == 0, x / y, floor).to(dtype)


def median(x: torch.Tensor) -> Any:
    """The lower median, or NaN if there is one."""
    if not x.is_floating_point() or x.numel() == 0:
        return NotImplemented
    return median_along(x.reshape(-1), 0)[0]


def median_along(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower median along a dim and its place; where there is a NaN, that and the place of the first one. NaNs sort to the end."""
    if not x.is_floating_point() or x.dim() == 0 or x.shape[dim] == 0:
        return NotImplemented
    values, places = torch.sort(x, dim=dim, stable=True)
    last, middle = x.shape[dim] - 1, (x.shape[dim] - 1) // 2
    largest = values.narrow(dim, last, 1)
    unordered = torch.isnan(largest)
    value = torch.where(unordered, largest, values.narrow(dim, middle, 1))
    place = torch.where(unordered, x.argmax(dim, keepdim=True), places.narrow(dim, middle, 1))
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def any_of(x: torch.Tensor, *where: Any, **options: Any) -> Any:
    """`any`, whose result has dtype uint8 for that dtype alone."""
    return torch.any(x.to(torch.bool), *where, **options).to(torch.uint8) if x.dtype == torch.uint8 else NotImplemented


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten.convolution.default: convolution,
    aten.div.Scalar_mode: division,
    aten.div.Tensor_mode: division,
    aten.median.default: median,
    aten.median.dim: median_along,
    **dict.fromkeys((aten.any.default, aten.any.dim, aten.any.dims), any_of),
}
"""Added to Inductor's table; a function that returns NotImplemented leaves its operator as it is."""
