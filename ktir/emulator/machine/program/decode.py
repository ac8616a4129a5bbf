"""A kernel's words resolved for execution: descriptors, matching loop ends, PAR streams, REP bodies. Raises IllegalProgram."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ktir.emulator.machine.program.body import Body, BodyError
from ktir.emulator.machine.program.faults import IllegalProgram, Site
from ktir.isa.access import Access
from ktir.isa.addresses import misaligned
from ktir.isa.cycles import adds_over_ring
from ktir.isa.functions import integer_lane
from ktir.isa.instructions import STREAMS, Does
from ktir.isa.program import Argument, Kernel, Program, Word, drained_rows
from ktir.isa.units import FIFOS, Unit
from ktir.target import LANES, NARROW, Target

UNITS = tuple(Unit)

MAX_ENTRIES = 1 << 22
"""Entries that one word may move, or sticks that one REP may compute: beyond it a program is taken for a mistake."""


@dataclass
class Instruction:
    """A word with its operands resolved; fields that the word does not have are empty. `index` is its place in the unit's program."""

    op: str
    index: int
    word: Word
    end: int = 0
    """Index of the word that follows in program order; for LOOP that after the matching ENDL, for ENDL its LOOP."""
    ddr: Access | None = None
    lx: Access | None = None
    fifo: str = ""
    count: int = 0
    peer: Unit = Unit.MNIL
    token: int = 0
    trips: int = 0
    level: int = 0
    value: np.float32 = field(default_factory=np.float32)
    loads: bool = False
    """Whether it moves from memory into LX."""
    leaders: Any = None
    """Of a group: per core the core that reads for it, or that it receives from, int array [cores]."""
    idx: Access | None = None
    """The indices, which replace the position along inner dim `dim` of `ddr`; they are below `size`."""
    dim: int = 0
    size: int = 0
    streams: list[Instruction] = field(default_factory=list)
    body: Body | None = None

    @property
    def does(self) -> Does:
        """What it does."""
        return self.word.does

    @property
    def transposes(self) -> bool:
        """Whether it streams blocks of 64 entries with entry and lane exchanged."""
        return self.word.operands.get("transpose", False)

    @property
    def scatters(self) -> bool:
        """Whether indices choose where it writes."""
        return not self.loads and self.idx is not None

    @property
    def writes_lx(self) -> bool:
        """Whether it writes LX."""
        return bool(self.word.opcode.writes) and self.does is not Does.SEND and (self.ddr is None or self.loads)


class DecodedKernel:
    """A kernel ready to run on `target`: `units` has every unit's instructions, `accesses` the descriptors."""

    def __init__(self, program: Program, index: int, target: Target) -> None:
        self.program = program
        self.index = index
        self.kernel = kernel = program.kernels[index]
        self.target = target
        if not 1 <= kernel.cores <= target.cores:
            raise IllegalProgram(f"kernel '{kernel.name}' expects 1 to {target.cores} cores, but got {kernel.cores}")
        self.over_ring = adds_over_ring(kernel)
        self.accesses = [self._access(i, kernel) for i in range(len(kernel.descriptors))]
        self.units = {unit: _UnitDecoder(self, unit).decode() for unit in UNITS}

    @property
    def instructions(self) -> list[Instruction]:
        """The instructions of all units; streams of a PAR are inside it."""
        return [x for instructions in self.units.values() for x in instructions]

    def _access(self, index: int, kernel: Kernel) -> Access:
        d = kernel.descriptors[index]
        tables = [t for t in (d.core_table, *(b.table for b in d.bounds)) if t is not None]
        bad = (
            any(not 0 <= t < len(kernel.tables) or len(kernel.tables[t]) != kernel.cores for t in tables)
            or len(d.extent) != len(d.stride)
            or min(d.extent, default=1) < 1
            or any(b.dim is not None and not 0 <= b.dim < len(d.extent) for b in d.bounds)
            or (d.space == "ddr" and (d.arg is None or not 0 <= d.arg < len(self.program.arguments)))
            or d.buffers < 1
            or (d.element and d.space != "ddr")
        )
        if bad:
            raise IllegalProgram(f"kernel '{kernel.name}', descriptor {index} names a table, dimension or argument that does not exist")
        if misaligned(d, kernel) is not None:
            raise IllegalProgram(f"kernel '{kernel.name}', descriptor {index} has addresses that are no multiples of {d.unit} bytes")
        if d.entries > MAX_ENTRIES:
            raise IllegalProgram(
                f"kernel '{kernel.name}', descriptor {index} visits {d.entries} entries, but at most {MAX_ENTRIES} are possible"
            )
        return Access(index, d, kernel)

    def site(self, unit: Unit, index: int, corelet: int | None = None, counters: tuple[tuple[int, int], ...] = ()) -> Site:
        """The place of a word for messages."""
        w = self.kernel.units[unit][index]
        return Site(self.kernel.name, unit, index, w.op, corelet, counters, self.program.source_of(w))


