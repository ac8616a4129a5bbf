"""Ops on blocks that are built from trees: pointwise ones and reductions to a number per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ktir.analysis.scalars.expressions import Tree
from ktir.dialects.structured import affine_map, generic
from ktir.mlir import ir, tensor
from ktir.target import LANES


class Input(NamedTuple):
    """An operand of an op on blocks: what its tree calls it, and whether its sticks and lanes are walked; else it is a number per row."""

    name: Tree
    value: ir.Value
    stick: bool = True
    lane: bool = True


Body = Callable[[dict[Tree, ir.Value]], ir.Value]
"""Builds a body from the scalars of the inputs."""


def pointwise(inputs: Sequence[Input], sticks: int, rows: int, body: Body, element: ir.Type) -> ir.Value:
    """An op over [sticks, rows, lanes]."""
    maps = [affine_map(3, _walked(x, 0, 1, 2)) for x in inputs]
    init = tensor.EmptyOp([sticks, rows, LANES], element).result
    return _generic(inputs, init, [*maps, affine_map(3, [0, 1, 2])], ["parallel"] * 3, body)


def reduced(inputs: Sequence[Input], init: ir.Value, body: Body, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """A reduction over sticks and lanes; `combine` takes the accumulator and the scalar of the body."""
    maps = [affine_map(3, _walked(x, 1, 0, 2)) for x in inputs]
    result = affine_map(3, [None, 0, None])

    def whole(names: dict[Tree, ir.Value], accumulator: ir.Value) -> ir.Value:
        return combine(accumulator, body(names))

    return _generic(inputs, init, [*maps, result], ["parallel", "reduction", "reduction"], whole)


def _generic(
    inputs: Sequence[Input], init: ir.Value, maps: Sequence[ir.AffineMap], iterators: Sequence[str], body: Callable[..., ir.Value]
) -> ir.Value:
    def build(arguments: list[ir.Value]) -> ir.Value:
        names = {x.name: a for x, a in zip(inputs, arguments, strict=False)}
        return body(names, arguments[-1]) if "reduction" in iterators else body(names)

    return generic([x.value for x in inputs], init, maps, iterators, build, loc=ir.Location.current)


def _walked(x: Input, stick: int, row: int, lane: int) -> list[int | None]:
    rows = ir.RankedTensorType(x.value.type).shape[1] > 1
    return [stick if x.stick else None, row if rows else None, lane if x.lane else None]
