"""The steps that linalg ops end in: reductions, matmuls, statistics of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.arithmetic.integers import fit, width
from ktir.arithmetic.products import Product
from ktir.emulator.policy import Disturbance
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.tape import Binder, Call, PlainStep, Step, clipped_of
from ktir.emulator.reference.tape.values import CARRIERS, PAIRS, Storage, Tensor, is_float, is_odd

__all__ = ["UFUNCS", "Matmul", "Reduce", "Statistic", "apart", "disturbed", "identity_of", "put_off", "repeat"]

_MOST_LANES = 1 << 15
"""Partial sums of a rounding reduction that are held at once."""


_ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
"""The largest relative error of a rounding to a type."""


_SMALL = 1 << 17
"""Products of a matmul below which it takes less time than the call of another one."""


def repeat(rec: Recording, tensor: Tensor) -> Tensor:
    """A row-major copy that repeats along no axis but that of the tiles."""
    shape = tensor.at.shape
    result = rec.temporary(shape, (tensor.at.present[0], *shape[1:]), tensor.element)
    step = _Spread((tensor,), (result,))
    rec.emit(step)
    return result


class _Spread(PlainStep):
    def calls(self, binder: Binder) -> Iterable[Call]:
        yield np.copyto, (binder.array(self.writes[0]), binder.array(self.reads[0]))

    def clip(self) -> None:
        result = self.writes[0]
        result.storage.clipped = np.zeros(result.storage.size, np.bool_)
        target, held = clipped_of(result), clipped_of(self.reads[0])
        if target is not None and held is not None:
            target[...] = held

    def copies(self) -> list[Storage]:
        return [self.reads[0].storage, self.writes[0].storage]

    def details(self) -> object:
        return None


def apart(rec: Recording, tensor: Tensor, axis: int) -> Tensor:
    """A copy of a tensor of pairs whose numbers follow one another along `axis`, counted from the end: f32 on the grid of their type."""
    shape = list(tensor.at.shape)
    shape[axis] *= 2
    result = rec.temporary(tuple(shape), (tensor.at.present[0], *shape[1:]), "f32")
    step = _Apart((tensor,), (result,))
    step.axis = axis
    rec.emit(step)
    return Tensor(result.storage, result.at, result.element, grid=PAIRS[tensor.element])


class _Apart(PlainStep):
    axis: int

    def details(self) -> object:
        return self.axis

    def calls(self, binder: Binder) -> Iterable[Call]:
        pairs, out = binder.array(self.reads[0]), self.writes[0]
        axis = self.axis % len(out.at.shape)
        both = binder.array(out.moved(out.at.expand(axis, (out.at.shape[axis] // 2, 2))), (axis, axis + 1))
        first, second = (both[(*(slice(None),) * (axis + 1), i)] for i in (0, 1))
        yield np.copyto, (first, np.real(pairs))
        yield np.copyto, (second, np.imag(pairs))


class Matmul(PlainStep):
    """writes[0] = reads[2] + reads[0] x reads[1], all [(trips,) tiles, batch, ., .]; `block`: of so many of K a sum is exact."""

    numerics: str
    element: str
    block: int

    def details(self) -> object:
        return self.numerics, self.element, self.block, self.reuse, self.reads[0].grid, self.reads[1].grid

    def arrays(self, binder: Binder) -> tuple[NDArray[Any], ...]:
        """Operands, accumulator, result."""
        full = range(len(self.writes[0].at.shape) - 3, len(self.writes[0].at.shape))
        return tuple(binder.array(t, full) for t in (*self.reads, *self.writes))

    def magnitude(self, binder: Binder) -> tuple[NDArray[Any], int]:
        """The sum of the magnitudes of the terms, and how many there are."""
        a, b, acc, _ = map(np.abs, self.arrays(binder))
        return np.matmul(a, b) + acc, a.shape[-1] + 1

    def calls(self, binder: Binder) -> Iterable[Call]:
        a, b, acc, out = self.arrays(binder)
        if out.size == 0:
            return
        if binder.same_memory(self.reads[2], self.writes[0]):
            acc = out
        if out.dtype != np.float32:
            yield _matmul_f64 if out.dtype == np.float64 else _matmul_exact, (a, b, acc, out)
            if is_odd(self.element):
                yield _fit_into, (out, self.element)
        elif self.numerics == "peer":
            wide = all(t.element == "f32" for t in self.reads[:2])
            yield _matmul_blas if wide else _matmul_peer, (a, b, acc, out, self.element)
        elif self.numerics == "fast":
            yield _matmul_fast, (a, b, acc, out)
        else:
            grids = self.reads[0].grid, self.reads[1].grid
            yield (Product(a, b, out, grids, self.block).add_to, (acc,)) if a.shape[-1] else (np.copyto, (out, acc))
        if self.element in numerics.NARROW:
            yield numerics.round_to, (self.element, out, out)


def _matmul_exact(a: NDArray[Any], b: NDArray[Any], acc: NDArray[Any], out: NDArray[Any]) -> None:
    """Integers: modulo the type of the result, so the order is not seen."""
    product = np.matmul(a.astype(out.dtype), b.astype(out.dtype))
    np.add(acc, product, out=out)


def _matmul_f64(a: NDArray[Any], b: NDArray[Any], acc: NDArray[Any], out: NDArray[Any]) -> None:
    """Products rounded to f64 each, added to `acc` in order of k: BLAS would sum in an order of its own."""
    if acc is not out:
        np.copyto(out, acc)
    a, b = a.astype(np.float64), b.astype(np.float64)
    for k in range(a.shape[-1]):
        np.add(out, a[..., :, k : k + 1] * b[..., k : k + 1, :], out=out)


def _fit_into(out: NDArray[Any], element: str) -> None:
    out[...] = fit(out, element)


def _matmul_fast(a: NDArray[Any], b: NDArray[Any], acc: NDArray[Any], out: NDArray[Any]) -> None:
    if acc is not out:
        np.copyto(out, acc)
    lead = out.shape[:-2]
    if prod(b.shape[:-2]) == 1 and a.shape[:-2] == lead:
        flat = a.reshape(-1, a.shape[-1]) @ b.reshape(b.shape[-2:])
        np.add(out, flat.reshape(out.shape), out=out)
        return
    if a.shape[-1] * prod(out.shape[-2:]) < _SMALL:
        np.add(out, np.matmul(a, b), out=out)
        return
    # One product at a time: each is a GEMM of its own, where a broadcast operand is not copied.
    a, b = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    for at in np.ndindex(*lead):
        out[at] += a[at] @ b[at]


def _matmul_blas(a: NDArray[Any], b: NDArray[Any], acc: NDArray[Any], out: NDArray[Any], element: str) -> None:
    """As `_matmul_peer`, of f32: NumPy's own product there as here, in the order of its BLAS."""
    np.add(acc, numerics.round_to(element, np.matmul(a, b)), out=out)


