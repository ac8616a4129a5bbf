"""Faults of a program: where they are and what is wrong; and the errors that encoder, decoder and assembler raise."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.diagnostics import Diagnostic, KtirError
from ktir.isa.program import Source
from ktir.isa.units import Unit

NO_SOURCE = Source("", "")


@dataclass(frozen=True)
class Problem:
    """One fault. Fields that do not apply are None: a fault of a whole kernel has no unit, one of a descriptor has no word.

    `kernel` is an index into `Program.kernels`, `word` one into the unit's words, `descriptor` one into the kernel's descriptors.
    """

    message: str
    kernel: int | None = None
    kernel_name: str = ""
    unit: Unit | None = None
    word: int | None = None
    op: str = ""
    descriptor: int | None = None
    argument: int | None = None
    source: Source = NO_SOURCE

    @property
    def place(self) -> str:
        """Where in the program, in words."""
        parts = []
        if self.argument is not None:
            parts.append(f"argument {self.argument}")
        if self.kernel is not None:
            parts.append(f"kernel {self.kernel_name!r}")
        if self.unit is not None:
            parts.append(f"unit {self.unit.name}")
        if self.word is not None:
            parts.append(f"word {self.word}" + (f" ({self.op})" if self.op else ""))
        if self.descriptor is not None:
            parts.append(f"descriptor {self.descriptor}")
        return ", ".join(parts)

    @property
    def text(self) -> str:
        """Place and message on one line."""
        return f"{self.place}: {self.message}" if self.place else self.message

    def __str__(self) -> str:
        origin = f" [{self.source.op}]" if self.source.op else ""
        return f"{self.source.location or '<unknown>'}: error: {self.text}{origin}"


class ProgramError(KtirError, ValueError):
    """A program that breaks the rules of the instruction set. `problems` has every fault, `KtirError.diagnostics` as well."""

    def __init__(self, problems: list[Problem]) -> None:
        first = problems[0]
        super().__init__(first.text, first.source.location or None)
        self.problems = problems
        self.diagnostics = [Diagnostic("error", p.text, p.source.location or None) for p in problems]


class EncodingError(KtirError, ValueError):
    """Bytes that are not a program. `offset` is where in the file, `reason` what is wrong there."""

    def __init__(self, offset: int, reason: str, name: str = "") -> None:
        super().__init__(f"{name + ': ' if name else ''}offset {offset:#x}: {reason}")
        self.offset = offset
        self.reason = reason


class AssemblyError(KtirError, ValueError):
    """Text that is not a program, at `line` and `column` (from 1) of `source`."""

    def __init__(self, reason: str, source: str, line: int, column: int) -> None:
        super().__init__(reason, f"{source}:{line}:{column}")
        self.reason = reason
        self.line = line
        self.column = column
