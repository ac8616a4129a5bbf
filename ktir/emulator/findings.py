"""What execution finds wrong with a program: one exception class per kind, placed in the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ktir.diagnostics import Diagnostic, KtirError

__all__ = [
    "Deadlock",
    "DivisionByZero",
    "DivisionOverflow",
    "DuplicateTarget",
    "Finding",
    "LxOverflow",
    "OutOfBounds",
    "OutOfBuffer",
    "Race",
    "TypeConfusion",
    "Uninitialized",
    "Where",
]


@dataclass(frozen=True)
class Where:
    """An op in the source: its name and `file:line:col`."""

    op: str
    location: str | None

    def __str__(self) -> str:
        return f"'{self.op}' op"


class Finding(KtirError):
    """A fault that executing a program brought to light.

    `kind` names the class in machine-readable form; `op` is the name of the op at fault, `location` its place; `tiles` the linear
    ids of the tiles concerned; `address` where, in elements of the view's type from the start of the buffer (bytes in LX);
    `other` the op of the other access, if there are two.
    """

    kind: ClassVar[str] = "finding"

    def __init__(
        self,
        message: str,
        where: Where,
        *,
        tiles: Sequence[int] = (),
        address: int | None = None,
        other: Where | None = None,
        other_label: str = "the other access",
    ) -> None:
        notes = () if other is None else (Diagnostic("note", f"{other_label} is this {other}", other.location),)
        super().__init__(f"{where} {message}", where.location, notes)
        self.op = where.op
        self.tiles = tuple(int(t) for t in tiles)
        self.address = address
        self.other = other


class OutOfBounds(Finding):
    """An access outside of a statically bounded view."""

    kind = "out-of-bounds"


class OutOfBuffer(Finding):
    """An address outside of the memory that backs a view."""

    kind = "out-of-buffer"


class Race(Finding):
    """Two tiles of a kernel touch the same element of global memory and at least one writes it."""

    kind = "race"


class Uninitialized(Finding):
    """A read of memory that nothing has written."""

    kind = "uninitialized"


class LxOverflow(Finding):
    """A `ct_local` view reaches beyond the scratchpad."""

    kind = "lx-overflow"


class TypeConfusion(Finding):
    """Memory is read with another element type than it was written with."""

    kind = "type"


class DivisionByZero(Finding, RuntimeError):  # as PyTorch's is
    """An integer division by zero."""

    kind = "division-by-zero"


class DivisionOverflow(Finding):
    """A signed integer division whose quotient the type cannot hold: the least number by -1."""

    kind = "division-overflow"


class DuplicateTarget(Finding):
    """One store writes an element twice: which value stays is not defined."""

    kind = "duplicate-target"


class Deadlock(Finding):
    """A tile waits for another that never produces what it waits for."""

    kind = "deadlock"
