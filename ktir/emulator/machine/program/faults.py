"""What running an instruction stream finds wrong with it: one exception class per kind, placed in unit, word and source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ktir.diagnostics import Diagnostic, KtirError
from ktir.emulator.findings import Finding, Where
from ktir.isa.program import Source
from ktir.isa.units import Unit


@dataclass(frozen=True)
class Site:
    """One side of a finding: a word of a unit's program, and where it comes from.

    `word` is an index into the unit's words; `corelet` is None for core units; `counters` has (level, counter) of the open loops.
    """

    kernel: str
    unit: Unit
    word: int
    op: str
    corelet: int | None = None
    counters: tuple[tuple[int, int], ...] = ()
    source: Source = field(default_factory=lambda: Source("", ""))

    def __str__(self) -> str:
        where = f"word {self.word}"
        if self.corelet is not None:
            where += f", corelet {self.corelet}"
        where += "".join(f", i{level} = {counter}" for level, counter in self.counters)
        return f"{self.unit.name} '{self.op}' ({where})"


class MachineFinding(Finding):
    """A fault of a program that the control run, or the decoding before it, brought to light.

    `site` is the word at fault and `other_site` the other party of a race; both may be None. `message` is lower case and without a
    full stop.
    """

    kind: ClassVar[str] = "machine"

    def __init__(self, message: str, site: Site | None = None, other: Site | None = None, label: str = "the other access") -> None:
        notes: tuple[Diagnostic, ...] = ()
        if other is not None:
            notes = (Diagnostic("note", f"{label} is {other}{_origin(other)}", other.source.location or None),)
        text = f"{message}{_origin(site)}" if site else message
        location = site.source.location or None if site else None
        KtirError.__init__(self, text, location, notes)  # Finding's own wording begins with an op; here words are at fault
        self.op = site.source.op if site else ""
        self.tiles = ()
        self.address = None
        self.other = Where(other.source.op, other.source.location or None) if other else None
        self.site = site
        self.other_site = other

    @property
    def kernel(self) -> str:
        """Name of the kernel at fault, empty if the fault is the program's."""
        return self.site.kernel if self.site else ""

    @property
    def unit(self) -> Unit | None:
        """The unit at fault."""
        return self.site.unit if self.site else None

    @property
    def corelet(self) -> int | None:
        """The corelet of the unit's instance, None for core units or if both fail alike."""
        return self.site.corelet if self.site else None

    @property
    def word(self) -> int | None:
        """Index of the word in the unit's program."""
        return self.site.word if self.site else None

    @property
    def counters(self) -> tuple[tuple[int, int], ...]:
        """(level, counter) of the loops that were open, outermost first."""
        return self.site.counters if self.site else ()


def _origin(site: Site) -> str:
    return f" [{site.source.op}]" if site.source.op else ""


class IllegalProgram(MachineFinding):
    """A word or descriptor that has no meaning: nesting, operands, sizes that disagree."""

    kind = "illegal"


class OutOfRange(MachineFinding):
    """An address outside of the scratchpad or of an argument."""

    kind = "range"


class UninitialisedRead(MachineFinding):
    """A read of scratchpad or memory lanes that nothing has written."""

    kind = "uninit"


class TypeFault(MachineFinding):
    """A stick is read with another element size, at the wrong half of an f32 pair, or f32 values are stored as f16 unrounded."""

    kind = "type"


class RawHazard(MachineFinding):
    """A read that no token or FIFO orders after the write it needs."""

    kind = "RAW"


class WarHazard(MachineFinding):
    """A write that no token or FIFO orders after an earlier read of the old content."""

    kind = "WAR"


class WawHazard(MachineFinding):
    """Two writes of one stick that no token or FIFO orders."""

    kind = "WAW"


class MemoryHazard(MachineFinding):
    """Cores share a stick of memory that one of them writes in the same kernel, or a core's own accesses are not ordered."""

    kind = "memory"


class IndexFault(MachineFinding):
    """An index of a gather or scatter that is not below the size of the dimension; found at a launch."""

    kind = "index"


class DivisionFault(MachineFinding, RuntimeError):  # as PyTorch's is
    """Live integers without a quotient: a division by zero, or of the least number by -1; found at a launch."""

    kind = "division"


class AccumulatorFault(MachineFinding):
    """PT is used against its protocol: LDW before MM, equal row counts, PTO before the kernel ends."""

    kind = "pt"


class TokenFault(MachineFinding):
    """A channel holds too many tokens, or other leftovers than the program declares."""

    kind = "token"


class FifoFault(MachineFinding):
    """Entries are left in a FIFO at the end of a kernel."""

    kind = "fifo"


class Deadlock(MachineFinding):
    """No unit can advance. `waits` has, per blocked unit, what it waits for and the unit that could provide it."""

    kind = "deadlock"

    def __init__(self, message: str, site: Site | None, waits: dict[Unit, tuple[str, Unit]]) -> None:
        super().__init__(message, site)
        self.waits = waits


class MulticastFault(MachineFinding):
    """A member of a multicast group describes another read than its leader."""

    kind = "multicast"
