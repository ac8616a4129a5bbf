"""Words of a vector loop that compute an entry from the lanes of one entry. What each gives is said here, for all who run or check it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.isa.functions import is_integer_reduction, reduce_integers
from ktir.isa.instructions import Does
from ktir.isa.program import Word
from ktir.target import LANES

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class OfLanes:
    """What an instruction makes of an entry. Arrays end in the axis of lanes, 64 of them or one that stands for all."""

    compute: Callable[[Word, F32], F32]
    keeps_f16: Callable[[Word], bool]
    """Whether it gives f16 values for f16 values."""
    lanes: int = LANES
    """Of the result."""


def all_lanes(x: F32) -> F32:
    """`x` with 64 lanes."""
    return x if x.shape[-1] == LANES else np.broadcast_to(x, (*x.shape[:-1], LANES))


def tree(kind: str, x: F32) -> F32:
    """VRED: the reduction of the 64 lanes, as one lane."""
    if is_integer_reduction(kind):
        return reduce_integers(kind, all_lanes(x), -1)
    return numerics.lane_tree(kind, all_lanes(x) if kind in ("add", "addh") else x)


OF_LANES: dict[Does, OfLanes] = {
    Does.REDUCE: OfLanes(lambda w, x: tree(w["kind"], x), lambda w: w["kind"] != "add", lanes=1),
}
