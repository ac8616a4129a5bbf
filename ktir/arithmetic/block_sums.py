"""Sums of products of one block of a contraction: exact, rounded once to float32.

A product of f64 matrices gives nearly all of these sums at once, in an order that is the BLAS's own. It stands where the bits of the
operands show that it has no error, or where its error cannot change the rounded value. The other sums are made from slices of the
operands whose products f64 holds. So neither the order of summation nor the shape of the operands, nor the host's BLAS, can be seen in
a result. Which proof is tried first has no influence on it.
"""

from __future__ import annotations

import threading
from math import frexp, ldexp, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic.floats import F32, STEP

__all__ = ["Block", "Widened", "largest_norm", "rounded_sums", "scratch"]

F64 = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Pair = tuple[float, float]
Places = tuple[Ints, ...]
"""Indices of some elements of the result."""
_NOWHERE: Places = (np.empty(0, np.int64),)
_HELD = 1 << 21
"""Bytes of a piece of scratch memory that is kept, at most."""
_SHAPES = 1 << 10
"""Shapes that are remembered."""

_ERROR = 2.0**-52
"""Twice what an addition in f64 can be wrong by, relative to a bound for the sum of the magnitudes of all that is added."""
_WHOLE = 2.0**53 * (1 - 2.0**-40)
"""f64 holds whole numbers up to 2^53; with room for the error of two norms."""
_DIGIT = 20
"""Bits of a slice: the sums of 64 products of two, and of 2^7 of these, are exact in f64."""
_ENOUGH = 1 << 30
"""More than float32 holds and a bit to round by: of what follows below only matters whether it is zero."""
_MUCH = 8
"""An operand that is so much smaller is worth a closer look."""
_SHORT = 1024
"""Elements whose norms are not worth their time."""
_FEW = 1 / 12
"""Up to this part of the results, it takes less time to make them one by one than all of them."""


