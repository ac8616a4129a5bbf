"""Between which ends numbers of the device lie, and whether they fit the integers beside which they stand.

NumPy raises an error for an integer of Python that the type beside it does not hold, where the device would keep its low bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ktir.lang.base.mistakes import Mistake, here

Range = tuple[int, int]
"""The least and the largest number; the least is the larger one where there is none, as in a loop without trips."""
_WIDEST = np.dtype(np.int64)


class _Fact(NamedTuple):
    """What makes a value: an op of `arith`, or `given` (an argument, by name), `from` (a start to before a stop), `held` (by a type)."""

    kind: str
    of: tuple[Any, ...]


class _Bound(NamedTuple):
    """A number of the device that stands beside integers of a type."""

    number: Any
    dtype: np.dtype[Any]
    place: str | None


class Ranges:
    """What a trace knows of its numbers."""

    def __init__(self) -> None:
        self._facts: dict[Any, _Fact] = {}
        self._bounds: dict[tuple[Any, ...], _Bound] = {}

    def note(self, value: Any, kind: str, *of: Any) -> None:
        """What makes a value of type `index`: of numbers as the trace has them."""
        self._facts[value] = _Fact(kind, of)

    def expect(self, number: Any, dtype: Any) -> None:
        """A number is to fit a type of integers."""
        wanted = np.dtype(dtype)
        if wanted.kind == "i":
            bound = _Bound(number, wanted, here())
            self._bounds.setdefault((tuple(number._terms.items()), number._number, wanted, bound.place), bound)

    def settled(self) -> Ranges:
        """With those bounds alone that depend on the numbers of a call, or on what nobody knows."""
        self._bounds = {key: b for key, b in self._bounds.items() if not self._is_always(b)}
        return self

    def _is_always(self, bound: _Bound) -> bool:
        return _fits(self._of(bound.number, None), bound.dtype)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raises Mistake where a number of a call with these arguments does not fit what it stands beside."""
        for bound in self._bounds.values():
            found = self._of(bound.number, arguments)
            if _fits(found, bound.dtype) or (found is None and bound.dtype == _WIDEST):
                continue
            limits = np.iinfo(bound.dtype)
            what = "a number that nobody can bound" if found is None else str(found[0])
            if found is not None and found[0] != found[1]:
                what = f"a number from {found[0]} to {found[1]}"
            raise Mistake(
                f"{what} stands beside {bound.dtype}, which holds {limits.min} to {limits.max}; a wider tile takes it, by 'astype'",
                bound.place,
            )

    def _of(self, number: Any, arguments: Mapping[str, Any] | None) -> Range | None:
        """Between which ends a number lies; None if that is not known."""
        low = high = number._number
        terms = dict(number._terms)
        for value, factor in number._terms.items():  # what is left by a division is less than the divisor
            fact = self._facts.get(value)
            if fact is not None and fact.kind == "floordivsi" and value in terms:
                left, right = fact.of
                if (by := right.known) is None or by <= 0 or factor % by:
                    continue
                times = -factor // by
                if all(terms.get(v) == n * times for v, n in left._terms.items()):
                    rest = sorted((times * (by - 1), 0))
                    terms = {v: n for v, n in terms.items() if v is not value and v not in left._terms}
                    low, high = low + rest[0] - times * left._number, high + rest[1] - times * left._number
        for value, factor in terms.items():
            found = self._value(value, arguments)
            if found is None:
                return None
            ends = sorted((found[0] * factor, found[1] * factor)) if found[0] <= found[1] else (1, 0)
            if ends[0] > ends[1]:
                return 1, 0
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _value(self, value: Any, arguments: Mapping[str, Any] | None) -> Range | None:
        fact = self._facts.get(value)
        if fact is None:
            return None
        if fact.kind == "given":
            return None if arguments is None else (arguments[fact.of[0]],) * 2
        if fact.kind == "held":
            limits = np.iinfo(fact.of[0])
            return None if limits.bits == 64 else (int(limits.min), int(limits.max))
        one, other = (self._of(x, arguments) for x in fact.of)
        if one is None or other is None:
            return None
        if one[0] > one[1] or other[0] > other[1]:
            return 1, 0
        if fact.kind == "from":
            return one[0], other[1] - 1
        if fact.kind in ("minsi", "maxsi"):
            pick = min if fact.kind == "minsi" else max
            return pick(one[0], other[0]), pick(one[1], other[1])
        if fact.kind == "floordivsi" and other[0] <= 0 <= other[1]:
            return None
        ends = [a * b if fact.kind == "muli" else a // b for a in one for b in other]
        return min(ends), max(ends)


def _fits(found: Range | None, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return found is not None and (found[0] > found[1] or (limits.min <= found[0] and found[1] <= limits.max))
