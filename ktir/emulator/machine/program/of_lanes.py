"""Words of a vector loop that compute an entry from the lanes of one entry. What each gives is said here, for all who run or check it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.isa.functions import is_integer_reduction, reduce_integers
from ktir.isa.instructions import Does
from ktir.isa.program import Word
from ktir.target import HALVES, LANES

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class OfLanes:
    """What an instruction makes of an entry. Arrays end in the axis of lanes, 64 of them or one that stands for all."""

    compute: Callable[[Word, F32], F32]
    keeps: Callable[[Word], Collection[str]]
    """The floats of 16 bits, of `HALVES`, that it gives for such."""
    lanes: int = LANES
    """Of the result."""


def all_lanes(x: F32) -> F32:
    """`x` with 64 lanes."""
    return x if x.shape[-1] == LANES else np.broadcast_to(x, (*x.shape[:-1], LANES))


def tree(kind: str, x: F32) -> F32:
    """VRED: the reduction of the 64 lanes, as one lane."""
    if is_integer_reduction(kind):
        return reduce_integers(kind, all_lanes(x), -1)
    return numerics.lane_tree(kind, all_lanes(x) if kind in numerics.SUMS else x)


_STAYS = ("mov", "neg", "abs", "floor", "ceil", "trunc", "round", "roundeven", "copysign", "select", "max", "min", "maxnum", "minnum")


def kept_by(kind: str) -> Collection[str]:
    """The floats of 16 bits that an operation gives for such, without rounding its result."""
    return HALVES if kind in _STAYS else {numerics.IN_HALVES[kind]} if kind in numerics.IN_HALVES else ()


OF_LANES: dict[Does, OfLanes] = {
    Does.REDUCE: OfLanes(lambda w, x: tree(w["kind"], x), lambda w: kept_by(w["kind"]), lanes=1),
}
