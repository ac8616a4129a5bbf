"""The body of a REP: what it pops and pushes, what it costs, and its operations in single-assignment form.

At the first stick of a group the words of the `start` list run before those of `each`, at the last one those of `end` after them.
Accumulators are reset at the start of a group. A body is *regular* if every value comes from the same stick, from the group's
start, from a constant, or from a finished accumulator: then all groups and sticks can be computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.program.of_lanes import OF_LANES
from ktir.isa.cycles import op_cycles
from ktir.isa.functions import integer_lane
from ktir.isa.instructions import Does
from ktir.isa.program import Word
from ktir.target import LANES, Target

START, STICK, END = range(3)
_PHASE = {"start": START, "each": STICK, "end": END}

_COUNTING = (Does.ACCUMULATE, Does.LIVE, Does.MASK)
_LASTING = (Does.ACCUMULATE, Does.CONSTANT)
"""Words whose values are those of a whole group."""

Span = slice | NDArray[np.int64]


class BodyError(Exception):
    """The body has no meaning; `word` is the index of the faulty word within the body."""

    def __init__(self, message: str, word: int) -> None:
        super().__init__(message)
        self.word = word


@dataclass(frozen=True)
class Port:
    """A VIN or VOUT: `word` is its place in the body, `span` the places of its entries among those of its FIFO in one group."""

    fifo: str
    phase: int
    word: int
    span: Span


@dataclass(frozen=True)
class Node:
    """One value of a regular body, computed from the values `operands`.

    kind: in (`data` = index of the VIN), const (value), function (name, what it rounds to), mask (lanes, fill), live (lanes),
    accumulate (kind), lanes (the word, of `OF_LANES`), last (the last stick of a value).
    """

    kind: str
    operands: tuple[int, ...] = ()
    data: Any = None


@dataclass(frozen=True)
class _Seen:
    """The value that an op finds in a register: which word wrote it, in which group and at which stick."""

    word: int
    group: int
    stick: int


class Body:
    """A decoded REP: `groups` groups of `sticks` sticks per corelet. `words` are those that belong to it."""

    def __init__(self, rep: Word, words: Sequence[Word], target: Target) -> None:
        self.words = list(words)
        self.groups = rep["groups"]
        self.sticks = rep["sticks"]
        self.phases = [_PHASE[part] for part in rep.parts]
        for i, w in enumerate(self.words):
            if w.does in _COUNTING and self.phases[i] != STICK:
                raise BodyError("counts or combines sticks, but does not stand in 'each'", i)
        self.pops = self._per_step(Does.TAKE)
        """FIFO -> entries popped at each stick of a group."""
        self.pushes = self._per_step(Does.GIVE)
        self.inputs = self._ports(Does.TAKE)
        self.outputs = self._ports(Does.GIVE)
        self.ports = {p.word: i for ports in (self.inputs, self.outputs) for i, p in enumerate(ports)}
        """Word -> index in `inputs` or `outputs`."""
        self.cycles = self._cycles(target)
        """Cycles of each stick of a group."""
        sources = self._sources()
        self.regular = sources is not None and all(isinstance(p.span, slice) for p in self.outputs)
        self.nodes: list[Node] = []
        self.results: list[int] = []
        """Per VOUT the node that it pushes."""
        if sources is not None and self.regular:
            self._renumber(sources)

    def runs(self, i: int, stick: int) -> bool:
        """Whether word `i` takes part at a stick."""
        phase = self.phases[i]
        return phase == STICK or (phase == START and stick == 0) or (phase == END and stick == self.sticks - 1)

    def per_group(self, flow: dict[str, NDArray[np.int64]], fifo: str) -> int:
        """Entries of a FIFO in a whole group; `flow` is `pops` or `pushes`."""
        return int(flow[fifo].sum())

    def total(self, flow: dict[str, NDArray[np.int64]], fifo: str) -> NDArray[np.int64]:
        """Entries of a FIFO before each step of the whole REP, and after the last; a step is a stick."""
        return np.concatenate(([0], np.cumsum(np.tile(flow[fifo], self.groups))))

    def _per_step(self, does: Does) -> dict[str, NDArray[np.int64]]:
        out: dict[str, NDArray[np.int64]] = {}
        for w, phase in zip(self.words, self.phases, strict=True):
            if w.does is does:
                counts = out.setdefault(w["fifo"], np.zeros(self.sticks, np.int64))
                counts[slice(None) if phase == STICK else 0 if phase == START else -1] += 1
        return out

    def _ports(self, does: Does) -> list[Port]:
        """Ports in the body's order, each with the places of its entries."""
        members = [(i, w["fifo"]) for i, w in enumerate(self.words) if w.does is does]
        places: dict[int, list[int]] = {i: [] for i, _ in members}
        for fifo in {f for _, f in members}:
            mine = [i for i, f in members if f == fifo]
            place = 0
            for stick in range(self.sticks):
                for i in mine:
                    if self.runs(i, stick):
                        places[i].append(place)
                        place += 1
        return [Port(f, self.phases[i], i, _span(places[i])) for i, f in members]

    def _cycles(self, target: Target) -> NDArray[np.int64]:
        costs = [0, 0, 0]
        for w, phase in zip(self.words, self.phases, strict=True):
            costs[phase] += op_cycles(w, target)
        cycles = np.full(self.sticks, max(costs[STICK], 1))
        cycles[0] += costs[START]
        cycles[-1] += costs[END]
        return cycles

    # Single assignment

    def _sources(self) -> list[list[int]] | None:
        """Per word the words that define its operands, or None if the body is not regular. Raises BodyError on undefined registers."""
        sticks = range(self.sticks) if self.sticks <= 4 else (0, 1, self.sticks - 2, self.sticks - 1)
        accumulators = {w["dst"] for w in self.words if w.does is Does.ACCUMULATE}
        regular = len(accumulators) == sum(w.does is Does.ACCUMULATE for w in self.words)
        found: list[list[int]] = [[] for _ in self.words]
        holds: dict[int, _Seen] = {}
        for group in range(min(self.groups, 2)):
            for r in accumulators:
                holds[r] = _Seen(-1, group, -1)  # the identity
            for stick in sticks:
                for i, w in enumerate(self.words):
                    if not self.runs(i, stick):
                        continue
                    seen = []
                    for r in registers_read(w):
                        if r not in holds:
                            raise BodyError(f"reads register {r} before it is written", i)
                        seen.append(holds[r])
                        regular = regular and self._is_regular(i, holds[r], group, stick)
                    origin = [s.word for s in seen]
                    regular = regular and found[i] in ([], origin)
                    found[i] = origin
                    if w.register is not None:
                        holds[w.register] = _Seen(i, group, stick)
        return found if regular else None

    def _is_regular(self, reader: int, seen: _Seen, group: int, stick: int) -> bool:
        """Whether a value that word `reader` finds is one that a regular body may use."""
        if seen.word < 0:
            return False
        does = self.words[seen.word].does
        if does is Does.CONSTANT:
            return True
        same = (seen.group, seen.stick) == (group, stick)
        phase = self.phases[seen.word]
        if does is Does.ACCUMULATE:
            return same and self.phases[reader] == END
        if phase == START:
            return seen.group == group
        return same and phase <= self.phases[reader]

    def _renumber(self, sources: list[list[int]]) -> None:
        node_of: dict[int, int] = {}
        results: dict[int, int] = {}
        order = sorted(range(len(self.words)), key=lambda i: (START if self.words[i].does is Does.CONSTANT else self.phases[i], i))
        for i in order:
            w = self.words[i]
            operands = []
            for j in sources[i]:
                node = node_of[j]
                if self.phases[i] == END and self.phases[j] == STICK and self.words[j].does not in _LASTING:
                    node = self._add(Node("last", (node,)))
                operands.append(node)
            if w.does is Does.GIVE:
                results[self.ports[i]] = operands[0]
            else:
                node_of[i] = self._add(self._node(i, w, tuple(operands)))
        self.results = [results[p] for p in range(len(self.outputs))]

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _node(self, i: int, w: Word, operands: tuple[int, ...]) -> Node:
        if w.does in OF_LANES:
            return Node("lanes", operands, w)
        match w.does:
            case Does.TAKE:
                return Node("in", (), self.ports[i])
            case Does.CONSTANT:
                return Node("const", (), integer_lane(w["value"]))
            case Does.FUNCTION:
                return Node("function", operands, (w["kind"], w["half"] if w["round"] else ""))
            case Does.LIVE:
                return Node("live", (), w["lanes"])
            case Does.ACCUMULATE:
                return Node("accumulate", operands, w["kind"])
            case Does.MASK:
                return Node("mask", operands, (w["lanes"], integer_lane(w["fill"])))
        raise BodyError(f"'{w.op}' is no instruction of a REP body", i)

    def live(self, lanes: int) -> NDArray[np.bool_]:
        """Live lanes [sticks, 64] of a VMASK or VLIVE."""
        return np.arange(self.sticks * LANES).reshape(self.sticks, LANES) < lanes


def registers_read(w: Word) -> list[int]:
    """Registers that an op reads; the accumulator of a VACC not counted."""
    return [] if w.does is Does.TAKE else [w[f] for f in ("src", "src2", "src3") if f in w.operands]


def _span(places: list[int]) -> Span:
    """Places as a slice if they are evenly spaced."""
    if len(places) == 1:
        return slice(places[0], places[0] + 1)
    step = places[1] - places[0] if places else 1
    if places == list(range(places[0], places[-1] + 1, step)):
        return slice(places[0], places[-1] + 1, step)
    return np.array(places)
