"""Operators along a dim as reductions and sorts: what comes of all elements up to each one, medians without NaN, lines of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp.decompositions import one_layer_lstm

aten = torch.ops.aten

HALVES = (torch.float16, torch.bfloat16)
MOST_COMPARISONS = 1 << 24


def _earlier(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Along a new last dim all elements of `x` along `dim`, which comes before it, and which of them are not after each; None where these
    are too many.
    """
    if x.dim() == 0 or x.numel() == 0 or x.numel() * x.shape[dim] > MOST_COMPARISONS or x.dtype == torch.float64:
        return None
    places = torch.arange(x.shape[dim], device=x.device)
    return x.movedim(dim, -1).unsqueeze(-2), places <= places[:, None]


def cumulative_product(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """`cumprod` of floats, in float32 for half precision, as PyTorch's kernel computes it."""
    kind = dtype or x.dtype
    if not kind.is_floating_point or (pairs := _earlier(x.to(torch.float32 if kind in HALVES else kind), dim)) is None:
        return NotImplemented
    others, before = pairs
    return torch.where(before, others, 1.0).prod(-1).movedim(-1, dim).to(kind)


def cumulative_logsumexp(x: torch.Tensor, dim: int) -> Any:
    """`logcumsumexp`."""
    if (pairs := _earlier(x.to(torch.float32 if x.dtype in HALVES else x.dtype), dim)) is None:
        return NotImplemented
    others, before = pairs
    return torch.where(before, others, -math.inf).logsumexp(-1).movedim(-1, dim).to(x.dtype)


def cumulative_extreme(largest: bool) -> Callable[..., Any]:
    """`cummax` or `cummin`: of equal elements, and of NaNs, the place of the last."""

    def extreme(x: torch.Tensor, dim: int) -> Any:
        if not x.is_floating_point() or (pairs := _earlier(x, dim)) is None:
            return NotImplemented
        others, before = pairs
        masked = torch.where(before, others, -math.inf if largest else math.inf)
        best = (masked.amax if largest else masked.amin)(-1, keepdim=True)
        hit = before & ((others == best) | (torch.isnan(others) & torch.isnan(best)))
        place = torch.where(hit, torch.arange(x.shape[dim], device=x.device), 0).amax(-1)
        return best.squeeze(-1).movedim(-1, dim), place.movedim(-1, dim)

    return extreme


def nanmedian(x: torch.Tensor) -> Any:
    """The lower median of what is no NaN."""
    if not x.is_floating_point() or x.numel() == 0:
        return NotImplemented
    return nanmedian_along(x.reshape(-1), 0)[0]


def nanmedian_along(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower median along a dim of what is no NaN, and its place. NaNs sort to the end."""
    if not x.is_floating_point() or (x.dim() and x.shape[dim] == 0):
        return NotImplemented
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, places = torch.sort(x, dim=dim, stable=True)
    middle = ((~torch.isnan(x)).sum(dim, keepdim=True) - 1).clamp(min=0) >> 1
    value, place = values.gather(dim, middle), places.gather(dim, middle)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def before(theirs: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """`linspace` and `logspace` between numbers that are tensors, in front of `theirs`, which compute in float64."""

    def chosen(op: Any, base: float | None) -> Callable[..., Any]:
        def run(start: Any, end: Any, steps: int, base: float | None = base, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
            kind = dtype or torch.get_default_dtype()
            found = _line(start, end, steps, kind)
            if found is NotImplemented:
                return theirs[op](start, end, steps, *(() if base is None else (base,)), dtype=dtype, **options)
            return (found if base is None else torch.pow(base, found)).to(kind)

        return run

    lines, powers = _of_tensors(aten.linspace), _of_tensors(aten.logspace)
    return {op: chosen(op, None if op in lines else 10.0) for op in (*lines, *powers)}


def _line(start: Any, end: Any, steps: int, dtype: torch.dtype) -> Any:
    """From both ends to the middle; in float32 but for float64."""
    ends = [x for x in (start, end) if isinstance(x, torch.Tensor)]
    if not dtype.is_floating_point or any(x.dim() for x in ends) or not isinstance(steps, int) or steps < 1:
        return NotImplemented
    work = torch.float32 if dtype in HALVES else dtype
    first, last = (x.to(work) if isinstance(x, torch.Tensor) else x for x in (start, end))
    places = torch.arange(steps, device=ends[0].device).to(work)
    if steps == 1:
        return first + places
    step = (last - first) / (steps - 1)
    return torch.where(places < steps / 2, first + step * places, last - step * (steps - 1 - places))


def lstm_layer(x: torch.Tensor, *rest: Any) -> Any:
    """`mkldnn_rnn_layer`, as which PyTorch traces a layer of an LSTM of float32 or bfloat16 on the host: its steps."""
    *params, hidden, cell = rest[:6]
    reverse, batch_sizes, mode, _, _, biased, _, _, train = rest[6:]
    if mode != _LSTM or train or batch_sizes:
        return NotImplemented
    state = hidden.squeeze(0), cell.squeeze(0)
    out, (last, kept) = one_layer_lstm(x, state, params if biased else params[:2], biased, reverse)
    return out, last[None], kept[None], torch.empty(0, dtype=torch.uint8, device=x.device)


_LSTM = 2
"""Its number among the kinds of layers."""


def _of_tensors(packet: Any) -> tuple[Any, ...]:
    return packet.Tensor_Tensor, packet.Tensor_Scalar, packet.Scalar_Tensor


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.cumprod.default: cumulative_product,
    aten.logcumsumexp.default: cumulative_logsumexp,
    aten.cummax.default: cumulative_extreme(True),
    aten.cummin.default: cumulative_extreme(False),
    aten.nanmedian.default: nanmedian,
    aten.nanmedian.dim: nanmedian_along,
    aten.mkldnn_rnn_layer.default: lstm_layer,
}
"""See `decompositions.DECOMPOSITIONS`."""
