"""The instruction stream: a case is compiled, pinned unless it is a program for the planner, and runs on the emulated machine.

An implementation of level L4: it gives values, while errors at run time are found by whoever executes KTIR.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from adapters.executor import accept
from case_values import array, numbers_of, spelled

from ktir.analysis.calls import functions_of
from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.lowering.compile import compile_logical
from ktir.mlir import integer_attribute, ir
from ktir.package import read
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable

__all__ = ["accept"]

NAME = "stream"
REFUSES = (KtirError,)
REPORTS = False


def execute(path: Path, values: dict[str, Any]) -> dict[str, list[Any]]:
    """Compiles and runs a case; what each buffer holds. Its memory is linear, and may be larger than what the views see."""
    buffers = {a["name"]: array(a).reshape(-1) for a in values["arguments"] if "shape" in a}
    numbers = [f"{i}={a['value']}" for i, a in enumerate(values["arguments"]) if "shape" not in a]
    with context(), ir.Location.unknown():
        module = parse_module(path.read_text(), str(path))
        run_pipeline(module, "ktir-check-legality")
        functions = functions_of(module)
        if len(functions) == 1:  # a function without a grid is executed once
            (only,) = functions.values()
            if "grid" not in only.attributes:
                only.attributes["grid"] = ir.ArrayAttr.get([integer_attribute(1)])
        executable = Executable(read(compile_logical(module, numbers=numbers)))
    hosts = executable.spec.hosts
    if any(b.size < math.prod(h.size) for b, h in zip(buffers.values(), hosts, strict=True)):
        raise KtirError("a buffer is smaller than what the program sees of it")
    executable(*(b[: math.prod(h.size)].reshape(h.size) for b, h in zip(buffers.values(), hosts, strict=True)))
    specs = {a["name"]: a for a in values["arguments"]}
    return {name: spelled(numbers_of(specs[name], b)) for name, b in buffers.items()}
