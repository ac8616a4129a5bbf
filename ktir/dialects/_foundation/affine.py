"""Boxes as integer sets, and affine expressions whose value is known."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ktir.assembly import judgement
from ktir.mlir import ir

Range = tuple[int, int]
"""Least and greatest value."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Lowest corner and extents."""

_SET = re.compile(r"affine_set<\(([^)]*)\)(?:\[([^\]]*)\])? : \((.*)\)>")
_BOUND = re.compile(r"(-?)d(\d+)(?: ([+-]) (\d+))? (>=|==) 0")
_LANES = re.compile(r"d(\d+) \* -64 - d(\d+)(?: ([+-]) (\d+))? >= 0")
_DIMS = re.compile(r"\bd(\d+)\b")


def box_set(extents: Sequence[int | None]) -> ir.Attribute:
    """The integer set of the zero-based box with these extents; None stands for a symbol, numbered in order."""
    bounds: list[str] = []
    symbols = 0
    for i, extent in enumerate(extents):
        bounds.append(f"d{i} >= 0")
        if extent is None:
            bounds.append(f"-d{i} + s{symbols} - 1 >= 0")
            symbols += 1
        else:
            bounds.append(f"-d{i} + {extent - 1} >= 0")
    dims = ", ".join(f"d{i}" for i in range(len(extents)))
    syms = f"[{', '.join(f's{i}' for i in range(symbols))}]" if symbols else ""
    return ir.Attribute.parse(f"affine_set<({dims}){syms} : ({', '.join(bounds)})>")


def set_facts(attribute: ir.Attribute) -> tuple[int, int, Box | None]:
    """Number of dims and of symbols of an integer set, and its box as `set_box` gives it."""
    return _known(attribute, _taken_apart)


def _known(attribute: ir.Attribute, find: Callable[[str], Any]) -> Any:
    """`find` of the attribute's text. While a module is read it is found once per attribute: printing one takes longer than the rest."""
    judge = judgement.current()
    if judge is None:
        return find(str(attribute))
    if attribute not in judge.facts:
        judge.facts[attribute] = find(str(attribute))
    return judge.facts[attribute]


def set_counts(attribute: ir.Attribute) -> tuple[int, int]:
    """Number of dims and of symbols of an integer set."""
    dims, symbols, _ = set_facts(attribute)
    return dims, symbols


def set_box(attribute: ir.Attribute) -> Box | None:
    """The box that an integer set describes, or None if it is not a box with constant bounds."""
    return set_facts(attribute)[2]


@lru_cache(maxsize=4096)
def _taken_apart(text: str) -> tuple[int, int, Box | None]:
    match = _SET.fullmatch(text)
    if match is None:
        raise ValueError(f"not an integer set: {text}")
    dims, symbols = (len(names.split(",")) if names else 0 for names in match.group(1, 2))
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    for bound in match.group(3).split(", "):
        if bound == "0 == 0":
            continue
        parts = _BOUND.fullmatch(bound)
        if parts is None:
            return dims, symbols, None
        minus, dim, sign, number, relation = parts.groups()
        constant = int(number or 0) * (-1 if sign == "-" else 1)
        edge = constant if minus else -constant
        if relation == "==" or not minus:
            low[int(dim)] = max(edge, low.get(int(dim), edge))
        if relation == "==" or minus:
            high[int(dim)] = min(edge, high.get(int(dim), edge))
    if not all(i in low and i in high for i in range(dims)):
        return dims, symbols, None
    corner = tuple(low[i] for i in range(dims))
    return dims, symbols, (corner, tuple(max(0, high[i] - low[i] + 1) for i in range(dims)))


def lane_bound(dims: int, stick: int, last: int) -> str:
    """The constraint that elements beyond number `last` are out: 64 * (coordinate in dim `stick`) + (coordinate in the last of `dims`)."""
    return f"-64 * d{stick} - d{dims - 1} + {last} >= 0"


def clipped(extents: Sequence[int | None], stick: int, last: int) -> ir.Attribute:
    """The box of `box_set`, cut after position `last` of the elements in sticks along dim `stick`."""
    text = str(box_set(extents)).removesuffix(")>")
    return ir.Attribute.parse(f"{text}, {lane_bound(len(extents), stick, last)})>")


