"""Affine and quasi-affine addresses over loops, taken apart into what strided windows can say.

An address is a constant plus one function per loop. A function is a list of digits, the loop cut at extents at each of which it is linear
(`i floordiv 8` and `i mod 8`), or it falls into ranges of such (`(i + 1) mod 8`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ktir.mlir import ir

Numbers = NDArray[np.int64]
Digits = list[tuple[int, int]]
"""Extents and strides, outer to inner."""


def functions_of(expressions: Sequence[ir.AffineExpr], strides: Sequence[int], extents: Sequence[int]) -> tuple[int, list[Numbers]] | None:
    """The address sum(expression * stride) over loops of `extents`: its value at zero and what each loop adds. None where a term depends on
    several loops at once."""
    terms: list[tuple[ir.AffineExpr, int]] = []
    for expression, stride in zip(expressions, strides, strict=True):
        _add_terms(expression, stride, terms)
    functions = [np.zeros(n, np.int64) for n in extents]
    constant = 0
    for term, factor in terms:
        loops = loops_of(term)
        if len(loops) > 1:
            return None
        if not loops:
            constant += factor * int(_value(term, {}))
        for loop in loops:
            functions[loop] += factor * _value(term, {loop: np.arange(extents[loop], dtype=np.int64)})
    for function in functions:
        if function.size:
            constant += int(function[0])
            function -= function[0]
    return constant, functions


def digits_of(function: Numbers) -> Digits | None:
    """The loop cut so that the address is linear in each part; None where no cut does it."""
    size = function.size
    if size <= 1:
        return [(size, 0)]
    step = int(function[1] - function[0])
    breaks = np.flatnonzero(np.diff(function) != step)
    if not breaks.size:
        return [(size, step)]
    inner = int(breaks[0]) + 1
    if size % inner:
        return None
    table = function.reshape(-1, inner)
    outer = digits_of(table[:, 0].copy())
    if outer is None or (table - table[:, :1] != np.arange(inner) * step).any():
        return None
    return [*outer, *([(inner, step)] if inner > 1 else [])]


def ranges_of(function: Numbers) -> list[tuple[int, int]]:
    """First and end of ranges in which the address has digits: the whole if it has, else runs of equal steps."""
    if digits_of(function) is not None:
        return [(0, function.size)]
    found, first = [], 0
    while first < function.size:
        steps = np.diff(function[first:])
        breaks = np.flatnonzero(steps != steps[0]) if steps.size else steps
        end = first + int(breaks[0]) + 1 if breaks.size else function.size
        found.append((first, end))
        first = end
    return found


def _add_terms(expression: ir.AffineExpr, factor: int, terms: list[tuple[ir.AffineExpr, int]]) -> None:
    """Take a sum, and a multiple of a sum, apart."""
    if isinstance(expression, ir.AffineAddExpr):
        _add_terms(expression.lhs, factor, terms)
        _add_terms(expression.rhs, factor, terms)
    elif isinstance(expression, ir.AffineMulExpr) and isinstance(expression.rhs, ir.AffineConstantExpr):
        _add_terms(expression.lhs, factor * expression.rhs.value, terms)
    else:
        terms.append((expression, factor))


def loops_of(expression: ir.AffineExpr) -> set[int]:
    """The loops, or variables, that an expression depends on."""
    if isinstance(expression, ir.AffineDimExpr):
        return {expression.position}
    if isinstance(expression, ir.AffineBinaryExpr):
        return loops_of(expression.lhs) | loops_of(expression.rhs)
    return set()


def _value(expression: ir.AffineExpr, loops: dict[int, Numbers]) -> Numbers | int:
    if isinstance(expression, ir.AffineDimExpr):
        return loops[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    assert isinstance(expression, ir.AffineBinaryExpr)
    a, b = _value(expression.lhs, loops), _value(expression.rhs, loops)
    if isinstance(expression, ir.AffineAddExpr):
        return a + b
    if isinstance(expression, ir.AffineMulExpr):
        return a * b
    if isinstance(expression, ir.AffineModExpr):
        return a % b
    return a // b if isinstance(expression, ir.AffineFloorDivExpr) else -(-a // b)
