"""Which neighbouring row dimensions are one: those that every op walks together.

A tensor of rows 2 x 3 is one of 6 rows where nothing needs them apart; kernels then have one row axis less, and longer ones. Two row loops
of an op that follow each other are one if each of its tensors has both, next to each other in this order, or neither. What the host packs
has its rows in the order of the op that reads it, and is repeated over a loop that it lacks; linear memory needs strides that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from ktir.analysis.flat import Memory, Node, shape_of
from ktir.mlir import ir
from ktir.passes.layouts.stick_roles import Stick, StickRoles, pool_memory

_MOST_REPEATED = 16
"""What is repeated may have one in so many of the elements that an op reads and writes besides."""

NO_ROW = -1
"""Stands for the row loop of an op that has no rows: one position."""
Row = int
"""A dimension of a tensor, or (as the complement of an extent) a repetition over a row loop that it lacks."""
Groups = tuple[tuple[Row, ...], ...]
"""Row dimensions of a physical tensor, outer to inner; those of one group are one."""


@dataclass(frozen=True)
class Use:
    """A tensor as an op reads it: its physical form, and per row of that the row of the op, None where the op has no such one."""

    value: ir.Value
    stick: Stick
    groups: Groups
    loops: tuple[int, ...]
    """A loop of each group."""

    def walk(self, places: Mapping[int, int]) -> list[int | None]:
        """The loops (sticks, rows.., lanes) of the op that walk it, by the `places` of its row loops; None = one position."""
        inside = self.stick is not None
        rows: list[int | None] = [places[loop] for loop in self.loops] or [None if places else 1]
        return [0 if inside else None, *rows, max(1, len(places)) + 1 if inside else None]

    def factor_walk(self, places: Mapping[int, int], stick: int, lane: int) -> tuple[int | None, ...]:
        """The loops of a contraction that walk it where a factor is computed of it, by the `places` of those of rows and taps."""
        inside = self.stick is not None
        return (stick if inside else None, *([places[loop] for loop in self.loops] or [None]), lane if inside else None)


class RowMerging:
    """The rows of every physical tensor of a function, and of every op."""

    def __init__(self, roles: StickRoles) -> None:
        self.roles = roles
        self._parent: dict[Hashable, Hashable] = {}
        self._broken: set[Hashable] = set()
        for node in roles.nodes:
            if not node.is_source:
                self._look_at(node)

    # Union of pairs of neighbours

    def _find(self, key: Hashable) -> Hashable:
        root = self._parent.setdefault(key, key)
        if root != key:
            root = self._parent[key] = self._find(root)
        return root

    def _union(self, a: Hashable, b: Hashable) -> None:
        a, b = self._find(a), self._find(b)
        if a != b:
            self._parent[a] = b
            if a in self._broken:
                self._broken.add(b)

    def _break(self, key: Hashable) -> None:
        self._broken.add(self._find(key))

    def _is_one(self, key: Hashable) -> bool:
        return self._find(key) not in self._broken

    def _look_at(self, node: Node) -> None:
        pairs = list(pairwise(self._row_loops(node)))
        for i, value in enumerate(node.tensors):
            loops = node.loops[i]
            stick = self.roles.chosen[node][i]
            memory = self._memory(value, stick) if i < node.reads else None
            natural = memory is None and not (i < node.reads and self.roles.makers[value].is_source)
            if natural:
                rows = [d for d in range(len(loops)) if d != stick]
                for a, b in pairwise(rows):
                    key = ("tensor", value, stick, a, b)
                    if (loops[a], loops[b]) in pairs:
                        self._union(key, (node, loops[a], loops[b]))
                    else:
                        self._break(key)
            for a, b in pairs:
                if (a in loops) != (b in loops):
                    repeats = node.contraction is None and i < node.reads and not natural and memory is None
                    if not repeats or self._is_much(node, i, b if a in loops else a):
                        self._break((node, a, b))
                elif a in loops:
                    da, db = loops.index(a), loops.index(b)
                    apart = [d for d in range(da + 1, db) if d != stick] if da < db else [da]
                    if natural and apart:
                        self._break((node, a, b))
                    if memory is not None and memory.strides[da] != memory.strides[db] * memory.sizes[db]:
                        self._break((node, a, b))
        if node.subscripts:
            for a, b in pairs:
                self._break((node, a, b))
        if node.kind == "store" and self.is_linear(node):
            assert node.memory is not None
            for a, b in pairs:
                if node.memory.strides[a] != node.memory.strides[b] * node.memory.sizes[b]:
                    self._break((node, a, b))
        if not node.reads or node.kind in ("store", "scatter"):
            return
        relaid = self.roles.relaid(node.result)
        if relaid:
            pool = pool_memory(node.result, self.roles.made(node.result), relaid)
            for a, b in pairwise(d for d in range(len(node.rows)) if d != self.roles.made(node.result)):
                if pool.strides[a] != pool.strides[b] * pool.sizes[b]:
                    self._break(("tensor", node.result, self.roles.made(node.result), a, b))

    def _is_much(self, node: Node, operand: int, loop: int) -> bool:
        """Whether repeating an operand over a row loop that it lacks adds much to the elements that an op touches."""
        sizes = [prod(shape_of(v)) for v in node.tensors]
        added = sizes.pop(operand) * (node.extent(loop) - 1)
        return added * _MOST_REPEATED > sum(sizes)

    def is_linear(self, node: Node) -> bool:
        """Whether a load or store is one of linear memory, or of a buffer that is changed in place and so keeps its order."""
        assert node.memory is not None
        buffers = self.roles.buffers
        return not buffers.is_packed(node.memory) or buffers.is_in_place(node.memory.argument)

    def _memory(self, value: ir.Value, stick: Stick) -> Memory | None:
        """Linear memory that an operand is loaded from."""
        maker = self.roles.makers[value]
        if maker.kind == "load":
            return maker.memory if self.is_linear(maker) else None
        if maker.kind == "fill" or stick == self.roles.made(value):
            return None
        return pool_memory(value, self.roles.made(value), self.roles.relaid(value))

    # Answers

    def _row_loops(self, node: Node) -> list[int]:
        stick = self.roles.chosen[node][-1]
        return [loop for d, loop in enumerate(node.rows) if d != stick]

    def of_op(self, node: Node) -> list[tuple[int, ...]]:
        """The row loops of an op, outer to inner."""
        loops = self._row_loops(node)
        return _chained(loops, lambda a, b: self._is_one((node, a, b)))

    def places(self, node: Node) -> dict[int, int]:
        """The first loop of each group of an op's row loops, and its place among the loops (sticks, rows.., lanes)."""
        return {group[0]: 1 + i for i, group in enumerate(self.of_op(node))}

    def made(self, value: ir.Value) -> Groups:
        """The rows of an op's result as it is made."""
        stick = self.roles.made(value)
        rows = [d for d in range(len(shape_of(value))) if d != stick]
        return tuple(_chained(rows, lambda a, b: self._is_one(("tensor", value, stick, a, b))))

    def use(self, node: Node, i: int) -> Use:
        """Operand `i` of an op."""
        value, loops, stick = node.tensors[i], node.loops[i], self.roles.chosen[node][i]
        maker = self.roles.makers[value]
        if not maker.is_source and stick == self.roles.made(value):
            rows = self.made(value)
            return Use(value, stick, rows, tuple(loops[g[0]] for g in rows))
        groups: list[tuple[Row, ...]] = []
        firsts: list[int] = []
        of_op = self.of_op(node)
        for group in of_op:
            if any(loop in loops for loop in group):
                groups.append(tuple(loops.index(loop) if loop in loops else ~node.extent(loop) for loop in group))
                firsts.append(group[0])
        walked = {loop for group in of_op for loop in group}
        taps = node.contraction.reduced[:-1] if node.contraction is not None else ()
        if taps and i == 0 and not of_op:
            groups.append((~1,))
            firsts.append(NO_ROW)
        rest = [(d, loop) for d, loop in enumerate(loops) if d != stick and loop not in walked]
        for d, loop in sorted(rest, key=lambda found: taps.index(found[1]) if found[1] in taps else len(taps)):
            groups.append((d,))
            firsts.append(loop)
        return Use(value, stick, tuple(groups), tuple(firsts))


def _chained(items: Sequence[int], joined: Callable[[int, int], bool]) -> list[tuple[int, ...]]:
    """Neighbours for which `joined` holds, as groups."""
    groups: list[tuple[int, ...]] = []
    for item in items:
        if groups and joined(groups[-1][-1], item):
            groups[-1] = (*groups[-1], item)
        else:
            groups.append((item,))
    return groups
