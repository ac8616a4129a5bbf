"""REP on a tape: the body compiled to NumPy calls on fixed memory, in blocks of cores or groups that stay in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from ktir.arithmetic import numerics
from ktir.emulator.machine.program.body import Body, Node
from ktir.emulator.machine.program.of_lanes import OF_LANES
from ktir.emulator.machine.program.vector import InOrder, accumulate, live_mask, run_groups, run_steps
from ktir.emulator.machine.replay.ops import Call, Launch
from ktir.emulator.machine.replay.values import F32, Buffer, Value, View, stored
from ktir.emulator.machine.step.divisions import DIVISIONS, Noticed, missing
from ktir.emulator.machine.trace.trace import Event
from ktir.isa.functions import FUNCTIONS
from ktir.isa.program import Word
from ktir.target import LANES

BLOCK = 1 << 16
"""Elements of one register of a block: a handful of them fit into the second cache level."""
_ROUND = 1 << 15
"""Elements per pass of the rounding."""

Shape = tuple[int, ...]
"""(cores, corelets, groups, sticks, lanes), 1 where nothing depends on an axis."""


class Scratch:
    """Registers that all REPs of a tape share."""

    def __init__(self) -> None:
        self._registers: list[F32] = []
        self.rounding = np.empty((2, _ROUND), np.float32)

    def __reduce__(self) -> tuple[type[Scratch], tuple[()]]:
        return Scratch, ()  # what is in the registers is of no launch but the last

    def register(self, number: int, shape: Shape) -> F32:
        """Register `number` seen as an array of `shape`."""
        size = prod(shape)
        while len(self._registers) <= number:
            self._registers.append(np.empty(0, np.float32))
        if self._registers[number].size < size:
            # views of the old memory stay valid: registers hold nothing from one call to the next block
            self._registers[number] = np.empty(max(size, min(BLOCK, 2 * self._registers[number].size)), np.float32)
        return self._registers[number][:size].reshape(shape)


@dataclass
class Output:
    """What a REP pushes to one FIFO: an array (cores, corelets, groups, entries of a group, lanes), contiguous in `buffer`."""

    fifo: str
    ports: list[int]
    """Indices of the VOUTs."""
    shape: Shape
    buffer: Buffer

    def value(self, groups: int, per_group: int) -> Value:
        """The entries in FIFO order."""
        return Value(self.buffer, stored(self.shape, (groups, per_group)), int(self.shape[-1] > 1))


def infer(body: Body, inputs: Sequence[Shape]) -> list[Shape]:
    """Shape of every node."""
    shapes: list[Shape] = []
    for node in body.nodes:
        x = [shapes[k] for k in node.operands]
        match node.kind:
            case "in":
                shapes.append(inputs[node.data])
            case "const":
                shapes.append((1,) * 5)
            case "live":
                shapes.append((1, 1, 1, body.sticks, LANES))
            case "mask":
                shapes.append((*x[0][:3], body.sticks, LANES))
            case "accumulate" | "last":
                shapes.append((*x[0][:3], 1, x[0][4]))
            case "lanes":
                shapes.append((*x[0][:4], OF_LANES[node.data.does].lanes))
            case _:
                shapes.append(np.broadcast_shapes(*x))
    return shapes


@dataclass
class Vector:
    """A whole REP of a regular body. `inputs` has buffer and view of what each VIN pops."""

    event: Event
    body: Body
    inputs: list[tuple[Buffer, View]]
    scratch: Scratch
    noticed: list[Noticed]
    """Takes the integer divisions that have no quotient in some lanes."""
    outputs: list[Output] = field(default_factory=list)
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shapes = infer(self.body, [v.shape for _, v in self.inputs])
        for fifo in self.body.pushes:
            ports = [i for i, p in enumerate(self.body.outputs) if p.fifo == fifo]
            shape = tuple(max(sizes) for sizes in zip(*(self.shapes[self.body.results[p]] for p in ports), strict=True))
            if len(ports) > 1:
                shape = (*shape[:3], self.body.per_group(self.body.pushes, fifo), shape[4])
            self.outputs.append(Output(fifo, ports, shape, Buffer(prod(shape))))
        self.reads = [b for b, _ in self.inputs]
        self.writes = [o.buffer for o in self.outputs]

    def calls(self, launch: Launch) -> list[Call]:
        """The calls of every block."""
        inputs = [view.of(buffer.flat) for buffer, view in self.inputs]
        targets: list[list[tuple[F32, bool]]] = [[] for _ in self.body.nodes]
        """Per node where its value goes, and whether it may be computed there."""
        for o in self.outputs:
            whole = o.buffer.flat.reshape(o.shape)
            for p in o.ports:
                alone = len(o.ports) == 1
                part = whole if alone else whole[:, :, :, self.body.outputs[p].span]
                targets[self.body.results[p]].append((part, alone))
        out: list[Call] = []
        for block in self._blocks():
            _Block(self, block, inputs, targets).emit(out)
        return out

    def _blocks(self) -> Iterator[tuple[slice, slice, slice]]:
        """Slices of cores, corelets and groups whose registers have at most BLOCK elements, where one group has no more."""
        domain = [max((s[axis] for s in self.shapes), default=1) for axis in range(3)]
        size = max((s[3] * s[4] for s in self.shapes), default=1)
        axis = 2
        while axis > 0 and size * domain[axis] <= BLOCK:
            size *= domain[axis]
            axis -= 1
        step = max(1, min(domain[axis], BLOCK // size))
        for lead in product(*(range(n) for n in domain[:axis])):
            for first in range(0, domain[axis], step):
                cut = [slice(i, i + 1) for i in lead] + [slice(first, min(first + step, domain[axis]))]
                cut += [slice(0, n) for n in domain[axis + 1 :]]
                yield cut[0], cut[1], cut[2]


class _Block:
    """Compiles one block: gives every node an array and appends the calls that fill it."""

    def __init__(self, vector: Vector, block: tuple[slice, slice, slice], inputs: list[F32], targets: list[list[tuple[F32, bool]]]) -> None:
        self.vector = vector
        self.block = block
        self.inputs = inputs
        self.targets = targets
        nodes = vector.body.nodes
        self.arrays: list[F32] = []
        self.register: list[int | None] = []
        """Register of each node; an alias shares its operand's."""
        self.last = {k: i for i, node in enumerate(nodes) for k in node.operands}
        self.kept = {node.operands[0] for node in nodes if node.kind == "last"}
        """Nodes that have an alias: their registers stay taken."""
        self.free: list[int] = []
        self.count = 0

    def emit(self, out: list[Call]) -> None:
        """Append the block's calls."""
        for i, node in enumerate(self.vector.body.nodes):
            x = [self.arrays[k] for k in node.operands]
            if node.kind in ("in", "const", "live", "last"):
                self._alias(node, x)
            else:
                self._compute(i, node, x, out)
            for part, _ in self.targets[i]:
                goal = self._cut(part)
                if goal is not self.arrays[i] and not self._same(goal, self.arrays[i]):
                    out.append((np.copyto, (goal, self.arrays[i])))
            for k in {i, *node.operands}:
                r = self.register[k]
                if r is not None and self.last.get(k, -1) <= i and k not in self.kept:
                    self.register[k] = None
                    self.free.append(r)

    @staticmethod
    def _same(a: F32, b: F32) -> bool:
        return a.__array_interface__["data"] == b.__array_interface__["data"] and a.shape == b.shape and a.strides == b.strides

    def _cut(self, whole: F32) -> F32:
        """The block of an array that has length 1 on axes on which it does not depend."""
        return whole[tuple(s if n > 1 else slice(None) for s, n in zip(self.block, whole.shape, strict=False))]

    def _shape(self, i: int) -> Shape:
        shape = self.vector.shapes[i]
        return (*(len(range(n)[s]) if n > 1 else 1 for s, n in zip(self.block, shape, strict=False)), *shape[3:])

    def _alias(self, node: Node, x: list[F32]) -> None:
        self.register.append(None)
        if node.kind == "in":
            self.arrays.append(self._cut(self.inputs[node.data]))
        elif node.kind == "const":
            self.arrays.append(np.full((1,) * 5, node.data, np.float32))
        elif node.kind == "live":
            self.arrays.append(live_mask(self.vector.body.live(node.data))[None, None, None])
        else:
            self.arrays.append(x[0][..., -1:, :])

    def _compute(self, i: int, node: Node, x: list[F32], out: list[Call]) -> None:
        shape = self._shape(i)
        goal = self._goal(i, shape)
        if goal is None:
            if self.free:
                r = self.free.pop()
            else:
                r = self.count
                self.count += 1
            self.register.append(r)
            goal = self.vector.scratch.register(r, shape)
        else:
            self.register.append(None)
        self.arrays.append(goal)
        out.extend(self._node(i, node, x, goal))

    def _watch(self, i: int, kind: str, x: list[F32]) -> list[Call]:
        """Look at the divisor of node `i`, unless it is a number by which all integers can be divided."""
        nodes = self.vector.body.nodes
        divisor = nodes[nodes[i].operands[1]]
        if divisor.kind == "const" and np.float32(divisor.data).view(np.int32) not in (0, -1):
            return []
        number = sum(n.kind == "function" and n.data[0] in DIVISIONS for n in nodes[:i])
        return [(_watch, (kind, *x, self.vector.noticed, partial(Noticed, self.vector.event, number, self.block)))]

    def _goal(self, i: int, shape: Shape) -> F32 | None:
        """The output that may hold node `i` while it is computed."""
        for part, alone in self.targets[i]:
            goal = self._cut(part)
            if alone and goal.shape == shape and goal.flags.c_contiguous:
                return goal
        return None

    def _node(self, i: int, node: Node, x: list[F32], y: F32) -> list[Call]:
        body = self.vector.body
        match node.kind:
            case "function":
                name, half = node.data
                watch = self._watch(i, name, x) if name in DIVISIONS else []
                return [*watch, (FUNCTIONS[name], (*x, y)), *(self._round(half, y) if half else ())]
            case "accumulate":
                return [(_accumulate, (node.data, x[0], body.sticks, y))]
            case "lanes":
                return [(_of_lanes, (node.data, x[0], y))]
        lanes, fill = node.data  # mask
        whole, tail = divmod(lanes, LANES)
        calls: list[Call] = [(np.copyto, (y, x[0]))]
        if tail and whole < body.sticks:
            calls.append((np.copyto, (y[..., whole, tail:], fill)))
            whole += 1
        if whole < body.sticks:
            calls.append((np.copyto, (y[..., whole:, :], fill)))
        return calls

    def _round(self, half: str, y: F32) -> list[Call]:
        flat = y.reshape(-1)
        parts = [flat[k : k + _ROUND] for k in range(0, flat.size, _ROUND)]
        return [(numerics.ROUND_CHUNK[half], numerics.rounding_views(p, p, self.vector.scratch.rounding)) for p in parts]


