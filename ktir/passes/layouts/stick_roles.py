"""Which dimension of each tensor lies in the stick: the choice that moves the fewest bytes through linear memory.

Each op has *configurations*, which say for each of its tensors the dimension in the stick (None: none, a value per row in lane 0): the
reduced loop of a reduction, any loop of a pointwise op, fixed ones for a contraction but for its second operand. A tensor *exists* in the
layout that its op makes and in those that it is read in; one that is made in another layout costs a store and a load (a relayout). What the
host packs costs nothing, in any layout, but where it says how it lies on the card.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import combinations
from math import prod

import numpy as np

from ktir.analysis.attributes.plan_attributes import STICK, stick_of
from ktir.analysis.flat import IndexedBy, Memory, Node, dtype_of, refuse, shape_of
from ktir.cost.softmax import Sticks
from ktir.mlir import func, ir
from ktir.passes.layouts.buffers import Buffers
from ktir.passes.layouts.stick_choice import IMPOSSIBLE, Table, choose
from ktir.target import LANES, element_bytes, is_byte

GRANULE = 32
"""Bytes that memory moves at least; `ktir.target` has the machine's."""

Stick = int | None
Configuration = tuple[Stick, ...]
"""Per tensor of a node the dimension in the stick."""

_BYTE = 1 << 17
"""Cost of a byte: more than all preferences together, which only decide between equals."""


def stick_text(stick: Stick) -> str:
    """What lies in the stick, for remarks."""
    return "no dimension in the stick" if stick is None else f"dimension {stick} in the stick"


