"""What tiles have as arrays do, made of what they have besides."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.base.scalars import element_of, family
from ktir.lang.keys import Shaped

METHODS = {
    "sum": "sum", "max": "max", "min": "min", "amax": "max", "amin": "min", "mean": "mean", "var": "var", "std": "std", "ptp": "ptp",
    "any": "any", "all": "all", "clip": "clip", "round": "round", "around": "round", "transpose": "transpose", "swapaxes": "swapaxes",
    "reshape": "reshape", "ravel": "ravel", "squeeze": "squeeze", "copy": "copy",
}  # fmt: skip
"""Functions of NumPy by name, and the methods of tiles that they are."""


class Derived(Shaped):
    """Methods of tiles that are made of others."""

    def mean(self: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Means along dims, in the type that NumPy has for them."""
        wanted = np.zeros(1, self.dtype).mean().dtype
        return self._mean(axis, keepdims).astype(wanted)

    def _mean(self: Any, axis: Any, keepdims: bool) -> Any:
        wanted = np.zeros(1, self.dtype).mean().dtype
        count = prod(self.shape[a] for a in self._axes(axis))
        return self.sum(axis, np.float32 if element_of(wanted) in ("f16", "bf16") else wanted, keepdims=keepdims) / count

    def var(self: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
        """Variances along dims, in the type that NumPy has for them; those of f16 are taken in f32 and rounded once."""
        return self._squares(axis, ddof, keepdims).astype(np.zeros(1, self.dtype).mean().dtype)

    def std(self: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False) -> Any:
        """Standard deviations along dims, as `var`."""
        return np.sqrt(self._squares(axis, ddof, keepdims)).astype(np.zeros(1, self.dtype).mean().dtype)

    def _squares(self: Any, axis: Any, ddof: Any, keepdims: bool) -> Any:
        """Means of squared distances from the mean."""
        if isinstance(ddof, bool) or not isinstance(ddof, int):
            raise Mistake(f"'ddof' is a whole number, but got {kind_of(ddof)}")
        mean = self._mean(axis, True)
        away = self.astype(mean.dtype) - mean
        count = prod(self.shape[a] for a in self._axes(axis))
        return (away * away).sum(axis, keepdims=keepdims) / max(count - ddof, 0)

    def ptp(self: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """The largest less the smallest, along dims."""
        return self.max(axis, keepdims=keepdims) - self.min(axis, keepdims=keepdims)

    def any(self: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Whether any is true, along dims."""
        return (self != 0).astype(np.int32).max(axis, keepdims=keepdims) != 0

    def all(self: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Whether all are true, along dims."""
        return (self != 0).astype(np.int32).min(axis, keepdims=keepdims) != 0

    def clip(self: Any, min: Any = None, max: Any = None) -> Any:
        """The elements, at least `min` and at most `max`."""
        low = self if min is None else np.maximum(self, min)
        return low if max is None else np.minimum(low, max)

    def round(self: Any, decimals: int = 0) -> Any:
        """The nearest whole numbers, of two the even one."""
        if decimals != 0:
            raise Mistake(f"the language rounds to whole numbers, but got decimals of {decimals!r:.40}")
        return np.rint(self) if family(element_of(self.dtype)) == "f" else self.copy()

    def flatten(self: Any) -> Any:
        """The elements in order, along one dim: a tile of its own."""
        return self.reshape(-1).copy()

    def ravel(self: Any) -> Any:
        """The elements in order, along one dim: those of this tile, where they lie side by side."""
        return self.reshape(-1)

    def squeeze(self: Any, axis: Any = None) -> Any:
        """Without dims of one element: all, or those that are named."""
        gone = [d for d, n in enumerate(self.shape) if n == 1] if axis is None else self._axes(axis)
        if any(self.shape[d] != 1 for d in gone):
            raise Mistake(f"'squeeze' expects dims of one element, but got {axis!r:.40} of shape {self.shape}")
        return self[tuple(0 if d in gone else slice(None) for d in range(self.ndim))]

    def swapaxes(self: Any, one: int, other: int) -> Any:
        """Two dims in each other's place."""
        order: Sequence[int] = list(range(self.ndim))
        a, b = self._axis(one), self._axis(other)
        return self.transpose(*[b if d == a else a if d == b else d for d in order])

    def __pow__(self: Any, exponent: Any) -> Any:
        """Powers; where NumPy takes another function, as the square, that is taken, and whole numbers are multiplied."""
        is_float = family(element_of(self.dtype)) == "f"
        if type(exponent) in (int, float, bool) and is_float and exponent in _POWERS:
            return _POWERS[exponent](self)
        if is_float or type(exponent) not in (int, bool):
            return np.power(self, exponent)
        if exponent < 0:
            raise Mistake("whole numbers have no powers of negative exponents; take '.astype(np.float32)' of them")
        found, square = None, self
        while exponent:
            if exponent % 2:
                found = square if found is None else found * square
            exponent //= 2
            square = np.square(square) if exponent else square
        return np.ones_like(self) if found is None else found


_POWERS = {1: np.positive, 2: np.square, -1: np.reciprocal, 0.5: np.sqrt}
"""As NumPy's `**` of arrays."""