def _watch(kind: str, a: F32, b: F32, noticed: list[Noticed], notice: Callable[[NDArray[np.bool_]], Noticed]) -> None:
    """Notice lanes without a quotient; most launches have none that even look like it."""
    divisors = b.view(np.int32)
    if divisors.all() and (kind.startswith("rem") or divisors.min() > 0 or not (divisors == -1).any()):
        return
    _, bad = missing(kind, a, b)
    if bad.any():
        noticed.append(notice(bad))


def _accumulate(kind: str, x: F32, sticks: int, y: F32) -> None:
    np.copyto(y, accumulate(kind, x, sticks))


def _of_lanes(word: Word, x: F32, y: F32) -> None:
    np.copyto(y, OF_LANES[word.does].compute(word, x))


@dataclass
class Ordered:
    """A REP, or a part of one, that needs its order: run stick by stick, with every core, corelet and lane stored.

    `inputs` has per FIFO the buffer and view [cores | 1, corelets | 1, entries | 1, lanes | 1] of what it pops, `outputs` the arrays
    [cores, corelets, entries, 64] that it pushes. `steps` is None for a whole REP; parts share `state`.
    """

    body: Body
    inputs: dict[str, tuple[Buffer, View]]
    outputs: dict[str, tuple[Buffer, Shape]]
    steps: tuple[int, int] | None
    state: list[InOrder]
    reads: list[Buffer] = field(default_factory=list)
    writes: list[Buffer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reads = [b for b, _ in self.inputs.values()]
        self.writes = [b for b, _ in self.outputs.values()]

    def calls(self, launch: Launch) -> list[Call]:
        """One call."""
        popped = {f: view.of(b.flat) for f, (b, view) in self.inputs.items()}
        pushed = {f: b.flat.reshape(shape) for f, (b, shape) in self.outputs.items()}
        return [(self._groups if self.steps is None else self._steps, (popped, pushed))]

    def _groups(self, popped: dict[str, F32], pushed: dict[str, F32]) -> None:
        body = self.body
        grouped = {}
        for f, x in popped.items():
            n = body.per_group(body.pops, f)
            x = np.broadcast_to(x, (*x.shape[:2], body.groups * n, x.shape[-1]))
            grouped[f] = x.reshape(*x.shape[:2], body.groups, n, x.shape[-1])
        for f, x in run_groups(body, grouped).items():
            y = pushed[f]
            y.reshape(*y.shape[:2], body.groups, -1, LANES)[...] = x

    def _steps(self, popped: dict[str, F32], pushed: dict[str, F32]) -> None:
        assert self.steps is not None
        if self.steps[0] == 0:
            self.state[:] = [InOrder(self.body)]
        next_in = dict.fromkeys(popped, 0)
        next_out = dict.fromkeys(pushed, 0)

        def pop(fifo: str) -> F32:
            x = popped[fifo]
            entry = x[:, :, min(next_in[fifo], x.shape[2] - 1)]
            next_in[fifo] += 1
            return entry.copy()  # registers outlive the buffer

        def push(fifo: str, x: F32) -> None:
            pushed[fifo][:, :, next_out[fifo]] = x
            next_out[fifo] += 1

        run_steps(self.state[0], *self.steps, pop, push)
