"""Recording: one symbolic run of a program that leaves a tape of NumPy calls.

Addresses, trip counts and tile ids never depend on data, so the recorder knows them: it computes every integer at once for all
tiles, unrolls the loops, resolves each access to strided memory, checks it, and emits a step only where data is touched. All this
happens once per program and argument sizes; a launch replays the tape.

All tiles of a kernel are one axis of every array (axis 0). That is sound because tiles of one kernel may not read what another
writes; the race check proves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.findings import Where
from ktir.emulator.policy import Policy
from ktir.emulator.reference.compiler import BlockPlan, Function, Program
from ktir.emulator.reference.memory import Memory
from ktir.emulator.reference.scratchpad import Scratchpad
from ktir.emulator.reference.tape import Assemble, Step
from ktir.emulator.reference.values import (
    CARRIERS,
    Box,
    Known,
    Overlay,
    Storage,
    Strided,
    Tensor,
    Value,
    simplify,
)

__all__ = ["Counts", "Recorder"]


@dataclass
class Counts:
    """What a run does: ops executed (one per trip, for all tiles together) and bytes moved per memory space, over all tiles."""

    ops: int = 0
    read: dict[str, int] = field(default_factory=lambda: {"global": 0, "ct_local": 0})
    written: dict[str, int] = field(default_factory=lambda: {"global": 0, "ct_local": 0})


class Recorder:
    """The state of a symbolic run. Executors read and write SSA values with `get` and `set` and record data work with `emit`."""

    def __init__(self, program: Program, policy: Policy) -> None:
        self.program = program
        self.policy = policy
        self.steps: list[Step] = []
        self.counts = Counts()
        self.memory = Memory(self)
        self.scratchpad = Scratchpad(self)
        self.values: list[Value | None] = []
        self.tiles = 1
        self.grid: tuple[int, ...] = (1,)
        self.active: NDArray[np.bool_] | None = None
        """Tiles that execute the current trip of a loop whose trip count differs between tiles; None: all."""
        self.kernel = 0
        """Number of the kernel call: between two of them there is a barrier."""
        self.where = Where("func.func", None)
        self._depth = 0

    # Functions and blocks

    def call(self, function: Function, arguments: Sequence[Value]) -> None:
        """Run `function` on all tiles of its grid; without a grid, on those of the caller."""
        if function.body is None:
            raise KtirError(f"'{self.where.op}' op calls '{function.name}', which has no body", self.where.location)
        if self._depth > 32:
            raise Unsupported(f"'{self.where.op}' op calls functions recursively", self.where.location)
        outer = (self.values, self.tiles, self.grid, self.active)
        if outer[1] != 1 and function.grid is not None:
            raise Unsupported(f"{self.where} calls a function with a grid from within a grid", self.where.location)
        self.values = [None] * function.slots
        if function.grid is not None:
            self.tiles, self.grid = function.tiles, function.grid
        barrier = int(function.grid is not None or self.tiles == 1)
        self.kernel += barrier
        self._depth += 1
        for argument, value in zip(function.arguments, arguments, strict=True):
            self.values[argument.slot] = value
        self.run(function.body)
        self._depth -= 1
        self.kernel += barrier
        self.values, self.tiles, self.grid, self.active = outer

    def run(self, block: BlockPlan) -> list[Value]:
        """Run the ops of a block; returns what its terminator passes on."""
        for action, where in block.actions:
            self.where = where
            self.counts.ops += 1
            action(self)
        return [self.get(slot) for slot in block.yields]

    # Values

    def get(self, slot: int) -> Any:
        """The value in a slot. Its class follows from the op that reads it, which the verifier has checked."""
        return self.values[slot]

    def set(self, slot: int, value: Value) -> None:
        self.values[slot] = value

    def known(self, slot: int) -> Known:
        """An integer that must be known: an index."""
        value = self.get(slot)
        if isinstance(value, int | float | bool | np.ndarray):
            return value
        what = "an address" if type(value).__name__ == "Pointer" else "a value that depends on data"
        raise Unsupported(f"{self.where} uses {what} as a number, which the executor does not support", self.where.location)

    def integer(self, slot: int, what: str) -> int:
        """A known integer that is the same for all tiles."""
        value = self.known(slot)
        if isinstance(value, np.ndarray):
            raise Unsupported(
                f"{self.where} has {what} that differs between tiles, which the executor does not support",
                self.where.location,
            )
        return int(value)

    def tensor(self, slot: int) -> Tensor:
        """The tensor in a slot, in one piece. A known scalar becomes a constant of rank 0."""
        return self.plain(self.get(slot))

    def plain(self, value: Value | None, element: str | None = None) -> Tensor:
        """`value` as one tensor; an overlay is copied together, once."""
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Overlay):
            if value.flat is None:
                value.flat = self.overwrite(value.base, [(value.box, value.patch)])
            return value.flat
        assert isinstance(value, int | float | bool | np.ndarray), value
        return self.constant(np.asarray(value), (), element or "f32")

    def constant(self, array: NDArray[Any], shape: tuple[int, ...], element: str) -> Tensor:
        """A known tensor. `array` broadcasts to [tiles, *shape] if it has that rank; a lower rank has no tile axis or is a scalar."""
        array = np.asarray(array).astype(CARRIERS[element])
        if array.ndim == 1 and not shape and array.size == self.tiles:
            pass
        elif array.ndim <= len(shape):
            array = array.reshape((1,) * (1 + len(shape) - array.ndim) + array.shape)
        full = (self.tiles, *shape)
        at = Strided.compact(full, tuple(1 if a == 1 else n for a, n in zip(array.shape, full, strict=True)))
        return Tensor(Storage.constant(array), at, element)

    def poison(self, shape: tuple[int, ...], element: str) -> Tensor:
        """A tensor without content."""
        kind = CARRIERS[element]
        bad: Any = 0
        if self.policy.poison:
            bad = np.nan if kind is np.float32 else -1
        return self.constant(np.asarray(bad).astype(kind), shape, element)

    def temporary(self, shape: tuple[int, ...], present: tuple[int, ...], element: str) -> Tensor:
        """New memory for a tensor of `shape` (with tile axis) that repeats where `present` is 1."""
        at = Strided.compact(shape, present)
        return Tensor(Storage(CARRIERS[element], at.present_size), at, element)

    # Steps

    def emit(self, step: Step) -> None:
        self.steps.append(step)

    def copy(self, tensor: Tensor) -> Tensor:
        """`tensor` in memory of its own, row-major."""
        result = self.temporary(tensor.at.shape, tensor.at.present, tensor.element)
        self.emit(Assemble((tensor,), (result,), based=True))
        return result

    def overwrite(self, base: Tensor, parts: Sequence[tuple[Box, Tensor]], active: NDArray[np.bool_] | None = None) -> Tensor:
        """`base` with each (box, value) of `parts` written over it, for the tiles in `active` only."""
        shape = base.at.shape
        present = [n if base.at.present[i] != 1 else 1 for i, n in enumerate(shape)]
        for box, patch in parts:
            if patch.at.present[0] != 1 or active is not None:
                present[0] = shape[0]
            for axis, (low, extent) in enumerate(box, 1):
                if (low, extent) != (0, shape[axis]) or patch.at.present[axis] != 1:
                    present[axis] = shape[axis]
        result = self.temporary(shape, tuple(present), base.element)
        reads: list[Tensor] = [base]
        pieces: list[tuple[Strided, int]] = []
        for box, patch in parts:
            for first, count in tile_runs(active, shape[0]):
                target, source = result.at.box(box), patch.at
                if present[0] != 1:
                    target, source = target.tiles(first, count), source.tiles(first, count)
                pieces.append((target, len(reads)))
                reads.append(patch.moved(source))
        self.emit(Assemble(tuple(reads), (result,), based=True, pieces=tuple(pieces), reuse=0))
        return result

    def merge(self, old: Value, new: Value) -> Value:
        """`new` for the active tiles and `old` for the others: what a loop carries where some tiles have ended."""
        if self.active is None or old is new:
            return new
        if isinstance(old, Tensor | Overlay) or isinstance(new, Tensor | Overlay):
            base, value = self.plain(old), self.plain(new)
            return self.overwrite(base, [(tuple((0, n) for n in base.shape), value)], self.active)
        if isinstance(old, int | float | bool | np.ndarray) and isinstance(new, int | float | bool | np.ndarray):
            return simplify(np.where(self.active, new, old))
        raise Unsupported(f"{self.where} carries an address through a loop whose trip counts differ", self.where.location)


def tile_runs(active: NDArray[np.bool_] | None, tiles: int) -> list[tuple[int, int]]:
    """Runs of active tiles as (first, count)."""
    if active is None:
        return [(0, tiles)]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]]).astype(np.int8)))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
