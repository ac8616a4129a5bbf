"""What a kernel of the language means, computed beside it: numbers in float64 with how far off they may be, and NumPy's types.

What an operation makes of exact numbers is the exact result rounded once, so it has no error; sums of floats and elementary functions
have one, and what is made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from types import SimpleNamespace
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from numpy.typing import NDArray

BF16 = np.dtype(bfloat16)
EPS = {np.dtype(np.float16): 2.0**-11, np.dtype(np.float32): 2.0**-24, BF16: 2.0**-8}
TINY = {np.dtype(np.float16): 2.0**-24, np.dtype(np.float32): 2.0**-149, BF16: 2.0**-133}
MOST = {np.dtype(np.float16): 65504.0, np.dtype(np.float32): float(np.finfo(np.float32).max), BF16: 3.3895313892515355e38}
_ULPS = 8.0
"""Within which NumPy's elementary functions are; the executor's and the chip's are nearer."""


class Known(ValueError):
    """A kernel that the meaning does not say, as one that compares what is not exact."""


class Near:
    """An array of numbers: `value`, of float64 or int64, and per element how far off it may be."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, error: Any, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.value: NDArray[Any] = np.asarray(value, np.float64 if self.dtype in EPS else np.int64)
        self.error = np.broadcast_to(np.asarray(error, np.float64), self.value.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def mapped(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Near:
        """The same numbers at other places."""
        return Near(function(self.value), function(self.error), self.dtype)

    def exact(self) -> NDArray[Any]:
        """The numbers, where none is off."""
        if self.error.any():
            raise Known("takes numbers that are off as exact ones")
        return self.value

    def astype(self, dtype: Any) -> Near:
        dtype = np.dtype(dtype)
        if self.dtype not in EPS or dtype in EPS:
            return rounded(self.value, self.error, dtype)
        if dtype == np.bool_:
            return Near(self.value != 0, 0, dtype)
        cut = np.trunc(self.exact())
        held = np.where(np.abs(cut) < 2.0**63, cut, -(2.0**63))
        return Near(held.astype(np.int64).astype(dtype), 0, dtype)

    def __getitem__(self, key: Any) -> Near:
        key = plain(key)
        return self.mapped(lambda a: a[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        new, key = of(value, self.dtype).astype(self.dtype), plain(key)
        self.value, self.error = self.value.copy(), self.error.copy()
        self.value[key], self.error[key] = new.value, new.error

    def __index__(self) -> int:
        return int(self.exact())

    def __bool__(self) -> bool:
        return bool(self.exact())

    def __neg__(self) -> Near:
        return rounded(-self.value, self.error, self.dtype)


def plain(key: Any) -> Any:
    """A key without numbers of ours."""
    if isinstance(key, tuple):
        return tuple(plain(k) for k in key)
    return key.exact() if isinstance(key, Near) else key


def cast(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Numbers as a type holds them."""
    if dtype in EPS:
        return np.asarray(value, np.float64).astype(dtype).astype(np.float64)
    return np.asarray(value).astype(np.int64).astype(dtype).astype(np.int64)


def rounded(value: Any, error: Any, dtype: Any) -> Near:
    """What is rounded to a type, of numbers that are off by `error`."""
    dtype = np.dtype(dtype)
    if dtype not in EPS:
        return Near(cast(value, dtype), error, dtype)
    value = np.asarray(value, np.float64)
    error = np.broadcast_to(np.asarray(error, np.float64), value.shape)
    off = np.where(error == 0, 0, error + 2 * EPS[dtype] * (np.abs(value) + error) + TINY[dtype])
    off = np.where((error > 0) & (np.abs(value) + error >= MOST[dtype]), np.inf, off)
    return Near(cast(value, dtype), np.where(np.isnan(error), np.inf, off), dtype)


def of(value: Any, like: np.dtype[Any] | None = None) -> Near:
    """A value; a number of Python's takes the type of what it stands with, but a float with bfloat16, which NumPy makes f32 of."""
    if isinstance(value, Near):
        return value
    if isinstance(value, np.ndarray | np.generic):
        found = np.asarray(value)
        return Near(found.astype(np.float64 if found.dtype in EPS else np.int64), 0, found.dtype)
    if like is not None and not isinstance(value, bool) and (like in EPS or isinstance(value, int)):
        own = np.dtype(np.float32) if like == BF16 and isinstance(value, float) else like
        return Near(cast(value, own), 0, own)
    return Near(value, 0, np.asarray(value).dtype)


def both(a: Any, b: Any) -> tuple[Near, Near]:
    """Operands in one type."""
    a = of(a, b.dtype if isinstance(b, Near) else None)
    b = of(b, a.dtype)
    dtype = np.result_type(a.dtype, b.dtype)
    return a.astype(dtype), b.astype(dtype)


