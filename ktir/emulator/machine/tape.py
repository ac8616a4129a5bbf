"""The default mode: a trace turned into a list of NumPy calls on values, once; a launch runs the list.

Values are forwarded: PUSH, PULL, PTO and FILL only say where entries lie; XLD copies a tile out of memory once, REP and MM compute, XST
copies into memory. All cores and both corelets go together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from ktir import numerics
from ktir.isa.program import Program
from ktir.target import LANES

from . import stream
from .access import Access
from .body import Body
from .lxmap import Found, LxMap
from .ops import Assemble, Call, Launch, Load, Multiply, Operation, Piece, Rows, Store
from .step import rows_per_entry
from .trace import Event, Trace
from .values import F32, Buffer, Ints, Value, View, affine, entry_view, shrink, stored
from .vector import InOrder
from .vector_op import Ordered, Scratch, Vector

_NONE = np.zeros(0, np.int64)

Mask = NDArray[np.bool_]


class Tape:
    """A trace made ready for launches. Buffers belong to the tape, so one tape runs one launch at a time."""

    def __init__(self, program: Program, trace: Trace, corelets: int) -> None:
        builder = _Builder(program, trace, corelets)
        operations = builder.build()
        self.bytes = _lay_out(operations, builder.lasting)
        """Memory that the buffers take."""
        self._launch = Launch()
        self._calls: list[Call] = [call for op in operations for call in op.calls(self._launch)]

    def __len__(self) -> int:
        return len(self._calls)

    def run(self, arguments: Sequence[F32]) -> None:
        """Execute; `arguments` are C-contiguous float32 carriers [entries, 64] and written in place."""
        self._launch.arguments = arguments
        with numerics.quiet():
            for function, operands in self._calls:
                function(*operands)
        self._launch.arguments = ()


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


class _Builder:
    def __init__(self, program: Program, trace: Trace, corelets: int) -> None:
        self.program = program
        self.trace = trace
        self.corelets = corelets
        self.lx = LxMap(max(trace.classes, default=0) + 1, trace.lx_sticks + 1)  # half of an f32 pair may be live
        self.operations: list[Operation] = []
        self.lasting: list[Buffer] = []
        self.scratch = Scratch()
        self.kernel = -1

    def build(self) -> list[Operation]:
        """The operations, in order."""
        for event in self.trace.events:
            if event.kernel != self.kernel:
                self._begin(event.kernel)
            self._event(event)
        return self.operations

    def _begin(self, kernel: int) -> None:
        self.kernel = kernel
        self.cores = self.trace.kernels[kernel].kernel.cores
        self.class_of = np.array(self.trace.classes[: self.cores])
        self.classes = sorted(set(self.class_of.tolist()))
        self.member = np.searchsorted(self.classes, self.class_of)
        """Per core the place of its class in `classes`."""
        self.first = [int(np.argmax(self.class_of == c)) for c in self.classes]
        self.fifos: dict[str, deque[Value]] = defaultdict(deque)
        self.weights: Value | None = None
        self.sums: tuple[Buffer, tuple[int, ...]] | None = None
        self.state: list[InOrder] = []

    def _event(self, e: Event) -> None:
        x = e.instruction
        match e.op:
            case "xld" | "xldm":
                assert x.lx
                self._write(x.lx, e, self._load(e))
            case "xst":
                self._store(e)
            case "fill":
                assert x.lx
                self._write(x.lx, e, self._constant(x.value, x.lx.entries))
            case "push":
                assert x.lx
                self._push(x.fifo, self._read(x.lx, e))
            case "pusht":
                assert x.lx
                self._push(x.fifo, self._transposed(self._read(x.lx, e)))
            case "pull":
                assert x.lx
                self._write(x.lx, e, self._pop(x.fifo, x.count))
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
        return got[0] if len(got) == 1 else self._join(got)

    def _join(self, values: Sequence[Value]) -> Value:
        """One value of all their entries."""
        cores = max(v.at.shape[0] for v in values)
        corelets = max(v.at.shape[1] for v in values)
        spread = [np.broadcast_to(v.at, (cores, corelets, v.entries)) for v in values]
        if len({(v.buffer, v.lane) for v in values}) == 1:
            return Value(values[0].buffer, np.concatenate(spread, 2), values[0].lane)
        n = sum(v.entries for v in values)
        target = np.arange(cores * corelets * n * LANES).reshape(cores, corelets, n, LANES)
        pieces, first = [], 0
        for v, at in zip(values, spread, strict=True):
            pieces.append(_piece(Value(v.buffer, at, v.lane), target[:, :, first : first + v.entries]))
            first += v.entries
        return self._assemble((cores, corelets, n), pieces)

    def _assemble(self, shape: Sequence[int], pieces: list[Piece], pad: float = 0.0, pads: Ints = _NONE) -> Value:
        """A new value [cores, corelets, entries] of 64 lanes."""
        buffer = Buffer(prod(shape) * LANES)
        self.operations.append(Assemble(buffer, pieces, np.float32(pad), pads))
        return Value(buffer, stored((*shape, LANES), shape[2:]))

    def _view(self, value: Value, shape: Sequence[int]) -> tuple[Buffer, View]:
        """A value's entries as an array [cores | 1, corelets | 1, *shape, lanes | 1], rearranged if no strides describe them."""
        view = entry_view(value, shape)
        if view is None:
            value = self._copy(value)
            view = entry_view(value, shape)
            assert view is not None
        return value.buffer, view

    def _copy(self, value: Value) -> Value:
        target = np.arange(value.at.size * LANES).reshape(*value.at.shape, LANES)
        return self._assemble(value.at.shape, [_piece(value, target)])

    # LX

    def _sticks(self, access: Access, e: Event) -> Ints:
        """First sticks per class [classes, corelets or 1, entries]."""
        corelets = range(self.corelets) if e.unit.per_corelet else (0,)
        return np.stack([self._per_class(access.sticks(e.counters, k)) for k in corelets], 1)

    def _per_class(self, x: Ints) -> Ints:
        return x[self.first] if len(x) > 1 else np.broadcast_to(x, (len(self.classes), *x.shape[1:]))

    def _lanes(self, access: Access, e: Event) -> Ints | None:
        """Live lanes per class [classes, corelets or 1, entries], or None."""
        corelets = range(self.corelets) if e.unit.per_corelet else (0,)
        lanes = [access.lanes(e.counters, k) for k in corelets]
        if all(x is None for x in lanes):
            return None
        full = np.full((1, access.entries), LANES)
        return np.stack([self._per_class(full if x is None else x) for x in lanes], 1)

    def _write(self, access: Access, e: Event, value: Value) -> None:
        sticks, lanes = self._sticks(access, e), self._lanes(access, e)
        if sticks.shape[1] > value.at.shape[1]:
            value = Value(value.buffer, np.broadcast_to(value.at, (value.at.shape[0], *sticks.shape[1:])), value.lane)
        if lanes is not None and ((lanes > 0) & (lanes < LANES)).any():
            value = self._merge(access, sticks, lanes, value)
        self.lx.write(value, self.classes, sticks, access.width, lanes)

    def _read(self, access: Access, e: Event) -> Value:
        sticks, lanes = self._sticks(access, e), self._lanes(access, e)
        live = None if lanes is None else lanes > 0
        if live is not None:
            sticks = np.where(live, sticks, 0)
        found = self.lx.read(self.classes, sticks, access.width)
        value = self._forward(found, live)
        if value is None or lanes is not None:
            value = self._gather(found, access, lanes)
        return Value(value.buffer, value.at, 0) if access.descriptor.splat else value

    def _forward(self, found: Found, live: Mask | None) -> Value | None:
        """The one value that holds all live entries, or None."""
        producers = found.value if live is None else found.value[live]
        first = int(producers.flat[0]) if producers.size else -1
        if first < 0 or (producers != first).any():
            return None
        cells = found.cell[..., 0]
        if found.cell.shape[-1] == 2 and (found.cell[..., 1] != cells).any():
            return None
        source = self.lx.values[first]
        k, i = np.divmod(cells, source.entries)
        k = np.minimum(k, source.at.shape[1] - 1)
        rows = np.minimum(np.arange(self.cores), source.at.shape[0] - 1)
        if len(self.classes) == 1 or (cells == cells[:1]).all():
            at = source.at[:, k[0], i[0]]
            at = at[rows] if len(at) > 1 else at
        else:
            at = source.at[rows[:, None, None], k[self.member], i[self.member]]
        return Value(source.buffer, shrink(at), source.lane)

    def _elements(self, found: Found, half: int, width: int) -> list[tuple[Value, Ints, Ints]]:
        """Per producer of one half of some entries: the value, which entries [cores, corelets, n], their first elements."""
        producers = found.value[self.member, ..., half]
        cells = found.cell[self.member, ..., half]
        out = []
        for p in np.unique(producers[producers >= 0]):
            source = self.lx.values[p]
            which = producers == p
            core = np.broadcast_to(np.arange(self.cores)[:, None, None], which.shape)[which]
            k, i = np.divmod(cells[which], source.entries)
            core = np.minimum(core, source.at.shape[0] - 1)
            at = source.at[core, np.minimum(k, source.at.shape[1] - 1), i]
            out.append((source, which, at + half * (LANES // width) * source.lane))
        return out

    def _gather(self, found: Found, access: Access, lanes: Ints | None) -> Value:
        """Live lanes from wherever they lie, pads for the others."""
        corelets, n = found.value.shape[1:3]
        shape = (self.cores, corelets, n)
        target = np.arange(prod(shape) * LANES).reshape(*shape, LANES)
        live = np.full(shape, LANES) if lanes is None else lanes[self.member]
        pieces = self._pieces(found, access.width, target, np.arange(LANES) < live[..., None])
        pads = target[np.arange(LANES) >= live[..., None]] if lanes is not None else _NONE
        return self._assemble(shape, pieces, access.pad, pads)

    def _pieces(self, found: Found, width: int, target: Ints, wanted: Mask) -> list[Piece]:
        """Copies of what LX holds at some entries to the elements `target` [cores, corelets, n, 64], where `wanted`."""
        per = LANES // width
        pieces = []
        for half in range(width):
            span = slice(half * per, (half + 1) * per)
            for source, which, at in self._elements(found, half, width):
                of = at[:, None] + np.arange(per) * source.lane
                take = wanted[..., span][which]
                pieces.append(Piece(source.buffer, of[take], target[..., span][which][take]))
        return pieces

    def _merge(self, access: Access, sticks: Ints, lanes: Ints, value: Value) -> Value:
        """`value` with the lanes that the write leaves alone as LX has them."""
        shape = (self.cores, *sticks.shape[1:])
        target = np.arange(prod(shape) * LANES).reshape(*shape, LANES)
        live = lanes[self.member]
        spread = Value(value.buffer, np.broadcast_to(value.at, shape), value.lane)
        old = self.lx.read(self.classes, np.where(lanes > 0, sticks, 0), access.width)
        keep = (np.arange(LANES) >= live[..., None]) & (live[..., None] > 0)
        pieces = [_piece(spread, target), *self._pieces(old, access.width, target, keep)]
        return self._assemble(shape, pieces)

    # Memory

    def _constant(self, value: np.float32, entries: int) -> Value:
        buffer = Buffer(1, lasting=True, data=np.full(1, value, np.float32))
        self.lasting.append(buffer)
        return Value(buffer, np.zeros((1, 1, entries), np.int64), 0)

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
        self.operations.append(
            Load(
                argument,
                buffer,
                block,
                (lead, *access.descriptor.extent, LANES),
                Rows(rows[lead:][singly], target[lead:][singly]) if singly.any() else None,
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
        value = self._read(e.instruction.lx, e)
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
                value = self._copy(value)
                source = affine(value.at[:lead, 0].reshape(-1, *extent), value.lane)
        elements = np.broadcast_to(value.elements()[:, 0], (*shape, LANES if value.lane else 1))[lead:]
        rows, live = rows[lead:], live[lead:]
        whole, partial = live == LANES, (live > 0) & (live < LANES)
        lane = np.arange(LANES)
        singly = Rows(rows[whole], _NONE) if whole.any() else None
        by_element = None
        if partial.any():
            wanted = lane < live[partial][:, None]
            to = rows[partial][:, None] * LANES + lane
            of = np.broadcast_to(elements[partial], to.shape)
            by_element = Rows(to[wanted], of[wanted])
        self.operations.append(Store(argument, value.buffer, source, block, singly, by_element, elements[whole]))

    # PT

    def _transposed(self, value: Value) -> Value:
        """Blocks of 64 entries with entry and lane exchanged."""
        blocks = value.at.reshape(*value.at.shape[:2], -1, LANES)
        steps = np.diff(blocks, axis=-1)
        step = int(steps.flat[0])
        if (steps != step).any():
            value = self._copy(value)
            return self._transposed(value)
        at = blocks[..., :1] + np.arange(LANES) * value.lane
        return Value(value.buffer, at.reshape(value.at.shape), step)

    def _multiply(self, left: Value) -> None:
        right = self.weights
        assert right is not None
        rows = left.entries
        a, b = self._view(left, (rows,)), self._view(right, (LANES,))
        shape = (*np.broadcast_shapes(left.at.shape[:2], right.at.shape[:2]), rows, LANES)
        first = self.sums is None
        if self.sums is not None and self.sums[1] != shape:
            self._widen_sums(shape)
        if self.sums is None:
            self.sums = Buffer(prod(shape)), shape
        self.operations.append(Multiply(*a, *b, *self.sums, first))

    def _widen_sums(self, shape: tuple[int, ...]) -> None:
        """Store the sums per core or corelet from now on: a later block depends on it."""
        assert self.sums
        buffer, old = self.sums
        new = tuple(max(a, b) for a, b in zip(old, shape, strict=True))
        at = np.broadcast_to(stored(old, old[2:3]), new[:3])
        self.sums = self._assemble(new[:3], [_piece(Value(buffer, at), np.arange(prod(new)).reshape(new))]).buffer, new

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
                    inputs[i] = self._view(value.pick(span.ravel()), span.shape)
        vector = Vector(body, [inputs[i] for i in range(len(inputs))], self.scratch)
        self.operations.append(vector)
        for o in vector.outputs:
            self._push(o.fifo, o.value(groups, body.per_group(body.pushes, o.fifo)))

    def _ordered(self, body: Body, steps: tuple[int, int] | None) -> None:
        plan = stream.of_body(body, 0)
        first, last = steps or (0, plan.steps)
        inputs: dict[str, tuple[Buffer, View]] = {}
        for flow in plan.pops:
            n = flow.through(last) - flow.through(first)
            if n:
                inputs[flow.fifo] = self._view(self._pop(flow.fifo, n), (n,))
        outputs: dict[str, tuple[Buffer, tuple[int, ...]]] = {}
        for flow in plan.pushes:
            n = flow.through(last) - flow.through(first)
            if n:
                shape = (self.cores, self.corelets, n, LANES)
                outputs[flow.fifo] = Buffer(prod(shape)), shape
        if first == 0:
            self.state = []
        self.operations.append(Ordered(body, inputs, outputs, steps, self.state))
        for fifo, (buffer, shape) in outputs.items():
            self._push(fifo, Value(buffer, stored(shape, shape[2:3])))


def _piece(value: Value, target: Ints) -> Piece:
    """Copies all of a value to the elements `target` [cores, corelets, entries, 64]."""
    return Piece(value.buffer, np.broadcast_to(value.elements(), target.shape).ravel(), target.ravel())


def _leading(rows: Ints, live: Ints, access: Access) -> tuple[View | None, int]:
    """The first cores whose rows are all live and follow strides: a view on memory, and how many cores; else (None, 0)."""
    full = (live == LANES).all(1)
    lead = len(full) if full.all() else int(np.argmin(full))
    if not lead:
        return None, 0
    view = affine(rows[:lead].reshape(lead, *access.descriptor.extent) * LANES, 1)
    return (view, lead) if view is not None else (None, 0)
