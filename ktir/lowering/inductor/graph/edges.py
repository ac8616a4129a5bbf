"""Operators that at the edges of a type give what eager PyTorch gives: signs of zeros, no infinity on the way to a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._refs import native_layer_norm

aten = torch.ops.aten

_WIDE = (torch.float32, torch.bfloat16)
"""Types whose squares float32 does not hold."""


def _as_its_type(number: float, x: torch.Tensor) -> torch.Tensor:
    """A number as the type of a tensor holds it: one that is tiny to the type is zero."""
    return torch.full((), number, dtype=x.dtype, device=x.device)


def _bound(beyond: Callable[[Any, Any], Any], inner: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`clamp_min` or `clamp_max` by a number, which gives the element where the two are equal: of zeros of either sign that one, too. The
    larger (`inner`: or smaller) one does not tell which zero it gives, but takes one instruction.
    """

    def clamped(x: torch.Tensor, limit: Any) -> Any:
        if not x.is_floating_point() or not isinstance(limit, int | float) or math.isnan(limit):
            return NotImplemented
        bound = _as_its_type(limit, x)
        return inner(x, bound) if abs(limit) >= torch.finfo(x.dtype).tiny else torch.where(beyond(x, bound), bound, x)

    return clamped


_AT_LEAST, _AT_MOST = _bound(torch.lt, torch.maximum), _bound(torch.gt, torch.minimum)


def _between(x: torch.Tensor, low: Any = None, high: Any = None) -> Any:
    """`clamp`: one limit after the other. Where one is NaN PyTorch does not look at the other, which the type may not hold."""
    if x.is_floating_point() and any(isinstance(limit, float) and math.isnan(limit) for limit in (low, high)):
        return torch.full_like(x, math.nan)
    for limit, bound in ((low, _AT_LEAST), (high, _AT_MOST)):
        x = x if limit is None or x is NotImplemented else bound(x, limit)
    return x


def _threshold(x: torch.Tensor, limit: Any, value: Any) -> Any:
    """What is not beyond the limit becomes the value, both as the type holds them."""
    if not x.is_floating_point() or not all(isinstance(n, int | float) for n in (limit, value)):
        return NotImplemented
    return torch.where(x <= _as_its_type(limit, x), _as_its_type(value, x), x)


def _of_its_type(form: Any) -> Callable[..., Any]:
    """An operator on a tensor and a number, as that on two tensors of one type."""

    def run(a: Any, b: Any) -> Any:
        tensor, number = (a, b) if isinstance(a, torch.Tensor) else (b, a)
        if not tensor.is_floating_point() or not isinstance(number, int | float):
            return NotImplemented
        if tensor.dtype == torch.float32:
            with np.errstate(over="ignore"):
                number = float(np.float32(number))  # what is beyond the type is infinite: `full` refuses it
        return form(*(x if x is tensor else _as_its_type(number, tensor) for x in (a, b)))

    return run


