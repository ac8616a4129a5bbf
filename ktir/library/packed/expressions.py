"""What elements of a tensor of a graph are: expressions of elements of others, found by their places.

A tensor's place is its element in row-major order; of a word, the four bits. Along each dim of an expression a leaf has *digits*, outer to
inner: extents, and how far apart two neighbours lie. So views, broadcasts and concatenations of parts are arithmetic on digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray
from torch import fx

Digits = tuple[tuple[int, int], ...]
"""Extents and distances, outer to inner."""


@dataclass(frozen=True)
class Leaf:
    """Elements of a node's tensor, or four bits of them."""

    node: fx.Node
    dims: tuple[Digits, ...]
    first: int = 0
    kind: str = "element"
    """`word`: an integer, of which bits will be taken; `shifted`: such with others in the lowest bits; `lifted`: of a byte, the lower four
    in place of the upper ones; `weight`: four of them; `signed`: four with a sign."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent(d) for d in self.dims)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def places(self, dim: int) -> NDArray[np.int64]:
        """How far from the first one each position along a dim lies."""
        found = np.zeros(1, np.int64)
        for n, distance in self.dims[dim]:
            found = (found[:, None] + np.arange(n) * distance).reshape(-1)
        return found


@dataclass(frozen=True)
class Step:
    """An operation on elements: of an expression, and perhaps a number or another expression of the same shape."""

    name: str
    of: Expression
    operand: float | str | Expression
    dtype: str


Expression = Leaf | Step


def extent(digits: Digits) -> int:
    """The positions along a dim."""
    return prod(n for n, _ in digits)


def shape_of(e: Expression) -> tuple[int, ...]:
    """Of a step, that of what it is of."""
    return e.shape if isinstance(e, Leaf) else shape_of(e.of)


def moved(e: Expression, change: Callable[[Leaf], Leaf | None]) -> Expression | None:
    """An expression with its leaves seen otherwise; None where one cannot be."""
    if isinstance(e, Leaf):
        return change(e)
    of = moved(e.of, change)
    operand = moved(e.operand, change) if isinstance(e.operand, Leaf | Step) else e.operand
    return None if of is None or operand is None else replace(e, of=of, operand=operand)


def whole(node: fx.Node, shape: Sequence[int], kind: str = "element", parts: int = 1) -> Leaf:
    """All elements of a node, of which each has so many parts."""
    return Leaf(node, tuple(((n, parts * prod(shape[d + 1 :])),) for d, n in enumerate(shape)), 0, kind)


def reshaped(leaf: Leaf, shape: Sequence[int]) -> Leaf | None:
    """Digits in the same order, dealt to other dims; None where an extent is no product of theirs."""
    rest = [digit for digits in leaf.dims for digit in digits if digit[0] != 1]
    dims: list[Digits] = []
    for n in shape:
        own: list[tuple[int, int]] = []
        while n > 1:
            if not rest:
                return None
            size, distance = rest.pop(0)
            if n % size == 0:
                own.append((size, distance))
                n //= size
            elif size % n == 0:
                own.append((n, distance * (size // n)))
                rest.insert(0, (size // n, distance))
                n = 1
            else:
                return None
        dims.append(tuple(own))
    return None if rest else replace(leaf, dims=tuple(dims))


def broadcast(leaf: Leaf, shape: Sequence[int]) -> Leaf | None:
    """As if repeated along dims of one position, and new ones in front."""
    missing = len(shape) - len(leaf.dims)
    dims: list[Digits] = [((n, 0),) for n in shape[:missing]]
    for digits, n in zip(leaf.dims, shape[missing:], strict=True):
        if extent(digits) not in (1, n):
            return None
        dims.append(digits if extent(digits) == n else ((n, 0),))
    return replace(leaf, dims=tuple(dims))


def joined(parts: Sequence[Leaf], dim: int) -> Leaf | None:
    """Parts of one tensor one after the other, if they lie equally far apart; else None."""
    first, *others = parts
    if not others:
        return first
    distance = others[0].first - first.first
    if any(replace(p, first=first.first) != first or p.first - first.first != (k + 1) * distance for k, p in enumerate(others)):
        return None
    own = tuple(d for d in first.dims[dim] if d[0] != 1)
    return replace(first, dims=(*first.dims[:dim], ((len(parts), distance), *own), *first.dims[dim + 1 :]))
