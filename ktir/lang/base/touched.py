"""Which tile reads and writes which element of an argument: two tiles that touch one, of which one writes it, race, as on the executor."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake

_NOBODY, _SEVERAL = -1, -2


class Touched:
    """Of an argument in an eager run of several tiles. What a tile did before an exchange in which all met comes before what others do
    behind it: `epoch` counts the exchanges of a tile."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        self._read: list[tuple[Any, int, int]] = []
        """Until something is written, which is what most arguments stay at."""
        self._tiles: dict[str, np.ndarray] | None = None

    def note(self, key: tuple[Any, ...], tile: int, epoch: int, *, writes: bool) -> None:
        """Raises Mistake for a race."""
        if self._tiles is None and not writes:
            self._read.append((key, tile, epoch))
            return
        if self._tiles is None:
            self._tiles = {who: np.full(self.shape, _NOBODY, np.int32) for who in ("written", "read")}
            self._tiles |= {f"{who} at": np.zeros(self.shape, np.int32) for who in ("written", "read")}
            for before in self._read:
                self._note_read(*before)
            self._read.clear()
        self._check(key, tile, epoch, "written", writes)
        if writes:
            self._check(key, tile, epoch, "read", writes)
            self._tiles["written"][key], self._tiles["written at"][key] = tile, epoch
        else:
            self._note_read(key, tile, epoch)

    def _note_read(self, key: tuple[Any, ...], tile: int, epoch: int) -> None:
        assert self._tiles is not None
        before = self._tiles["read"][key]
        self._tiles["read"][key] = np.where((before == _NOBODY) | (before == tile), tile, _SEVERAL)
        self._tiles["read at"][key] = epoch

    def _check(self, key: tuple[Any, ...], tile: int, epoch: int, done: str, writes: bool) -> None:
        assert self._tiles is not None
        other = self._tiles[done][key]
        bad = (other != _NOBODY) & (other != tile) & (self._tiles[f"{done} at"][key] >= epoch)
        if not bad.any():
            return
        at = int(np.arange(prod(self.shape)).reshape(self.shape)[key].reshape(-1)[bad.reshape(-1).argmax()])
        who = int(other.reshape(-1)[bad.reshape(-1).argmax()])
        by = "other tiles" if who == _SEVERAL else f"tile {who}"
        does = "writes" if writes else "reads"
        raise Mistake(f"{does} element {at} of '{self.name}' on tile {tile}, and it is {done} by {by} of the same kernel")
