"""By how much the result of a program may differ, element by element, where its sums are taken in another way.

The program runs again, each sum off at random by as much as it may be, several times: the distance to which that moves an element is how
far errors of its sums reach it, along all paths, however large its neighbours are. An element may differ by twice the largest distance,
and by a unit of its last place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.policy import Disturbance, Policy
from ktir.mlir import ir
from ktir.pipeline import Pass

Arrays = Sequence[NDArray[Any]]

_RUNS = 4


def disturbance_of(passes: Iterable[object], module: ir.Module) -> Disturbance | None:
    """By how much `passes` may have changed the sums of `module`, which they have left like this; None if not at all."""
    allowed: dict[bool, float] = {False: 0.0, True: 0.0}
    for each in passes:
        if isinstance(each, Pass):
            allowed[each.rounds_terms] = max(allowed[each.rounds_terms], each.allowed(module))
    return Disturbance(allowed[False], allowed[True]) if any(allowed.values()) else None


def bounds(
    run: Callable[[Policy], Arrays], disturbance: Disturbance, arrays: Arrays, elements: Sequence[str | None]
) -> list[NDArray[np.float64]]:
    """For each of `arrays`, which the program gives without disturbance; `run` gives them under a policy. Integers are exact.

    elements: their types; bf16 is held as float32.
    """
    most = [np.zeros(a.shape) for a in arrays]
    for seed in range(_RUNS):
        moved = run(Policy(disturbance=replace(disturbance, seed=seed)))
        most = [np.maximum(m, _distance(a, b)) for m, a, b in zip(most, arrays, moved, strict=True)]
    floats = [a.dtype.kind == "f" for a in arrays]
    return [2 * m + _last_place(a, e) if f else np.zeros(a.shape) for m, a, e, f in zip(most, arrays, elements, floats, strict=True)]


def _distance(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(np.abs(a.astype(np.float64) - b.astype(np.float64)), nan=0.0, posinf=np.inf)


def _last_place(a: NDArray[Any], element: str | None) -> NDArray[np.float64]:
    """Of zero it is nothing."""
    with np.errstate(invalid="ignore", over="ignore"):
        unit = np.where(np.isfinite(a) & (a != 0), np.spacing(np.abs(a)), 0).astype(np.float64)
    return unit * 2.0**16 if element == "bf16" else unit
