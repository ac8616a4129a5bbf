"""Lazy tables of dialects and passes: names known from file names alone, code imported on first use.

A dialect `d` is the file `ktir/dialects/d.py` and in it the class declared with `Dialect, name="d"`; other files there are helpers.
A pass `a-b` is the file `a_b.py` in a folder of `ktir/passes/` or in `ktir/lowering/ktir_to_spyre/`, and in it the class whose `name` is
`a-b`. Named pipelines are found as passes are.
"""

import importlib
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent
_DIALECT_FOLDER = "dialects"
_PASS_FILES = ("passes/**/ktir_*.py", "lowering/ktir_to_spyre/convert_*.py")


def _stems(folder: str) -> list[str]:
    return sorted(p.stem for p in (_ROOT / folder).glob("*.py") if not p.stem.startswith("_"))


@cache
def dialect_names() -> tuple[str, ...]:
    """Names of our own dialects. Looks for the declaration in the text, so that helper modules are not imported."""
    folder = _ROOT / _DIALECT_FOLDER
    return tuple(d for d in _stems(_DIALECT_FOLDER) if f'Dialect, name="{d}"' in (folder / f"{d}.py").read_text())


def dialect_class(name: str) -> Any:
    """The `ext.Dialect` class of dialect `name`."""
    module = importlib.import_module(f"ktir.{_DIALECT_FOLDER}.{name}")
    for value in vars(module).values():
        if isinstance(value, type) and getattr(value, "DIALECT_NAMESPACE", None) == name and hasattr(value, "load"):
            return value
    raise LookupError(f"{module.__name__} defines no dialect named '{name}'")


@cache
def pass_modules() -> dict[str, str]:
    """Pass name -> module path, from file names alone."""
    files = (p for glob in _PASS_FILES for p in sorted(_ROOT.glob(glob), key=lambda p: p.stem))
    return {p.stem.replace("_", "-"): ".".join(("ktir", *p.relative_to(_ROOT).with_suffix("").parts)) for p in files}


@cache
def pass_class(name: str) -> Any | None:
    """The Pass or NamedPipeline class registered as `name`, or None."""
    path = pass_modules().get(name)
    if path is None:
        return None
    for value in vars(importlib.import_module(path)).values():
        if isinstance(value, type) and value.__module__ == path and getattr(value, "name", None) == name:
            return value
    return None


def pass_classes() -> dict[str, Any]:
    """Name -> class of all our passes and named pipelines; imports their modules."""
    found = {name: pass_class(name) for name in pass_modules()}
    return {name: cls for name, cls in found.items() if cls is not None}
