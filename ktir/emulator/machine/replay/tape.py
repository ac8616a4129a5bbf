"""The default mode: a trace turned into a list of NumPy calls on values, once; a launch runs the list.

Values are forwarded: PUSH, PULL, PTO and FILL only say where entries lie; a load copies a tile out of memory once, REP and MM compute, a
store copies into memory. All cores and both corelets go together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.emulator.machine.replay.emitter import Emitter
from ktir.emulator.machine.replay.ops import Bound, Call, Launch, Operation
from ktir.emulator.machine.replay.values import F32, Buffer
from ktir.emulator.machine.step.divisions import Noticed


class Tape:
    """A trace made ready for launches. Buffers belong to the tape, so one tape runs one launch at a time."""

    def __init__(self, emitter: Emitter) -> None:
        """`emitter` has the operations, as `ktir.emulator.machine.replay.builder.Builder` builds them."""
        self.bytes = _lay_out(emitter.operations, emitter.lasting)
        """Memory that the buffers take."""
        self._launch = Launch()
        self._noticed, self._unwatched = emitter.noticed, emitter.unwatched
        self._calls: list[Call] = [call for op in emitter.operations for call in op.calls(self._launch)]

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def missing(self) -> list[Noticed] | None:
        """Integer divisions of the last run without a quotient in some lanes, which a bound clips perhaps. None: that is not known."""
        return None if self._unwatched else self._noticed

    def run(self, arguments: Sequence[NDArray[Any]], bounds: Mapping[int, Bound] | None = None, kept: Collection[int] = ()) -> None:
        """Execute; `arguments` are C-contiguous carriers [entries, 64] and written in place. All is as for `Machine.launch`."""
        self._launch.start(arguments, bounds or {}, kept)
        self._noticed.clear()
        try:
            with numerics.quiet():
                for function, operands in self._calls:
                    function(*operands)
        except BaseException:
            self._launch.undo()
            raise
        self._launch.start((), {})


def _lay_out(operations: Sequence[Operation], lasting: Sequence[Buffer]) -> int:
    """Give every buffer memory; one is reused after its last use. Returns the bytes taken."""
    last: dict[Buffer, int] = {}
    for i, op in enumerate(operations):
        for b in (*op.reads, *op.writes):
            last[b] = i
    total = 0
    free: dict[int, list[F32]] = defaultdict(list)
    for i, op in enumerate(operations):
        for b in op.writes:
            if b.data is None:
                room = -(-b.size // 1024) * 1024
                if free[room]:
                    memory = free[room].pop()
                else:
                    memory = np.empty(room, np.float32)
                    total += memory.nbytes
                b.data = memory[: b.size]
        for b in {*op.reads, *op.writes}:
            if last[b] == i and not b.lasting and b.data is not None and b.data.base is not None:
                free[b.data.base.size].append(b.data.base)  # type: ignore[attr-defined]  # our own array, see above
    return total + sum(b.size * 4 for b in lasting)