def _matmul_peer(a: NDArray[Any], b: NDArray[Any], acc: NDArray[Any], out: NDArray[Any], element: str) -> None:
    """Products summed in f32 strictly in order of k, rounded to the type of the result, then added to `acc`."""
    total = np.zeros(out.shape, np.float32)
    for k in range(a.shape[-1]):
        np.add(total, a[..., :, k : k + 1] * b[..., k : k + 1, :], out=total)
    np.add(acc, numerics.round_to(element, total), out=out)


class Reduce(PlainStep):
    """writes[0] = combine(reads[1], reduction of reads[0] over the axes `over`)."""

    kind: str
    element: str
    over: tuple[int, ...]
    order: tuple[int, ...]
    physical: bool
    numerics: str

    def details(self) -> object:
        return self.kind, self.element, self.over, self.order, self.physical, self.numerics

    def stacked(self, tensors: Sequence[Tensor], count: int) -> Step:
        result = self._moved(tensors)
        result.over, result.order = tuple(1 + i for i in self.over), (0, *(1 + i for i in self.order))
        return result

    def arrays(self, binder: Binder) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """What is reduced, reduced axes last; accumulator and result without these."""
        value = binder.array(self.reads[0], self.over).transpose(self.order)
        accumulator = binder.array(self.reads[1]).transpose(self.order)[(..., *([0] * len(self.over)))]
        out = binder.array(self.writes[0]).transpose(self.order)[(..., *([0] * len(self.over)))]
        assert out.ndim == len(self.order) - len(self.over)
        return value, accumulator, out

    def magnitude(self, binder: Binder) -> tuple[NDArray[Any], int]:
        """The sum of the magnitudes of the terms, and how many there are."""
        value, accumulator, _ = map(np.abs, self.arrays(binder))
        return value.sum(tuple(range(-len(self.over), 0))) + accumulator, prod(value.shape[-len(self.over) :]) + 1

    def calls(self, binder: Binder) -> Iterable[Call]:
        value, accumulator, out = self.arrays(binder)
        if self._is_plain_sum(value):
            yield from self._sum_calls(binder, value, accumulator, out)
        else:
            yield self._run, (value, accumulator, out)

    def _is_plain_sum(self, value: NDArray[Any]) -> bool:
        """Whether it is the most frequent reduction that rounds: to 16 bits, one axis of whole sticks, of moderate size."""
        plain = self.kind == "add" and self.element in numerics.ROUND_CHUNK and self.numerics == "machine" and len(self.over) == 1
        width = value.shape[-1]
        return plain and width > 0 and width % numerics.STICK == 0 and 0 < value.size // width * numerics.STICK <= _MOST_LANES

    def _sum_calls(self, binder: Binder, value: NDArray[Any], accumulator: NDArray[Any], out: NDArray[Any]) -> Iterable[Call]:
        """`_ordered` as single calls on prepared memory."""
        lanes, lead = numerics.STICK, value.shape[:-1]
        scratch = binder.scratch("rounding of sums", 2 * _MOST_LANES, np.float32).reshape(2, _MOST_LANES)
        total = binder.scratch("sum", prod(lead) * lanes, np.float32).reshape(*lead, lanes)
        sticks = [value[..., i : i + lanes] for i in range(0, value.shape[-1], lanes)]
        if len(sticks) == 1:
            yield np.copyto, (total, sticks[0])
        for i, stick in enumerate(sticks[1:]):
            yield np.add, (total if i else sticks[0], stick, total)
            yield numerics.ROUND_CHUNK[self.element], numerics.rounding_views(total.reshape(-1), total.reshape(-1), scratch)
        while lanes > 1:
            lanes //= 2
            half = binder.scratch(("sum", lanes), prod(lead) * lanes, np.float32).reshape(*lead, lanes)
            yield np.add, (total[..., :lanes], total[..., lanes:], half)
            yield numerics.ROUND_CHUNK[self.element], numerics.rounding_views(half.reshape(-1), half.reshape(-1), scratch)
            total = half
        yield np.add, (accumulator, total[..., 0], out)
        yield np.add, (out, np.float32(0), out)
        yield numerics.round_to, (self.element, out, out)

    def _run(self, value: NDArray[Any], accumulator: NDArray[Any], out: NDArray[Any]) -> None:
        kind, axes = _OF_FLAGS.get(self.kind, self.kind) if self.element == "i1" else self.kind, len(self.over)
        every = tuple(range(-axes, 0))
        function = UFUNCS[kind]
        narrow = self.element in numerics.NARROW
        if value.dtype != np.float32 or kind not in ("add", "mul", "max", "min"):
            if kind in ("maxu", "minu"):
                value, accumulator, target = _unsigned(value), _unsigned(accumulator), _unsigned(out)
            else:
                target = out
            if value.dtype == np.float64 and kind in ("add", "mul") and self.numerics != "fast":
                reduced = self._ordered(value, function)
            else:
                reduced = function.reduce(value, axis=every, dtype=value.dtype)
            function(accumulator, reduced, out=target)
            if out.dtype.kind == "f" and kind == "add":
                np.add(out, out.dtype.type(0), out)
            if out.dtype.kind == "f" and kind not in ("add", "mul"):
                _settle_zeros(kind, value, accumulator, out, every)
            if is_odd(self.element):
                _fit_into(out, self.element)
            return
        if kind in ("add", "mul") and self.numerics == "peer":
            reduced = self._folded(value, function)
        elif kind in ("add", "mul") and self.numerics == "fast":
            reduced = function.reduce(value, axis=every)
            if narrow:
                numerics.round_to(self.element, reduced, reduced)
        elif kind == "mul" or (kind == "add" and narrow):
            reduced = self._ordered(value, function)
        elif self.physical:
            reduced = numerics.lane_tree(kind, numerics.reduce_sticks(kind, value, -2))[..., 0]
        elif axes == 1:
            reduced = numerics.reduce_machine(kind, value)
        else:
            reduced = numerics.reduce_sticks(kind, value.reshape(*value.shape[:-axes], -1), -1)
        numerics.PLAIN[kind](accumulator, reduced, out)
        if kind == "add":
            np.add(out, np.float32(0), out)  # lanes start with +0, which zeros alone show
        if narrow and kind in ("add", "mul"):
            numerics.round_to(self.element, out, out)

    def _round(self, x: NDArray[Any]) -> NDArray[Any]:
        return numerics.round_to(self.element, x, x) if self.element in numerics.NARROW else x

    def _folded(self, value: NDArray[Any], function: np.ufunc) -> NDArray[Any]:
        """Pairwise: halves combined, an odd tail carried on, axis after axis from the last; every level rounds."""
        for _ in self.over:
            n = value.shape[-1]
            if n == 0:
                return np.full(value.shape[:-1], identity_of(self.kind, self.element), value.dtype)
            while n > 1:
                h = n // 2
                level = self._round(function(value[..., :h], value[..., h : 2 * h]))
                value = np.concatenate([level, value[..., 2 * h :]], -1) if n % 2 else level
                n = value.shape[-1]
            value = value[..., 0]
        return value

    def _ordered(self, value: NDArray[Any], function: np.ufunc) -> NDArray[Any]:
        """In machine order with every partial result rounded to the accumulator's type."""
        if len(self.over) > 1 and not self.physical:
            value = value.reshape(*value.shape[: -len(self.over)], -1, 1)
        elif not self.physical:
            width = value.shape[-1]
            if width % numerics.STICK or not width:
                identity = identity_of(self.kind, self.element)
                padded = np.full((*value.shape[:-1], max(1, -(-width // numerics.STICK)) * numerics.STICK), identity, value.dtype)
                padded[..., :width] = value
                value = padded
            value = value.reshape(*value.shape[:-1], -1, numerics.STICK)
        total = value[..., 0, :]
        for i in range(1, value.shape[-2]):
            total = self._round(function(total, value[..., i, :]))
        while total.shape[-1] > 1:
            half = total.shape[-1] // 2
            total = self._round(function(total[..., :half], total[..., half:]))
        return total[..., 0]


def disturbed(rec: Recording, step: Matmul | Reduce) -> Step:
    """The step, or one whose sums are off, where the policy asks for it."""
    sums = is_float(step.element) and (isinstance(step, Matmul) or step.kind == "add")
    if rec.policy.disturbance is None or not sums:
        return step
    result = _Disturbed(step.reads, step.writes)
    rec.disturbances += 1
    result.inner, result.by, result.number = step, rec.policy.disturbance, rec.disturbances
    return result


class _Disturbed(Step):
    inner: Matmul | Reduce
    by: Disturbance
    number: int

    def calls(self, binder: Binder) -> Iterable[Call]:
        found: list[tuple[NDArray[Any], int]] = []
        yield lambda: found.append(self.inner.magnitude(binder)), ()
        yield from self.inner.calls(binder)
        yield lambda: put_off(self.inner.arrays(binder)[-1], *found.pop(), self.inner.element, self.by, self.number), ()


def put_off(out: NDArray[Any], magnitude: NDArray[Any], terms: Any, element: str, by: Disturbance, number: int) -> None:
    """Move sums by as much as they may be off: `terms` is how many each has, `magnitude` the sum of their magnitudes."""
    size = magnitude * (terms * _ROUNDING.get(element, 0.0) + by.terms) + np.abs(out) * by.result
    rng = np.random.default_rng((by.seed, number))
    out += size * rng.choice((-1, 1), out.shape) * rng.uniform(1, 2, out.shape)
    if element in numerics.NARROW:
        numerics.round_to(element, out, out)


class Statistic(Step):
    """Mean of the axes `over`, mean of the squares, or both as a pair."""

    kind: str
    over: tuple[int, ...]
    count: int
    element: str

    def calls(self, binder: Binder) -> Iterable[Call]:
        value, out = binder.array(self.reads[0], self.over), binder.array(self.writes[0])

        kept = [axis for axis in range(value.ndim) if axis not in self.over]
        shape = [1 if axis in self.over else n for axis, n in enumerate(value.shape)]

        def mean_of(terms: NDArray[Any]) -> NDArray[Any]:
            """In f32, added in machine order."""
            rows = terms.transpose((*kept, *self.over)).reshape(*(value.shape[axis] for axis in kept), -1)
            return (numerics.reduce_machine("add", rows) / np.float32(self.count)).reshape(shape)

        def run() -> None:
            wide = np.asarray(value, np.float32)
            mean, squares = mean_of(wide), mean_of(wide * wide)
            scalar = {"f16_fused": "f16", "dl16_fused": "dl16", "f32_fused": "f32"}.get(self.element, self.element)
            first, second = (numerics.round_to(scalar, x.astype(np.float32)) for x in (mean, squares))
            if self.kind == "mean":
                out[...] = first
            elif self.kind == "squares":
                out[...] = second
            else:
                out.real = 0 if self.kind == "zeromean" else first
                out.imag = second

        yield run, ()


def _unsigned(x: NDArray[Any]) -> NDArray[Any]:
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "maxu": np.maximum,
    "minu": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
"""Reduction kind -> function."""


_OF_FLAGS = {"add": "xor", "mul": "and", "max": "and", "min": "or", "maxu": "or", "minu": "and"}
"""Reductions of i1, whose true is -1 with a sign and 1 without."""


def _settle_zeros(kind: str, value: NDArray[Any], accumulator: NDArray[Any], out: NDArray[Any], axes: tuple[int, ...]) -> None:
    """A zero that is the largest is +0 if any +0 took part, one that is the smallest -0 if any -0 did; NumPy gives either."""
    zero = out == 0
    if not zero.any():
        return
    largest = kind in ("max", "fmax")

    def winning(x: NDArray[Any]) -> NDArray[np.bool_]:
        return (x == 0) & (np.signbit(x) != largest)

    wins = winning(value).any(axes) | winning(accumulator)
    np.copyto(out, np.where(wins == largest, 0.0, -0.0), where=zero)


def identity_of(kind: str, element: str) -> Any:
    """The value that leaves every other as it is."""
    carrier = CARRIERS[element]
    if element == "i1":
        return np.bool_(_OF_FLAGS.get(kind, kind) == "and")
    if kind in ("add", "or", "xor"):
        return carrier(0)
    if kind == "mul":
        return carrier(1)
    if is_float(element):
        return carrier(-np.inf if kind in ("max", "fmax") else np.inf)
    if kind in ("and", "minu"):
        return carrier(-1)
    if kind == "maxu":
        return carrier(0)
    most = 1 << (width(element) - 1)
    return carrier(-most if kind == "max" else most - 1)