def _of_two(beyond: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """`fmax` or `fmin`: no NaN where there is a number, of equal ones the first."""
    return lambda x, y: torch.where(torch.isnan(x) | beyond(y, x), y, x)


def difference(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    """`sub` without the other operand: PyTorch's kernel adds its product with the negative number, and an integer 0 has no sign."""
    return x + y * 0 if alpha == 0 and isinstance(alpha, int) else NotImplemented


def matrix_vector(x: torch.Tensor, matrix: torch.Tensor, vector: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """`addmv` with alpha = 0, where BLAS leaves the product out."""
    return torch.addmm(x[..., None], matrix, vector[:, None], beta=beta, alpha=alpha).squeeze(-1) if alpha == 0 else NotImplemented


def layer_norm(x: torch.Tensor, shape: list[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> Any:
    """Without a bias PyTorch's kernel adds 0, so that no zero is negative."""
    result, mean, scale = native_layer_norm(x, shape, weight, bias, eps)
    return (result if bias is not None else result + 0.0), mean, scale


def _widened(norm: Any) -> Callable[..., Any]:
    """A norm of narrower numbers than its weights or running statistics are: PyTorch's kernel gives the statistics in the type of these,
    which its gradient asks for.
    """

    def wide(x: torch.Tensor, *rest: Any) -> Any:
        of_weights = next((r.dtype for r in rest if isinstance(r, torch.Tensor)), x.dtype)
        if of_weights == x.dtype:
            return NotImplemented
        result, *others = norm(x.to(of_weights), *rest)
        return result.to(x.dtype), *others

    return wide


def variance(x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    """`var`, of numbers up to 1, multiplied by the power of two that they were divided by."""
    found = _scaled_variance(x, dim, correction, keepdim)
    if found is None:
        return NotImplemented
    scaled, unit = found
    return (scaled * unit * unit).to(x.dtype)


def deviation(x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    """`std`, likewise."""
    found = _scaled_variance(x, dim, correction, keepdim)
    if found is None:
        return NotImplemented
    scaled, unit = found
    return (torch.sqrt(scaled) * unit).to(x.dtype)


def _scaled_variance(x: torch.Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool) -> Any:
    """The variance of numbers divided by a power of two near the largest magnitude, and that power."""
    if x.dtype not in _WIDE or x.numel() == 0 or x.dim() == 0:
        return None
    dims = sorted({d % x.dim() for d in dim}) if dim else list(range(x.dim()))
    work, count = x.to(torch.float32), math.prod(x.shape[d] for d in dims)
    exponent = torch.floor(torch.log2(work.abs().amax(dims, keepdim=True))).clamp(-126, 126)
    work = work * torch.exp2(-exponent)
    apart = work - work.sum(dims, keepdim=True) / count
    rest = max(count - (1 if correction is None else correction), 0)
    squares = (apart * apart).sum(dims, keepdim=keepdim)
    unit = torch.exp2(exponent)
    return squares / rest, unit if keepdim else unit.squeeze(dims)


def before(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """The decompositions of this page; where one returns NotImplemented, that of `table` if there is one, else none."""
    own = {op: _tried_before(own, table[op]) if op in table else own for op, own in _OWN.items()}
    return {**own, **{op: _tried_before(_widened(op), {**table, **own}[op]) for op in _NORMS}}


def _tried_before(own: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **options: Any) -> Any:
        result = own(*args, **options)
        return other(*args, **options) if result is NotImplemented else result

    return run


_OWN: dict[Any, Callable[..., Any]] = {
    aten.clamp.default: _between,
    aten.hardtanh.default: lambda x, low=-1.0, high=1.0: _between(x, low, high),
    aten.threshold.default: _threshold,
    aten.xlogy.Scalar_Self: _of_its_type(aten.xlogy.Tensor),
    aten.xlogy.Scalar_Other: _of_its_type(aten.xlogy.Tensor),
    aten.clamp_min.default: _AT_LEAST,
    aten.clamp_max.default: _AT_MOST,
    aten.fmax.default: _of_two(torch.gt),
    aten.fmin.default: _of_two(torch.lt),
    aten.addmv.default: matrix_vector,
    aten.add.Scalar: lambda x, number, alpha=1: torch.add(x, number, alpha=alpha),
    aten.sub.Scalar: lambda x, number, alpha=1: torch.sub(x, number, alpha=alpha),
    aten.sub.Tensor: difference,
    aten.rsub.Tensor: lambda x, y, *, alpha=1: difference(y, x, alpha=alpha),
    aten.native_layer_norm.default: layer_norm,
    aten.var.correction: variance,
    aten.std.correction: deviation,
}

_NORMS = (
    aten.native_batch_norm.default,
    aten._native_batch_norm_legit.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit_no_training.default,
    aten._batch_norm_with_update.default,
    aten._batch_norm_with_update_functional.default,
    aten._batch_norm_no_update.default,
    aten.native_group_norm.default,
    aten.native_layer_norm.default,
)
