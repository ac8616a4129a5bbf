"""Programs that the chip's compiler refuses, or fails at: what the user is told, cold and warm alike, and what reproduces a fault.

A program's entry in the store holds the message (`notice.json`). Generated code says it when it is loaded, whether this process has
compiled it or a cache has kept it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ktir import config
from ktir.diagnostics import Diagnostic, KtirError, PassError
from ktir.lowering.region_to_ktir.region import Region
from ktir.pipeline import Reproducer, parse_pipeline
from ktir.runtime import notices
from ktir.runtime.kernel import ON_EXECUTOR, OURS
from ktir.runtime.logical import NOTICE, PROGRAM


class Fault(PassError):
    """What this compiler should have done, and failed at."""


def fault_of(error: Exception, what: str, region: Region) -> Fault:
    """The fault behind an exception that is no refusal: `what` failed at a region. It is placed at the region's first line at least."""
    own = error if isinstance(error, KtirError) else KtirError(f"{what} failed: {type(error).__name__}: {error}")
    place = own.location or next((nest.source for nest in region.nests if nest.source), None)
    fault = Fault(own.message, place)
    fault.diagnostics = [Diagnostic("error", own.message, place, own.notes), *own.diagnostics[1:]]
    if own.pass_name:
        fault.diagnostics.append(Diagnostic("note", f"in pass '{own.pass_name}'"))
    return fault


def reproducer(text: str, folder: Path | None = None, name: str = "program") -> str:
    """Write a logical program with the way to the chip; what to run to see its compiler fail again."""
    from ktir.lowering.compile import pipeline

    path = (folder or Path(tempfile.mkdtemp(prefix="ktir-"))) / f"{name}.reproducer.mlir"
    steps = parse_pipeline(f"{pipeline(config.current().fewer_cores())},convert-ktir-to-spyre")
    unprinted: Any = None
    Reproducer(path, lambda _: text).write(unprinted, steps, verify_each=True)
    return f"{OURS}; see it again with ktir-opt --run-reproducer {path}"


def notice(error: KtirError) -> bytes:
    """The file that tells of a refusal or a fault."""
    diagnostics = [{"severity": d.severity, "message": d.message, "location": d.location} for d in error.diagnostics]
    listed = {"fault": isinstance(error, Fault), "diagnostics": diagnostics}
    return json.dumps(listed, indent=1).encode()


def say(files: Mapping[str, bytes]) -> None:
    """Tell the user, once per process, why a program does not run on the chip."""
    if NOTICE not in files:
        return
    listed = json.loads(files[NOTICE])
    found = [Diagnostic(str(d["severity"]), str(d["message"]), d["location"]) for d in listed["diagnostics"]]
    error = KtirError("the program has no form on the chip")
    error.message, error.diagnostics = found[0].message, found
    if notices.is_new("program", error.message):
        fault = [reproducer(files[PROGRAM].decode())] if listed["fault"] else []
        notices.warn(error, *fault, f"{ON_EXECUTOR}; {notices.NOT_HERE}")


def as_error(error: Fault, note: str) -> Fault:
    """The fault as the error that the option `fallback` asks for, with the way out."""
    notes = [Diagnostic("note", n) for n in (note, f'without fallback="error" {ON_EXECUTOR}; {notices.WITHOUT_CHIP}')]
    error.diagnostics = [*error.diagnostics, *notes]
    return error
