"""Numbers of the device that address: tile ids, counters of loops, and what is computed from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.graph import Builder, Value

_COMPARISONS = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_COMPARED = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!="}
"""Comparisons by the names of NumPy's functions."""


class Index:
    """An integer that the device knows: a sum of values with factors, and a number."""

    __hash__ = None  # type: ignore[assignment]  # `==` compares on the device

    def __init__(self, trace: Builder, terms: dict[Value, int], number: int) -> None:
        self._trace = trace
        self._terms = {v: n for v, n in terms.items() if n}
        self._number = number
        for n in (number, *self._terms.values()):
            if not -(2**63) <= n < 2**63:
                raise Mistake(f"{n} is beyond the 64 bits of a number of the device")

    @classmethod
    def of(cls, trace: Builder, value: Value | int) -> Index:
        """A value of type `index`, or a number."""
        return cls(trace, {}, value) if isinstance(value, int) else cls(trace, {value: 1}, 0)

    @classmethod
    def maybe(cls, trace: Builder, value: Any) -> Index | None:
        """What a value is as an index; None for what is no integer."""
        if isinstance(value, Index):
            return value
        if isinstance(value, int | np.integer) and not isinstance(value, bool):
            return cls.of(trace, int(value))
        convert = getattr(value, "_as_index", None)
        return convert() if convert is not None else None

    @property
    def known(self) -> int | None:
        """The number, if it does not depend on the device."""
        return None if self._terms else self._number

    def emitted(self) -> Value:
        """The value."""
        trace, found = self._trace, None
        for value, factor in self._terms.items():
            term = value if factor == 1 else trace.value("arith.muli $0, $1 : index", (value, trace.number(factor)), "index")
            found = term if found is None else trace.value("arith.addi $0, $1 : index", (found, term), "index")
        if found is None:
            return trace.number(self._number)
        return trace.value("arith.addi $0, $1 : index", (found, trace.number(self._number)), "index") if self._number else found

    def subscript(self, operands: list[Value]) -> str:
        """The text of this index between brackets; adds the values that it names to `operands`."""
        parts = []
        for value, factor in self._terms.items():
            operands.append(value)
            parts.append(f"${len(operands) - 1}" + (f" * {factor}" if factor != 1 else ""))
        return " + ".join(parts + ([str(self._number)] if self._number or not parts else [])).replace("+ -", "- ")

    def _other(self, other: Any) -> Index | None:
        """A number beside this one; None for tiles and arrays, which know what to do with an index."""
        if isinstance(other, np.ndarray) or hasattr(other, "_as_index"):
            return None
        found = Index.maybe(self._trace, other)
        if found is None:
            raise Mistake(f"an index expects integers beside it, but got {kind_of(other)}")
        return found

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        bound = {"minimum": "minsi", "maximum": "maxsi"}.get(ufunc.__name__)
        compared = _COMPARED.get(ufunc.__name__)
        if (bound or compared) and method == "__call__" and not options:
            left, right = (Index.maybe(self._trace, x) if isinstance(x, Index | int | np.integer) else None for x in inputs)
            if left is not None and right is not None:
                return self._op(bound, left, right) if bound else left._compare(compared or "", right)
        return self._trace.apply(ufunc, method, inputs, options)

    def _plus(self, other: Any, factor: int) -> Any:
        right = self._other(other)
        if right is None:
            return NotImplemented
        terms = dict(self._terms)
        for value, n in right._terms.items():
            terms[value] = terms.get(value, 0) + n * factor
        return Index(self._trace, terms, self._number + factor * right._number)

    def _op(self, name: str, left: Index, right: Index) -> Index:
        value = self._trace.value(f"arith.{name} $0, $1 : index", (left.emitted(), right.emitted()), "index")
        self._trace.ranges.note(value, name, left, right)
        return Index.of(self._trace, value)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __neg__(self) -> Index:
        return self * -1

    def __mul__(self, other: Any) -> Any:
        right = self._other(other)
        if right is None:
            return NotImplemented
        for one, two in ((self, right), (right, self)):
            if two.known is not None:
                return Index(self._trace, {v: n * two.known for v, n in one._terms.items()}, one._number * two.known)
        return self._op("muli", self, right)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        right = self._other(other)
        if right is None:
            return NotImplemented
        if right.known == 0:
            raise Mistake("division by zero")
        if right.known == 1:  # as by a single slot
            return self
        return self._op("floordivsi", self, right)

    def __mod__(self, other: Any) -> Any:
        return NotImplemented if self._other(other) is None else self - (self // other) * other

    def __rfloordiv__(self, other: Any) -> Any:
        left = self._other(other)
        return NotImplemented if left is None else left // self

    def __rmod__(self, other: Any) -> Any:
        left = self._other(other)
        return NotImplemented if left is None else left % self

    def _compare(self, kind: str, other: Any) -> Any:
        right = self._other(other)
        if right is None:
            return NotImplemented
        text = f"arith.cmpi {_COMPARISONS[kind]}, $0, $1 : index"
        return Condition(self._trace, self._trace.value(text, (self.emitted(), right.emitted()), "i1"))

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def __bool__(self) -> bool:
        raise Mistake("Python cannot decide by a number of the device; use 'when', 'np.where', or a comparison in the bounds of a loop")

    def __index__(self) -> int:
        raise Mistake("Python needs a number that is known when the kernel is traced, but got one of the device")

    def __int__(self) -> int:
        return self.__index__()

    def __float__(self) -> float:
        return float(self.__index__())


class Condition:
    """A truth value of the device."""

    __hash__ = None  # type: ignore[assignment]  # `==` compares on the device

    def __init__(self, trace: Builder, value: Value) -> None:
        self._trace, self.value = trace, value

    def _with(self, op: str, other: Any) -> Any:
        if hasattr(other, "_as_condition"):
            return NotImplemented
        if isinstance(other, bool):
            right = self._trace.value(f"arith.constant {str(other).lower()}", (), "i1")
        elif isinstance(other, Condition):
            right = other.value
        else:
            raise Mistake(f"a condition expects conditions beside it, but got {kind_of(other)}")
        return Condition(self._trace, self._trace.value(f"arith.{op} $0, $1 : i1", (self.value, right), "i1"))

    def __and__(self, other: Any) -> Any:
        return self._with("andi", other)

    def __or__(self, other: Any) -> Any:
        return self._with("ori", other)

    def __xor__(self, other: Any) -> Any:
        return self._with("xori", other)

    def __ne__(self, other: object) -> Any:
        return self._with("xori", other)

    def __eq__(self, other: object) -> Any:
        differ = self._with("xori", other)
        return differ if differ is NotImplemented else ~differ

    def __invert__(self) -> Any:
        return self._with("xori", True)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __bool__(self) -> bool:
        raise Mistake("Python cannot decide by a condition of the device; use 'when', and between conditions &, | and ~")
