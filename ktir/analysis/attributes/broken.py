"""Rules about ops, and what is raised where ops break some."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ktir.diagnostics import Diagnostic, KtirError, location_text
from ktir.mlir import ir


class Broken(Exception):
    """A rule that an op breaks; `notes` point at the other parties."""

    def __init__(self, message: str, *notes: Diagnostic) -> None:
        super().__init__(message)
        self.notes = notes


def note_at(op: ir.Operation) -> Diagnostic:
    """Points at an op that has a part in it."""
    return Diagnostic("note", f"this '{op.name}' op", location_text(op.location))


def note_source(value: ir.Value) -> Diagnostic:
    """Points at where an operand comes from."""
    return Diagnostic("note", "the operand is defined here", location_text(value.location))


def refuse_broken(ops: Iterable[ir.Operation], check: Callable[[ir.Operation], None]) -> None:
    """Runs `check` on every op; raises KtirError with a diagnostic per faulty op, each with its first fault."""
    faults: list[Diagnostic] = []
    for op in ops:
        try:
            check(op)
        except Broken as broken:
            faults.append(Diagnostic("error", f"'{op.name}' op {broken}", location_text(op.location), broken.notes))
    if faults:
        raise KtirError.of(faults, faults[0].message)
