"""Enumeration of sets of tiles such as `(i)[g]`: which tiles a group has, where the set bounds them.

A set that is not bounded by constants, or not obviously, gives None; then a check that needs its tiles is skipped.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from ktir.mlir import ir

MOST_TILES = 4096
"""Sets that may be larger than this are not enumerated."""

_SET = re.compile(r"affine_set<(\([^)]*\)(?:\[[^\]]*\])?) : \((.*)\)>")
_COMMA = re.compile(r", (?![^()]*\))")

Constraint = tuple[bool, int | None, Callable[[int, Sequence[int]], int]]
"""Whether it is an equality, the coefficient of the dim (None: it stands in a mod or a division), and the left side."""


def members(attribute: ir.Attribute, symbols: Sequence[int] = ()) -> list[int] | None:
    """The non-negative values of the only dim of a set, with its symbols bound."""
    return _members(str(attribute), tuple(symbols), attribute.context)


def groups(attribute: ir.Attribute) -> list[int] | None:
    """The values of the only dim of a set without symbols, which must be bounded on both sides."""
    constraints = _compiled(str(attribute), attribute.context)
    low, high = _bounds(constraints, ())
    if low is None or high is None or high - low >= MOST_TILES:
        return None
    return [g for g in range(low, high + 1) if _holds(constraints, g, ())]


@lru_cache(maxsize=4096)
def _members_of(text: str, symbols: tuple[int, ...]) -> tuple[int, ...] | None:
    constraints = _KNOWN[text]
    _, high = _bounds(constraints, symbols)
    if high is None or high >= MOST_TILES:
        return None
    return tuple(i for i in range(high + 1) if _holds(constraints, i, symbols))


def _members(text: str, symbols: tuple[int, ...], context: ir.Context) -> list[int] | None:
    _compiled(text, context)
    found = _members_of(text, symbols)
    return None if found is None else list(found)


_KNOWN: dict[str, list[Constraint]] = {}


def _compiled(text: str, context: ir.Context) -> list[Constraint]:
    """The constraints of a set with one dim as functions. Nothing in them belongs to the context, so that they can be kept."""
    if text not in _KNOWN:
        if len(_KNOWN) > 4096:
            _KNOWN.clear()
            _members_of.cache_clear()
        match = _SET.fullmatch(text)
        if match is None:
            raise ValueError(f"not an integer set: {text}")
        parts = [part.rsplit(" ", 2) for part in _COMMA.split(match.group(2))]
        expressions = ir.Attribute.parse(f"affine_map<{match.group(1)} -> ({', '.join(p[0] for p in parts)})>", context).value
        _KNOWN[text] = [
            (relation == "==", _coefficient(expr), eval(f"lambda i, s: {_python(expr)}"))
            for (_, relation, _), expr in zip(parts, expressions.results, strict=True)
        ]
    return _KNOWN[text]


_OPERATORS = {"AffineAddExpr": "+", "AffineMulExpr": "*", "AffineModExpr": "%", "AffineFloorDivExpr": "//"}


def _python(expr: ir.AffineExpr) -> str:
    if isinstance(expr, ir.AffineConstantExpr):
        return str(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return "i"
    if isinstance(expr, ir.AffineSymbolExpr):
        return f"s[{expr.position}]"
    assert isinstance(expr, ir.AffineBinaryExpr)
    left, right = _python(expr.lhs), _python(expr.rhs)
    if isinstance(expr, ir.AffineCeilDivExpr):
        return f"(-((-{left}) // {right}))"
    return f"({left} {_OPERATORS[type(expr).__name__]} {right})"


def _coefficient(expr: ir.AffineExpr) -> int | None:
    """How often the dim is added in `expr`; None if it stands in a mod or a division."""
    if isinstance(expr, ir.AffineDimExpr):
        return 1
    if not isinstance(expr, ir.AffineBinaryExpr):
        return 0
    left, right = _coefficient(expr.lhs), _coefficient(expr.rhs)
    if isinstance(expr, ir.AffineAddExpr):
        return None if left is None or right is None else left + right
    if isinstance(expr, ir.AffineMulExpr) and left is not None and isinstance(expr.rhs, ir.AffineConstantExpr):
        return left * expr.rhs.value
    return 0 if left == right == 0 else None


def _bounds(constraints: Sequence[Constraint], symbols: Sequence[int]) -> tuple[int | None, int | None]:
    """Least and greatest value that the linear constraints leave to the dim."""
    low: int | None = None
    high: int | None = None
    for equality, coefficient, left in constraints:
        if not coefficient:
            continue
        rest = left(0, symbols)
        if coefficient < 0 or equality:
            edge = rest // -coefficient if coefficient < 0 else -rest // coefficient
            high = edge if high is None else min(high, edge)
        if coefficient > 0 or equality:
            edge = -(rest // coefficient) if coefficient > 0 else -(-rest // -coefficient)
            low = edge if low is None else max(low, edge)
    return low, high


def _holds(constraints: Sequence[Constraint], i: int, symbols: Sequence[int]) -> bool:
    return all(left(i, symbols) == 0 if equality else left(i, symbols) >= 0 for equality, _, left in constraints)
