"""A decoded program: what assembler, encoder, lowering and emulator exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ktir.isa.descriptor import Descriptor
from ktir.isa.instructions import OPCODES, Does, Opcode, default
from ktir.isa.lane import lane_bits
from ktir.isa.units import Unit
from ktir.target import HALVES

Operand = Any
"""Value of a field: int, bool, float, or a name of an enum, FIFO or unit."""


@dataclass(frozen=True)
class Word:
    """One instruction. `operands` has a value for every field of the opcode: int, bool, float, a name of an enum, FIFO or unit."""

    op: str
    operands: dict[str, Operand]
    source: int = 0
    """Index into `Program.sources`; 0 = none."""

    @property
    def opcode(self) -> Opcode:
        """The row of the instruction table."""
        return OPCODES[self.op]

    @cached_property
    def does(self) -> Does:
        """What it does."""
        does = OPCODES[self.op].does
        if does is Does.MOVE and self.operands["src"] is None:
            return Does.RECEIVE
        return Does.SEND if does is Does.MOVE and self.operands["dst"] is None else does

    @property
    def register(self) -> int | None:
        """The register that it writes; None if it writes none."""
        return next((self.operands["dst"] for f in self.opcode.fields if f.name == "dst" and f.kind in ("register", "accumulator")), None)

    @property
    def peer(self) -> str:
        """The unit that it names, empty if it names none."""
        return next((self.operands[f.name] for f in self.opcode.fields if f.kind == "unit"), "")

    @property
    def held(self) -> int:
        """How many words follow that belong to it."""
        return sum(self.operands[name] for name in OPCODES[self.op].holds)

    @property
    def parts(self) -> list[str]:
        """Of each word that follows and belongs to it, the list in which it stands."""
        return [name for name in OPCODES[self.op].holds for _ in range(self.operands[name])]

    @property
    def pops(self) -> str:
        """The FIFO that it takes entries from, empty if there is none."""
        fifo = "R" if self.does is Does.RECEIVE else OPCODES[self.op].pops
        return self.operands["fifo"] if fifo == "fifo" else fifo

    @property
    def pushes(self) -> str:
        """The FIFO that it puts entries into, empty if there is none."""
        fifo = "R" if self.does is Does.SEND else OPCODES[self.op].pushes
        return self.operands["fifo"] if fifo == "fifo" else fifo

    def __getitem__(self, name: str) -> Operand:
        return self.operands[name]


def drained_rows(words: Sequence[Word]) -> dict[int, int]:
    """Per place of a PTO how many rows it pushes: as many as the last MM above it has, 0 if there is none."""
    found, rows = {}, 0
    for i, w in enumerate(words):
        rows = w["rows"] if w.does is Does.MULTIPLY else rows
        if w.does is Does.DRAIN:
            found[i] = rows
    return found


def word(op: str, source: int = 0, **operands: Operand) -> Word:
    """Build a word; a field that is left out gets 0, False or the first enum value. Raises ValueError on a wrong field or value.

    Units may be given as `Unit`; a lane is given by an i32, or by a float, which is rounded to f32. FIFOs and units must be given.
    """
    opcode = OPCODES.get(op)
    if opcode is None:
        raise ValueError(f"unknown instruction '{op}'")
    values: dict[str, Operand] = {}
    for f in opcode.fields:
        value = operands.pop(f.name, default(f))
        if value is None and not f.optional:
            raise ValueError(f"'{op}' needs {f.name}")
        if f.kind == "unit" and isinstance(value, Unit):
            value = value.name
        elif f.kind == "lane":
            value = lane_bits(value)
        elif f.kind == "flag":
            value = bool(value)
        if f.kind == "enum" and value not in f.values:
            raise ValueError(f"'{op}' expects {f.name} in {f.values}, but got {value!r}")
        values[f.name] = value
    if operands:
        raise ValueError(f"'{op}' has no field {min(operands)!r}")
    return Word(op, values, source)


@dataclass(frozen=True)
class Channel:
    """A token channel; `leftover` tokens per queue remain at the end of the kernel (credits never taken)."""

    sender: Unit
    receiver: Unit
    token: int
    leftover: int = 0


@dataclass
class Kernel:
    """Unit programs that run on `cores` cores; all units halt before the next kernel starts."""

    name: str
    cores: int
    units: dict[Unit, list[Word]]
    descriptors: list[Descriptor]
    tables: list[list[int]] = field(default_factory=list)
    """Core tables: one value per core (bytes for addresses, positions for limits)."""
    groups: list[list[int]] = field(default_factory=list)
    """Multicast groups: per core the core that reads for it."""
    channels: list[Channel] = field(default_factory=list)
    """Channels with leftovers; every other channel ends empty."""


ROLES = ("input", "output", "input_output", "pool", "iota")
"""`pool` is memory for tensors between kernels, `iota` an input of the integers 0, 1, 2, ..; the runtime makes both."""


@dataclass(frozen=True)
class Argument:
    """A device buffer in memory: `sticks` long, elements of 1, 2 or 4 bytes; entries of 64 lanes, and `half`, as in descriptors. `role` is
    of `ROLES`."""

    name: str
    role: str
    sticks: int
    element_bytes: int
    half: str = HALVES[0]

    @property
    def given(self) -> bool:
        """Whether it holds something before the program runs."""
        return self.role in ("input", "input_output", "iota")

    @property
    def constant(self) -> bool:
        """Whether the program may not write it."""
        return self.role in ("input", "iota")


@dataclass(frozen=True)
class Source:
    """Where an instruction comes from: the KTIR op's name, its location text `file:line:col`, and the nodes of PyTorch's graph that it
    belongs to, separated by commas; empty where there are none.
    """

    op: str
    location: str
    nodes: str = ""


def own_nodes(sources: Sequence[Source]) -> dict[Source, str]:
    """The nodes that each source does itself. An op names all that went into it, so a node is of the op that names fewest with it."""
    owners: dict[str, str] = {}
    for source in sorted(sources, key=lambda s: s.nodes.count(",")):
        for node in source.nodes.split(","):
            owners.setdefault(node, source.nodes)
    return {s: ",".join(n for n in s.nodes.split(",") if owners[n] == s.nodes) or s.nodes.partition(",")[0] for s in sources}


@dataclass
class Program:
    """All kernels of a region, run in order with a barrier between them; memory and LX keep their contents.

    Equality ignores `sources`: the binary does not hold them, only their ids in the words.
    """

    name: str
    arguments: list[Argument]
    kernels: list[Kernel]
    sources: list[Source] = field(default_factory=lambda: [Source("", "")], compare=False)
    """Index 0 is `none`."""

    def source_of(self, word: Word) -> Source:
        """Where `word` comes from; an empty source if it says nothing or the table is not at hand."""
        return self.sources[word.source] if 0 < word.source < len(self.sources) else Source("", "")
