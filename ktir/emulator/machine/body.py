"""The body of a REP: what it pops and pushes, what it costs, and its operations in single-assignment form.

A group runs in three passes over the body: the ops of phase `start` once, those of phase `stick` for every stick, those of phase `end`
once. VACC and VMASK belong to the stick pass; VCONST stands in every pass. A register read in a later pass has the value that the earlier
one left, the last stick's in the end pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.isa.program import Word
from ktir.target import LANES, Target

from .timing import op_cycles

START, STICK, END = range(3)
_PHASE = {"start": START, "stick": STICK, "end": END}
CONST = -1
"""Phase of a node that is the same everywhere."""


class BodyError(Exception):
    """The body has no meaning; `word` is the index of the faulty word within the body."""

    def __init__(self, message: str, word: int) -> None:
        super().__init__(message)
        self.word = word


@dataclass(frozen=True)
class Port:
    """A VIN or VOUT: `slot` is its place among the ports of the same FIFO and phase, `word` its place in the body."""

    fifo: str
    phase: int
    slot: int
    word: int


@dataclass(frozen=True)
class Node:
    """One value of the body.

    kind: in (`data` = index of the VIN), const (value), unary or binary (name, round), mask (lanes, fill), accumulate (kind), tree (kind),
    last (the last stick of a value).
    """

    kind: str
    phase: int
    operands: tuple[int, ...] = ()
    data: Any = None


@dataclass
class Lane:
    """What one FIFO sees of a group: entries popped or pushed at its start, per stick, and at its end."""

    counts: list[int] = field(default_factory=lambda: [0, 0, 0])

    def per_group(self, sticks: int) -> int:
        """Entries of a whole group."""
        return self.counts[START] + self.counts[STICK] * sticks + self.counts[END]

    def span(self, port: Port, sticks: int) -> slice:
        """Positions of a port's entries within a group."""
        if port.phase == START:
            return slice(port.slot, port.slot + 1)
        base = self.counts[START]
        if port.phase == STICK:
            step = self.counts[STICK]
            return slice(base + port.slot, base + step * sticks, step)
        return slice(base + self.counts[STICK] * sticks + port.slot, base + self.counts[STICK] * sticks + port.slot + 1)


def _sources(w: Word) -> list[int]:
    """Registers that an op reads."""
    return [] if w.op == "vin" else [w[f] for f in ("src", "src2") if f in w.operands]


class Body:
    """A decoded REP: `groups` groups of `sticks` sticks per corelet."""

    def __init__(self, words: Sequence[Word], groups: int, sticks: int, target: Target) -> None:
        self.words = list(words)
        self.groups = groups
        self.sticks = sticks
        self.inputs: list[Port] = []
        self.outputs: list[Port] = []
        self.pops: dict[str, Lane] = {}
        self.pushes: dict[str, Lane] = {}
        self.costs = [0, 0, 0]
        self.ports: dict[int, int] = {}
        """Word -> index in `inputs` or `outputs`."""
        self.phases = [self._phase(w) for w in self.words]
        for i, w in enumerate(self.words):
            self._count(i, w, target)
        self.costs[STICK] = max(self.costs[STICK], 1)
        self.nodes: list[Node] = []
        self.results: list[int] = [0] * len(self.outputs)
        """Per VOUT the node that it pushes."""
        self.carried: int | None = None
        """A word that reads what the previous stick left; such a body runs stick by stick (`run_steps`)."""
        self._renumber()

    def _phase(self, w: Word) -> int:
        return _PHASE[w["phase"]] if "phase" in w.operands else STICK

    def passes(self, i: int, phase: int) -> bool:
        """Whether word `i` runs in the pass of `phase`."""
        return self.words[i].op == "vconst" or self.phases[i] == phase

    def _count(self, i: int, w: Word, target: Target) -> None:
        phase = self.phases[i]
        if w.op in ("vin", "vout"):
            lanes, ports = (self.pops, self.inputs) if w.op == "vin" else (self.pushes, self.outputs)
            lane = lanes.setdefault(w["fifo"], Lane())
            self.ports[i] = len(ports)
            ports.append(Port(w["fifo"], phase, lane.counts[phase], i))
            lane.counts[phase] += 1
        self.costs[phase] += op_cycles(w, target)

    # Single assignment

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _renumber(self) -> None:
        registers: dict[int, int] = {}
        """Register -> node, as the passes so far have left it."""
        for phase in (START, STICK, END):
            todo = [(i, w) for i, w in enumerate(self.words) if self.passes(i, phase)]
            accumulated = {w["dst"] for _, w in todo if w.op == "vacc"}
            coming = Counter(w["dst"] for _, w in todo if w.op != "vout")
            """Register -> writes of this pass that are still to come."""
            written: set[int] = set()
            for i, w in todo:
                operands = []
                for r in _sources(w):
                    if r not in registers and r not in accumulated:
                        raise BodyError(f"reads register {r} before it is written", i)
                    if phase == STICK and (r in accumulated or (coming[r] and r not in written)):
                        self.carried = i
                    operands.append(self._at(registers.get(r, 0), phase))
                if w.op == "vout":
                    self.results[self.ports[i]] = operands[0]
                    continue
                if w.op == "vacc" and coming[w["dst"]] > 1:
                    self.carried = i
                coming[w["dst"]] -= 1
                written.add(w["dst"])
                registers[w["dst"]] = self._node(i, w, phase, tuple(operands))

    def _at(self, node: int, phase: int) -> int:
        """`node` as a later pass sees it."""
        if phase == END and self.nodes and self.nodes[node].phase == STICK:
            return self._add(Node("last", END, (node,)))
        return node

    def _node(self, i: int, w: Word, phase: int, operands: tuple[int, ...]) -> int:
        match w.op:
            case "vin":
                return self._add(Node("in", phase, (), self.ports[i]))
            case "vconst":
                return self._add(Node("const", CONST, (), np.float32(w["value"])))
            case "v1":
                return self._add(Node("unary", phase, operands, (w["kind"], bool(w["round"]))))
            case "v2":
                return self._add(Node("binary", phase, operands, (w["kind"], bool(w["round"]))))
            case "vred":
                return self._add(Node("tree", phase, operands, w["kind"]))
            case "vacc":
                return self._add(Node("accumulate", END, operands, w["kind"]))
            case "vmask":
                return self._add(Node("mask", STICK, operands, (w["lanes"], np.float32(w["fill"]))))
        raise BodyError(f"'{w.op}' is no instruction of a REP body", i)

    # Steps

    @property
    def step_kinds(self) -> list[int]:
        """Phases of a group's steps in order. The control run advances by steps; a step pops, computes and pushes at once."""
        return [p for p in (START, STICK, END) if p == STICK or self._runs(p)]

    def _runs(self, phase: int) -> bool:
        return any(p == phase and w.op != "vconst" for p, w in zip(self.phases, self.words, strict=True))

    def step_phases(self) -> NDArray[np.int64]:
        """Phase of each step of one group."""
        counts = {START: 1, STICK: self.sticks, END: 1}
        kinds = self.step_kinds
        return np.repeat(kinds, [counts[p] for p in kinds])

    def group_mask(self, lanes: int) -> NDArray[np.bool_]:
        """VMASK's dead lanes [sticks, 64]."""
        return np.arange(self.sticks * LANES).reshape(self.sticks, LANES) >= lanes
