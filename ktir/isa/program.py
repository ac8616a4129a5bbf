"""A decoded program: what assembler, encoder, lowering and emulator exchange."""

from __future__ import annotations

from dataclasses import dataclass, field

from .descriptor import Descriptor
from .instructions import OPCODES, Opcode
from .units import Unit


@dataclass(frozen=True)
class Word:
    """One instruction. `operands` has a value for every field of the opcode: int, bool, float, a name of an enum, FIFO or unit."""

    op: str
    operands: dict[str, int | float | str | bool]
    source: int = 0
    """Index into `Program.sources`; 0 = none."""

    @property
    def opcode(self) -> Opcode:
        """The row of the instruction table."""
        return OPCODES[self.op]

    def __getitem__(self, name: str):
        return self.operands[name]


def word(op: str, source: int = 0, **operands: int | float | str | bool) -> Word:
    """Build a word; a field that is left out gets 0, False or the first enum value. Raises ValueError on a wrong field or value."""
    opcode = OPCODES.get(op)
    if opcode is None:
        raise ValueError(f"unknown instruction '{op}'")
    values: dict[str, int | float | str | bool] = {}
    for f in opcode.fields:
        default = {"flag": False, "f32": 0.0, "enum": f.values[0] if f.values else 0}.get(f.kind, 0)
        values[f.name] = operands.pop(f.name, default)
        if f.kind == "enum" and values[f.name] not in f.values:
            raise ValueError(f"'{op}' expects {f.name} in {f.values}, but got {values[f.name]!r}")
    if operands:
        raise ValueError(f"'{op}' has no field {sorted(operands)[0]!r}")
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
    """Core tables: one value per core (sticks for addresses, positions for limits)."""
    groups: list[list[int]] = field(default_factory=list)
    """Multicast groups: per core the core that reads for it."""
    channels: list[Channel] = field(default_factory=list)
    """Channels with leftovers; every other channel ends empty."""


@dataclass(frozen=True)
class Argument:
    """A device buffer in memory: `sticks` long, elements of 2 or 4 bytes; entries of 64 lanes as in descriptors."""

    name: str
    role: str
    sticks: int
    element_bytes: int


@dataclass(frozen=True)
class Source:
    """Where an instruction comes from: the KTIR op's name and its location text `file:line:col`."""

    op: str
    location: str


@dataclass
class Program:
    """All kernels of a region, run in order with a barrier between them; memory and LX keep their contents."""

    name: str
    arguments: list[Argument]
    kernels: list[Kernel]
    sources: list[Source] = field(default_factory=lambda: [Source("", "")])
    """Index 0 is `none`."""
