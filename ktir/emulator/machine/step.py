"""The reference mode: the trace's words one after the other on an LX array, all cores at once.

LX is [cores, sticks, 64] float32, NaN where nothing was written: an f16 stick holds 64 lanes, each stick of an f32 pair 32. The arguments
are carriers [entries, 64].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ktir import numerics
from ktir.isa.descriptor import Descriptor
from ktir.isa.program import Argument, Program
from ktir.target import LANES

from .access import Access, Counters, Ints
from .body import Body
from .touch import HALF
from .trace import Event, Trace
from .vector import F32, InOrder, all_lanes, evaluate, run_groups, run_steps

_LANE = np.arange(LANES)


def rows_per_entry(argument: Argument, descriptor: Descriptor) -> int:
    """Sticks that one row of an argument's carrier stands for. The pool has a row per stick, whatever is in it."""
    return 1 if argument.role == "pool" else descriptor.sticks_per_entry


class _Queue:
    """A FIFO of values: pieces [cores, entries, 64]."""

    def __init__(self) -> None:
        self.pieces: deque[F32] = deque()

    def push(self, x: F32) -> None:
        if x.shape[1]:
            self.pieces.append(x)

    def pop(self, count: int) -> F32:
        got = []
        while count:
            head = self.pieces.popleft()
            if head.shape[1] > count:
                self.pieces.appendleft(head[:, count:])
                head = head[:, :count]
            got.append(head)
            count -= head.shape[1]
        return got[0] if len(got) == 1 else np.concatenate(got, 1)


