"""The static verifier: what can be proved of a program in closed form, in milliseconds and for all trips at once.

Structure, balance of FIFOs and tokens, address ranges, sizes of transfers, registers of REP bodies. Order is not its matter: races,
deadlocks, reads of what was never written and the accumulator protocol of PT are found by running the control plane.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ktir.arithmetic.numerics import round_to
from ktir.isa import addresses
from ktir.isa.binary.validate import validate
from ktir.isa.descriptor import Descriptor
from ktir.isa.instructions import Does
from ktir.isa.lane import lane_text, lane_value
from ktir.isa.problem import Problem
from ktir.isa.program import Kernel, Program, Word, drained_rows
from ktir.isa.units import FIFOS, Unit
from ktir.isa.wellformed import vector_body
from ktir.isa.wellformed.structure import Fault, Site, sites
from ktir.target import HALVES, NARROW, STICK_BYTES, Target

BLOCK = 64
"""Entries of a block of weights."""

Sites = dict[Unit, list[Site]]


def verify(program: Program, target: Target, *, wellformed: bool = False) -> list[Problem]:
    """Everything that is provably wrong with a program on `target`; a program that is not well-formed is not looked at further.
    wellformed: it is known to be.
    """
    problems = [] if wellformed else validate(program)
    if problems:
        return problems
    for k, kernel in enumerate(program.kernels):
        problems += _Kernel(program, k, kernel, target).problems()
    return problems


class _Kernel:
    def __init__(self, program: Program, index: int, kernel: Kernel, target: Target) -> None:
        self.program, self.index, self.kernel, self.target = program, index, kernel, target
        self.seen: set[tuple[object, ...]] = set()
        self.drained: dict[Unit, dict[int, int]] = {}

    def problems(self) -> Iterator[Problem]:
        if self.kernel.cores > self.target.cores:
            yield self.at(None, None, f"runs on {self.kernel.cores} cores, but the target has {self.target.cores}")
        found: Sites = {}
        whole = True
        for unit, words in self.kernel.units.items():
            found[unit], faults = sites(words)
            whole = whole and not faults
            yield from self.placed(unit, faults)
        for unit, places in found.items():
            yield from self.placed(unit, self._words(unit, places))
        if whole:
            yield from self._fifos(found)
            yield from self._tokens(found)
            yield from self._regions(found)
        yield from self._groups(found)

    def at(self, unit: Unit | None, word: int | None, message: str) -> Problem:
        """A problem of this kernel."""
        place = Problem(message, kernel=self.index, kernel_name=self.kernel.name, unit=unit)
        words = self.kernel.units[unit] if unit is not None else []
        if word is None or word >= len(words):
            return place
        return replace(place, word=word, op=words[word].op, source=self.program.source_of(words[word]))

    def placed(self, unit: Unit, faults: list[Fault] | Iterator[Fault]) -> Iterator[Problem]:
        """Problems of words of one unit."""
        for word, message in faults:
            yield self.at(unit, word, message)

    # --- single words ---

    def _words(self, unit: Unit, places: list[Site]) -> Iterator[Fault]:
        for s in places:
            w = s.word
            if w.peer == unit.name:
                yield s.index, f"'{w.op}' names its own unit {unit.name}"
            elif w.operands.get("transpose") and self._entries(w) % BLOCK:
                yield s.index, f"'{w.op}' transposes blocks of {BLOCK} entries, but has {self._entries(w)}"
            elif w.does is Does.DRAIN and not self._rows(unit, s.index):
                yield s.index, f"'{w.op}' has no 'mm' above it"
            elif w.does is Does.MULTIPLY and not 1 <= w["rows"] <= self.target.pt_accumulator_rows:
                yield s.index, f"'{w.op}' expects 1 to {self.target.pt_accumulator_rows} rows, but got {w['rows']}"
            elif w.does is Does.REPEAT:
                yield from self._rep(s, places)
            yield from ((s.index, message) for message in self._descriptors(unit, s))

    @staticmethod
    def _rep(s: Site, places: list[Site]) -> Iterator[Fault]:
        w = s.word
        if not (w["groups"] and w["sticks"]):
            yield s.index, f"'rep' expects at least one group and one stick, but got {w['groups']} and {w['sticks']}"
            return
        body = [p.word for p in places[s.index + 1 : s.index + 1 + w.held]]
        if all(b.opcode.body_only for b in body):
            for i, message in vector_body.faults(w, body):
                yield s.index + 1 + i, message

    def _descriptors(self, unit: Unit, s: Site) -> Iterator[str]:
        """Faults of a word's descriptors, each combination of descriptor, unit and loops once."""
        w = s.word
        named = {f.name: self.kernel.descriptors[w[f.name]] for f in w.opcode.fields if f.kind == "descriptor" and w[f.name] is not None}
        if w.opcode.does is Does.MOVE:
            found = list(_move_faults(w, unit))
            yield from found
            if found:
                return
        if not named:
            return
        key = (w.op, unit, tuple(w[n] for n in named), tuple(sorted(s.trips.items())))
        if key in self.seen:
            return
        self.seen.add(key)
        memory = "src" if unit is Unit.MNIL else "dst"
        for name, d in named.items():
            space = "ddr" if name in (memory, "index") else "lx"
            if d.space != space:
                yield f"'{w.op}' expects {name} to be of {space}, but it is of {d.space}"
                return
        if "index" in named:
            found = list(_index_faults(w, named[memory], named["index"]))
            yield from found
            if found:
                return
            named |= {memory: addresses.indexed(named[memory], w["dim"], w["size"]), "index": replace(named["index"], lane_stride=0)}
        for name, d in named.items():
            for fault in self._descriptor(unit, s, name, d):
                yield f"'{w.op}': descriptor {w[name]} {fault}"
        if w.does is not Does.MOVE:
            return
        source, destination = (self.kernel.descriptors[w[name]] for name in ("src", "dst"))
        if source.entries != destination.entries:
            yield f"'{w.op}' moves {source.entries} entries into {destination.entries}"
        if _widens(source, destination) or _widens(destination, source):
            return
        if source.element_bytes != destination.element_bytes:
            yield f"'{w.op}' changes the element size from {source.element_bytes} to {destination.element_bytes} bytes"
        elif source.half != destination.half:
            yield f"'{w.op}' changes the elements from {source.half} to {destination.half}"

    def _descriptor(self, unit: Unit, s: Site, name: str, d: Descriptor) -> Iterator[str]:
        trips, corelets = s.trips, self.target.corelets if unit.per_corelet else 1
        closed = sorted(addresses.stepped_levels(d) - trips.keys())
        if closed:
            yield f"steps over level {closed[0]}, which is not open"
            return
        if d.buffers > 1:
            if not any(d.rotate_levels >> level & 1 for level in trips):
                yield "rotates, but no level that chooses the buffer is open"
            span = addresses.buffer_bytes(d, trips, corelets)
            if d.rotate_step < span:
                yield f"has buffers of {span} bytes, but they lie {d.rotate_step} apart"
        odd = addresses.misaligned(d, self.kernel)
        if odd is not None:
            yield f"begins at or steps by {odd} bytes, no multiple of {'an element' if d.element else 'a stick'}"
        if corelets == 1 and d.corelet_step:
            yield f"has a corelet_step, but {unit.name} exists once per core"
        if name == s.word.opcode.writes:
            scatters = unit is Unit.MNIS and s.word.operands.get("index") is not None
            walk = replace(d, extent=_without(d.extent, s.word["dim"])) if scatters else d
            if not addresses.is_injective(walk, self.kernel, corelets):
                yield f"is written to, but two of its positions share {'an element' if d.element else 'a stick'}"
            if unit is Unit.MNIL and s.word.does is Does.MOVE and not addresses.is_contiguous(d):
                yield "is the destination of a load and must be contiguous"
        if s.word.does is Does.FILL and d.element_bytes == 2 and not _holds(d.half, lane_value(s.word["value"])):
            yield f"has elements of 2 bytes, but {lane_text(s.word['value'])} is no {d.half}"
        if d.splat and s.word.does is not Does.PUSH:
            yield "repeats lane 0, which only 'push' can do"
        yield from self._range(d, trips, corelets)

    def _range(self, d: Descriptor, trips: dict[int, int], corelets: int) -> Iterator[str]:
        r = addresses.touched(d, self.kernel, trips, corelets)
        where, size = "LX", self.target.lx_bytes
        if d.arg is not None:
            argument = self.program.arguments[d.arg]
            where, size = f"argument {argument.name!r}", argument.sticks * STICK_BYTES
            span = addresses.core_span(d, self.kernel, trips, self.target.span_bytes)
            if span > self.target.span_bytes:
                yield f"spans {span} bytes of {where} on a core, but at most {self.target.span_bytes} can be addressed"
            if argument.element_bytes != d.element_bytes:
                yield f"has elements of {d.element_bytes} bytes, but {where} of {argument.element_bytes}"
            elif argument.half != d.half:
                yield f"has elements of {d.half}, but {where} of {argument.half}"
        if not r.empty and (r.low < 0 or r.high >= size):
            yield f"reaches bytes {r.low} to {r.high}, but {where} has {size}"

    # --- balance ---

    def _fifos(self, found: Sites) -> Iterator[Problem]:
        totals: dict[tuple[str, bool], int] = {}
        first: dict[str, tuple[Unit, int]] = {}
        for unit, places in found.items():
            for s in places:
                for fifo, pushes, count in self._traffic(unit, s):
                    totals[fifo, pushes] = totals.get((fifo, pushes), 0) + count * s.repetitions
                    first.setdefault(fifo, (unit, s.index))
        for fifo, place in first.items():
            pushed, popped = totals.get((fifo, True), 0), totals.get((fifo, False), 0)
            if pushed != popped:
                ends = FIFOS[fifo]
                message = f"{ends.producer.name} pushes {pushed} entries into FIFO {fifo}, but {ends.consumer.name} pops {popped}"
                yield self.at(*place, message)

    def _entries(self, w: Word) -> int:
        """Entries that a word moves between a FIFO and its unit, per corelet."""
        named = [w[name] for name in ("lx", "src", "dst") if w.operands.get(name) is not None]
        return self.kernel.descriptors[named[0]].entries if named else w.operands.get("rows", BLOCK)

    def _rows(self, unit: Unit, index: int) -> int:
        """Rows that the PTO at a place pushes."""
        if unit not in self.drained:
            self.drained[unit] = drained_rows(self.kernel.units[unit])
        return self.drained[unit][index]

    def _traffic(self, unit: Unit, s: Site) -> Iterator[tuple[str, bool, int]]:
        """What one run of a word moves: FIFO, whether it pushes, entries per corelet."""
        w = s.word
        fifo = w.pops or w.pushes
        if not fifo:
            return
        if not w.opcode.body_only:
            yield fifo, bool(w.pushes), self._rows(unit, s.index) if w.does is Does.DRAIN else self._entries(w)
        elif s.rep is not None:
            sticks = s.rep["sticks"] if s.part == "each" else 1
            yield fifo, bool(w.pushes), s.rep["groups"] * sticks

    def _tokens(self, found: Sites) -> Iterator[Problem]:
        posted: dict[tuple[Unit, Unit, int], int] = {}
        taken: dict[tuple[Unit, Unit, int], int] = {}
        first: dict[tuple[Unit, Unit, int], tuple[Unit, int]] = {}
        for unit, places in found.items():
            for s in places:
                w = s.word
                if w.does is Does.SIGNAL:
                    key = (unit, Unit[w.peer], w["token"])
                    posted[key] = posted.get(key, 0) + w["count"] * s.repetitions
                elif w.does is Does.WAIT:
                    key = (Unit[w.peer], unit, w["token"])
                    taken[key] = taken.get(key, 0) + w["count"] * s.repetitions
                else:
                    continue
                first.setdefault(key, (unit, s.index))
        declared = {(c.sender, c.receiver, c.token): c.leftover for c in self.kernel.channels}
        for key, place in first.items():
            left, name = posted.get(key, 0) - taken.get(key, 0), _channel(*key)
            if left < 0:
                yield self.at(*place, f"{name}: {posted.get(key, 0)} tokens are posted, but {taken[key]} are taken")
            elif left != declared.get(key, 0):
                yield self.at(*place, f"{name}: {left} tokens are left over, but {declared.get(key, 0)} are declared")
        for key in declared.keys() - first.keys():
            if declared[key]:
                yield self.at(None, None, f"{_channel(*key)} has declared leftovers, but no word posts on it")

    def _regions(self, found: Sites) -> Iterator[Problem]:
        known: dict[int, tuple[Unit, int]] = {}
        for unit, places in found.items():
            mine: set[int] = set()
            for s in places:
                if s.word.does is not Does.LOOP or not s.word["region"]:
                    continue
                region, trips = s.word["region"], s.word["trips"]
                other, expected = known.setdefault(region, (unit, trips))
                if region in mine:
                    yield self.at(unit, s.index, f"'loop' is the second of region {region} in {unit.name}")
                elif trips != expected:
                    yield self.at(unit, s.index, f"'loop' has {trips} trips, but region {region} has {expected} in {other.name}")
                mine.add(region)

    def _groups(self, found: Sites) -> Iterator[Problem]:
        for unit, places in found.items():
            for s in places:
                if unit is Unit.MNIL and s.word.does is Does.MOVE and s.word["group"] is not None:
                    read = [self.kernel.descriptors[s.word[name]] for name in ("src", "index") if s.word[name] is not None]
                    for message in filter(None, (_member_fault(self.kernel, self.kernel.groups[s.word["group"]], d) for d in read)):
                        yield self.at(unit, s.index, f"'{s.word.op}' {message}")


