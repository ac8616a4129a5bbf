"""Index expressions of loop bodies: small trees of sums, floor divisions and remainders over loop variables. No torch, no sympy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


Atom = str | FloorDiv | Mod
"""What a coefficient multiplies: a loop variable or a nested division."""


@dataclass(frozen=True)
class Index:
    """`constant + sum of coefficient * atom`. Terms have non-zero coefficients and distinct atoms."""

    constant: int = 0
    terms: tuple[tuple[int, Atom], ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        """Every loop variable that occurs, also inside divisions."""
        found: set[str] = set()
        for _, atom in self.terms:
            found |= {atom} if isinstance(atom, str) else atom.operand.variables
        return frozenset(found)

    @property
    def is_affine(self) -> bool:
        """No division occurs."""
        return all(isinstance(atom, str) for _, atom in self.terms)

    def coefficient(self, variable: str) -> int:
        """The coefficient of a loop variable; only meaningful where the expression is affine."""
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

    def values(self, at: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """The expression at many points: `at` gives an array per variable; the arrays broadcast against each other."""
        total: Any = np.int64(self.constant)
        for coefficient, atom in self.terms:
            match atom:
                case FloorDiv(operand, divisor):
                    value = operand.values(at) // divisor
                case Mod(operand, modulus):
                    value = operand.values(at) % modulus
                case name:
                    value = at[name]
            total = total + coefficient * value
        return np.asarray(total)

    def __str__(self) -> str:
        text = [_term(c, a) for c, a in self.terms]
        if self.constant or not text:
            text.append(str(self.constant))
        return " + ".join(text)

    def to_json(self) -> Any:
        """A JSON value: `[constant, [coefficient, atom], ...]`, atoms as names or `["//" or "%", operand, number]`."""
        return [self.constant, *[[c, _atom_to_json(a)] for c, a in self.terms]]

    @staticmethod
    def from_json(value: Any) -> Index:
        """The inverse of `to_json`."""
        return Index(value[0], tuple((c, _atom_from_json(a)) for c, a in value[1:]))


def variable(name: str) -> Index:
    """The expression that is one loop variable."""
    return Index(0, ((1, name),))


def _term(coefficient: int, atom: Atom) -> str:
    match atom:
        case FloorDiv(operand, divisor):
            text = f"(({operand}) // {divisor})"
        case Mod(operand, modulus):
            text = f"(({operand}) % {modulus})"
        case name:
            text = name
    return text if coefficient == 1 else f"{coefficient}*{text}"


def _atom_to_json(atom: Atom) -> Any:
    match atom:
        case FloorDiv(operand, divisor):
            return ["//", operand.to_json(), divisor]
        case Mod(operand, modulus):
            return ["%", operand.to_json(), modulus]
        case name:
            return name


def _atom_from_json(value: Any) -> Atom:
    if isinstance(value, str):
        return value
    operator, operand, number = value
    return (FloorDiv if operator == "//" else Mod)(Index.from_json(operand), number)
