"""Errors, warnings and remarks, worded and placed the way MLIR does it: `file:line:col: error: ...`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from ktir.mlir import ir

T = TypeVar("T")


def location_text(location: ir.Location) -> str:
    """The first source position in `location` as `file:line:col`, or `<unknown>`; looks into named, fused and call-site locations."""
    return _place(location) or "<unknown>"


def origin_text(location: ir.Location) -> str:
    """The same, and where there is no position the first `nn.Module` in `location` as `module 'layers.0'`, or `<unknown>`."""
    return _place(location) or next(_modules(location), "<unknown>")


def _place(location: ir.Location) -> str | None:
    """MLIR's 0:0, the module of a file without one, is shown as 1:1."""
    at = position(location)
    return f"{at[0]}:{max(at[1], 1)}:{max(at[2], 1)}" if at else None


def location_names(location: ir.Location) -> list[str]:
    """The names in `location`, first to last: for an op that comes from PyTorch the nodes of its graph. A name inside of
    a name is the module of a node that has no line.
    """
    return [str(loc.name_str) for loc in _named(location)]


def _named(location: ir.Location) -> Iterator[Any]:
    loc: Any = ir.Location.from_attr(location.attr)
    if isinstance(loc, ir.NameLoc):
        yield loc
        if not isinstance(ir.Location.from_attr(loc.child_loc.attr), ir.NameLoc):
            yield from _named(loc.child_loc)
    elif isinstance(loc, ir.FusedLoc):
        for child in loc.locations:
            yield from _named(child)


def _modules(location: ir.Location) -> Iterator[str]:
    for loc in _named(location):
        inner: Any = ir.Location.from_attr(loc.child_loc.attr)
        if isinstance(inner, ir.NameLoc):
            yield f"module '{inner.name_str}'"


def nodes_text(location: ir.Location) -> str:
    """The same names, each once, separated by commas."""
    return ",".join(dict.fromkeys(location_names(location)))


def position(location: ir.Location) -> tuple[str, int, int] | None:
    """File, line and column of the first file position in `location`, or None."""
    loc: Any = ir.Location.from_attr(location.attr)  # downcasts: diagnostics carry bare Locations
    if isinstance(loc, ir.FileLineColLoc):
        return loc.filename, loc.start_line, loc.start_col
    if isinstance(loc, ir.NameLoc):
        return position(loc.child_loc)
    if isinstance(loc, ir.CallSiteLoc):
        return position(loc.callee) or position(loc.caller)
    if isinstance(loc, ir.FusedLoc):
        return next((at for child in loc.locations if (at := position(child))), None)
    return None


@dataclass(frozen=True)
class Diagnostic:
    """One message. `severity` is `error`, `warning`, `remark` or `note`; `location` is `file:line:col` or None."""

    severity: str
    message: str
    location: str | None = None
    notes: tuple[Diagnostic, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.location or '<unknown>'}: {self.severity}: {self.message}"]
        return "\n".join(lines + [str(note) for note in self.notes])


