"""From the trace to a tape's operations: FIFOs, memory, PT and SFP on values that say where their entries lie."""

from __future__ import annotations

from collections import defaultdict, deque
from math import prod

import numpy as np

from ktir.isa.program import Program
from ktir.target import LANES

from . import stream
from .access import Access
from .body import Body
from .emitter import Emitter, whole_piece
from .lxmap import LxMap
from .ops import Load, Multiply, Pairs, Store
from .step import rows_per_entry
from .trace import Event, Trace
from .values import Buffer, Ints, Value, View, affine, stored
from .vector import InOrder
from .vector_op import Ordered, Scratch, Vector


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
        self.cores = self.trace.kernels[kernel].kernel.cores
        self.lx.begin(self.cores)
        self.fifos: dict[str, deque[Value]] = defaultdict(deque)
        self.weights: Value | None = None
        self.sums: tuple[Buffer, tuple[int, ...]] | None = None
        self.state: list[InOrder] = []

    def _event(self, e: Event) -> None:
        x = e.instruction
        match e.op:
            case "xld" | "xldm":
                assert x.lx
                self.lx.write(x.lx, e, self._load(e))
            case "xst":
                self._store(e)
            case "fill":
                assert x.lx
                self.lx.write(x.lx, e, self.emitter.constant(x.value, x.lx.entries))
            case "push":
                assert x.lx
                self._push(x.fifo, self.lx.read(x.lx, e))
            case "pusht":
                assert x.lx
                self._push(x.fifo, self._transposed(self.lx.read(x.lx, e)))
            case "pull":
                assert x.lx
                self.lx.write(x.lx, e, self._pop(x.fifo, x.count))
            case "ldw":
                self.weights = self._pop("W", x.count)
            case "mm":
                self._multiply(self._pop("A", x.count))
            case "pto":
                assert self.sums
                buffer, shape = self.sums
                self._push("P", Value(buffer, stored(shape, shape[2:3])))
                self.sums = None
            case "rep":
                assert x.body
                self._rep(x.body, e.steps)

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

    def _memory(self, access: Access, e: Event) -> tuple[int, Ints, Ints | None]:
        """Argument, rows of its carrier [cores | 1, entries], live lanes."""
        argument = access.descriptor.arg or 0
        rows = access.sticks(e.counters) // rows_per_entry(self.program.arguments[argument], access.descriptor)
        return argument, rows, access.lanes(e.counters)

    def _load(self, e: Event) -> Value:
        access, leaders = e.instruction.ddr, e.instruction.leaders
        assert access
        argument, rows, lanes = self._memory(access, e)
        if leaders is not None:
            rows = rows[leaders] if len(rows) > 1 else rows
            lanes = lanes[leaders] if lanes is not None and len(lanes) > 1 else lanes
        cores = max(len(rows), 1 if lanes is None else len(lanes))
        n = access.entries
        rows = np.broadcast_to(rows, (cores, n))
        live = np.full((cores, n), LANES) if lanes is None else np.broadcast_to(lanes, (cores, n))
        block, lead = _leading(rows, live, access)
        target = np.arange(cores * n).reshape(cores, n)
        singly = live[lead:] > 0
        dead = live[lead:] == 0
        lane = np.arange(LANES)
        partial = (lane >= live[lead:, :, None]) & ~dead[..., None]
        buffer = Buffer(cores * n * LANES)
        self.emitter.operations.append(
            Load(
                argument,
                buffer,
                block,
                (lead, *access.descriptor.extent, LANES),
                Pairs(rows[lead:][singly], target[lead:][singly]) if singly.any() else None,
                np.float32(access.pad),
                target[lead:][dead],
                (target[lead:, :, None] * LANES + lane)[partial],
            )
        )
        return Value(buffer, stored((cores, 1, n, LANES), (n,)), 0 if access.descriptor.splat else 1)

    def _store(self, e: Event) -> None:
        access = e.instruction.ddr
        assert access
        assert e.instruction.lx
        value = self.lx.read(e.instruction.lx, e)
        argument, rows, lanes = self._memory(access, e)
        shape = (self.cores, access.entries)
        rows = np.broadcast_to(rows, shape)
        live = np.full(shape, LANES) if lanes is None else np.broadcast_to(lanes, shape)
        block, lead = _leading(rows, live, access)
        extent = access.descriptor.extent
        source = None
        if block is not None:
            source = affine(value.at[:lead, 0].reshape(-1, *extent), value.lane)
            if source is None:
                value = self.emitter.copy(value)
                source = affine(value.at[:lead, 0].reshape(-1, *extent), value.lane)
        elements = np.broadcast_to(value.elements()[:, 0], (*shape, LANES if value.lane else 1))[lead:]
        rows, live = rows[lead:], live[lead:]
        whole, partial = live == LANES, (live > 0) & (live < LANES)
        lane = np.arange(LANES)
        singly = Pairs(rows[whole], elements[whole]) if whole.any() else None
        by_element = None
        if partial.any():
            wanted = lane < live[partial][:, None]
            to = rows[partial][:, None] * LANES + lane
            of = np.broadcast_to(elements[partial], to.shape)
            by_element = Pairs(to[wanted], of[wanted])
        self.emitter.operations.append(Store(argument, value.buffer, source, block, singly, by_element))

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

    def _multiply(self, left: Value) -> None:
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
        self.emitter.operations.append(Multiply(*a, *b, *self.sums, first))

    def _widen_sums(self, shape: tuple[int, ...]) -> None:
        """If a later block depends on the core or corelet and the sums so far do not, store them for each from now on."""
        assert self.sums
        buffer, old = self.sums
        new = tuple(max(a, b) for a, b in zip(old, shape, strict=True))
        if new == old:
            return
        at = np.broadcast_to(stored(old, old[2:3]), new[:3])
        self.sums = self.emitter.assemble(new[:3], [whole_piece(Value(buffer, at), np.arange(prod(new)).reshape(new))]).buffer, new

    # SFP

    def _rep(self, body: Body, steps: tuple[int, int] | None) -> None:
        if steps is not None or not body.regular:
            self._ordered(body, steps)
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
        vector = Vector(body, [inputs[i] for i in range(len(inputs))], self.scratch)
        self.emitter.operations.append(vector)
        for o in vector.outputs:
            self._push(o.fifo, o.value(groups, body.per_group(body.pushes, o.fifo)))

    def _ordered(self, body: Body, steps: tuple[int, int] | None) -> None:
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


def _leading(rows: Ints, live: Ints, access: Access) -> tuple[View | None, int]:
    """The first cores whose rows are all live and follow strides: a view on memory, and how many cores; else (None, 0)."""
    full = (live == LANES).all(1)
    lead = len(full) if full.all() else int(np.argmin(full))
    if not lead:
        return None, 0
    view = affine(rows[:lead].reshape(lead, *access.descriptor.extent) * LANES, 1)
    return (view, lead) if view is not None else (None, 0)
