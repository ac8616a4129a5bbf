"""Operators as simpler ones, so that they arrive as loops: attention as two matmuls and a softmax, and many more."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._decomp import get_decompositions
from torch._decomp.decompositions import col2im, native_dropout

from ktir.lowering.inductor.graph.formulas import convolutions, functions, pooling, quantized, sequences, windows
from ktir.lowering.inductor.graph.formulas.sequences import HALVES as _HALVES
from ktir.lowering.inductor.graph.formulas.sequences import MOST_COMPARISONS

aten = torch.ops.aten


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


def fold(
    x: torch.Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Any:
    """Windows that overlap are summed: one term for each place in them, never an addition to memory that several windows share."""
    along = list(zip(output_size, kernel_size, dilation, padding, stride, strict=True))
    lengths = [1 + (o + 2 * p - d * (k - 1) - 1) // s for o, k, d, p, s in along]
    apart = all(s >= d * (k - 1) + 1 for _, k, d, _, s in along)
    if apart or math.prod(kernel_size) > _MOST_TERMS or x.dtype == torch.bool or x.numel() == 0:
        return col2im(x, output_size, kernel_size, dilation, padding, stride)
    terms = x.reshape(*x.shape[:-2], -1, *kernel_size, *lengths).to(torch.float32 if x.dtype in _HALVES else x.dtype)
    if x.dim() == 2:
        terms = terms[None]
    total = None
    for place in itertools.product(*map(range, kernel_size)):
        term = convolutions.spread(terms[:, :, place[0], place[1]], stride)
        low = [k * d - p for k, d, p in zip(place, dilation, padding, strict=True)]
        pads = [(start, o - start - n) for start, o, n in zip(low, output_size, term.shape[2:], strict=True)]
        term = torch.nn.functional.pad(term, [n for pair in reversed(pads) for n in pair])
        total = term if total is None else total + term
    assert total is not None
    return (total if x.dim() == 3 else total[0]).to(x.dtype)


def floor_division(a: Any, b: Any) -> torch.Tensor:
    """`a // b`."""
    return torch.div(a, b, rounding_mode="floor")


def wide(decomposition: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A decomposition of a pointwise operator that works in float32 where its operands are of half precision, as PyTorch's kernel does.

    A step of half precision would be rounded wherever Inductor keeps its result in memory.
    """

    @functools.wraps(decomposition)
    def run(*operands: Any, **options: Any) -> torch.Tensor:
        kinds = {x.dtype for x in operands if isinstance(x, torch.Tensor)}
        if len(kinds) != 1 or not kinds <= set(_HALVES):
            return decomposition(*operands, **options)
        (kind,) = kinds
        return decomposition(*(x.float() if isinstance(x, torch.Tensor) else x for x in operands), **options).to(kind)

    return run


@wide
def trilinear(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    sums: Sequence[int],
    unrolled: int = 1,
) -> torch.Tensor:
    """Products of three, each with new dims where it is told, summed over dims; what `nn.Bilinear` computes."""
    for dim in sorted(expand_a):
        a = a.unsqueeze(dim)
    for dim in sorted(expand_b):
        b = b.unsqueeze(dim)
    for dim in sorted(expand_c):
        c = c.unsqueeze(dim)
    return (a * b * c).sum(list(sums)) if sums else a * b * c