class KtirError(Exception):
    """A fault in the input, placed in its source. `str()` is what a driver prints.

    `message` is lower case and without a full stop; `location` is `file:line:col` or None; `notes` point at the other parties. `names` are
    those in the location of the op at fault: the nodes of PyTorch's graph that it came from.
    `diagnostics` holds every diagnostic of the failure, this one first.
    """

    severity = "error"
    pass_name = ""
    """The pass, with its options, that raised the error; empty outside of pipelines."""

    def __init__(self, message: str, location: str | ir.Location | None = None, notes: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.location = _place(location) if isinstance(location, ir.Location) else location
        self.names = tuple(location_names(location)) if isinstance(location, ir.Location) else ()
        self.notes = notes
        self.diagnostics: list[Diagnostic] = [Diagnostic(self.severity, message, self.location, notes)]

    def __str__(self) -> str:
        lines = [str(d) if d.location else str(d).removeprefix("<unknown>: ") for d in self.diagnostics]
        return "\n".join(lines + ([f"note: in pass '{self.pass_name}'"] if self.pass_name else []))

    @classmethod
    def of(cls, diagnostics: list[Diagnostic], fallback: str) -> KtirError:
        """The error that `diagnostics` amount to; `fallback` is its message if they hold no error."""
        first = next((d for d in diagnostics if d.severity == "error"), None)
        error = cls(first.message, first.location, first.notes) if first else cls(fallback)
        if first:
            error.diagnostics = [d for d in diagnostics if d.severity == "error"]
        return error


class Unsupported(KtirError):
    """A construct that is valid but that this compiler refuses; the message names it with shape and dtype."""


def refused(op: ir.Operation | ir.OpView, text: str) -> Unsupported:
    """The error of an op that has no form further down, at its place: `'scf.for' op expects ..`."""
    return Unsupported(f"'{op.operation.name}' op {text}", location_text(op.location))


class NoSingleGraph(KtirError):
    """TorchDynamo breaks the graph of a model, or cannot make one: perhaps since the model itself fails on its inputs."""


class OutOfRange(KtirError):
    """A launch with values outside of the range for which its program is proved, raised before anything is written."""


class PassError(KtirError):
    """A pass failed, by a fault of its own or by an error of one of MLIR's passes."""


@dataclass(frozen=True)
class Remark:
    """A decision that a pass reports, for example a chosen tile size. `kind` is `passed`, `missed` or `analysis`."""

    kind: str
    pass_name: str
    message: str
    location: str | None = None

    def __str__(self) -> str:
        return f"{self.location or '<unknown>'}: remark: [{self.pass_name}] {self.message}"


@contextmanager
def holding(variable: ContextVar[Any], value: T) -> Iterator[T]:
    """Inside the block the variable has this value."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


_listening: ContextVar[list[Remark] | None] = ContextVar("remarks", default=None)


def remarks() -> AbstractContextManager[list[Remark]]:
    """Collects the remarks of the passes that run inside the block."""
    return holding(_listening, [])


REMARK_KINDS = ("passed", "missed", "failed", "analysis")
"""What remarks are about: what a pass did, did not do, could not do, or saw."""


def remark(kind: str, pass_name: str, message: str, location: ir.Location | str | None = None) -> None:
    """Reports a remark to whoever listens."""
    found = _listening.get()
    if found is not None:
        found.append(Remark(kind, pass_name, message, _place(location) if isinstance(location, ir.Location) else location))


Statistics = dict[str, dict[str, int]]
"""Pass name -> what it counted -> number."""

_counting: ContextVar[Statistics | None] = ContextVar("statistics", default=None)


def statistics() -> AbstractContextManager[Statistics]:
    """Collects what the passes that run inside the block count."""
    return holding(_counting, {})


def count(pass_name: str, what: str, number: int) -> None:
    """Adds to a number that a pass counts."""
    found = _counting.get()
    if found is not None:
        row = found.setdefault(pass_name, {})
        row[what] = row.get(what, 0) + number


def _convert(info: Any) -> Diagnostic:
    notes = tuple(_convert(n) for n in info.notes if not _message(n).startswith("see current operation"))
    return Diagnostic(info.severity.name.lower(), _message(info), _place(info.location), notes)


def _message(info: Any) -> str:
    """What MLIR says; it may quote bytes of damaged input, which its bindings cannot hand on."""
    try:
        return info.message
    except RuntimeError:
        return "the input has text that is not UTF-8"


@contextmanager
def collect(context: ir.Context) -> Iterator[list[Diagnostic]]:
    """Collects what MLIR reports inside the block; nothing reaches stderr. Restores the context afterwards."""
    found: list[Diagnostic] = []

    def handler(info: Any) -> bool:
        found.append(_convert(info))
        return True

    before = context.emit_error_diagnostics
    context.emit_error_diagnostics = True
    attached = context.attach_diagnostic_handler(handler)
    try:
        yield found
    finally:
        attached.detach()
        context.emit_error_diagnostics = before


def verify(op: ir.Operation | ir.Module | ir.OpView) -> None:
    """Runs the verifiers on `op` and everything in it. Raises KtirError with every message that they gave."""
    operation = op.operation
    with collect(operation.context) as found:
        try:
            operation.verify()
            return
        except ir.MLIRError:
            pass
    raise KtirError.of(found, f"'{operation.name}' op failed to verify")


def some_of(names: Iterable[str], most: int = 3) -> str:
    """The first of some names for a message, and how many more there are."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def close_to(name: str, known: Iterable[str]) -> str:
    """A hint at the name that may have been meant, for the end of a message; empty if none is close."""
    from difflib import get_close_matches  # for faulty input alone: it takes its time to load

    close = get_close_matches(name, list(known), 1)
    return f"; did you mean '{close[0]}'?" if close else ""
