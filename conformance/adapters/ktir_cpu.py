"""The public interpreter `ktir_cpu` of the repository torch-spyre/ktir-cpu, where its package can be imported. It prints no modules."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from case_values import array, numbers_of, spelled

NAME = "ktir-cpu"
KTIRInterpreter: Any = importlib.import_module("ktir_cpu").KTIRInterpreter  # installed by whoever checks it


def accept(path: Path, strict: bool) -> None:
    """Reads a file."""
    KTIRInterpreter().load(path.read_text())


def execute(path: Path, values: dict[str, Any]) -> dict[str, list[Any]]:
    """Executes a case; what each buffer holds."""
    text = path.read_text()
    interpreter = KTIRInterpreter()
    interpreter.load(text)
    function = values.get("function") or _entry(text)
    names = interpreter.arg_names(function)
    given = {n.lstrip("%"): array(a) if "shape" in a else a["value"] for n, a in zip(names, values["arguments"], strict=True)}
    made = interpreter.execute_function(function, **given)
    found = {a["name"]: made[n.lstrip("%")] for n, a in zip(names, values["arguments"], strict=True) if "shape" in a}
    specs = {n.lstrip("%"): a for n, a in zip(names, values["arguments"], strict=True)}
    return {name: spelled(numbers_of(specs[name], a)) for name, a in found.items()}


def _entry(text: str) -> str:
    """The function that no other calls."""
    called = set(re.findall(r"call @(\w+)", text))
    return next(name for name in re.findall(r"func\.func (?:private )?@(\w+)", text) if name not in called)
