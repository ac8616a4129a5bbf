"""Operators with a Python float that changes between calls, as operators on tensors: PyTorch makes only those of sums, products and
comparisons arguments of the graph, and takes any other float for a constant, with a compilation for each value.

A product of a tensor with the float is one that PyTorch knows, so 1 times the float is the tensor that holds it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ktir.lowering.inductor.graph.rounding import NARROW, ROUNDED

aten = torch.ops.aten


def _exact(number: Any) -> torch.Tensor:
    return torch.mul(torch.full((), 1.0, dtype=torch.float64), number)


def held(number: Any, dtype: torch.dtype) -> torch.Tensor:
    """A number as a tensor without dims, rounded to what its type holds."""
    tensor = _exact(number).to(dtype)
    return ROUNDED(tensor) if dtype in NARROW else tensor


def _of_tensors(form: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The operator `form` on two tensors for one with a number in the place of a tensor: both are of the type of the result."""

    def run(a: Any, b: Any) -> torch.Tensor:
        dtype = torch.result_type(a, 1.0) if isinstance(a, torch.Tensor) else torch.result_type(b, 1.0)
        return form(*(x.to(dtype) if isinstance(x, torch.Tensor) else held(x, dtype) for x in (a, b)))

    return run


def _bound(beyond: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A clamp, which gives the element where it equals the limit: of zeros of either sign that one, too. A limit of NaN gives NaN."""
    return lambda x, limit: torch.where(beyond(x, limit) | torch.isnan(limit), limit, x)


def _clamp(x: torch.Tensor, low: Any = None, high: Any = None) -> torch.Tensor:
    for limit, beyond in ((low, torch.lt), (high, torch.gt)):
        x = x if limit is None else _of_tensors(_bound(beyond))(x, limit)
    return x


def _power(x: torch.Tensor, exponent: Any) -> Any:
    if exponent == 0.5 or exponent == -0.5:  # PyTorch takes roots: a guard, and a program for such an exponent
        return NotImplemented
    return _of_tensors(aten.pow.Tensor_Tensor)(x, exponent)


def _quotient(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """A divisor that is one number keeps its digits in half precision."""
    if isinstance(b, torch.Tensor):
        return _of_tensors(functools.partial(aten.div.Tensor_mode, rounding_mode=rounding_mode))(a, b)
    dtype = torch.result_type(a, 1.0)
    return aten.div.Tensor_mode(a.to(dtype), _exact(b).to(dtype), rounding_mode=rounding_mode)


def _scalar(number: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    dtype = dtype or torch.get_default_dtype()
    return held(number, dtype) if dtype.is_floating_point else NotImplemented


def _full(size: Sequence[int], number: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    tensor = _scalar(number, dtype=dtype)
    return tensor if tensor is NotImplemented else tensor.expand(size).clone(memory_format=torch.contiguous_format)


def _sum(a: Any, b: Any, alpha: Any = 1) -> Any:
    """`a + alpha * b`, in half precision of numbers of that type and rounded once, as PyTorch's kernel does it."""
    dtype = torch.result_type(a, b)
    scaled = isinstance(alpha, torch.SymFloat) or alpha != 1
    if dtype not in NARROW and not scaled:
        return NotImplemented
    work = torch.float32 if dtype in NARROW else dtype
    a, b = (x.to(work) if isinstance(x, torch.Tensor) else held(x, dtype).to(work) for x in (a, b))
    return (a + (b * held(alpha, dtype).to(work) if scaled else b)).to(dtype)


def _difference(a: Any, b: Any, alpha: Any = 1) -> Any:
    return _sum(a, b, -alpha)


def _plus_product(product: Any) -> Callable[..., Any]:
    """`addmm` and `baddbmm`: in half precision the product is rounded with the sum. A factor of 0 leaves its term out: a program for it."""

    def run(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
        if beta == 0 or alpha == 0 or not a.is_floating_point():
            return NotImplemented
        work = torch.float32 if a.dtype in NARROW else a.dtype
        made = product.default(a, b) if work == a.dtype else product.dtype(a, b, work)
        return (x.to(work) * _exact(beta).to(work) + made * _exact(alpha).to(work)).to(a.dtype)

    return run


def _scatter(x: torch.Tensor, dim: int, index: torch.Tensor, number: Any) -> Any:
    return aten.scatter.src(x, dim, index, held(number, x.dtype).expand(index.shape)) if x.is_floating_point() else NotImplemented


_COMPARISONS = (aten.gt, aten.ge, aten.lt, aten.le, aten.eq, aten.ne)

_FORMS: dict[Any, Callable[..., Any]] = {
    **{op.Scalar: _of_tensors(op.Tensor) for op in _COMPARISONS},
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _of_tensors(_bound(torch.lt)),
    aten.clamp_max.default: _of_tensors(_bound(torch.gt)),
    aten.fmod.Scalar: _of_tensors(aten.fmod.Tensor),
    aten.remainder.Scalar: _of_tensors(aten.remainder.Tensor),
    aten.remainder.Scalar_Tensor: _of_tensors(aten.remainder.Tensor),
    **dict.fromkeys((aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self), _of_tensors(aten.xlogy.Tensor)),
    aten.addmm.default: _plus_product(aten.mm),
    aten.baddbmm.default: _plus_product(aten.bmm),
    aten.scatter.value: _scatter,
    aten.copysign.Scalar: _of_tensors(aten.copysign.Tensor),
    aten.pow.Tensor_Scalar: _power,
    aten.pow.Scalar: _of_tensors(aten.pow.Tensor_Tensor),
    aten.div.Tensor_mode: _quotient,
    aten.scalar_tensor.default: _scalar,
    aten.full.default: _full,
    aten.add.Tensor: _sum,
    aten.sub.Tensor: _difference,
    aten.rsub.Scalar: lambda x, number, alpha=1: _difference(number, x, alpha),
}


def with_numbers(table: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """A table of decompositions, with the forms for numbers that change."""
    return table | {op: _chosen(form, table.get(op)) for op, form in _FORMS.items()}


def _chosen(form: Callable[..., Any], usual: Callable[..., Any] | None) -> Callable[..., Any]:
    """`form` where a number changes, if it has a result; the usual decomposition, or none, elsewhere."""

    def run(*args: Any, **kwargs: Any) -> Any:
        changes = any(isinstance(x, torch.SymFloat) for x in (*args, *kwargs.values()))
        result = form(*args, **kwargs) if changes else NotImplemented
        return usual(*args, **kwargs) if result is NotImplemented and usual is not None else result

    return run
