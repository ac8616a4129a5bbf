"""Masks of loads as boxes of loop variables: where a conjunction of comparisons may hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ktir.lowering.region_to_ktir.indices import Index
from ktir.lowering.region_to_ktir.nodes import Node
from ktir.lowering.region_to_ktir.radix import Irregular, Loops, refined

_CONJUNCTIONS = ("and_", "logical_and", "bitwise_and")
_RELATIONS = ("lt", "le", "gt", "ge")
_MOST_POINTS = 1 << 22


def comparisons(mask: Node) -> Iterator[Index]:
    """The index expressions of which the mask says that they are >= 0; what else it says is left out."""
    if mask.op in _CONJUNCTIONS:
        for argument in mask.args:
            yield from comparisons(argument)
    elif mask.op in _RELATIONS and mask.args[0].dtype.startswith("int") and mask.args[1].dtype.startswith("int"):
        a, b = (index_of(n) for n in mask.args)
        if a is not None and b is not None:
            difference = a + b.scaled(-1)
            if mask.op in ("lt", "le"):
                difference = difference.scaled(-1)
            yield difference + Index(-1) if mask.op in ("lt", "gt") else difference


def index_of(node: Node) -> Index | None:
    """The index expression that a node is, if it is one."""
    if node.op == "constant":
        return Index(int(node.number))
    if node.op == "to_dtype" and node.dtype.startswith("int"):
        return index_of(node.args[0])
    return node.index


def is_box(mask: Node, loops: Loops) -> bool:
    """Whether a mask holds everywhere in its box, of which `loops` are all sides."""
    if mask.op in _CONJUNCTIONS:
        return all(is_box(argument, loops) for argument in mask.args)
    (index, *_), trips = [*comparisons(mask), None], {v for v, _ in loops}
    return index is not None and index.is_affine and len(index.terms) < 2 and all(str(atom) in trips for _, atom in index.terms)


def box(mask: Node, loops: Loops) -> dict[str, tuple[int, int]]:
    """Per variable the range [low, high) outside of which the mask is false; empty ranges where it never holds."""
    ranges = {v: (0, n) for v, n in loops}
    for index in comparisons(mask):
        if not index.is_affine or len(index.terms) > 1:
            continue
        if not index.terms:
            if index.constant < 0:
                return {v: (0, 0) for v in ranges}
            continue
        ((coefficient, atom),) = index.terms
        variable = str(atom)
        if variable not in ranges:
            continue
        low, high = ranges[variable]
        if coefficient > 0:
            low = max(low, -(index.constant // coefficient))
        else:
            high = min(high, index.constant // -coefficient + 1)
        ranges[variable] = (low, high)
    return ranges


def merged(mask: Node, index: Index, loops: Loops) -> tuple[str, list[str], int, Index] | None:
    """Several variables that mask and index see only as one number in a mixed radix, for example `8*i1 + r0`: the name, the variables
    from high to low, the range of the number, and the index in it.
    """
    trips = dict(loops)
    for comparison in comparisons(mask):
        if not comparison.is_affine or len(comparison.terms) < 2:
            continue
        weights = {str(a): abs(c) for c, a in comparison.terms}
        order = sorted(weights, key=lambda v: -weights[v])
        if any(v not in trips for v in order) or len({c > 0 for c, _ in comparison.terms}) > 1:
            continue
        unit = weights[order[-1]]
        if any(weights[a] != weights[b] * trips[b] for a, b in pairwise(order)):
            continue
        if not all(isinstance(a, str) or not set(order) & Index(0, ((1, a),)).variables for _, a in index.terms):
            continue
        scale, rest = divmod(index.coefficient(order[-1]), 1)
        if rest or not scale or any(index.coefficient(v) * unit != scale * weights[v] for v in order):
            continue
        count = 1
        for v in order:
            count *= trips[v]
        name = "+".join(order)
        kept = Index(index.constant, tuple((c, a) for c, a in index.terms if a not in order))
        return name, order, count, kept + Index(0, ((scale, name),))
    return None


@dataclass(frozen=True)
class Window:
    """Where an access goes along one dim of a buffer: `position`, which is from `least` to `greatest`, also outside of the dim."""

    position: Index
    least: int
    greatest: int


def windows(mask: Node, index: Index, dims: Sequence[tuple[int, int]], loops: Loops) -> list[Window] | None:
    """An index as a position per dim, each of which is inside of its dim wherever the mask is true; None if it is no such sum.

    dims: (size, stride), largest stride first. Example: `8*(i0 + r0) + i1 - 8` with `0 <= i0 + r0 - 1 < 4` in dims (4, 8), (8, 1) has the
    positions `i0 + r0 - 1` and `i1`.
    """
    if any(stride == 0 for _, stride in dims):
        return None
    ranges = {v: (0, n) for v, n in loops}
    rest = index
    found: list[tuple[Index, int, int, int, int]] = []  # terms along a dim, their extremes, and those where the mask is true
    for _, stride in dims:
        own = Index(0, tuple((c // stride, a) for c, a in rest.terms if c % stride == 0))
        rest += own.scaled(-stride)
        bounds = extremes(own, ranges)
        if bounds is None:
            return None
        least, greatest = bounds
        for comparison in comparisons(mask):
            terms = Index(0, comparison.terms)
            if not (terms + own.scaled(-1)).terms:
                least = max(least, -comparison.constant)
            elif not (terms + own).terms:
                greatest = min(greatest, comparison.constant)
        found.append((own, *bounds, least, greatest))
    if rest.terms:
        return None
    constant, result = index.constant, []
    lowest = sum(-stride * least for (_, stride), (*_, least, _) in zip(dims, found, strict=True))
    for (size, stride), (own, first, last, least, greatest) in zip(dims, found, strict=True):
        lowest += stride * least  # now what the dims after this one take away at least
        shift = (constant - lowest) // stride
        constant -= shift * stride
        if least + shift < 0 or greatest + shift >= size or least > greatest:
            return None
        result.append(Window(own + Index(shift), first + shift, last + shift))
    return None if constant else result


def extremes(index: Index, ranges: dict[str, tuple[int, int]]) -> tuple[int, int] | None:
    """Exact minimum and maximum of an index for variables in non-empty ranges [low, high); None if that takes too long."""
    shifted = index.substituted({v: Index(low, ((1, v),)) for v, (low, _) in ranges.items()})
    loops = [(v, high - low) for v, (low, high) in ranges.items() if v in index.variables]
    if any(v not in ranges for v in index.variables):
        return None
    try:
        form, _ = refined(shifted, loops)
        return form.least, form.greatest
    except Irregular:
        pass
    if np.prod([float(n) for _, n in loops]) > _MOST_POINTS:
        return None
    grids = np.ogrid[tuple(slice(n) for _, n in loops)] if loops else ()
    values = shifted.values({v: g for (v, _), g in zip(loops, grids, strict=True)})
    return int(values.min()), int(values.max())
