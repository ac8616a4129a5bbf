"""What the tensors of a kernel's tiles are together: whole tensors, numbers, and what a loop carries from trip to trip."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.mlir import ir
from ktir.passes.lifting.axes import Axis


@dataclass(frozen=True)
class Number:
    """A tensor or scalar that is one number everywhere."""

    attribute: ir.Attribute


@dataclass(frozen=True)
class Whole:
    """A whole tensor with an axis along each dim; `dims`: its dim of each dim of the tile, None for one of a single position."""

    value: ir.Value
    axes: tuple[Axis, ...]
    dims: tuple[int | None, ...]
    zero: bool = False
    """Whether what tiles have beyond the ends of its axes is 0."""


@dataclass(frozen=True)
class Carried:
    """What a loop carries, as a trip finds it."""

    number: int
    depth: int
    """The axis of the points along which the trips lie."""
    init: Number | Whole


@dataclass(frozen=True)
class Partial:
    """A reduction of what one trip has; `whole` is that of all trips."""

    combiner: str
    depth: int
    whole: Whole


@dataclass(frozen=True)
class Total:
    """What a trip leaves of what its loop carries; `whole` is what the last one leaves."""

    carried: Carried
    whole: Whole


Value = Number | Whole | Carried | Partial | Total
