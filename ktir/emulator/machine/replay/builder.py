"""From the trace to a tape's operations: FIFOs, memory, PT and SFP on values that say where their entries lie."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from math import prod

import numpy as np

from ktir.emulator.machine.control import stream
from ktir.emulator.machine.memory.indexing import Claims, IndexReader
from ktir.emulator.machine.memory.transfer import Transfer, transfer
from ktir.emulator.machine.program.body import Body
from ktir.emulator.machine.program.vector import InOrder
from ktir.emulator.machine.replay.emitter import Emitter, entries, whole_piece
from ktir.emulator.machine.replay.lxmap import LxMap
from ktir.emulator.machine.replay.moves import BeginKernel, Gather, Load, Scatter, Store, cut
from ktir.emulator.machine.replay.ops import Multiply
from ktir.emulator.machine.replay.values import Buffer, Value, View, stored
from ktir.emulator.machine.replay.vector_op import Ordered, Scratch, Vector
from ktir.emulator.machine.step.divisions import DIVISIONS
from ktir.emulator.machine.trace.trace import Event, Trace
from ktir.isa.instructions import Does
from ktir.isa.program import Program
from ktir.target import LANES, NARROW


class Builder:
    """Walks the trace once. `corelets` is the target's number of corelets."""

    def __init__(self, program: Program, trace: Trace, corelets: int) -> None:
        self.program = program
        self.trace = trace
        self.corelets = corelets
        self.emitter = Emitter()
        self.lx = LxMap(trace, corelets, self.emitter)
        self.scratch = Scratch()
        self.kernel = -1

    def build(self) -> Emitter:
        """All operations, in order."""
        for event in self.trace.events:
            if event.kernel != self.kernel:
                self._begin(event.kernel)
            self._event(event)
        return self.emitter

    def _begin(self, kernel: int) -> None:
        self.kernel = kernel
        decoded = self.trace.kernels[kernel]
        self.cores = decoded.kernel.cores
        self.lx.begin(self.cores)
        scattered = {x.ddr.descriptor.arg or 0 for x in decoded.instructions if x.scatters and x.ddr}
        self.claims = {argument: Claims(self.program.arguments[argument].name) for argument in sorted(scattered)}
        if self.claims:
            self.emitter.operations.append(BeginKernel([*self.claims.values()]))
        self.fifos: dict[str, deque[Value]] = defaultdict(deque)
        self.weights: Value | None = None
        self.sums: tuple[Buffer, tuple[int, ...]] | None = None
        self.state: list[InOrder] = []

    def _event(self, e: Event) -> None:
        x = e.instruction
        match x.does:
            case Does.MOVE if x.loads:
                assert x.lx
                self.lx.write(x.lx, e, self._load(e))
            case Does.MOVE:
                self._store(e)
            case Does.FILL:
                assert x.lx
                self.lx.write(x.lx, e, self.emitter.constant(x.value, x.lx.entries))
            case Does.PUSH:
                assert x.lx
                value = self.lx.read(x.lx, e)
                self._push(x.fifo, self._transposed(value) if x.transposes else value)
            case Does.PULL | Does.RECEIVE:
                assert x.lx
                self.lx.write(x.lx, e, self._pop(x.fifo, x.count))
            case Does.SEND:
                assert x.lx
                value = self.lx.read(x.lx, e)
                at = value.at[x.leaders] if len(value.at) > 1 else value.at
                self._push(x.fifo, Value(value.buffer, at, value.lane))
            case Does.WEIGHTS:
                self.weights = self._pop("W", x.count)
            case Does.MULTIPLY:
                self._multiply(self._pop("A", x.count), x.word["half"])
            case Does.DRAIN:
                assert self.sums
                buffer, shape = self.sums
                self._push("P", Value(buffer, stored(shape, shape[2:3])))
                self.sums = None
            case Does.REPEAT:
                assert x.body
                self._rep(e, x.body)
            case _:
                raise AssertionError(e.op)

    # FIFOs

    def _push(self, fifo: str, value: Value) -> None:
        if value.entries:
            self.fifos[fifo].append(value)

    def _pop(self, fifo: str, count: int) -> Value:
        queue = self.fifos[fifo]
        got: list[Value] = []
        while count:
            head = queue.popleft()
            if head.entries > count:
                queue.appendleft(head.part(count, head.entries))
                head = head.part(0, count)
            got.append(head)
            count -= head.entries
        return got[0] if len(got) == 1 else self.emitter.join(got)

    # Memory

    def _load(self, e: Event) -> Value:
        access = e.instruction.ddr
        assert access
        t = transfer(e.instruction, e.counters)
        cores, n = t.live.shape
        numbers = np.arange(cores * n).reshape(cores, n)
        boxes, parts = cut(t, access.descriptor.extent, numbers * LANES, 1, loads=True)
        pads = [(lanes, numbers[t.live == lanes]) for lanes in np.unique(t.live[t.live < LANES]).tolist()]
        buffer = Buffer(cores * n * LANES, origin=None if access.pad else t.argument)
        reader = self._reader(e, t)
        gathers = None if reader is None else Gather(reader, t.at)
        self.emitter.operations.append(Load(t.argument, t.lane, buffer, boxes, parts, np.float32(access.pad), pads, gathers))
        return Value(buffer, stored((cores, 1, n, LANES), (n,)), 0 if access.descriptor.splat else 1)

    def _store(self, e: Event) -> None:
        access = e.instruction.ddr
        assert access
        assert e.instruction.lx
        value = self.lx.read(e.instruction.lx, e)
        t = transfer(e.instruction, e.counters)
        shape = (self.cores, access.entries)
        t = replace(t, at=np.broadcast_to(t.at, shape), live=np.broadcast_to(t.live, shape))
        reader, narrow = self._reader(e, t), NARROW.get(access.descriptor.half, "")
        if reader is not None:
            self.emitter.operations.append(Scatter(t, value, reader, self.claims[t.argument], narrow))
            return
        boxes, parts = cut(t, access.descriptor.extent, np.broadcast_to(value.at[:, 0], shape), value.lane, loads=False)
        self.emitter.operations.append(Store(t.argument, t.lane, value, boxes, parts, narrow))

    def _reader(self, e: Event, t: Transfer) -> IndexReader | None:
        if t.indices is None:
            return None
        site = self.trace.kernels[e.kernel].site(e.unit, e.instruction.index, None, e.loops)
        return IndexReader(t.indices, self.program.arguments[t.indices.argument], site)

    # PT

    def _transposed(self, value: Value) -> Value:
        """Blocks of 64 entries with entry and lane exchanged."""
        blocks = value.at.reshape(*value.at.shape[:2], -1, LANES)
        steps = np.diff(blocks, axis=-1)
        step = int(steps.flat[0])
        if (steps != step).any():
            value = self.emitter.copy(value)
            return self._transposed(value)
        at = blocks[..., :1] + np.arange(LANES) * value.lane
        return Value(value.buffer, at.reshape(value.at.shape), step)

    def _multiply(self, left: Value, half: str) -> None:
        right = self.weights
        assert right is not None
        rows = left.entries
        a, b = self.emitter.view(left, (rows,)), self.emitter.view(right, (LANES,))
        shape = (*np.broadcast_shapes(left.at.shape[:2], right.at.shape[:2]), rows, LANES)
        first = self.sums is None
        if self.sums is None:
            self.sums = Buffer(prod(shape)), shape
        else:
            self._widen_sums(shape)
        self.emitter.operations.append(Multiply(*a, *b, *self.sums, first, half))

    def _widen_sums(self, shape: tuple[int, ...]) -> None:
        """If a later block depends on the core or corelet and the sums so far do not, store them for each from now on."""
        assert self.sums
        buffer, old = self.sums
        new = tuple(max(a, b) for a, b in zip(old, shape, strict=True))
        if new == old:
            return
        at = np.broadcast_to(stored(old, old[2:3]), new[:3])
        self.sums = self.emitter.assemble(new[:3], [whole_piece(Value(buffer, at), entries(new[:3]))]).buffer, new

    # SFP

    def _rep(self, e: Event, body: Body) -> None:
        if e.steps is not None or not body.regular:
            self._ordered(body, e.steps)
            return
        inputs: dict[int, tuple[Buffer, View]] = {}
        groups = body.groups
        for fifo in body.pops:
            per_group = body.per_group(body.pops, fifo)
            value = self._pop(fifo, groups * per_group)
            numbers = np.arange(groups * per_group).reshape(groups, per_group)
            for i, port in enumerate(body.inputs):
                if port.fifo == fifo:
                    span = numbers[:, port.span]
                    inputs[i] = self.emitter.view(value.pick(span.ravel()), span.shape)
        vector = Vector(e, body, [inputs[i] for i in range(len(inputs))], self.scratch, self.emitter.noticed)
        self.emitter.operations.append(vector)
        for o in vector.outputs:
            self._push(o.fifo, o.value(groups, body.per_group(body.pushes, o.fifo)))

    def _ordered(self, body: Body, steps: tuple[int, int] | None) -> None:
        self.emitter.unwatched |= any(w.does is Does.FUNCTION and w["kind"] in DIVISIONS for w in body.words)
        plan = stream.of_body(body, 0)
        first, last = steps or (0, plan.steps)
        inputs: dict[str, tuple[Buffer, View]] = {}
        for flow in plan.pops:
            n = flow.through(last) - flow.through(first)
            if n:
                inputs[flow.fifo] = self.emitter.view(self._pop(flow.fifo, n), (n,))
        outputs: dict[str, tuple[Buffer, tuple[int, ...]]] = {}
        for flow in plan.pushes:
            n = flow.through(last) - flow.through(first)
            if n:
                shape = (self.cores, self.corelets, n, LANES)
                outputs[flow.fifo] = Buffer(prod(shape)), shape
        if first == 0:
            self.state = []
        self.emitter.operations.append(Ordered(body, inputs, outputs, steps, self.state))
        for fifo, (buffer, shape) in outputs.items():
            self._push(fifo, Value(buffer, stored(shape, shape[2:3])))
