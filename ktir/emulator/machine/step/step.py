"""The reference mode: the trace's words one after the other on an LX array, all cores at once.

LX is [cores, sticks, 64] float32, NaN where nothing was written: an f16 stick holds 64 lanes, each stick of an f32 pair 32. The arguments
are carriers [entries, 64].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.arithmetic.floats import round_to
from ktir.arithmetic.pairs import ELEMENTS, INTEGERS, along_k, integer_sums
from ktir.arithmetic.products import matmul_block
from ktir.emulator.machine.memory.indexing import Claims, IndexReader
from ktir.emulator.machine.memory.touch import HALF
from ktir.emulator.machine.memory.transfer import Transfer, transfer
from ktir.emulator.machine.program.body import Body
from ktir.emulator.machine.program.faults import Site
from ktir.emulator.machine.program.of_lanes import all_lanes
from ktir.emulator.machine.program.vector import F32, InOrder, Observe, evaluate, run_groups, run_steps
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.access import Access, Counters, Ints
from ktir.isa.instructions import Does
from ktir.isa.program import Program
from ktir.target import LANES, NARROW

_LANE = np.arange(LANES)


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

    def __init__(
        self, program: Program, trace: Trace, corelets: int, pad: np.float32 | None = None, poison: np.random.Generator | None = None
    ) -> None:
        self.program = program
        self.trace = trace
        self.corelets = corelets
        self.pad = pad
        """What reads of dead positions give instead of zero."""
        self.poison = poison
        """Draws what LX holds before anything is written, instead of NaN."""
        self.observe: Callable[[Event, int, str, Sequence[F32]], None] | None = None
        """Sees every operation on lanes: event, corelet, kind and operands [cores, ..]."""
        self.lx = np.empty((0, 0, LANES), np.float32)

    def run(self, arguments: Sequence[F32]) -> None:
        """Execute every event in order; `arguments` are written in place."""
        self.arguments = arguments
        shape = (self.trace.cores, self.trace.lx_sticks, LANES)
        self.lx = np.full(shape, np.nan, np.float32) if self.poison is None else self.poison.standard_normal(shape, np.float32)
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
                self.claims: dict[int, Claims] = {}
            corelets = range(self.corelets) if event.unit.per_corelet else (0,)
            with numerics.quiet():
                for k in corelets:
                    self._event(event, k)

    def _event(self, e: Event, k: int) -> None:
        x = e.instruction
        match x.does:
            case Does.MOVE if x.loads:
                assert x.lx
                self._write_lx(x.lx, e.counters, k, self._read_memory(e))
            case Does.MOVE:
                assert x.lx
                self._write_memory(e, self._read_lx(x.lx, e.counters, k))
            case Does.FILL:
                assert x.lx
                self._write_lx(x.lx, e.counters, k, np.full((1, 1, LANES), x.value))
            case Does.PUSH:
                assert x.lx
                values = self._read_lx(x.lx, e.counters, k)
                if x.transposes:
                    values = values.reshape(self.cores, -1, LANES, LANES).swapaxes(-1, -2).reshape(self.cores, -1, LANES)
                self._queue(x.fifo, k).push(values)
            case Does.SEND:
                assert x.lx
                self._queue(x.fifo, k).push(self._read_lx(x.lx, e.counters, k)[x.leaders])
            case Does.PULL | Does.RECEIVE:
                assert x.lx
                self._write_lx(x.lx, e.counters, k, self._queue(x.fifo, k).pop(x.count))
            case Does.WEIGHTS:
                self.weights[k] = self._queue("W", k).pop(x.count)
            case Does.MULTIPLY:
                product = _product(self._queue("A", k).pop(x.count), self.weights[k], x.word["half"])
                self.sums[k] = self.sums[k] + product if k in self.sums else product + product.dtype.type(0)
            case Does.DRAIN:
                self._queue("P", k).push(self.sums.pop(k).view(np.float32))
            case Does.REPEAT:
                assert x.body
                self._rep(e, x.body, k)
            case _:
                raise AssertionError(e.op)

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
            x = np.where(live[..., None] > _LANE, x, self._pad(access))
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

    def _elements(self, e: Event, t: Transfer) -> tuple[Ints, NDArray[np.bool_]]:
        """Element of every lane of a transfer and whether it is live [cores | 1, entries, 64]."""
        at = t.at
        if t.indices is not None:
            argument = self.program.arguments[t.indices.argument]
            at = t.indices.moved(at, IndexReader(t.indices, argument, self._site(e)).read(self.arguments))
        live = t.live[..., None] > _LANE
        return np.where(live, at[..., None] + _LANE * t.lane, 0), live

    def _pad(self, access: Access) -> np.float32:
        return np.float32(access.pad) if self.pad is None or access.pad != 0 else self.pad

    def _read_memory(self, e: Event) -> F32:
        t = transfer(e.instruction, e.counters)
        assert e.instruction.ddr
        elements, live = self._elements(e, t)
        x = np.where(live, self.arguments[t.argument].reshape(-1)[elements], self._pad(e.instruction.ddr))
        return np.repeat(x[..., :1], LANES, -1) if e.instruction.ddr.descriptor.splat else x

    def _write_memory(self, e: Event, values: F32) -> None:
        t = transfer(e.instruction, e.counters)
        elements, live = self._elements(e, t)
        elements, live = np.broadcast_to(elements, (self.cores, *live.shape[1:])), np.broadcast_to(live, (self.cores, *live.shape[1:]))
        memory = self.arguments[t.argument].reshape(-1)
        if t.indices is not None:
            claims = self.claims.setdefault(t.argument, Claims(self.program.arguments[t.argument].name))
            cores = np.broadcast_to(self._every[..., None], live.shape)
            claims.claim(memory.size, elements[live], cores[live], self._site(e))
        assert e.instruction.ddr
        memory[elements[live]] = round_to(NARROW.get(e.instruction.ddr.descriptor.half, ""), np.broadcast_to(values, live.shape)[live])

    def _site(self, e: Event) -> Site:
        return self.trace.kernels[e.kernel].site(e.unit, e.instruction.index, None, e.loops)

    # SFP

    def _rep(self, e: Event, body: Body, k: int) -> None:
        observe, steps = self._observer(e, k), e.steps
        if steps is not None:
            if steps[0] == 0:
                self.parts[k] = InOrder(body, observe)
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
            results = self._results(e, body, k, [popped[p.fifo][:, :, p.span] for p in body.inputs])
            pushed = {}
            for fifo in body.pushes:
                pushed[fifo] = out = np.empty((self.cores, body.groups, body.per_group(body.pushes, fifo), LANES), np.float32)
                for port, x in zip(body.outputs, results, strict=True):
                    if port.fifo == fifo:
                        out[:, :, port.span] = x
        else:
            pushed = run_groups(body, popped, observe)
        for fifo, x in pushed.items():
            x = np.broadcast_to(all_lanes(x), (self.cores, body.groups, x.shape[-2], LANES))
            self._queue(fifo, k).push(x.reshape(self.cores, -1, LANES))

    def _results(self, e: Event, body: Body, k: int, inputs: Sequence[F32]) -> list[F32]:
        """What a regular body pushes."""
        return evaluate(body, inputs, self._observer(e, k))

    def _observer(self, e: Event, k: int) -> Observe | None:
        look = self.observe
        return None if look is None else lambda kind, x: look(e, k, kind, x)


def _product(a: F32, b: F32, half: str) -> NDArray[Any]:
    """A block of what MM multiplies: f32, or i32 of integers. half: what both operands are."""
    if half in INTEGERS:
        return integer_sums(a, b, half)
    return matmul_block(*along_k(a, b, half), (ELEMENTS[half], ELEMENTS[half])) if half in ELEMENTS else matmul_block(a, b, (half, half))
