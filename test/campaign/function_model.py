"""What the result of a program of floating-point operators may be: a value in float64, and by how much each element may differ from it.

The value is that of eager PyTorch on float64 operands. An error is propagated to first order or as an interval, by a rule that belongs to
the operator, and each result adds its own: that of computing it (in float32 for the half types) and that of rounding it to its type. An
error of infinity means that the element may be anything: it is not judged. Integers have the value that eager PyTorch gives in their own
type, and the error 0 or infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24, torch.float64: 2.0**-52}
"""The largest relative error of one rounding; for float64 twice that, since the oracle rounds too."""
FLOOR = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134, torch.float32: 2.0**-148, torch.float64: 2.0**-1074}
"""The largest absolute error of one rounding among the subnormals; of float32, in which it is computed too, that of several."""
INF = float("inf")
_LARGE = 1e150
"""Stands for infinity in sums of products, where 0 times it is 0."""


@dataclass
class Bounded:
    """A tensor of a program: `value` in float64 (integers and bool in their own type), `error` the bound by element."""

    value: Tensor
    error: Tensor
    wide: Tensor | None = None
    """The value before it was rounded to its type."""
    kind: torch.dtype | None = None
    """The type of the tensor, where it is one of the program."""

    @property
    def low(self) -> Tensor:
        return self.value - self.error

    @property
    def high(self) -> Tensor:
        return self.value + self.error

    @property
    def magnitude(self) -> Tensor:
        return self.value.abs() + self.error


def exactly(value: Tensor) -> Bounded:
    """A tensor without error: an input, or a result that we gave ourselves and that is judged already."""
    value = value.detach().clone()
    wide = value.double() if value.is_floating_point() else value
    return Bounded(wide, torch.zeros(value.shape, dtype=torch.float64), kind=value.dtype)


def number(value: float, dtype: torch.dtype) -> Bounded:
    """A Python number as it takes part in arithmetic of a type; beside the half types some kernels keep it in float32."""
    wide = torch.tensor(float(value), dtype=torch.float64)
    return Bounded(wide, torch.nan_to_num((wide.to(dtype).double() - wide).abs()))


def converted(x: Bounded, dtype: torch.dtype) -> Bounded:
    """An operand in float64 for an operator whose result is of `dtype`, to which PyTorch converts it first."""
    if x.value.dtype == torch.float64 and (x.kind is None or torch.promote_types(x.kind, dtype) == dtype):
        return x
    wide = x.value.double()
    return Bounded(wide, x.error + torch.where(wide.to(dtype).double() == wide, 0.0, UNIT[dtype] * wide.abs()))


def compute_unit(dtype: torch.dtype) -> float:
    """One rounding of the type in which an operator computes results of `dtype`."""
    return UNIT[torch.float64 if dtype == torch.float64 else torch.float32]


def rounded(value: Tensor, error: Tensor, dtype: torch.dtype, *, unrounded: bool = False) -> Bounded:
    """A result of `dtype` that was computed up to `error`. Where that is 0 the distance of the rounding is known. An element that may be
    beyond the largest number of the type may be anything, unless it surely is: then it is an infinity."""
    most = torch.finfo(dtype).max
    unsure = torch.isnan(error) & torch.isfinite(value)
    error = torch.where(unsure, INF, torch.nan_to_num(error, nan=0.0, posinf=INF))
    nearest = value.to(dtype).double()
    known = torch.maximum((nearest - value).abs(), (value.float().to(dtype).double() - value).abs() if dtype != torch.float64 else error)
    margin = torch.where(error == 0, torch.nan_to_num(known, nan=0.0, posinf=0.0), UNIT[dtype] * (value.abs() + error) + FLOOR[dtype])
    if unrounded:
        margin = torch.zeros_like(margin)
    margin = torch.where(torch.isfinite(value), margin, 0.0)
    edge = most * (1 + UNIT[dtype])
    surely = torch.isfinite(value) & (value.abs() - error >= edge)
    maybe = torch.isfinite(value) & ~surely & (value.abs() + error + margin > most) & ~((error == 0) & torch.isfinite(nearest))
    value = torch.where(surely, torch.copysign(torch.tensor(INF, dtype=torch.float64), value), value)
    total = torch.where(surely, 0.0, torch.where(maybe, INF, (error + margin) * (1 + 1e-9)))
    return Bounded(value, total)


def forget_overflow(x: Bounded) -> Bounded:
    """For readers within the program: what overflows in the type may have stayed a number, since one reader may see it unrounded."""
    return x if x.wide is None else replace(x, error=torch.where(torch.isinf(x.value) & torch.isfinite(x.wide), INF, x.error))


def wrong(got: Tensor, wanted: Bounded) -> Tensor:
    """Where a result is outside of what it may be."""
    if not got.is_floating_point():
        return (got != wanted.value) & torch.isfinite(wanted.error)
    mine, value, error = got.double(), wanted.value, wanted.error
    same = (mine == value) | (torch.isnan(mine) & torch.isnan(value))
    close = torch.isfinite(mine) & torch.isfinite(value) & ((mine - value).abs() <= error)
    return ~(same | close | torch.isinf(error))


# ------------------------------------------------------------------------------------------------- rules: the error of computing a result

Apply = Callable[..., Tensor]
"""An operator on tensors in float64."""


def moved(apply: Apply, *xs: Bounded) -> Tensor:
    """Elements change their places: so do their errors."""
    return apply(*(x.error for x in xs))


def monotone(apply: Apply, x: Bounded) -> Tensor:
    """By the ends of the interval of the operand. Where the operand may be anything or an end is no number, anything."""
    low, value, high = apply(x.low), apply(x.value), apply(x.high)
    apart = torch.maximum((low - value).abs(), (high - value).abs())
    unsure = ~torch.isfinite(value) & (torch.isfinite(low) | torch.isfinite(high) | (torch.isnan(low) != torch.isnan(high)))
    return torch.where(x.error == 0, torch.zeros_like(value), torch.where(unsure | torch.isinf(x.error), INF, apart))


def lipschitz(constant: float) -> Callable[[Apply, Bounded], Tensor]:
    """For a function with slopes up to `constant`."""
    return lambda apply, x: x.error * constant


def added(apply: Apply, *xs: Bounded) -> Tensor:
    """Of sums and differences."""
    return sum_of([torch.broadcast_to(x.error, apply(*(y.value for y in xs)).shape) for x in xs])


def sum_of(xs: list[Tensor]) -> Tensor:
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def times(x: Tensor, error: Tensor) -> Tensor:
    """A product with an error: no error has no effect, and what may be anything is so times 0, too."""
    product = torch.where(torch.isinf(error), INF, x * error)
    return torch.where(error == 0, torch.zeros_like(product), product)


def size_of(x: Tensor) -> Tensor:
    """Magnitudes of which roundings are counted: infinities and NaNs are not rounded."""
    return torch.where(torch.isfinite(x), x.abs(), 0.0)


def multiplied(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
    return times(x.value.abs(), y.error) + times(y.value.abs(), x.error) + times(x.error, y.error)


def divided(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
    """By the smallest magnitude of the divisor; a divisor that may be 0 gives anything."""
    least = y.value.abs() - y.error
    error = (x.error + times((x.value / y.value).abs(), y.error)) / least
    error = torch.where(torch.isinf(x.error + y.error), INF, error)
    none = (x.error == 0) & (y.error == 0)
    return torch.where(none, torch.zeros_like(error), torch.where((least > 0).expand_as(error), error, INF))


def largest(apply: Apply, *xs: Bounded) -> Tensor:
    """Of minima, maxima, clamps: no more than the largest error of an operand."""
    error = xs[0].error
    for x in xs[1:]:
        error = torch.maximum(error, x.error)
    return error.expand(apply(*(x.value for x in xs)).shape)


def bilinear(apply: Apply, *xs: Bounded) -> Tensor:
    """Of matmuls and convolutions of the first two operands; what else there is, is added. An infinity times what has an error may be NaN,
    and so may 0 times what may be anything."""
    a, b, *rest = xs
    if not any(x.error.any() for x in xs):
        return apply(*(x.value for x in xs)) * 0
    zeros = [torch.zeros_like(r.value) for r in rest]
    ones = [torch.ones_like(x.value) for x in (a, b)]
    magnitudes = [torch.nan_to_num(x.value.abs(), nan=0.0, posinf=_LARGE) for x in (a, b)]
    errors = [torch.nan_to_num(x.error, nan=_LARGE, posinf=_LARGE) for x in (a, b)]
    total = apply(torch.zeros_like(a.value), torch.zeros_like(b.value), *(r.error for r in rest))
    any_a, any_b = ((e >= _LARGE).double() * _LARGE for e in errors)
    for x, y in ((magnitudes[0], errors[1]), (errors[0], magnitudes[1]), tuple(errors), (any_a, ones[1]), (ones[0], any_b)):
        if x.any() and y.any():
            total = total + apply(x, y, *zeros)
    return torch.where(total < _LARGE**0.5, total, INF)


# ------------------------------------------------------------------------------------------- discontinuous operators: sure, or anything


def unless(unsure: Tensor) -> Tensor:
    """The error of a result without bounds of its own: 0, or anything where it is unsure."""
    return torch.where(unsure, INF, 0.0).double()


def compared(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
    """Sure where the intervals are apart, or both operands are exact."""
    error = x.error + y.error
    near = (x.value.double() - y.value.double()).abs() <= error
    return unless((error > 0) & (near | torch.isinf(error)))


def stepwise(apply: Apply, x: Bounded) -> Tensor:
    """Of roundings to whole numbers, signs and conversions: sure where both ends of the interval give the same."""
    low, high, value = apply(x.low), apply(x.high), apply(x.value)
    same = (low == value) & (high == value)
    return unless((x.error > 0) & ~same)


def remaining(rounding: Callable[[Tensor], Tensor]) -> Callable[[Apply, Bounded, Bounded], Tensor]:
    """Of x - n y, where n is the quotient made whole by `rounding`: sure of n where all corners of the intervals have the same."""

    def rule(apply: Apply, x: Bounded, y: Bounded) -> Tensor:
        n = rounding(x.value / y.value)
        corners = [rounding(a / b * (1 + slack)) for a in (x.low, x.high) for b in (y.low, y.high) for slack in (-1e-15, 1e-15)]
        same = torch.stack([torch.broadcast_to(c == n, n.shape) for c in corners]).all(0)
        known = same & (y.value.abs() > y.error) & (n.abs() < 2**52)
        exact = (x.error + y.error) == 0
        return torch.where(exact, 0.0, torch.where(known, x.error + times(n.abs(), y.error), INF))

    return rule