def access_bytes(memory: Memory, stick: Stick) -> int:
    """Bytes that a load or store of all of `memory` moves where dimension `stick` lies in the stick."""
    size = element_bytes(memory.element)
    elements = min(prod(memory.sizes), memory.reach - memory.offset)  # windows that overlap are loaded once
    if stick is None or elements == 0:
        return elements * GRANULE
    extent, stride = memory.sizes[stick], abs(memory.strides[stick])
    rows = elements // extent
    if stride * size >= GRANULE:
        return elements * GRANULE
    others = [s for d, s in enumerate(memory.strides) if d != stick and memory.sizes[d] > 1]
    aligned = all(s * size % GRANULE == 0 for s in (*others, memory.offset))
    granules = -(-(((extent - 1) * stride + 1) * size) // GRANULE) + (not aligned and extent > 1)
    return rows * granules * GRANULE


def pool_memory(value: ir.Value, made: Stick, read: Iterable[Stick]) -> Memory:
    """Linear memory for a relayout: rows in order, the dimension in the stick of the store last, each row at a multiple of 64 elements."""
    shape = shape_of(value)
    last = made if made is not None else next((s for s in sorted(read, key=str) if s is not None), None)
    order = [d for d in range(len(shape)) if d != last] + ([] if last is None else [last])
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d] if step > 1 or d != order[-1] else -(-shape[d] // LANES) * LANES
    return Memory(-1, 0, tuple(shape), tuple(strides), dtype_of(value), value.owner)


def configurations(node: Node) -> list[Configuration]:
    """What can lie in the stick at an op, the preferred one first: the last dimension of the result."""
    if node.kind == "pairs":
        along = node.loops[0].index(len(node.rows))
        return [(along, along)]
    if node.kind == "reduction":
        assert node.generic is not None
        loops: Sequence[Stick] = [node.generic.iterators.index("reduction")]
    elif node.contraction is not None:
        c = node.contraction
        k, n = c.reduced[-1], next(iter(c.columns), None)
        a, b, *others, result = node.loops
        columns = None if n is None else result.index(n)
        second = [None] if n is None else [b.index(n), b.index(k)]
        if is_byte(dtype_of(node.tensors[1])) and n is not None:  # two rows share a stick
            second = [b.index(in_stick) for in_stick, row in ((n, k), (k, n)) if node.extent(row) % 2 == 0]
        if node.generic is not None and node.generic.made_factor is not None:  # a lane has the numbers of its column
            second = second[:1]
        return [(a.index(k), s, *(of.index(n) if n in of else None for of in others), columns) for s in second]
    else:
        walked = {v for s in node.subscripts if isinstance(s, IndexedBy) for v in s.variables}
        direct = {s for s in node.subscripts if isinstance(s, int)} if node.subscripts else set(node.rows)
        loops = [*(loop for loop in reversed(node.rows) if loop in direct - walked), None]
    return [tuple(of.index(loop) if loop is not None and loop in of else None for of in node.loops) for loop in loops]


def _stated(node: Node) -> Configuration | None:
    """The configuration that a plan says."""
    stated = stick_of(node.op)
    if stated is not None and stated not in configurations(node):
        raise refuse(node.op, f"has no configuration '{STICK}' = {[-1 if d is None else d for d in stated]}")
    return stated


@dataclass
class StickRoles:
    """The configuration of each node of a flat function; `cost` in bytes, `bound` a cost that no choice undercuts."""

    function: func.FuncOp
    nodes: list[Node]
    buffers: Buffers
    limit: int = 1 << 20
    """Entries of the largest table that the choice may make; where it takes more, the choice need not be the best."""
    chosen: dict[Node, Configuration] = field(default_factory=dict)
    pads: dict[tuple[Node, tuple[float | None, ...]], float | None] = field(default_factory=dict)
    """What pad lanes of an op's result hold, by what its operands show in theirs; choices of one function share it."""
    work: dict[Node, int] = field(default_factory=dict)
    """Cycles of an op's body per stick."""
    seen: dict[Node, tuple[Sticks, ...]] = field(default_factory=dict)
    """Per 64 rows of a reduction the sticks that a mask leaves."""

    def __post_init__(self) -> None:
        self.makers = {n.result: n for n in self.nodes if n.kind not in ("store", "scatter")}
        self.users: dict[ir.Value, list[tuple[Node, int]]] = {value: [] for value in self.makers}
        for node in self.nodes:
            for i in range(node.reads):
                self.users[node.tensors[i]].append((node, i))
        self._domains: list[int] = []
        self._tables: list[Table] = []
        self._variables: dict[Node, tuple[int, list[Configuration]]] = {}
        for node in self.nodes:
            if not node.is_source:
                self._add_node(node)
        for value in self.makers:
            self._add_value(value)
        self._choose()

    def _choose(self) -> None:
        found = choose(self._domains, self._tables, self.limit)
        self.cost, self.bound = found.cost // _BYTE, found.bound // _BYTE
        self.chosen = {node: options[found.values[v]] for node, (v, options) in self._variables.items()}

    # The problem

    def _add_node(self, node: Node) -> None:
        options = [stated] if (stated := _stated(node)) is not None else self._open(node)
        variable = self._variable(len(options))
        self._variables[node] = variable, options
        costs = [self._memory_bytes(node, option[0]) * _BYTE for option in options]
        if node.kind not in ("store", "scatter"):
            weight = prod(shape_of(node.result)).bit_length()
            costs = [cost + weight * rank for rank, cost in enumerate(costs)]
        self._tables.append(Table((variable,), np.array(costs, np.int64)))

    def _open(self, node: Node) -> list[Configuration]:
        """What a plan may choose from. A matrix that indices choose for each batch lies as one that is multiplied as a whole does: weights
        lie on the card once, for programs that read a few of the matrices and for those that read all.
        """
        options, matrix = configurations(node), self.makers.get(node.tensors[1]) if node.contraction is not None else None
        if node.contraction is None or matrix is None or matrix.memory is None or not self.buffers.is_packed(matrix.memory):
            return options
        looked_up = {node.loops[1][v] for s in matrix.subscripts if isinstance(s, IndexedBy) for v in s.variables}
        return options[:1] if looked_up and looked_up <= set(node.contraction.batch) else options

    def _add_value(self, value: ir.Value) -> None:
        """The set of layouts that a tensor exists in is a variable of its own, so that several users share a relayout."""
        maker, users = self.makers[value], [(self._variables[n], i) for n, i in self.users[value]]
        made = configurations(maker)
        wanted = {option[i] for (_, options), i in users for option in options}
        layouts = sorted(wanted if maker.is_source else wanted | {option[-1] for option in made}, key=str)
        if len(layouts) < 2:
            return
        most = len(users) + (not maker.is_source)
        sets = [frozenset(c) for n in range(1, min(most, len(layouts)) + 1) for c in combinations(layouts, n)]
        variable = self._variable(len(sets))
        if maker.is_source:
            costs = [sum(self._memory_bytes(maker, s) for s in layouts_) * _BYTE for layouts_ in sets]
            self._tables.append(Table((variable,), np.array(costs, np.int64)))
        else:
            producer, options = self._variables[maker]
            table = [[self._relayout_cost(value, option[-1], s) for s in sets] for option in options]
            self._pair(producer, variable, np.array(table, np.int64))
        for (user, options), i in users:
            table = [[0 if option[i] in s else IMPOSSIBLE for s in sets] for option in options]
            self._pair(user, variable, np.array(table, np.int64))

    def _variable(self, alternatives: int) -> int:
        self._domains.append(alternatives)
        return len(self._domains) - 1

    def _pair(self, a: int, b: int, costs: np.ndarray) -> None:
        self._tables.append(Table((a, b), costs) if a < b else Table((b, a), costs.T))

    def _memory_bytes(self, node: Node, stick: Stick) -> int:
        """What a load or store costs where it is not packed by the host."""
        if node.memory is None:
            return 0
        if self.buffers.is_packed(node.memory):
            return 0 if node.subscripts else self._form_bytes(node.memory, stick)
        if not node.subscripts:
            return access_bytes(node.memory, stick)
        memory = node.memory
        dim = next((d for d, s in enumerate(node.subscripts) if stick is not None and s == stick), None)
        bytes_ = access_bytes(memory, dim)
        return bytes_ * prod(shape_of(node.tensors[0])) // max(1, prod(memory.sizes))

    def _form_bytes(self, memory: Memory, stick: Stick) -> int:
        """What it takes to bring a tensor of the card, which lies in a form, to another one."""
        lies = self.buffers.lies(memory.argument)
        if lies is None or (stick is not None and memory.strides[stick] == lies):
            return 0
        return 2 * prod(memory.sizes) * element_bytes(memory.element)

    def _relayout_cost(self, value: ir.Value, made: Stick, layouts: frozenset[Stick]) -> int:
        if made not in layouts:
            return IMPOSSIBLE
        return self.relayout_bytes(value, made, layouts - {made}) * _BYTE

    @staticmethod
    def relayout_bytes(value: ir.Value, made: Stick, read: Iterable[Stick]) -> int:
        """Bytes of a store in one layout and loads in others."""
        read = list(read)
        if not read:
            return 0
        memory = pool_memory(value, made, read)
        return access_bytes(memory, made) + sum(access_bytes(memory, s) for s in read)

    # The answer

    def options(self, node: Node) -> list[Configuration]:
        """What can lie in the stick at an op: one thing, where a plan says so."""
        return self._variables[node][1]

    def made(self, value: ir.Value) -> Stick:
        """The stick dimension of an op's result."""
        return self.chosen[self.makers[value]][-1]

    def wanted(self, value: ir.Value) -> list[Stick]:
        """The stick dimensions in which a tensor is read, in order of use."""
        return list(dict.fromkeys(self.chosen[node][i] for node, i in self.users[value]))

    def relaid(self, value: ir.Value) -> list[Stick]:
        """Those for which an op's result goes through memory."""
        return [] if self.makers[value].is_source else [s for s in self.wanted(value) if s != self.made(value)]

    def with_configuration(self, node: Node, option: Configuration) -> StickRoles:
        """The best choice that has this configuration at an op."""
        variable, options = self._variables[node]
        barred = np.full(len(options), IMPOSSIBLE, np.int64)
        barred[options.index(option)] = 0
        changed = copy(self)
        changed._tables = [*self._tables, Table((variable,), barred)]
        changed._choose()
        return changed

    def runner_up(self, node: Node) -> tuple[Configuration, int] | None:
        """The best other configuration of an op with the bytes of the whole choice that it leads to; None if it has no other."""
        variable, options = self._variables[node]
        if len(options) == 1:
            return None
        barred = np.zeros(len(options), np.int64)
        barred[options.index(self.chosen[node])] = IMPOSSIBLE
        found = choose(self._domains, [*self._tables, Table((variable,), barred)], self.limit)
        return options[found.values[variable]], found.cost // _BYTE
