"""Rules about ops, and what is raised where ops break some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

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


def faults_of(
    ops: Iterable[ir.Operation], check: Callable[[ir.Operation], None], place: Callable[[], ir.Location] | None = None
) -> Iterator[Diagnostic]:
    """Runs `check` on every op; a diagnostic per faulty op, each with its first fault, at the op or where `place` says."""
    for op in ops:
        try:
            check(op)
        except Broken as broken:
            yield Diagnostic("error", f"'{op.name}' op {broken}", location_text(place() if place else op.location), broken.notes)


def refuse(found: Iterable[Diagnostic]) -> None:
    """Raises KtirError with the faults, if there are any."""
    faults = list(found)
    if faults:
        raise KtirError.of(faults, faults[0].message)


def refuse_broken(ops: Iterable[ir.Operation], check: Callable[[ir.Operation], None]) -> None:
    """Runs `check` on every op; raises KtirError with a diagnostic per faulty op, each with its first fault."""
    refuse(faults_of(ops, check))
