"""Operators whose groups are data, as comparisons of positions: bags of embeddings, matmuls of rows by groups, histograms,
planes of pools.

What does not belong to a group is left out by a selection, never by a product with zero, which would let an infinity or a NaN through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

aten = torch.ops.aten

MOST_COMPARISONS = 1 << 24
"""Elements that are compared with positions at most; beyond that PyTorch's own kernel is left to do it."""

_HALVES = (torch.float16, torch.bfloat16)
_SUM, _MEAN, _MAX = 0, 1, 2


def _stride_of(offsets: torch.Tensor) -> int | None:
    """The distance of `offsets` if they are traced as 0, n, 2 n, ...: what a call with a matrix of indices makes of its rows."""
    mode = get_proxy_mode()
    if mode is None:
        return None
    proxy = get_proxy_slot(offsets, mode.tracer, None)
    node = getattr(getattr(proxy, "proxy", None), "node", None)
    if node is None:
        return None
    if node.target is torch.ops.prims.iota.default and node.kwargs.get("start") == 0:
        return node.kwargs["step"]
    if node.target is aten.arange.start_step and node.args[0] == 0 and len(node.args) == 3:
        return node.args[2]
    return None


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Rows of `weight` named by `indices`, folded by bags: bag b has the indices from offsets[b] up to offsets[b + 1].

    Gives (bags, bag of each index, sizes of bags, index of each largest value), as PyTorch's operator; sums are f32 for half precision.
    """
    count, bags = indices.shape[0], offsets.shape[0] - int(include_last_offset)
    if not count or not bags or not weight.dtype.is_floating_point:
        return NotImplemented
    work = torch.float32 if weight.dtype in _HALVES else weight.dtype
    rows = weight.index_select(0, indices)  # where no negative index wraps
    if per_sample_weights is not None:
        rows = rows.to(work) * per_sample_weights.to(work)[:, None]
    length = _stride_of(offsets)
    if length and length * bags == count:
        rows, named = rows.reshape(bags, length, -1), indices.reshape(bags, length)
        member = torch.ones_like(named, dtype=torch.bool)
        of_each = torch.arange(bags, device=weight.device)[:, None].expand(bags, length).reshape(-1)
    else:
        if bags * rows.numel() > MOST_COMPARISONS:
            return NotImplemented
        places = torch.arange(count, device=weight.device)
        ends = offsets[1:] if include_last_offset else torch.nn.functional.pad(offsets[1:], [0, 1], value=count)
        member = (places >= offsets[:bags, None]) & (places < ends[:, None])
        of_each = (places[:, None] >= offsets[:bags]).sum(1) - 1
        rows, named = rows.expand(bags, *rows.shape), indices.expand(bags, count)
    if padding_idx >= 0:
        member = member & (named != padding_idx)
    sizes = member.sum(1)
    if mode == _MAX:
        folded, largest = _largest(rows, named, member, sizes)
        return folded, of_each, sizes, largest
    total = torch.where(member[..., None], rows.to(work), torch.zeros((), dtype=work, device=weight.device)).sum(1)
    if mode == _MEAN:
        return (total / sizes.clamp(min=1)[:, None]).to(weight.dtype), of_each, sizes, sizes
    return total.to(weight.dtype), of_each.new_empty(0), torch.zeros_like(sizes), torch.zeros_like(sizes)


def _largest(rows: torch.Tensor, named: torch.Tensor, member: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest values [bags, width] of the members, 0 without one, and the indices that they come from."""
    least = torch.full((), -math.inf, dtype=rows.dtype, device=rows.device)
    value, place = torch.where(member[..., None], rows, least).max(1)
    some = (sizes > 0)[:, None]
    zero = torch.zeros((), dtype=rows.dtype, device=rows.device)
    return torch.where(some, value, zero), torch.where(some, named.gather(1, place), 0)


def grouped_mm(
    x: torch.Tensor,
    weights: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Rows [rows, k] times the matrix of their group, of [groups, k, n]: group g has the rows from offs[g - 1] up to offs[g].

    Every row is multiplied with every matrix, as the groups are data. Rows behind the last group are 0.
    """
    if offs is None or bias is not None or x.dim() != 2 or weights.dim() != 3 or out_dtype not in (None, x.dtype):
        return NotImplemented
    groups, rows = weights.shape[0], x.shape[0]
    if groups * rows * weights.shape[2] > MOST_COMPARISONS:
        return NotImplemented
    places = torch.arange(rows, device=x.device)
    starts = torch.nn.functional.pad(offs[:-1], [1, 0])
    member = (places >= starts[:, None]) & (places < offs[:, None])
    products = torch.bmm(x.expand(groups, *x.shape), weights)
    return torch.where(member[..., None], products, torch.zeros((), dtype=products.dtype, device=x.device)).sum(0, dtype=products.dtype)


def histogram(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """`histc`: how many elements lie in each of `bins` equal parts of [min, max]; the last one has its end, the rest is left out."""
    if not min < max or x.numel() == 0 or bins * x.numel() > MOST_COMPARISONS:
        return NotImplemented
    flat = x.reshape(-1)
    inside = (flat >= min) & (flat <= max)
    part = torch.where(inside, (flat - min) * bins / (max - min), -1.0).to(torch.int32).clamp(max=bins - 1)
    return (part[:, None] == torch.arange(bins, device=x.device)).sum(0).to(x.dtype)


def max_unpool(x: torch.Tensor, indices: torch.Tensor, output_size: list[int], *_: Any) -> Any:
    """Each value at its place of a plane of zeros, planes being the last dims; a place outside of its plane is none."""
    planes, size = x.shape[: -len(output_size)], math.prod(output_size)
    if indices.dtype != torch.int64 or indices.shape != x.shape or not x.numel() or not size:
        return NotImplemented
    count = math.prod(planes)
    return x.new_zeros(count, size).scatter(1, indices.reshape(count, -1), x.reshape(count, -1)).reshape(*planes, *output_size)


def _among_numbers(isin: Callable[..., Any]) -> Callable[..., Any]:
    """`isin` by places in a sorted list, among which a NaN would count for less than any number: another member stands for it."""

    def members(elements: Any, test_elements: torch.Tensor, *, assume_unique: bool = False, invert: bool = False) -> Any:
        if not test_elements.is_floating_point() or not test_elements.numel():
            return isin(elements, test_elements, assume_unique=assume_unique, invert=invert)
        none = test_elements.isnan()
        least = torch.where(none, torch.full((), math.inf, dtype=test_elements.dtype, device=none.device), test_elements).amin()
        found = isin(elements, torch.where(none, least, test_elements)) & none.logical_not().any()
        return found.logical_not() if invert else found

    return members


DECOMPOSITIONS: dict[Any, Any] = {
    **{op: _among_numbers(isin) for op, isin in get_decompositions([aten.isin.Tensor_Tensor, aten.isin.Scalar_Tensor]).items()},
    **dict.fromkeys((aten.max_unpool2d.default, aten.max_unpool3d.default), max_unpool),
    **dict.fromkeys((aten._embedding_bag.default, aten._embedding_bag_forward_only.default), embedding_bag),
    aten._grouped_mm.default: grouped_mm,
    aten.histc.default: histogram,
}
"""Added to those of `decompositions`; NotImplemented leaves an operator as it is."""


def of_libraries() -> dict[Any, Any]:
    """Decompositions of operators that other packages have registered by now."""
    fallback = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    return {fallback.default: grouped_mm} if fallback is not None else {}