class Step:
    """Runs a trace on arguments; `run` may be called again and again. `lx` is the scratchpad after the last run."""

    def __init__(self, program: Program, trace: Trace, corelets: int) -> None:
        self.program = program
        self.trace = trace
        self.corelets = corelets
        self.lx = np.empty((0, 0, LANES), np.float32)

    def run(self, arguments: Sequence[F32]) -> None:
        """Execute every event in order; `arguments` are written in place."""
        self.arguments = arguments
        self.lx = np.full((self.trace.cores, self.trace.lx_sticks, LANES), np.nan, np.float32)
        kernel = -1
        for event in self.trace.events:
            if event.kernel != kernel:
                kernel = event.kernel
                self.cores = self.trace.kernels[kernel].kernel.cores
                self._every = np.arange(self.cores)[:, None]
                self.queues: dict[tuple[str, int], _Queue] = {}
                self.weights: dict[int, F32] = {}
                self.sums: dict[int, F32] = {}
                self.parts: dict[int, InOrder] = {}
            corelets = range(self.corelets) if event.unit.per_corelet else (0,)
            with numerics.quiet():
                for k in corelets:
                    self._event(event, k)

    def _event(self, e: Event, k: int) -> None:
        x = e.instruction
        match e.op:
            case "xld" | "xldm":
                assert x.ddr
                assert x.lx
                self._write_lx(x.lx, e.counters, k, self._read_memory(x.ddr, e.counters, x.leaders))
            case "xst":
                assert x.ddr
                assert x.lx
                self._write_memory(x.ddr, e.counters, self._read_lx(x.lx, e.counters, k))
            case "fill":
                assert x.lx
                self._write_lx(x.lx, e.counters, k, np.full((1, 1, LANES), x.value))
            case "push" | "pusht":
                assert x.lx
                values = self._read_lx(x.lx, e.counters, k)
                if e.op == "pusht":
                    values = values.reshape(self.cores, -1, LANES, LANES).swapaxes(-1, -2).reshape(self.cores, -1, LANES)
                self._queue(x.fifo, k).push(values)
            case "pull":
                assert x.lx
                self._write_lx(x.lx, e.counters, k, self._queue(x.fifo, k).pop(x.count))
            case "ldw":
                self.weights[k] = self._queue("W", k).pop(x.count)
            case "mm":
                product = numerics.matmul_block(self._queue("A", k).pop(x.count), self.weights[k])
                self.sums[k] = self.sums.get(k, np.float32(0)) + product
            case "pto":
                self._queue("P", k).push(self.sums.pop(k))
            case "rep":
                assert x.body
                self._rep(x.body, e.steps, k)

    def _queue(self, fifo: str, k: int) -> _Queue:
        return self.queues.setdefault((fifo, k), _Queue())

    # LX

    def _read_lx(self, access: Access, counters: Counters, k: int) -> F32:
        at = access.sticks(counters, k)
        live = access.lanes(counters, k)
        every = self._every
        if live is not None:
            at = np.where(live > 0, at, 0)  # dead positions may lie anywhere
        if access.width == 1:
            x = self.lx[every, at]
        else:
            # the high half of an entry with at most 32 live lanes is not touched either
            high = at + 1 if live is None else np.where(live > HALF, at + 1, 0)
            x = np.concatenate((self.lx[every, at, :HALF], self.lx[every, high, :HALF]), -1)
        return self._as_read(x, access, live)

    def _as_read(self, x: F32, access: Access, live: Ints | None) -> F32:
        if live is not None:
            x = np.where(live[..., None] > _LANE, x, np.float32(access.pad))
        return np.repeat(x[..., :1], LANES, -1) if access.descriptor.splat else x

    def _write_lx(self, access: Access, counters: Counters, k: int, values: F32) -> None:
        at = access.sticks(counters, k)
        live = access.lanes(counters, k)
        shape = (self.cores, access.entries, LANES)
        x = np.broadcast_to(values, shape)
        core = np.broadcast_to(self._every, shape[:2])
        at = np.broadcast_to(at, shape[:2])
        if live is None:
            if access.width == 1:
                self.lx[core, at] = x
            else:
                self.lx[core, at, :HALF] = x[..., :HALF]
                self.lx[core, at + 1, :HALF] = x[..., HALF:]
            return
        c, e, lane = np.nonzero(np.broadcast_to(live[..., None] > _LANE, shape))
        per_stick = LANES // access.width
        self.lx[core[c, e], at[c, e] + lane // per_stick, lane % per_stick] = x[c, e, lane]

    # Memory

    def _rows(self, access: Access, counters: Counters) -> tuple[F32, NDArray[np.int64]]:
        argument = access.descriptor.arg or 0
        rows = access.sticks(counters) // rows_per_entry(self.program.arguments[argument], access.descriptor)
        return self.arguments[argument], rows

    def _read_memory(self, access: Access, counters: Counters, leaders: NDArray[np.int64] | None) -> F32:
        memory, rows = self._rows(access, counters)
        live = access.lanes(counters)
        if live is not None:
            rows = np.where(live > 0, rows, 0)
        x = self._as_read(memory[rows], access, live)
        return x if leaders is None or len(x) == 1 else x[leaders]

    def _write_memory(self, access: Access, counters: Counters, values: F32) -> None:
        memory, rows = self._rows(access, counters)
        live = access.lanes(counters)
        shape = (self.cores, access.entries)
        rows = np.broadcast_to(rows, shape)
        if live is None:
            memory[rows] = values
            return
        c, e, lane = np.nonzero(np.broadcast_to(live[..., None] > _LANE, (*shape, LANES)))
        memory[rows[c, e], lane] = values[c, e, lane]

    # SFP

    def _rep(self, body: Body, steps: tuple[int, int] | None, k: int) -> None:
        if steps is not None:
            if steps[0] == 0:
                self.parts[k] = InOrder(body)
            run_steps(
                self.parts[k],
                *steps,
                lambda fifo: self._queue(fifo, k).pop(1)[:, 0],
                lambda fifo, x: self._queue(fifo, k).push(np.broadcast_to(all_lanes(x), (self.cores, LANES))[:, None]),
            )
            return
        popped = {}
        for fifo in body.pops:
            n = body.per_group(body.pops, fifo)
            popped[fifo] = self._queue(fifo, k).pop(n * body.groups).reshape(self.cores, body.groups, n, LANES)
        if body.regular:
            results = evaluate(body, [popped[p.fifo][:, :, p.span] for p in body.inputs])
            pushed = {}
            for fifo in body.pushes:
                pushed[fifo] = out = np.empty((self.cores, body.groups, body.per_group(body.pushes, fifo), LANES), np.float32)
                for port, x in zip(body.outputs, results, strict=True):
                    if port.fifo == fifo:
                        out[:, :, port.span] = x
        else:
            pushed = run_groups(body, popped)
        for fifo, x in pushed.items():
            x = np.broadcast_to(all_lanes(x), (self.cores, body.groups, x.shape[-2], LANES))
            self._queue(fifo, k).push(x.reshape(self.cores, -1, LANES))
