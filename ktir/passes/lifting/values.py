"""What the tensors of a kernel's tiles are together: whole tensors, numbers, positions, and what a loop carries from trip to trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ktir.analysis.points import Numbers
from ktir.mlir import ir
from ktir.passes.lifting.axes import Axis
from ktir.passes.lifting.forms import Form


@dataclass(frozen=True)
class Number:
    """A tensor or scalar that is one number everywhere."""

    attribute: ir.Attribute


@dataclass(frozen=True, eq=False)
class Position:
    """Integers that are known at each point: `base` there, and so much more with each step along a dim of the tile."""

    base: Numbers
    steps: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class Decided:
    """What an op makes of positions and numbers alone, as a mask does; it is computed where it is read."""

    form: Form
    given: tuple[Value | None, ...]


@dataclass(frozen=True)
class Relative:
    """What an online softmax has of a trip: computed with the greatest value of all trips, instead of that so far."""

    top: Total
    """The greatest value so far."""
    places: tuple[int | None, ...]
    """The dim of the tensor of each dim of the greatest values."""
    log: bool
    """Whether it is not yet an exponential: the difference to the greatest value."""


@dataclass(frozen=True)
class Whole:
    """A whole tensor with an axis along each dim; `dims`: its dim of each dim of the tile, None for one of a single position."""

    value: ir.Value
    axes: tuple[Axis, ...]
    dims: tuple[int | None, ...]
    outside: Mapping[Axis | int, float] = field(default_factory=dict)
    """What tiles have where the whole has nothing or the author does nothing: beyond the end of an axis, or, by the depth of a loop, in
    trips that a tile does not make."""
    relative: Relative | None = None


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
    combiner: str
    whole: Whole
    top: Total | None = None
    """Of a sum that is scaled in each trip: the greatest value that it is relative to."""


@dataclass(frozen=True)
class Decay:
    """How much smaller a trip's greatest value makes what earlier trips have: exp(so far - now), or the difference."""

    top: Total
    log: bool
    dims: Mapping[int, int]
    """Dims of the tile that run along dims of the greatest values: the latter by the former."""


@dataclass(frozen=True)
class Decayed:
    """What a loop carries, made as much smaller."""

    carried: Carried
    by: Decay


Value = Number | Position | Decided | Whole | Carried | Partial | Total | Decay | Decayed