@wide
def plus_product(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """`addcmul` in the order of PyTorch's kernel for the host, which decides about what overflows."""
    x, a, b = _in_one_type(x, a, b)
    return x + (a if value == 1 else a * _of_type(value, a)) * b


@wide
def plus_quotient(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """`addcdiv` in the order of PyTorch's kernel for the host."""
    x, a, b = _in_one_type(x, a, b)
    return x + (a if value == 1 else a * _of_type(value, a)) / b


def _of_weight(lerp: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`lerp` by a number, of which PyTorch takes 1 away as float32 has it."""

    def run(start: torch.Tensor, end: torch.Tensor, weight: Any) -> torch.Tensor:
        if type(weight) is float and start.dtype != torch.float64:
            with np.errstate(over="ignore"):
                weight = float(np.float32(weight))
        return lerp(start, end, weight)

    return run


def _in_one_type(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Operands in the type that all three have together, in which PyTorch's kernels compute from the start."""
    dtype = torch.result_type(torch.empty_like(x, device="meta") + torch.empty_like(a, device="meta"), b)
    return x.to(dtype), a.to(dtype), b.to(dtype)


def _of_type(value: float, x: torch.Tensor) -> float:
    """A factor as a kernel of whole numbers has it."""
    return value if x.is_floating_point() or x.is_complex() else int(value)


def searchsorted(
    boundaries: torch.Tensor, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Any = None
) -> Any:
    """With a `sorter`: among boundaries that are put in order first."""
    if sorter is None:
        return NotImplemented
    return torch.searchsorted(boundaries.gather(-1, sorter), values, out_int32=out_int32, right=right, side=side)


def distances(a: torch.Tensor, b: torch.Tensor, p: float, compute_mode: int | None) -> Any:
    """`cdist`: the norms of all differences of rows, never by a matmul."""
    if 0 in (*a.shape, *b.shape):
        return NotImplemented
    return torch.linalg.vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, -1)


def pair_distances(x: torch.Tensor, p: float = 2) -> torch.Tensor:
    """`pdist`: the norms of the differences of all pairs of rows."""
    first, second = torch.triu_indices(x.shape[0], x.shape[0], 1, device=x.device)
    return torch.linalg.vector_norm(x[first] - x[second], p, -1)


def _triangle(upper: bool) -> Callable[..., Any]:
    """`tril_indices` or `triu_indices` as a constant: the sizes are known, and the general form takes square roots in float64."""

    def indices(
        rows: int,
        columns: int,
        offset: int = 0,
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> Any:
        if any(not isinstance(n, int) for n in (rows, columns, offset)) or rows * columns > _MOST_ENTRIES:
            return NotImplemented
        inside = [(r, c) for r in range(rows) for c in range(columns) if (c - r >= offset if upper else c - r <= offset)]
        both = [[pair[k] for pair in inside] for k in range(2)]
        return torch.tensor(both, dtype=dtype or torch.int64, device=device)

    return indices


def _named(index: torch.Tensor, size: int) -> Any:
    """The same indices, looked up in a table of all that are legal: the load finds one that is not, as a comparison never would."""
    once = index[tuple(slice(0, 1 if step == 0 else None) for step in index.stride())]  # what is spread is looked up before
    # of two dims, for Inductor turns a short constant of one dim into comparisons
    table = torch.tensor([range(size)], dtype=index.dtype, device=index.device).reshape(-1)
    return aten.index.Tensor(table, [torch.where(once < 0, size, once)]).expand(index.shape)


def adaptive_average(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    """Adaptive pooling of volumes, first of the depths, then of the planes; f32 in between."""
    if 0 in (x.numel(), *output_size):
        return x.new_empty([*x.shape[:-3], *output_size])
    *outer, depth, height, width = x.shape
    work = x.to(torch.float32) if x.dtype in _HALVES else x
    work = aten._adaptive_avg_pool2d(work.reshape(-1, depth, height * width), [output_size[0], height * width])
    work = aten._adaptive_avg_pool2d(work.reshape(-1, height, width), list(output_size[1:]))
    return work.reshape(*outer, *output_size).to(x.dtype)


_MOST_TERMS = 64
_MOST_ENTRIES = 1 << 16
"""Of a matrix whose triangle becomes a constant of the program."""


def scatter_reduce(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """Each element from all that are scattered to it, found by comparing every index with every position: no order plays a part.

    `sum` is left to Inductor, whose accumulating store we have.
    """
    if reduce == "sum" or x.dtype == torch.bool:
        return NotImplemented
    if index.numel() == 0:
        return x.clone()
    if x.dim() == 0:
        return scatter_reduce(x.reshape(1), 0, index.reshape(1), src.reshape(1), reduce, include_self=include_self).reshape(())
    if x.numel() * index.shape[dim] > MOST_COMPARISONS:
        return NotImplemented
    dim %= x.dim()
    index = _named(index, x.shape[dim])
    src = src[tuple(slice(n) for n in index.shape)]
    room = [0 if k == dim else x.shape[k] - index.shape[k] for k in range(x.dim())]
    pads = [n for r in reversed(room) for n in (0, r)]
    if any(room):  # where nothing is scattered to, no index fits
        index, src = (torch.nn.functional.pad(t, pads, value=v) for t, v in ((index, -1), (src, 0)))
    positions = torch.arange(x.shape[dim], device=x.device).reshape(-1, *[1] * (x.dim() - dim))
    hits = index.unsqueeze(dim) == positions
    return _folded(x, hits, src.unsqueeze(dim), dim + 1, reduce, include_self)


def _folded(x: torch.Tensor, hits: torch.Tensor, src: torch.Tensor, along: int, reduce: str, include_self: bool) -> torch.Tensor:
    """`x` and what of `src` hits each of its elements as one value."""
    work = torch.float32 if x.dtype in _HALVES else x.dtype
    own, src = x.to(work), src.to(work)
    limits = torch.finfo(work) if work.is_floating_point else torch.iinfo(work)
    least, most = (-math.inf, math.inf) if work.is_floating_point else (limits.min, limits.max)
    identity = {"prod": 1, "mean": 0, "amax": least, "amin": most}[reduce]
    chosen = torch.where(hits, src, torch.full((), identity, dtype=work, device=x.device))
    hit = hits.any(along)
    if not include_self:
        own = torch.where(hit, torch.full((), identity, dtype=work, device=x.device), own)
    match reduce:
        case "prod":
            result = own * chosen.prod(along, dtype=work)
        case "amax":
            result = torch.maximum(own, chosen.amax(along))
        case "amin":
            result = torch.minimum(own, chosen.amin(along))
        case _:
            count = (hits.sum(along) + int(include_self)).clamp(min=1)
            total = own + chosen.sum(along, dtype=work)
            result = total / count if work.is_floating_point else torch.div(total, count, rounding_mode="floor").to(work)
    return torch.where(hit, result, x.to(work)).to(x.dtype)


def index_reduce(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """As `scatter_reduce`, with whole slices."""
    shape = [1] * x.dim()
    if shape:
        shape[dim] = -1
    return scatter_reduce(x, dim, index.reshape(shape).expand(src.shape), src, reduce, include_self=include_self)


def _spread_along(index: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The indices of slices along a dim, for each element of the slices: what takes indices of elements lets no negative one wrap."""
    shape = [1] * x.dim()
    shape[dim] = -1
    return index.reshape(shape).expand([index.numel() if k == dim % x.dim() else n for k, n in enumerate(x.shape)])


def index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    """Slices along a dim; of a number, the number."""
    if x.dim() == 0:
        return index_select(x.reshape(1), 0, index.reshape(1)).reshape(()) if index.numel() == 1 else NotImplemented
    return x.gather(dim, _spread_along(index, x, dim))


def index_add(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, *, alpha: float = 1) -> Any:
    """Slices added along a dim."""
    if x.dtype == torch.bool or (x.dim() == 0 and not index.numel() == src.numel() == 1):
        return NotImplemented
    if x.dim() == 0:
        return index_add(x.reshape(1), 0, index.reshape(1), src.reshape(1), alpha=alpha).reshape(())
    return x.scatter_add(dim, _spread_along(index, x, dim), src if alpha == 1 else src * alpha)


def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> Any:
    """Slices written along a dim, as `index_put` does, which Inductor makes in place; there a negative index would wrap."""
    if x.dim() == 0:
        alike = index.numel() == src.numel() == 1
        return index_copy(x.reshape(1), 0, index.reshape(1), src.reshape(1)).reshape(()) if alike else NotImplemented
    dim %= x.dim()
    return aten.index_put(x, [*(None,) * dim, torch.where(index < 0, x.shape[dim], index).reshape(-1)], src)


def index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    """Slices of one value along a dim; a negative index counts from the end, as in `index_put`."""
    flat = x if x.dim() else x.reshape(1)
    number = value.to(x.dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=x.dtype, device=x.device)
    return aten.index_put(flat, [*(None,) * (dim % flat.dim()), index.reshape(-1)], number).reshape(x.shape)


def scatter_multiply(x: torch.Tensor, dim: int, index: torch.Tensor, src: Any, *, reduce: str) -> Any:
    """`scatter` with reduce="multiply"."""
    if reduce != "multiply":
        return NotImplemented
    values = src if isinstance(src, torch.Tensor) else torch.full_like(index, src, dtype=x.dtype)
    return scatter_reduce(x, dim, index, values, "prod")


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


def renormed(weight: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float) -> Any:
    """`embedding_renorm`: rows that are looked up, each of which is at most so long afterwards."""
    rows = weight.shape[0]
    if weight.dim() != 2 or 0 in (*weight.shape, indices.numel()) or indices.numel() * rows > MOST_COMPARISONS:
        return NotImplemented
    used = (_named(indices.reshape(-1), rows)[:, None] == torch.arange(rows, device=weight.device)).any(0)[:, None]
    wide = weight.to(torch.float32) if weight.dtype in _HALVES else weight
    norm = torch.linalg.vector_norm(wide, norm_type, -1, keepdim=True)
    norm = norm.to(weight.dtype).to(wide.dtype)  # PyTorch's kernel has it in the type of the weights
    return torch.where(used & (norm > max_norm), wide * (max_norm / (norm + 1e-7)), wide).to(weight.dtype)


def looked_up(weight: torch.Tensor, indices: torch.Tensor, padding: int = -1, scale: bool = False, sparse: bool = False) -> Any:
    """`embedding` without the word that its gradients be sparse, which Inductor leaves to ATen."""
    return aten.embedding.default(weight, indices, padding, scale) if sparse else NotImplemented


def any_of(x: torch.Tensor, *where: Any, **options: Any) -> Any:
    """`any`, whose result has dtype uint8 for that dtype alone. Over no dims, which PyTorch's decompositions take for all, it is of one
    element each; `all` is made of it.
    """
    dims = where[0] if where else options.get("dim")
    if isinstance(dims, Sequence) and not dims:
        return torch.ne(x, 0).to(torch.uint8 if x.dtype == torch.uint8 else torch.bool)
    return torch.any(x.to(torch.bool), *where, **options).to(torch.uint8) if x.dtype == torch.uint8 else NotImplemented


def _of_bools(combined: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """An extreme of bools; over no dims it is one over all of them, other than that of `any` and `all`."""

    def extreme(x: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        return combined(x, [*dim] or [*range(x.dim())], keepdim=keepdim) if x.dtype == torch.bool else NotImplemented

    return extreme


def dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """Where everything is dropped: products with 0, as PyTorch's kernel computes them, of NaN and infinities too."""
    if not train or p != 1:
        return native_dropout(x, p, train)
    return x * torch.zeros((), dtype=x.dtype, device=x.device), torch.zeros_like(x, dtype=torch.bool)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.native_dropout.default: dropout,
    aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    aten.col2im.default: fold,
    aten.addcdiv.default: plus_quotient,
    aten.addcmul.default: plus_product,
    **{op: wide(_of_weight(lerp)) for op, lerp in get_decompositions([aten.lerp.Scalar, aten.lerp.Tensor]).items()},
    **dict.fromkeys((aten.floor_divide.default, aten.floor_divide.Scalar), floor_division),
    aten._trilinear.default: trilinear,
    aten._adaptive_avg_pool3d.default: adaptive_average,
    aten._cdist_forward.default: distances,
    aten._pdist_forward.default: pair_distances,
    aten.index_reduce.default: index_reduce,
    aten.index_select.default: index_select,
    aten.index_add.default: index_add,
    aten.index_copy.default: index_copy,
    **dict.fromkeys((aten.index_fill.int_Scalar, aten.index_fill.int_Tensor), index_fill),
    aten._index_put_impl.default: lambda x, indices, values, accumulate=False, unsafe=False: aten.index_put(x, indices, values, accumulate),
    aten.scatter_reduce.two: scatter_reduce,
    **dict.fromkeys((aten.scatter.reduce, aten.scatter.value_reduce), scatter_multiply),
    aten.searchsorted.Tensor: searchsorted,
    aten.tril_indices.default: _triangle(upper=False),
    aten.triu_indices.default: _triangle(upper=True),
    aten.median.default: median,
    aten.median.dim: median_along,
    **dict.fromkeys((aten.any.default, aten.any.dim, aten.any.dims), any_of),
    aten.amax.default: _of_bools(torch.any),
    aten.amin.default: _of_bools(torch.all),
    aten.embedding_renorm.default: renormed,
    aten.embedding.default: looked_up,
    **functions.DECOMPOSITIONS,
    **sequences.DECOMPOSITIONS,
    **windows.DECOMPOSITIONS,
    **quantized.DECOMPOSITIONS,
    **convolutions.DECOMPOSITIONS,
    **pooling.DECOMPOSITIONS,
}
"""Added to Inductor's table; a function that returns NotImplemented leaves its operator as it is."""
