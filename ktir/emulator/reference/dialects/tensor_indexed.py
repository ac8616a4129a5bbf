"""tensor: gather and scatter by a tensor of coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.findings import DuplicateTarget, OutOfBounds, Where
from ktir.emulator.reference.compile.op_reader import OpReader
from ktir.emulator.reference.compile.program import Action
from ktir.emulator.reference.compile.registry import executes
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.tape.tape import Binder, Call, Step


class _Indexed(Step):
    """What both share: `dims` of a tensor are addressed by the last axis of the coordinates."""

    dims: tuple[int, ...]
    where: Where
    active: NDArray[np.bool_] | None
    tiles: int

    def coordinates(self, index: NDArray[Any], tile: int, shape: tuple[int, ...]) -> tuple[NDArray[np.int64], ...] | None:
        """Coordinates along `dims` on a tile; None if it does not execute the op. Raises OutOfBounds."""
        if self.active is not None and not self.active[tile if self.active.size > 1 else 0]:
            return None
        mine = index[tile if index.shape[0] > 1 else 0].astype(np.int64)
        found = tuple(mine[..., k] for k in range(len(self.dims)))
        for dim, c in zip(self.dims, found, strict=True):
            beyond = (c < 0) | (c >= shape[dim])
            if beyond.any():
                bad = int(c[beyond][0])
                raise OutOfBounds(
                    f"has coordinate {bad} in dim {dim} of size {shape[dim]}" + (f" (tile {tile})" if self.tiles > 1 else ""),
                    self.where,
                    tiles=[tile],
                    address=bad,
                )
        return found

    def front(self, array: NDArray[Any]) -> NDArray[Any]:
        """The addressed dims first."""
        return np.moveaxis(array, self.dims, range(len(self.dims)))


class _Gather(_Indexed):
    """writes[0] = the slices of reads[0] that reads[1] names."""

    def calls(self, binder: Binder) -> Iterable[Call]:
        source, index = (binder.array(t, range(1, len(t.at.shape))) for t in self.reads)
        target = binder.array(self.writes[0], range(1, len(self.writes[0].at.shape)))

        def gather() -> None:
            for tile in range(len(target)):
                found = self.coordinates(index, tile, source.shape[1:])
                if found is not None:
                    slices = self.front(source[tile if source.shape[0] > 1 else 0])[found]
                    target[tile] = slices.reshape(target.shape[1:])

        yield gather, ()


class _Scatter(_Indexed):
    """writes[0] = reads[1] with the slices that reads[2] names replaced by those of reads[0]."""

    def calls(self, binder: Binder) -> Iterable[Call]:
        source, base, index = (binder.array(t, range(1, len(t.at.shape))) for t in self.reads)
        target = binder.array(self.writes[0], range(1, len(self.writes[0].at.shape)))

        def scatter() -> None:
            target[...] = base
            for tile in range(len(target)):
                found = self.coordinates(index, tile, target.shape[1:])
                if found is None:
                    continue
                self._check(found, tile)
                place = self.front(target[tile])
                shape = (*found[0].shape, *place.shape[len(self.dims) :])
                place[found] = source[tile if source.shape[0] > 1 else 0].reshape(shape)

        yield scatter, ()

    def _check(self, found: tuple[NDArray[np.int64], ...], tile: int) -> None:
        rows = np.stack([c.reshape(-1) for c in found], 1)
        kinds, first, count = np.unique(rows, axis=0, return_index=True, return_counts=True)
        if (count > 1).any():
            twice = kinds[np.argmax(count > 1)].tolist()
            raise DuplicateTarget(
                f"writes coordinates {twice} twice" + (f" (tile {tile})" if self.tiles > 1 else ""),
                self.where,
                tiles=[tile],
                address=int(first[np.argmax(count > 1)]),
            )


def _recorded(op: OpReader, kind: type[_Indexed], name: str) -> Action:
    dims = tuple(op.integers(name))
    operands, (result,), where, type_ = op.operands, op.results, op.where, op.result_type()
    if -1 in type_.shape:
        raise op.unsupported("has a dynamic shape")

    def action(rec: Recording) -> None:
        reads = tuple(rec.tensor(slot) for slot in operands)
        varies = any(t.at.present[0] > 1 for t in reads)
        target = rec.temporary((rec.tiles, *type_.shape), (rec.tiles if varies else 1, *type_.shape), type_.element)
        step = kind(reads, (target,))
        step.dims, step.where, step.tiles = dims, where, rec.tiles
        step.active = rec.active if varies or rec.active is None else np.array([rec.active.any()])
        rec.emit(step)
        rec.set(result, target)

    return action


@executes("tensor.gather")
def _gather(op: OpReader) -> Action:
    return _recorded(op, _Gather, "gather_dims")


@executes("tensor.scatter")
def _scatter(op: OpReader) -> Action:
    return _recorded(op, _Scatter, "scatter_dims")
