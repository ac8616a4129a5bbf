"""Recording: one symbolic run of a program that leaves a tape of NumPy calls.

Addresses, trip counts and tile ids never depend on data, so the recorder knows them: it computes every integer at once for all
tiles, unrolls the loops, resolves each access to strided memory, checks it, and emits a step only where data is touched. All this
happens once per program and argument sizes; a launch replays the tape.

All tiles of a kernel are one axis of every array (axis 0). That is sound because tiles of one kernel may not read what another
writes; the race check proves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ktir.diagnostics import KtirError, Unsupported
from ktir.emulator.policy import Policy
from ktir.emulator.reference.compile.program import BlockPlan, Function, OpPlan, Program
from ktir.emulator.reference.record.budget import take_step
from ktir.emulator.reference.record.memory import Memory
from ktir.emulator.reference.record.recording import Recording
from ktir.emulator.reference.record.scratchpad import Scratchpad
from ktir.emulator.reference.tape.values import Value

__all__ = ["Recorder"]


class Recorder(Recording):
    """Controls a symbolic run: calls, blocks and trips; the memories of the run are its own.

    `by_tile`: kernels that are recorded for one tile after the other.
    """

    def __init__(self, program: Program, policy: Policy, eager: bool = False, by_tile: frozenset[str] = frozenset()) -> None:
        super().__init__(policy, eager)
        self.program = program
        self.by_tile = by_tile
        self.scratchpad = Scratchpad(self, program)
        self.memory = Memory(self, self.scratchpad)
        self._loops = 0
        self._depth = 0

    def call(self, function: Function, arguments: Sequence[Value]) -> list[Value]:
        """Run `function` on all tiles of its grid; without a grid, on those of the caller. Returns its results."""
        if function.body is None:
            raise KtirError(f"'{self.where.op}' op calls '{function.name}', which has no body", self.where.location)
        if self._depth > 32:
            raise Unsupported(f"'{self.where.op}' op calls functions recursively", self.where.location)
        take_step(self, self.where)
        outer = (self.values, self.tiles, self.grid, self.active, self.kernel_name)
        if outer[1] != 1 and function.grid is not None:
            raise Unsupported(f"{self.where} calls a function with a grid from within a grid", self.where.location)
        self.values = [None] * function.slots
        if function.grid is not None:
            self.tiles, self.grid, self.kernel_name = function.tiles, function.grid, function.name
        barrier = int(function.grid is not None or self.tiles == 1)
        self.kernel += barrier
        if barrier:
            self.clock = np.zeros((self.tiles, self.tiles), np.int64)
        self._depth += 1
        for argument, value in zip(function.arguments, arguments, strict=True):
            self.values[argument.slot] = value
        if function.grid is not None and function.name in self.by_tile:
            given = self.values
            for tile in range(self.tiles):
                self.single, self.active, self.values = tile, np.arange(self.tiles) == tile, list(given)
                self.run(function.body)
            self.single, results = None, []
        else:
            results = self.run(function.body)
        self._depth -= 1
        self.kernel += barrier
        self.values, self.tiles, self.grid, self.active, self.kernel_name = outer
        if barrier:
            self.clock = np.zeros((self.tiles, self.tiles), np.int64)
        return results

    def run(self, block: BlockPlan) -> list[Value]:
        """Run the ops of a block; returns what its terminator passes on."""
        for op in block.ops:
            self.where = op.where
            self.counts.ops += 1
            self.act(op)
        return [self.get(slot) for slot in block.yields]

    def act(self, op: OpPlan) -> None:
        """Record one op."""
        op.action(self)

    def trips_of(self, count: int, carries: bool) -> Iterator[int]:
        """Trip numbers of a loop, noted on the steps of each trip unless it `carries` values to the next."""
        outer, loop = self.trips, self._loops
        self._loops += 1
        for i in range(count):
            if not carries:
                self.trips = (*outer, (loop, i))
            yield i
        self.trips = outer
