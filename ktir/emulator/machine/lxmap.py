"""What lies in LX while a tape is built: per class of cores and stick, which entry of which value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .touch import F16, HIGH, LOW, NEVER
from .values import Ints, Value


@dataclass(frozen=True)
class Found:
    """The producers of some sticks [classes, corelets, entries, halves]: place in `LxMap.values` (-1 = none) and cell.

    A cell is corelet * entries + entry of the value.
    """

    value: NDArray[np.int32]
    cell: NDArray[np.int32]


class LxMap:
    """`values` holds every value that was ever written; `producer` [classes, sticks] are places in it."""

    def __init__(self, classes: int, sticks: int) -> None:
        self.values: list[Value] = []
        self.producer = np.full((classes, sticks), -1, np.int32)
        self.cell = np.zeros((classes, sticks), np.int32)
        self.kind = np.full((classes, sticks), NEVER, np.int8)

    def read(self, classes: Sequence[int], sticks: Ints, width: int) -> Found:
        """Producers of the entries at `sticks` [classes, corelets, entries]; each entry has `width` sticks."""
        row = np.array(classes)[:, None, None, None]
        at = sticks[..., None] + np.arange(width)
        return Found(self.producer[row, at], self.cell[row, at])

    def write(self, value: Value, classes: Sequence[int], sticks: Ints, width: int, lanes: Ints | None) -> None:
        """Put `value` at `sticks` [classes, corelets, entries]; only sticks with live lanes change."""
        self.values.append(value)
        row = np.broadcast_to(np.array(classes)[:, None, None], sticks.shape)
        corelets, n = sticks.shape[1:]
        cell = np.broadcast_to(np.arange(corelets * n).reshape(1, corelets, n), sticks.shape)
        for half in range(width):
            kind = (LOW, HIGH)[half] if width == 2 else F16
            at, r, c = sticks + half, row, cell
            if lanes is not None:
                live = np.broadcast_to(lanes > half * 32, sticks.shape)
                at, r, c = at[live], r[live], c[live]
            self.producer[r, at] = len(self.values) - 1
            self.cell[r, at] = c
            self.kind[r, at] = kind
