"""What the sets of access tiles are: boxes of positions, or the several boxes that their points are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import refused
from ktir.dialects._foundation import affine
from ktir.mlir import ir

Span = tuple[int, int]
"""The first position, and how many."""


@dataclass(frozen=True)
class Boxes:
    """A set of points by the box that bounds of single dims give, and the boxes in it that its points are."""

    corner: tuple[int, ...]
    extents: tuple[int, ...]
    parts: list[tuple[Span, ...]]
    """Per dim positions from the corner on."""

    @property
    def whole(self) -> tuple[Span, ...]:
        """The box around all."""
        return tuple((0, n) for n in self.extents)


def tile_boxes(tile: ir.Operation) -> Boxes:
    """Those of a 'ktdp.construct_access_tile', in dims of its base. Raises Unsupported for a set whose bounds are no numbers."""
    found = boxes_of(tile.attributes["access_tile_set"])
    if found is None:
        raise refused(tile, "has a set whose bounds are no numbers")
    return found


def boxes_of(attribute: ir.Attribute) -> Boxes | None:
    """The boxes of a set whose dims all have bounds in numbers; None for a set with symbols, without bounds, or of more than 2**22
    positions."""
    _, symbols, box = affine.set_facts(attribute)
    if symbols:
        return None
    if box is not None:
        return Boxes(*box, [tuple((0, n) for n in box[1])] if all(box[1]) else [])
    return _in_boxes(str(attribute))


@lru_cache(maxsize=1024)
def _in_boxes(text: str) -> Boxes | None:
    match = re.fullmatch(r"affine_set<\((.*)\) : \((.*)\)>", text)
    assert match is not None
    names, constraints = match.groups()
    dims = names.split(", ")
    bounds = [c.rsplit(" ", 2) for c in constraints.split(", ")]
    results = ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<({names}) -> ({', '.join(c for c, *_ in bounds)})>")).value.results
    low: list[list[int]] = [[] for _ in dims]
    high: list[list[int]] = [[] for _ in dims]
    for expression, (_, relation, _) in zip(results, bounds, strict=True):
        used = sorted(dims_of(expression))
        if len(used) != 1 or not _is_linear(expression):
            continue
        at, more = (affine.evaluate(expression, [k] * len(dims)) for k in (0, 1))
        assert at is not None
        assert more is not None
        factor = more - at
        if factor > 0 or relation == "==":
            low[used[0]].append(-(at // factor) if factor > 0 else -(-at // -factor))
        if factor < 0 or relation == "==":
            high[used[0]].append(-at // factor if factor > 0 else at // -factor)
    if not all(low) or not all(high):
        return None
    corner = tuple(max(n) for n in low)
    extents = tuple(max(0, min(b) - a + 1) for a, b in zip(corner, high, strict=True))
    if np.prod(extents, dtype=float) > 2**22:
        return None
    points: Any = [a + n for a, n in zip(np.indices(extents, sparse=True), corner, strict=True)]
    inside = np.ones(extents, bool)
    for expression, (_, relation, _) in zip(results, bounds, strict=True):
        value: Any = affine.evaluate(expression, points)
        inside &= value == 0 if relation == "==" else value >= 0
    return Boxes(corner, extents, list(_taken_together(inside)))


def _taken_together(inside: NDArray[np.bool_]) -> Iterator[tuple[Span, ...]]:
    """The boxes of what is true: along each dim positions that are alike are taken together."""
    if not inside.ndim:
        if inside:
            yield ()
        return
    if not inside.size:
        return
    changes = np.flatnonzero((inside[1:] != inside[:-1]).any(tuple(range(1, inside.ndim)))) + 1
    for first, end in pairwise([0, *map(int, changes), len(inside)]):
        if first < end:
            yield from (((first, end - first), *rest) for rest in _taken_together(inside[first]))


def dims_of(expression: ir.AffineExpr) -> set[int]:
    """The dims that an affine expression reads."""
    if isinstance(expression, ir.AffineDimExpr):
        return {ir.AffineDimExpr(expression).position}
    if not isinstance(expression, ir.AffineBinaryExpr):
        return set()
    binary = ir.AffineBinaryExpr(expression)
    return dims_of(binary.lhs) | dims_of(binary.rhs)


def _is_linear(expression: ir.AffineExpr) -> bool:
    if isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        binary = ir.AffineBinaryExpr(expression)
        return _is_linear(binary.lhs) and _is_linear(binary.rhs)
    return not isinstance(expression, ir.AffineBinaryExpr)