def _member_fault(kernel: Kernel, leaders: list[int], d: Descriptor) -> str | None:
    """What is wrong with cores receiving what others read by a descriptor."""
    used = {d.core_table, *(b.table for b in d.bounds)} - {None}
    for core, leader in enumerate(leaders):
        if leaders[leader] != leader:
            return f"has core {leader} read for core {core}, but core {leader} receives from core {leaders[leader]}"
        for t in used:
            row = kernel.tables[t] if t is not None else []
            if row[core] != row[leader]:
                return f"has core {leader} read for core {core}, but table {t} differs between them"
    return None


def _widens(memory: Descriptor, local: Descriptor) -> bool:
    """Whether one end of a move has floats of one byte, and the other one floats of 2 that hold each of them."""
    return memory.half in NARROW and local.element_bytes == 2 and local.half in HALVES


def _holds(half: str, value: float) -> bool:
    """Whether a float of 16 bits has this number."""
    number = np.full(1, value, np.float32)
    return half in HALVES and (math.isnan(value) or bool(round_to(half, number) == number))


def _without(extent: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """Extents with one position along `dim`."""
    return (*extent[:dim], 1, *extent[dim + 1 :])


def _move_faults(w: Word, unit: Unit) -> Iterator[str]:
    """Faults of what a move names, and of what it does not."""
    ring, lx = ("src", "dst") if unit is Unit.MNIL else ("dst", "src")
    if w[lx] is None:
        yield f"'{w.op}' of {unit.name} expects a {lx}"
    if w[ring] is None and (w["group"] is None or w["index"] is not None):
        yield f"'{w.op}' over the ring expects a group, and no index"
    if w[ring] is not None and w["group"] is not None and unit is Unit.MNIS:
        yield f"'{w.op}' has a group, but only reads of memory have"
    if w["ahead"] and (unit is not Unit.MNIL or w[ring] is None):
        yield f"'{w.op}' may be ahead of its kernel, but only loads from memory may"
    if w["index"] is None and (w["dim"] or w["size"]):
        yield f"'{w.op}' has a dim or size, but no index"


def _index_faults(w: Word, d: Descriptor, idx: Descriptor) -> Iterator[str]:
    """Faults of a gather's or scatter's index fields."""
    if w["size"] < 1:
        yield f"'{w.op}' expects a size of at least 1 for its indices"
    elif not idx.element or idx.element_bytes != 4:
        yield f"'{w.op}' expects an element descriptor of 4 bytes for its indices"
    elif w["dim"] >= len(d.extent):
        yield f"'{w.op}' expects dim in 0 to {len(d.extent) - 1}, but got {w['dim']}"
    elif idx.entries != d.extent[w["dim"]]:
        yield f"'{w.op}' expects an index for each of {d.extent[w['dim']]} positions, but got {idx.entries}"


def _channel(sender: Unit, receiver: Unit, token: int) -> str:
    return f"channel {sender.name} -> {receiver.name}, token {token}"