def _ordered(choose: Callable[..., Any], x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """An extreme to which -0 is less than 0."""
    zero = np.copysign(0.0, choose(np.copysign(1.0, x), np.copysign(1.0, y)))
    return np.where((x == 0) & (y == 0), zero, choose(x, y))


def combined(kind: str, a: Any, b: Any) -> Near:
    """What an operator makes of two operands."""
    a, b = both(a, b)
    x, y, p, q, dtype = a.value, b.value, a.error, b.error, a.dtype
    if dtype not in EPS:
        names = {"or": "bitwise_or", "and": "bitwise_and", "xor": "bitwise_xor"}
        return Near(cast(getattr(np, names.get(kind, kind))(x, y), dtype), 0, dtype)
    if kind in ("maximum", "minimum"):
        return Near(_ordered(getattr(np, kind), x, y), np.maximum(p, q), dtype)
    value = getattr(np, {"true_divide": "divide"}.get(kind, kind))(x, y)
    if kind in ("add", "subtract"):
        error = p + q
    elif kind == "multiply":
        error = np.where((p == 0) & (q == 0), 0, np.abs(x) * q + np.abs(y) * p + p * q)
    else:
        least = np.abs(y) - q
        error = np.where((p == 0) & (q == 0), 0, np.where(least > 0, (p + np.abs(value) * q) / least, np.inf))
    return rounded(value, error, dtype)


def compared(kind: str, a: Any, b: Any) -> Near:
    a, b = both(a, b)
    return Near(getattr(np, kind)(a.exact(), b.exact()), 0, np.bool_)


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder",
    "and": "and", "or": "or", "xor": "xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
for _name, _kind in _OPERATORS.items():
    setattr(Near, f"__{_name}__", lambda a, b, kind=_kind: combined(kind, a, b))
    setattr(Near, f"__r{_name}__", lambda a, b, kind=_kind: combined(kind, b, a))
for _name, _kind in _COMPARISONS.items():
    setattr(Near, f"__{_name}__", lambda a, b, kind=_kind: compared(kind, a, b))


def added(x: Near, axis: int, dtype: Any, accumulator: Any = np.float32, *, keepdims: bool = False) -> Near:
    """A sum in any order in the accumulator's type, rounded once."""
    if x.dtype not in EPS:
        return Near(cast(x.value.sum(axis, keepdims=keepdims), np.dtype(dtype)), 0, dtype)
    eps, most = EPS[np.dtype(accumulator)], MOST[np.dtype(accumulator)]
    value = x.value.sum(axis, keepdims=keepdims) + 0.0
    size, error = (a.sum(axis, keepdims=keepdims) for a in (np.abs(x.value), x.error))
    whole = (x.value == np.trunc(x.value)).all(axis, keepdims=keepdims) & (size * eps < 1) & (error == 0)
    off = np.where(whole, 0, error + x.shape[axis] * 2 * eps * (size + error))
    off = np.where(np.isfinite(size) & (size >= most / 2), np.inf, off)
    beyond = (~np.isfinite(x.value)).any(axis, keepdims=keepdims)
    return rounded(value, np.where(beyond, np.where(np.isfinite(value) | ~np.isfinite(error), np.inf, 0), off), dtype)


def reduced(kind: str, x: Near, axis: int, *, keepdims: bool = False, dtype: Any = None) -> Near:
    """A reduction along one dim."""
    if kind in ("any", "all"):
        return Near(getattr(np, kind)(x.value != 0, axis, keepdims=keepdims), 0, np.bool_)
    if kind in ("max", "min"):
        choose = np.maximum if kind == "max" else np.minimum
        value = x.value.take(0, axis)
        for k in range(1, x.shape[axis]):
            value = _ordered(choose, value, x.value.take(k, axis)) if x.dtype in EPS else choose(value, x.value.take(k, axis))
        return Near(np.expand_dims(value, axis) if keepdims else value, x.error.max(axis, keepdims=keepdims), x.dtype)
    total = added(x, axis, dtype or x.dtype, keepdims=keepdims)
    if kind == "sum":
        return total
    wide, count = added(x, axis, np.float32, keepdims=keepdims), x.shape[axis]
    value = wide.value / count
    return rounded(value, wide.error / count + np.abs(value) * 4 * EPS[x.dtype] + TINY[x.dtype], x.dtype)


for _name in ("sum", "max", "min", "mean", "any", "all"):
    setattr(Near, _name, lambda x, axis, kind=_name, **options: reduced(kind, x, axis, **options))


def product(a: Near, b: Near, before: Near | None = None, *, wide: bool = False) -> Near:
    """A product of matrices, of f32 sums in any order."""
    dtype = np.dtype(np.float32) if wide else np.result_type(a.dtype, b.dtype)
    value, size = a.value @ b.value + 0.0, np.abs(a.value) @ np.abs(b.value)
    if not np.isfinite(size).all():
        return Near(value, np.inf, dtype)
    error = np.abs(a.value) @ b.error + a.error @ np.abs(b.value) + a.error @ b.error
    whole = all((m.value == np.trunc(m.value)).all() for m in (a, b, before) if m is not None) and not error.any()
    if before is not None:
        value, size, error = value + before.value, size + np.abs(before.value), error + before.error
    whole = whole and not error.any() and bool((size < 2.0**24).all())
    return rounded(value, 0 if whole else error + (a.shape[-1] + 4) * 2 * EPS[np.dtype(np.float32)] * (size + error), dtype)


def elementary(function: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[[Any], Near]:
    """A function near its value in float64; `slope` bounds how much it changes near a number."""

    def apply(x: Near) -> Near:
        value = function(x.value)
        error = np.where(x.error == 0, 0, slope(x.value + x.error) * x.error) + _ULPS * EPS[x.dtype] * np.abs(value) + 4 * TINY[x.dtype]
        error = np.where((~np.isfinite(x.value) & (x.error == 0)) | np.isnan(value), 0, error)
        return rounded(value, np.where(np.isinf(x.error), np.inf, error), x.dtype)

    return apply


def root(x: Near) -> Near:
    least = x.value - x.error
    error = np.where(x.error == 0, 0, np.where(least > 0, x.error / np.sqrt(np.maximum(least, 1e-300)), np.inf))
    return rounded(np.sqrt(x.value), error, x.dtype)


def chosen(condition: Any, a: Any, b: Any) -> Near:
    a, b = both(a, b)
    truth = of(condition).exact() != 0
    return Near(np.where(truth, a.value, b.value), np.where(truth, a.error, b.error), a.dtype)


def sigmoid(x: Near) -> Near:
    """By 1 / (1 + exp(-x)) in f32: 0 where exp(-x) is beyond it."""
    found = elementary(lambda v: 1 / (1 + np.exp(-v)), np.ones_like)(x)
    return Near(found.value, found.error + 2.0**-126, x.dtype)


class Add:
    """`np.add`, with its `at`."""

    def __call__(self, a: Any, b: Any) -> Near:
        return combined("add", a, b)

    def at(self, memory: Any, key: Any, value: Any) -> None:
        new = of(value, memory.dtype).astype(memory.dtype)
        size, count = np.abs(memory.value), np.zeros(len(memory.value))
        np.add.at(size, plain(key), np.abs(new.value))
        np.add.at(count, plain(key), 1)
        np.add.at(memory.error, plain(key), new.error)
        np.add.at(memory.value, plain(key), new.value)
        if memory.dtype in EPS:
            memory.error += np.where(size == 0, 0, count.reshape(-1, *[1] * (size.ndim - 1)) * 2 * EPS[memory.dtype] * size)
            memory.error[~np.isfinite(size)] = np.inf
        memory.value[...] = cast(memory.value, memory.dtype)


def _pointwise(name: str) -> Callable[[Near], Near]:
    return lambda x: rounded(getattr(np, name)(x.exact()), 0, x.dtype)


def _moved(name: str) -> Callable[..., Near]:
    return lambda x, *rest: x.mapped(lambda a: getattr(np, name)(a, *rest))


def _joined(parts: list[Near], axis: int) -> Near:
    value, error = (np.concatenate([getattr(p, n) for p in parts], axis) for n in ("value", "error"))
    return Near(value, error, parts[0].dtype)


NUMPY = SimpleNamespace(
    **{t.__name__: t for t in (np.float16, np.float32, np.int8, np.int16, np.int32)},
    **{name: _pointwise(name) for name in ("floor", "ceil", "trunc", "rint", "sign", "absolute", "negative")},
    **{name: _moved(name) for name in ("swapaxes", "expand_dims", "broadcast_to", "transpose")},
    **{name: lambda a, b, kind=name: combined(kind, a, b) for name in ("maximum", "minimum")},
    add=Add(),
    arange=lambda n: Near(np.arange(n), 0, np.int64),
    concatenate=_joined,
    cos=elementary(np.cos, np.ones_like),
    exp=elementary(np.exp, lambda x: np.exp(np.minimum(x, 700.0))),
    expm1=elementary(np.expm1, lambda x: np.exp(np.minimum(x, 700.0))),
    arctan=elementary(np.arctan, np.ones_like),
    sin=elementary(np.sin, np.ones_like),
    sqrt=root,
    square=lambda x: x * x,
    tanh=elementary(np.tanh, np.ones_like),
    where=chosen,
)
"""What `np` is in a kernel."""
ERF = elementary(np.vectorize(erf, otypes=[float]), lambda x: np.full_like(x, 1.13))