def lane_bounds(attribute: ir.Attribute) -> tuple[tuple[tuple[int, int], ...], str | None]:
    """Of a set, the bounds -64 * d_stick - d_last + c >= 0 as (stick, c), and another constraint over several dims, if there is one."""
    return _known_bounds(str(attribute))


@lru_cache(maxsize=4096)
def _known_bounds(text: str) -> tuple[tuple[tuple[int, int], ...], str | None]:
    match = _SET.fullmatch(text)
    assert match is not None
    rank = len(match.group(1).split(",")) if match.group(1) else 0
    bounds: list[tuple[int, int]] = []
    for constraint in match.group(3).split(", "):
        if len(set(_DIMS.findall(constraint))) < 2:
            continue
        parts = _LANES.fullmatch(constraint)
        if parts is None or int(parts[2]) != rank - 1:
            return tuple(bounds), constraint
        bounds.append((int(parts[1]), int(parts[4] or 0) * (-1 if parts[3] == "-" else 1)))
    return tuple(bounds), None


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes of one rank share a point."""
    return all(max(x, y) < min(x + m, y + n) for x, m, y, n in zip(*a, *b, strict=True))


def permutation_of(attribute: ir.Attribute) -> list[int] | None:
    """The dim that each result of an affine map is, or None if one of them is more than a dim."""
    return _known(attribute, _permuted)


@lru_cache(maxsize=4096)
def _permuted(text: str) -> list[int] | None:
    results = text[text.index("->") + 2 :].strip("() >")
    names = results.split(", ") if results else []
    return [int(name[1:]) for name in names] if all(re.fullmatch(r"d\d+", name) for name in names) else None


def permutation(results: Sequence[ir.AffineExpr]) -> list[int] | None:
    """The dim that each of `results` is, or None if one of them is more than a dim."""
    dims = [r.position for r in results if isinstance(r, ir.AffineDimExpr)]
    return dims if len(dims) == len(results) else None


def evaluate(expr: ir.AffineExpr, dims: Sequence[int | None]) -> int | None:
    """Value of `expr` where dim i is `dims[i]` (None: unknown); None if it depends on an unknown."""
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if not isinstance(expr, ir.AffineBinaryExpr):
        return None
    left, right = evaluate(expr.lhs, dims), evaluate(expr.rhs, dims)
    if left is None or right is None:
        return None
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        return left * right
    if right <= 0:
        return None
    if isinstance(expr, ir.AffineModExpr):
        return left % right
    return left // right if isinstance(expr, ir.AffineFloorDivExpr) else -(-left // right)


def interval(expr: ir.AffineExpr, dims: Sequence[Range | None]) -> Range | None:
    """Least and greatest value of `expr` over a box of dims (None: unknown), both attained; None if they cannot be told."""
    used: list[int] = []
    found = _interval(expr, dims, used)
    return found if len(set(used)) == len(used) else None  # a dim that is there twice does not vary on its own


def _interval(expr: ir.AffineExpr, dims: Sequence[Range | None], used: list[int]) -> Range | None:
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value, expr.value
    if isinstance(expr, ir.AffineDimExpr):
        used.append(expr.position)
        return dims[expr.position]
    if not isinstance(expr, ir.AffineBinaryExpr):
        return None
    left, right = _interval(expr.lhs, dims, used), _interval(expr.rhs, dims, used)
    if left is None or right is None:
        return None
    if isinstance(expr, ir.AffineAddExpr):
        return left[0] + right[0], left[1] + right[1]
    if right[0] != right[1]:
        return None
    by = right[0]
    if isinstance(expr, ir.AffineMulExpr):
        return min(left[0] * by, left[1] * by), max(left[0] * by, left[1] * by)
    if by <= 0:
        return None
    if isinstance(expr, ir.AffineModExpr):
        return (left[0] % by, left[1] % by) if left[0] // by == left[1] // by else None
    if isinstance(expr, ir.AffineFloorDivExpr):
        return left[0] // by, left[1] // by
    return -(-left[0] // by), -(-left[1] // by)
