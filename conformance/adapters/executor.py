"""`ktir`: the parser, the verifier and the KTIR executor, in this process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from case_values import array, numbers_of, spelled

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import KtirError, verify
from ktir.emulator.reference import Scratch
from ktir.emulator.reference import execute as execute_module
from ktir.pipeline import run_pipeline

NAME = "ktir"
REFUSES = (KtirError,)


def accept(path: Path, strict: bool) -> str:
    """Reads and verifies; the printed module."""
    with context():
        module = parse_module(path.read_text(), str(path), strict=strict)
        verify(module)
        return print_module(module)


def execute(path: Path, values: dict[str, Any]) -> dict[str, list[Any]]:
    """Executes a case; what each buffer holds."""
    arguments = {a["name"]: _argument(a) for a in values["arguments"]}
    with context():
        module = parse_module(path.read_text(), str(path))
        run_pipeline(module, "ktir-check-legality")
        execute_module(module, values.get("function"), list(arguments.values()))
    specs = {a["name"]: a for a in values["arguments"]}
    return {name: spelled(numbers_of(specs[name], a)) for name, a in arguments.items() if hasattr(a, "reshape")}


def _argument(spec: dict[str, Any]) -> Any:
    if "shape" not in spec:
        return spec["value"]
    return Scratch(math.prod(spec["shape"]), spec["type"]) if spec.get("uninitialized") else array(spec)
