"""Programs that the chip's compiler refuses, or fails at: what the user is told, cold and warm alike, and what reproduces a fault.

A program's entry in the store holds the message (`notice.json`). Generated code says it when it is loaded, whether this process has
compiled it or a cache has kept it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ktir import config
from ktir.diagnostics import Diagnostic, KtirError, PassError
from ktir.lowering.inductor.running.fallback import nests_at
from ktir.lowering.region_to_ktir.region import Buffer, Region
from ktir.pipeline import Pipeline, Reproducer, parse_pipeline
from ktir.runtime import notices, store
from ktir.runtime.kernel import ON_EXECUTOR, OURS
from ktir.runtime.logical import NOTICE, PROGRAM

NO_FORM = " has no form on the chip: "
_NODES = re.compile(r" \([^()]*\)")
_MOST_NAMED = 3
"""Operands that a message names."""


_OTHERS = "what else in this file is refused for this reason is not named again"


class Fault(PassError):
    """What this compiler should have done, and failed at."""


def fault_of(error: Exception, what: str, first: str | None = None, of: str = "") -> Fault:
    """The fault behind an exception that is no refusal: `what` failed. `first`: its place where it has none of its own; `of`: the operator
    at fault, with shapes, where that is known."""
    own = error if isinstance(error, KtirError) else KtirError(f"{what} failed: {type(error).__name__}: {error}")
    place = own.location or first
    message = own.message if own is not error or not of else f"{of}: {own.message}"
    fault = Fault(message, place)
    fault.diagnostics = [Diagnostic("error", message, place, own.notes), *own.diagnostics[1:]]
    if own.pass_name:
        fault.diagnostics.append(Diagnostic("note", f"in pass '{own.pass_name}'"))
    return fault


def first_line(region: Region) -> str | None:
    """The first line of a user's program in a region."""
    return next((nest.source for nest in region.nests if nest.source), None)


def reproducer(text: str, folder: Path | None = None, name: str = "program") -> str:
    """Write a logical program with the way to the chip; what to run to see its compiler fail again."""
    from ktir.lowering.compile import pipeline

    path = (folder or store.new_reproducer()) / f"{name}.reproducer.mlir"
    options = config.current()
    steps = parse_pipeline(f"{pipeline(options.fewer_cores())},convert-ktir-to-spyre")
    whose = OURS
    if options.logical_passes:
        steps = Pipeline((*parse_pipeline(options.logical_passes), *steps))
        whose = "the fault lies in ktir or in a pass of 'logical_passes', not in the model"
    unprinted: Any = None
    Reproducer(path, lambda _: text).write(unprinted, steps, verify_each=True)
    return f"{whose}; see it again with ktir-opt --run-reproducer {path}"


def in_the_users_words(error: KtirError, region: Region) -> KtirError:
    """The refusal of a nest with the operator that it comes from before it, and what that reads and gives; as it is where none is known."""
    nest = next(iter(nests_at(error, region)), None)
    if nest is None or not nest.origins:
        return error
    calls = [o for o in nest.origins if "." in o.target] or list(nest.origins)
    origin = next((o for name in error.names for o in calls if o.node == name), calls[0])
    used = {kind: dict.fromkeys(r.buffer for r in nest.records() if r.op == kind and r.buffer) for kind in ("load", "store")}
    reads, gives = (" and ".join(_described(region.buffers[n]) for n in list(used[kind])[:_MOST_NAMED]) for kind in ("load", "store"))
    of, to = f" of {reads}" if reads else "", f" to {gives}" if gives else ""
    first = error.diagnostics[0]
    error.message = f"'{origin.target.removesuffix('.default')}'{of}{to}{NO_FORM}{error.message}"
    error.diagnostics = [replace(first, message=error.message), *error.diagnostics[1:]]
    return error


def _described(buffer: Buffer) -> str:
    return f"{buffer.dtype} {list(buffer.size)}"


def notice(error: KtirError) -> bytes:
    """The file that tells of a refusal or a fault."""
    diagnostics = [{"severity": d.severity, "message": d.message, "location": d.location} for d in error.diagnostics]
    listed = {"fault": isinstance(error, Fault), "diagnostics": diagnostics}
    return json.dumps(listed, indent=1).encode()


def say(files: Mapping[str, bytes]) -> None:
    """Tell the user why a program does not run on the chip: once per process; of refusals for one reason in one source file, the first."""
    if NOTICE not in files:
        return
    listed = json.loads(files[NOTICE])
    found = [Diagnostic(str(d["severity"]), str(d["message"]), d["location"]) for d in listed["diagnostics"]]
    error = KtirError("the program has no form on the chip")
    error.message, error.diagnostics = found[0].message, found
    file = (found[0].location or "").rsplit(":", 2)[0]
    _, refused, reason = error.message.partition(NO_FORM)
    if notices.is_new(f"program of {file}", _NODES.sub("", reason) if refused else error.message):
        fault = [reproducer(files[PROGRAM].decode())] if listed["fault"] else []
        others = [_OTHERS] if refused else []
        notices.warn(error, *fault, f"{ON_EXECUTOR}; {notices.NOT_HERE}", *others)


def as_error(error: Fault, note: str) -> Fault:
    """The fault as the error that the option `fallback` asks for, with the way out."""
    notes = [Diagnostic("note", n) for n in (note, f'without fallback="error" {ON_EXECUTOR}; {notices.WITHOUT_CHIP}')]
    error.diagnostics = [*error.diagnostics, *notes]
    return error