class _Scratch(threading.local):
    """Memory of a thread that holds nothing between calls: made anew each time it would be given back to the system, page by page."""

    def __init__(self) -> None:
        self.views: dict[tuple[str, tuple[int, ...]], NDArray[Any]] = {}
        self.held: dict[str, NDArray[np.uint8]] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: type = np.float64) -> NDArray[Any]:
        """An array of that shape; of a name there is one at a time, always of the same type."""
        found = self.views.get((name, shape))
        return self._view(name, shape, dtype) if found is None else found

    def _view(self, name: str, shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
        size = prod(shape) * np.dtype(dtype).itemsize
        if size > _HELD:
            return np.empty(shape, dtype)
        if name not in self.held or self.held[name].size < size or len(self.views) > _SHAPES:
            self.held[name] = np.empty(max(size, _HELD // 8), np.uint8)
            self.views.clear()
        found = self.views[name, shape] = np.ndarray(shape, dtype, self.held[name])
        return found


scratch = _Scratch()


class Widened:
    """An operand that stays where it is, [.., M, N]; a call gives what it then holds in f64, in the order of its memory, as BLAS takes it.

    name: whose scratch memory it takes, until the next one with that name is asked for. rows: as one matrix, [M, N].
    """

    def __init__(self, x: F32, name: str, *, rows: bool = False) -> None:
        self.name, self.turned = name, not rows and abs(x.strides[-1]) > abs(x.strides[-2])
        self.source = x.swapaxes(-1, -2) if self.turned else x
        self.shape = (prod(x.shape[:-1]), x.shape[-1]) if rows else None

    def __call__(self) -> F64:
        wide = scratch(self.name, self.source.shape)
        np.copyto(wide, self.source)
        return wide.swapaxes(-1, -2) if self.turned else wide if self.shape is None else wide.reshape(self.shape)


class Block:
    """[.., M, K] x [.., K, N] -> float32 [.., M, N], K <= 128, for operands that stay where they are: exact sums, rounded once.

    A zero has any sign. If b is one matrix, the rows of all of a are those of one product, [M, N]. elements: the formats on whose grids
    a and b lie; nothing but the time depends on them.
    """

    def __init__(self, a: F32, b: F32, elements: tuple[str, str]) -> None:
        self.a, self.b, self.elements = a, b, elements
        self.left, self.right = Widened(a, "left", rows=b.ndim == 2 < a.ndim), Widened(b, "right")

    def sums(self, norm: float | None = None) -> F32:
        """norm: a bound for the norms of b's columns, NaN where there may be one; nothing but the time depends on it."""
        left, right, most = self.left(), self.right(), largest_norm(self.a, -1)
        if norm is not None and _proved(left, right, (most, norm), self.elements):
            return _product(left, right).astype(np.float32)
        return rounded_sums(left, right, (most, largest_norm(self.b, -2)), self.elements)


def _product(left: F64, right: F64) -> F64:
    if left.ndim != right.ndim:
        return np.matmul(left, right)
    lead = [n if m == 1 else m for m, n in zip(left.shape[:-2], right.shape[:-2], strict=True)]
    return np.matmul(left, right, out=scratch("sums", (*lead, left.shape[-2], right.shape[-1])))


def rounded_sums(left: F64, right: F64, norms: Pair, elements: tuple[str, str]) -> F32:
    """The sums of a `Block` of operands in f64. norms: bounds for those of the rows and of the columns."""
    sums = _product(left, right)
    if _proved(left, right, norms, elements):
        return sums.astype(np.float32)
    result = np.empty(sums.shape, np.float32)
    places = _open(left, right, sums, norms, elements, result)
    if places[0].size:
        result[places] = _exact_at(places, left, right, sums.shape)
    return result


def largest_norm(x: F32 | F64, axis: int) -> float:
    """A bound for the norms of the elements along `axis`, close to the largest, or infinite. NaN if there is one.

    The sum of the magnitudes of the products of two vectors is at most the product of their norms.
    """
    if x.size <= _SHORT:
        squares = np.vdot(x, x)  # of all rows or columns: one call less
    else:
        squares = np.einsum("...ij,...ij->...i" if axis == -1 else "...ij,...ij->...j", x, x).max()
    return sqrt(float(squares) * (1 + 2.0**-12) + 2.0**-130)  # f32 may have rounded each of the squares and sums


def _proved(left: F64, right: F64, norms: Pair, elements: tuple[str, str]) -> bool:
    """Whether no sum has an error: all are whole numbers of some unit that f64 holds."""
    steps = STEP[elements[0]], STEP[elements[1]]
    unit = norms[0] * norms[1] / (_WHOLE * steps[1])  # what all of `left` must be multiples of
    if unit <= steps[0]:
        return True
    if left.size * _MUCH > right.size or not unit < np.inf or not norms[1] >= 4 * steps[1]:
        return False
    point = 1.5 * 2.0 ** (52 + frexp(unit)[1])  # adding it loses what is below the unit: nothing in `left` is as large as a third of it
    return bool((left + point - point == left).all())


def _open(left: F64, right: F64, sums: F64, norms: Pair, elements: tuple[str, str], result: F32) -> Places:
    """Round the f64 sums into `result`; where nothing shows that this is the rounded exact one."""
    length, most = left.shape[-1], norms[0] * norms[1]
    reach, steps = most * _ERROR * length, (STEP[elements[0]], STEP[elements[1]])
    many = (left.size + right.size) // length  # so many results have as many factors as the operands have elements
    if sums.size > left.size + right.size and min(steps) > STEP["bf16"]:
        by_row = left.size <= right.size  # the smaller operand is looked at, of the other one the grid is enough
        x, axis, other = (left, -1, 1) if by_row else (right, -2, 0)
        lines = ~(_heights(x, axis) * norms[other] <= _WHOLE * steps[other])
        if np.count_nonzero(lines) <= _FEW * lines.size:
            places = _in_lines(lines, sums, reach) if by_row else _swapped(_in_lines(lines.swapaxes(-1, -2), sums.swapaxes(-1, -2), reach))
            if places[0].size <= many:
                np.copyto(result, sums, casting="same_kind")
                return _inexact(places, left, right, sums, most)
    unclear = _uncertain(sums, reach, result)
    count = np.count_nonzero(unclear)
    if not count:
        return _NOWHERE
    np.copyto(result, sums, casting="same_kind")
    if count > many:
        unclear &= ~(_heights(left, -1) * _heights(right, -2) <= _WHOLE)
        unclear &= np.isfinite(sums)
        return _where(unclear)
    return _inexact(_where(unclear), left, right, sums, most)


def _uncertain(sums: F64, reach: float, above: F32 | None = None) -> Mask:
    """Whether an error of at most `reach` can be seen in the rounded sum. True if it is NaN. above: becomes the sums, rounded up."""
    above, below = np.empty(sums.shape, np.float32) if above is None else above, scratch("below", sums.shape, np.float32)
    np.add(sums, reach, out=above, casting="same_kind")
    np.subtract(sums, reach, out=below, casting="same_kind")
    return above != below


def _where(mask: Mask) -> Places:
    """np.nonzero, which takes long where there are many dimensions and few places."""
    return np.unravel_index(np.flatnonzero(mask), mask.shape)


def _in_lines(lines: Mask, sums: F64, reach: float) -> Places:
    """The uncertain results of some rows. lines: [.., M, 1]."""
    rows = _where(np.broadcast_to(lines, (*sums.shape[:-1], 1))[..., 0])
    within, columns = _where(_uncertain(sums[rows], reach))
    return (*(x[within] for x in rows), columns)


def _swapped(places: Places) -> Places:
    *lead, row, column = places
    return (*lead, column, row)


def _inexact(places: Places, left: F64, right: F64, sums: F64, most: float) -> Places:
    """Those of a few results that are finite and whose products may have sums that f64 does not hold.

    most: what the sum of the magnitudes of the products is at most, in all of them; it mostly suffices.
    """
    if not places[0].size:
        return places
    rows, columns = _factors(places, left, right, sums.shape)
    products = rows * columns
    if most < np.inf and _held(products, ldexp(2.0, frexp(most)[1])).all():
        return _NOWHERE
    norm = np.sqrt(np.einsum("ij,ij->i", products, products))
    own = np.ldexp(2.0, np.frexp(norm)[1] + (3 if rows.shape[-1] <= 64 else 4))[:, None]  # the sum of 64 magnitudes is at most 8 norms
    keep = ~_held(products, own).all(-1) & np.isfinite(sums[places])  # an infinity or a NaN is one in any order
    return tuple(x[keep] for x in places)


def _held(products: F64, bound: F64 | float) -> Mask:
    """Whether each product is a multiple of 2^-53 of `bound`, a power of two: where adding that to it loses nothing.

    f64 holds the sum, and each partial sum, of products of which all are and whose magnitudes have a sum below half of the bound.
    """
    rounded = products + bound
    rounded -= bound
    return rounded == products


def _heights(x: F64, axis: int) -> F64:
    """The norm of the elements along `axis`, which stays, in their unit."""
    norm = np.einsum("...ij,...ij->...i" if axis == -1 else "...ij,...ij->...j", x, x)
    return np.expand_dims(np.sqrt(norm), axis) / _units(x.astype(np.float32), axis)


def _units(x: F32, axis: int) -> F64:
    """A power of two of which all elements along `axis`, which stays, are multiples."""
    bits = x.view(np.uint32)
    size = bits & np.uint32(0x7FFFFFFF)
    size -= np.uint32(1)  # a zero becomes the largest
    lowest = size.min(axis, keepdims=True) + np.uint32(1)
    fraction = np.bitwise_or.reduce(bits, axis=axis, keepdims=True) | np.uint32(1 << 23)
    unused = np.bitwise_count((fraction & (~fraction + np.uint32(1))) - np.uint32(1)).astype(np.int32)
    return np.ldexp(1.0, np.maximum(lowest >> np.uint32(23), np.uint32(1)).astype(np.int32) - 150 + unused)


def _factors(places: Places, left: F64, right: F64, shape: tuple[int, ...]) -> tuple[F64, F64]:
    """The rows and columns, [places, K], of some results."""
    *lead, rows, columns = places
    if left.shape[:-2] != right.shape[:-2]:
        left, right = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (left, right))
    return left[(*lead, rows)], right.swapaxes(-1, -2)[(*lead, columns)]


# ---------------------------------------------------------------------------------------------------------------------
# Exact sums
# ---------------------------------------------------------------------------------------------------------------------


def _exact_at(places: Places, left: F64, right: F64, shape: tuple[int, ...]) -> F32:
    """Some results, all of them finite."""
    if places[0].size <= _FEW * prod(shape):
        rows, columns = _factors(places, left, right, shape)
        return _exact(rows[:, None, :], columns[:, :, None])[:, 0, 0]
    # Infinities and NaNs stand in rows and columns whose results are not asked for.
    left, right = (np.where(np.isfinite(x), x, 0.0) for x in (left, right))
    return _exact(left, right)[places]


def _exact(a: F64, b: F64) -> F32:
    """[.., M, K] x [.., K, N], finite: the sums as numbers of digits of 20 bits, which are products of slices of the operands."""
    left, left_scale = _slices(a, -1)
    right, right_scale = _slices(b, -2)
    digits: list[Any] = [0.0] * (len(left) + len(right) - 1)
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            digits[i + j] = digits[i + j] + np.matmul(x, y)
    head, last = _head([x.astype(np.int64) for x in digits])
    return np.ldexp(head, left_scale + right_scale - _DIGIT * (last + 2)).astype(np.float32)


def _slices(x: F64, axis: int) -> tuple[list[F64], NDArray[np.int32]]:
    """x as the sum of slice[i] * 2^(scale - 20 (i + 1)): whole numbers of 20 bits and a sign; one scale per row or column."""
    scale = np.frexp(np.abs(x).max(axis, keepdims=True))[1]
    rest = np.ldexp(x, -scale)
    slices: list[F64] = []
    while not slices or rest.any():
        rest *= 2.0**_DIGIT
        slices.append(np.rint(rest))
        rest -= slices[-1]
    return slices, scale


def _head(digits: list[Ints]) -> tuple[F64, NDArray[np.int32]]:
    """Digits, the first the highest, as head * 2^(-20 last): the head has at most 53 bits, its lowest one set if any follow."""
    negative = _carried(digits)[0] < 0
    digits = _carried([np.where(negative, -x, x) for x in digits])
    head, last, rest = digits[0], np.zeros(negative.shape, np.int32), np.zeros(negative.shape, np.bool_)
    for digit in digits[1:]:
        full = head >= _ENOUGH
        rest |= full & (digit != 0)
        head = np.where(full, head, head << _DIGIT | digit)
        last += ~full
    head |= rest
    return np.where(negative, -head, head).astype(np.float64), last


def _carried(digits: list[Ints]) -> list[Ints]:
    """The same numbers with all digits but the first in [0, 2^20)."""
    digits = list(digits)
    for i in range(len(digits) - 1, 0, -1):
        digits[i - 1] = digits[i - 1] + (digits[i] >> _DIGIT)
        digits[i] = digits[i] & ((1 << _DIGIT) - 1)
    return digits
