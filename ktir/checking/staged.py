"""A logical program, compiled to a stage and run there on host arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ktir.checking.levels import run_device_level
from ktir.diagnostics import KtirError
from ktir.dialects.module_level import Level
from ktir.emulator.machine.reports.report import MachineReport
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.ktir_to_allocated import STAGES, ToAllocated
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable

Engine = Literal["ktir", "spyre"]


def stages() -> tuple[str, ...]:
    """What can be asked for: the levels of KTIR and each pass between them, by name."""
    levels = dict.fromkeys((Level.LOGICAL, *(s.level for s in STAGES)))
    return (*levels, *(s.name for s in STAGES))


def run_at_stage(
    module: ir.Module, arguments: Sequence[np.ndarray], *, stage: str, engine: Engine, cores: int | None = None
) -> MachineReport | None:
    """Compile `module`, in place, and run it on `arguments`, host arrays that are written in place.

    `ktir` compiles up to the last pass of `stage` and runs the KTIR executor; `spyre` compiles all the way and runs the emulated machine,
    whose report is the result. Raises KtirError for a module that is not logical, and for what a pass refuses.
    """
    level = Level.of(module)
    if level is not Level.LOGICAL:
        found = "a module without 'ktir.level'" if level is None else f"'{level}'"
        raise KtirError(f"a stage is compiled to from the logical level, but this is {found}")
    if engine == "spyre":
        executable = Executable(read(compile_logical(module, cores=cores)))
        executable(*arguments)
        return executable.machine.report
    if stage == Level.LOGICAL:
        execute(module, None, list(arguments))
        return None
    run_pipeline(module, ToAllocated(cores=cores, verify=False).text(stage))
    reached = Level.of(module)
    if reached is not None and not reached.of_host:
        for old, new in zip(arguments, run_device_level(module, arguments), strict=True):
            old[...] = new
    else:
        execute(module, None, list(arguments))
    return None