class _UnitDecoder:
    def __init__(self, decoded: DecodedKernel, unit: Unit) -> None:
        self.decoded = decoded
        self.unit = unit
        self.words = decoded.kernel.units.get(unit, [])
        self.drained = drained_rows(self.words)

    def fail(self, message: str, index: int) -> IllegalProgram:
        return IllegalProgram(f"{self.unit.name} '{self.words[index].op}' {message}", self.decoded.site(self.unit, index))

    def decode(self) -> list[Instruction]:
        """The unit's instructions; a unit without a program halts at once."""
        if not self.words:
            return []
        out: list[Instruction] = []
        i = 0
        while i < len(self.words):
            one = self._instruction(i)
            out.append(one)
            i = one.end
            if one.does is Does.HALT:
                break
        if out[-1].does is not Does.HALT:
            raise self.fail("is the last word, but a program ends with 'halt'", len(self.words) - 1)
        places = {x.index: k for k, x in enumerate(out)}
        self._match_loops(out)
        for k, x in enumerate(out):  # from word indices to places in the list
            x.end = places[x.end] + (x.does is Does.LOOP) if x.does in (Does.LOOP, Does.END_LOOP) else k + 1
        return out

    def _match_loops(self, out: list[Instruction]) -> None:
        open_loops: list[Instruction] = []
        for x in out:
            if x.does is Does.LOOP:
                if any(o.level == x.level for o in open_loops):
                    raise self.fail(f"opens level {x.level}, which is open", x.index)
                open_loops.append(x)
            elif x.does is Does.END_LOOP:
                if not open_loops or open_loops[-1].level != x.level:
                    raise self.fail(f"ends level {x.level}, which is not the innermost open loop", x.index)
                start = open_loops.pop()
                start.end, x.end = x.index, start.index
            elif x.does is Does.HALT and open_loops:
                raise self.fail("inside a loop", x.index)
        if open_loops:
            raise self.fail("has no 'endl'", open_loops[-1].index)

    def _instruction(self, i: int) -> Instruction:
        w = self.words[i]
        if self.unit not in w.opcode.units:
            raise self.fail("is no instruction of this unit", i)
        if w.opcode.body_only:
            raise self.fail("stands outside of a REP body", i)
        x = Instruction(w.op, i, w, i + 1)
        match w.does:
            case Does.HALT:
                pass
            case Does.LOOP:
                x.trips, x.level = w["trips"], w["level"]
            case Does.END_LOOP:
                x.level = w["level"]
            case Does.WAIT | Does.SIGNAL:
                x.token, x.count, x.peer = w["token"], w["count"], Unit[w.peer]
                if x.count < 1:
                    raise self.fail(f"expects a count of at least 1, but got {x.count}", i)
            case Does.MOVE:
                self._transfer(x)
            case Does.FILL:
                x.lx, x.value = self._descriptor(x, "lx", "lx"), integer_lane(w["value"])
            case Does.PUSH | Does.PULL:
                self._stream(x)
            case Does.SEND | Does.RECEIVE:
                self._exchange(x)
            case Does.TOGETHER:
                self._par(x)
            case Does.WEIGHTS:
                x.count, x.fifo = LANES, w.pops
            case Does.DRAIN:
                x.count, x.fifo = self.drained[i], w.pushes
            case Does.MULTIPLY:
                x.count, x.fifo = w["rows"], w.pops
                limit = self.decoded.target.pt_accumulator_rows
                if not 1 <= x.count <= limit:
                    raise self.fail(f"expects 1 to {limit} rows, but got {x.count}", i)
            case Does.REPEAT:
                self._rep(x)
            case _:
                raise AssertionError(w.op)
        return x

    def _descriptor(self, x: Instruction, name: str, space: str) -> Access:
        number = x.word[name]
        if number is None:
            raise self.fail(f"expects a {name}", x.index)
        if not 0 <= number < len(self.decoded.accesses):
            raise self.fail(f"names descriptor {number}, but the kernel has {len(self.decoded.accesses)}", x.index)
        access = self.decoded.accesses[number]
        if access.descriptor.space != space:
            raise self.fail(f"expects a descriptor of {space}, but descriptor {number} is of {access.descriptor.space}", x.index)
        return access

    def _transfer(self, x: Instruction) -> None:
        x.loads = self.unit is Unit.MNIL
        memory, local = ("src", "dst") if x.loads else ("dst", "src")
        x.ddr, x.lx = self._descriptor(x, memory, "ddr"), self._descriptor(x, local, "lx")
        if x.ddr.entries != x.lx.entries:
            raise self.fail(f"expects descriptors of equal size, but got {x.ddr.entries} and {x.lx.entries} entries", x.index)
        if x.ddr.width != x.lx.width:
            raise self.fail("expects descriptors of one element size", x.index)
        if x.ddr.descriptor.half != x.lx.descriptor.half and x.ddr.descriptor.half not in NARROW:
            raise self.fail("expects descriptors of the same elements", x.index)
        argument = self._argument(x, x.ddr)
        if not x.loads and argument.constant:
            raise self.fail(f"writes argument '{argument.name}', which is an input", x.index)
        if x.word["index"] is not None:
            self._indices(x, x.ddr)
        if x.word["group"] is not None:
            if not x.loads:
                raise self.fail("has a group, but only reads of memory have", x.index)
            x.leaders = self._group(x)
            if (x.leaders[x.leaders] != x.leaders).any():
                raise self.fail(f"expects the leaders of group {x.word['group']} to lead themselves", x.index)

    def _group(self, x: Instruction) -> NDArray[np.int64]:
        """Per core another core."""
        group, cores = x.word["group"], self.decoded.kernel.cores
        if group is None or not 0 <= group < len(self.decoded.kernel.groups):
            raise self.fail(f"names group {group}, which does not exist", x.index)
        named = np.array(self.decoded.kernel.groups[group])
        if named.shape != (cores,) or named.min() < 0 or named.max() >= cores:
            raise self.fail(f"expects group {group} to name a core for each of {cores} cores", x.index)
        return named

    def _exchange(self, x: Instruction) -> None:
        if self.unit is not (Unit.MNIL if x.does is Does.RECEIVE else Unit.MNIS) or x.word["index"] is not None:
            raise self.fail("expects to go over the ring from MNIS to MNIL, without an index", x.index)
        x.lx = self._descriptor(x, "dst" if x.does is Does.RECEIVE else "src", "lx")
        x.fifo = x.word.pops or x.word.pushes
        x.count, x.leaders = x.lx.entries, self._group(x)

    def _argument(self, x: Instruction, access: Access) -> Argument:
        """The argument of a descriptor, which must have its elements."""
        argument = self.decoded.program.arguments[access.descriptor.arg or 0]
        if argument.element_bytes != access.descriptor.element_bytes:
            sizes = f"{access.descriptor.element_bytes} bytes, but argument '{argument.name}' has {argument.element_bytes}"
            raise self.fail(f"moves elements of {sizes}", x.index)
        if argument.half != access.descriptor.half:
            raise self.fail(f"moves {access.descriptor.half}, but argument '{argument.name}' has {argument.half}", x.index)
        return argument

    def _indices(self, x: Instruction, ddr: Access) -> None:
        """The index descriptor of a gather or scatter."""
        x.idx, x.dim, x.size = self._descriptor(x, "index", "ddr"), x.word["dim"], x.word["size"]
        self._argument(x, x.idx)
        extent = ddr.descriptor.extent
        if not x.idx.descriptor.element or x.idx.width != 2:
            raise self.fail("expects an element descriptor of 4 bytes for its indices", x.index)
        if x.dim >= len(extent) or x.idx.entries != extent[x.dim]:
            raise self.fail(f"expects an index for each position of dim {x.dim}, but got {x.idx.entries}", x.index)

    def _stream(self, x: Instruction) -> None:
        x.lx, x.fifo = self._descriptor(x, "lx", "lx"), self._fifo(x.index)
        x.count = x.lx.entries
        if x.transposes and x.count % LANES:
            raise self.fail(f"expects blocks of {LANES} entries, but got {x.count}", x.index)

    def _fifo(self, index: int) -> str:
        """The FIFO of a word, whose end is at this unit."""
        w = self.words[index]
        name = w.pops or w.pushes
        fifo = FIFOS.get(name)
        if fifo is None or (fifo.consumer if w.pops else fifo.producer) is not self.unit:
            raise self.fail(f"names FIFO {name}, which does not connect to {self.unit.name}", index)
        return name

    def _par(self, x: Instruction) -> None:
        n = x.word.held
        members = self.words[x.index + 1 : x.index + 1 + n]
        if n < 1 or len(members) < n or any(m.does not in STREAMS for m in members):
            raise self.fail(f"expects {n} PUSH or PULL words to follow", x.index)
        x.streams = [self._instruction(x.index + 1 + k) for k in range(n)]
        if len({s.fifo for s in x.streams}) < n:
            raise self.fail("expects each stream to use another FIFO", x.index)
        x.end = x.index + 1 + n

    def _rep(self, x: Instruction) -> None:
        w = x.word
        n = w.held
        members = self.words[x.index + 1 : x.index + 1 + n]
        if n < 1 or len(members) < n:
            raise self.fail(f"expects a body of {n} words to follow", x.index)
        if w["groups"] < 1 or w["sticks"] < 1:
            raise self.fail(f"expects at least 1 group of 1 stick, but got {w['groups']} of {w['sticks']}", x.index)
        if w["groups"] * w["sticks"] > MAX_ENTRIES:
            raise self.fail(f"computes {w['groups'] * w['sticks']} sticks, but at most {MAX_ENTRIES} are possible", x.index)
        for k, m in enumerate(members):
            if not m.opcode.body_only:
                raise self.fail("is no instruction of a REP body", x.index + 1 + k)
            if m.pops or m.pushes:
                self._fifo(x.index + 1 + k)
        try:
            x.body = Body(w, members, self.decoded.target)
        except BodyError as e:
            raise self.fail(str(e), x.index + 1 + e.word) from None
        x.end = x.index + 1 + n
