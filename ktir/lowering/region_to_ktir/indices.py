"""Index expressions of loop bodies: small trees over loop variables and other symbols. No torch, no sympy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class FloorDiv:
    """`operand // divisor`, rounded down; `divisor` > 0."""

    operand: Index
    divisor: int


@dataclass(frozen=True)
class Mod:
    """`operand % modulus`, never negative; `modulus` > 0."""

    operand: Index
    modulus: int


@dataclass(frozen=True)
class Call:
    """A function that is not linear: `max`, `min` and `mul` of two or more operands, `abs` of one."""

    function: Literal["max", "min", "mul", "abs"]
    operands: tuple[Index, ...]


Atom = str | FloorDiv | Mod | Call
"""What a coefficient multiplies: a symbol (loop variable, index from data, size) or a function of other expressions."""

_CALLS = {"max": np.maximum, "min": np.minimum, "mul": np.multiply}


@dataclass(frozen=True)
class Index:
    """`constant + sum of coefficient * atom`. Terms have non-zero coefficients and distinct atoms."""

    constant: int = 0
    terms: tuple[tuple[int, Atom], ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        """Every symbol that occurs, also inside divisions."""
        found: set[str] = set()
        for _, atom in self.terms:
            if isinstance(atom, str):
                found.add(atom)
            else:
                found.update(*(o.variables for o in _operands(atom)))
        return frozenset(found)

    @property
    def is_affine(self) -> bool:
        """Nothing but symbols occurs."""
        return all(isinstance(atom, str) for _, atom in self.terms)

    @property
    def is_quasi_affine(self) -> bool:
        """Nothing but symbols, floor divisions and remainders occurs: what an affine map can say."""
        return all(isinstance(a, str) or (not isinstance(a, Call) and a.operand.is_quasi_affine) for _, a in self.terms)

    def coefficient(self, variable: str) -> int:
        """The coefficient of a symbol; only meaningful where the expression is affine."""
        return next((c for c, atom in self.terms if atom == variable), 0)

    def __add__(self, other: Index) -> Index:
        sums: dict[Atom, int] = {}
        for coefficient, atom in self.terms + other.terms:
            sums[atom] = sums.get(atom, 0) + coefficient
        return Index(self.constant + other.constant, tuple((c, a) for a, c in sums.items() if c))

    def scaled(self, factor: int) -> Index:
        """`factor * self`."""
        return Index(self.constant * factor, tuple((c * factor, a) for c, a in self.terms if factor))

    def divided(self, divisor: int) -> Index:
        """`self // divisor`."""
        if divisor == 1:
            return self
        if not self.terms:
            return Index(self.constant // divisor)
        return Index(0, ((1, FloorDiv(self, divisor)),))

    def modulo(self, modulus: int) -> Index:
        """`self % modulus`."""
        if not self.terms:
            return Index(self.constant % modulus)
        return Index(0, ((1, Mod(self, modulus)),))

    def substituted(self, by: Mapping[str, Index]) -> Index:
        """The expression with the symbols in `by` replaced."""
        total = Index(self.constant)
        for coefficient, atom in self.terms:
            total += _replaced(atom, by).scaled(coefficient)
        return total

    def values(self, at: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """The expression at many points: `at` gives an array per symbol; the arrays broadcast against each other."""
        total: Any = np.int64(self.constant)
        for coefficient, atom in self.terms:
            total = total + coefficient * _value(atom, at)
        return np.asarray(total)

    def __str__(self) -> str:
        text = [_term(c, a) for c, a in self.terms]
        if self.constant or not text:
            text.append(str(self.constant))
        return " + ".join(text)

    def to_json(self) -> Any:
        """A JSON value: `[constant, [coefficient, atom], ...]`, atoms as names or `["//" or "%", operand, number]` or
        `[function, operand, ...]`."""
        return [self.constant, *[[c, _atom_to_json(a)] for c, a in self.terms]]

    @staticmethod
    def from_json(value: Any) -> Index:
        """The inverse of `to_json`."""
        return Index(value[0], tuple((c, _atom_from_json(a)) for c, a in value[1:]))


def variable(name: str) -> Index:
    """The expression that is one symbol."""
    return Index(0, ((1, name),))


def call(function: Literal["max", "min", "mul", "abs"], *operands: Index) -> Index:
    """The expression that is a function of others; numbers are folded."""
    if all(not o.terms for o in operands):
        return Index(int(_value(Call(function, operands), {})))
    return Index(0, ((1, Call(function, operands)),))


def _operands(atom: FloorDiv | Mod | Call) -> Iterator[Index]:
    yield from atom.operands if isinstance(atom, Call) else (atom.operand,)


def _replaced(atom: Atom, by: Mapping[str, Index]) -> Index:
    match atom:
        case FloorDiv(operand, divisor):
            return operand.substituted(by).divided(divisor)
        case Mod(operand, modulus):
            return operand.substituted(by).modulo(modulus)
        case Call(function, operands):
            return call(function, *(o.substituted(by) for o in operands))
        case name:
            return by.get(name) or variable(name)


def _value(atom: Atom, at: Mapping[str, npt.NDArray[np.int64]]) -> Any:
    match atom:
        case FloorDiv(operand, divisor):
            return operand.values(at) // divisor
        case Mod(operand, modulus):
            return operand.values(at) % modulus
        case Call("abs", (operand,)):
            return np.abs(operand.values(at))
        case Call(function, (first, *others)):
            result = first.values(at)
            for other in others:
                result = _CALLS[function](result, other.values(at))
            return result
        case name:
            return at[str(name)]


def _term(coefficient: int, atom: Atom) -> str:
    match atom:
        case FloorDiv(operand, divisor):
            text = f"(({operand}) // {divisor})"
        case Mod(operand, modulus):
            text = f"(({operand}) % {modulus})"
        case Call(function, operands):
            text = f"{function}({', '.join(map(str, operands))})"
        case name:
            text = name
    return text if coefficient == 1 else f"{coefficient}*{text}"


def _atom_to_json(atom: Atom) -> Any:
    match atom:
        case FloorDiv(operand, divisor):
            return ["//", operand.to_json(), divisor]
        case Mod(operand, modulus):
            return ["%", operand.to_json(), modulus]
        case Call(function, operands):
            return [function, *(o.to_json() for o in operands)]
        case name:
            return name


def _atom_from_json(value: Any) -> Atom:
    if isinstance(value, str):
        return value
    operator, *rest = value
    if operator in ("//", "%"):
        return (FloorDiv if operator == "//" else Mod)(Index.from_json(rest[0]), rest[1])
    return Call(operator, tuple(map(Index.from_json, rest)))
