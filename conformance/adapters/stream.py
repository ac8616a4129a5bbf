"""The instruction stream: a case is compiled, pinned unless it is a program for the planner, and runs on the emulated machine.

An implementation of level L4: it gives values, while errors at run time are found by whoever executes KTIR.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from adapters.executor import accept
from case_values import array, numbers_of, spelled
from numpy.typing import NDArray

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
    """Compiles and runs a case; what each buffer holds. Its memory is linear, and may be larger than what the views see, or smaller than
    what the intervals of their numbers reach: a program is then given more, which it must leave alone."""
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
    sizes = [math.prod(h.size) for h in executable.spec.hosts]
    memory = {name: _longer(b, size) for (name, b), size in zip(buffers.items(), sizes, strict=True)}
    executable(*(b[:n].reshape(h.size) for b, n, h in zip(memory.values(), sizes, executable.spec.hosts, strict=True)))
    for name, b in memory.items():
        if (b[buffers[name].size :].view("u1") != _REST).any():
            raise KtirError(f"the program writes beyond the end of '{name}'")
    specs = {a["name"]: a for a in values["arguments"]}
    return {name: spelled(numbers_of(specs[name], b[: buffers[name].size])) for name, b in memory.items()}


_REST = 0x5A
"""The bytes of what is no part of a buffer."""


def _longer(buffer: NDArray[Any], size: int) -> NDArray[Any]:
    """A copy with at least so many elements."""
    rest = np.full(max(0, size - buffer.size) * buffer.itemsize, _REST, np.uint8).view(buffer.dtype)
    return np.concatenate([buffer, rest])
