"""Integer sets as plain data: their bounding box, and which of its points they hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.reference.ops.maps import code_of, linear_of
from ktir.mlir import ir
from ktir.target import LANES

__all__ = ["IndexSet"]

_SET = re.compile(r"affine_set<\(([^)]*)\)(?:\[([^\]]*)\])? : \((.*)\)>")


@dataclass(frozen=True)
class _Constraint:
    """`row` · (dims, symbols) + constant >= 0, or == 0; `row` is None where the expression is not linear."""

    row: tuple[tuple[int, ...], int] | None
    code: Any
    equal: bool


@dataclass(frozen=True)
class IndexSet:
    """A set of integer points over `dims` dims, with `symbols` parameters. Symbols may be arrays: then so are the bounds."""

    dims: int
    symbols: int
    constraints: tuple[_Constraint, ...]

    @staticmethod
    def of(attribute: ir.Attribute) -> IndexSet:
        match = _SET.fullmatch(str(attribute))
        if match is None:
            raise ValueError(f"not an integer set: {attribute}")
        dims, symbols = (len(names.split(",")) if names else 0 for names in match.group(1, 2))
        texts = [c for c in match.group(3).split(", ") if c != "0 == 0"]
        names = [f"d{i}" for i in range(dims)] + [f"s{i}" for i in range(symbols)]
        if not texts:
            return IndexSet(dims, symbols, ())
        body = ", ".join(t.rsplit(" ", 2)[0] for t in texts)
        map_ = ir.AffineMapAttr(ir.Attribute.parse(f"affine_map<({', '.join(names)}) -> ({body})>", attribute.context)).value
        constraints = [
            _Constraint(linear_of(e, dims + symbols), code_of(e), t.split(" ")[-2] == "==")
            for e, t in zip(map_.results, texts, strict=True)
        ]
        return IndexSet(dims, symbols, tuple(constraints))

    def box(self, symbols: Sequence[Any] = ()) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        """Lowest corner and extents of the bounding box that single-dim bounds give; None if a dim has none."""
        low: list[Any] = [None] * self.dims
        high: list[Any] = [None] * self.dims
        for c in self.constraints:
            if c.row is None:
                continue
            used = [d for d in range(self.dims) if c.row[0][d]]
            if len(used) != 1:
                continue
            (d,) = used
            factor = c.row[0][d]
            rest: Any = c.row[1]
            for i, value in enumerate(symbols):
                rest = rest + c.row[0][self.dims + i] * value
            if factor > 0 or c.equal:
                edge = -(rest // factor) if factor > 0 else -(-rest // -factor)  # ceil(-rest / factor)
                low[d] = edge if low[d] is None else np.maximum(low[d], edge)
            if factor < 0 or c.equal:
                edge = -rest // factor if factor > 0 else rest // -factor
                high[d] = edge if high[d] is None else np.minimum(high[d], edge)
        if any(x is None for x in (*low, *high)):
            return None
        extents = (b - a + 1 for a, b in zip(low, high, strict=True))
        return tuple(low), tuple(max(n, 0) if isinstance(n, int) else np.maximum(n, 0) for n in extents)

    @property
    def is_box(self) -> bool:
        """Whether every constraint bounds one dim, with factor 1."""
        return all(
            c.row is not None and sum(bool(x) for x in c.row[0][: self.dims]) == 1 and max(map(abs, c.row[0][: self.dims])) == 1
            for c in self.constraints
        )

    @property
    def lane_bound(self) -> tuple[int, int] | None:
        """The bound -64 * d_stick - d_last + c >= 0 of a set that is cut at a lane, as (stick, c)."""
        for c in self.constraints:
            if c.row is None or c.equal:
                continue
            factors, constant = c.row
            used = [d for d in range(self.dims) if factors[d]]
            if len(used) == 2 and used[1] == self.dims - 1 and (factors[used[0]], factors[used[1]]) == (-LANES, -1):
                return used[0], constant
        return None

    def holds(self, points: Sequence[Any], symbols: Sequence[Any] = ()) -> Any:
        """Where the points (arrays that broadcast, one per dim) belong to the set."""
        inside: Any = True
        arguments = [*points, *symbols]
        for c in self.constraints:
            value = c.code(arguments)
            inside = inside & (np.equal(value, 0) if c.equal else np.greater_equal(value, 0))
        return inside

    def mask(self, low: Sequence[int], extents: Sequence[int], symbols: Sequence[Any] = ()) -> NDArray[np.bool_] | None:
        """Which points of a box belong to the set; None if all do."""
        if self.is_box:
            return None
        grid = [first + numbers for first, numbers in zip(low, np.indices(tuple(extents), sparse=True), strict=True)]
        found = np.broadcast_to(self.holds(grid, symbols), tuple(extents))
        return None if found.all() else found

    def members(self, limit: int, symbols: Sequence[int] = ()) -> list[int]:
        """Members of a set of one dim among 0 .. limit - 1, in ascending order."""
        inside = np.broadcast_to(self.holds([np.arange(limit)], symbols), (limit,))
        return [int(i) for i in np.flatnonzero(inside)]
