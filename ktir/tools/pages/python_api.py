"""The pages of the Python interface and of the environment's variables, from the sources alone: what needs torch is not imported."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import ktir
from ktir import config
from ktir.tools.pages.markdown import prose

SOURCES = Path(ktir.__file__).parent.parent
MODULES: dict[str, tuple[str, ...]] = {
    "ktir": tuple(sorted(name for name in ktir.__all__ if name not in ("__version__", "config"))),
    "ktir.config": ("current", "patch"),
    "ktir.runtime.metrics": ("Launches", "counted"),
    "ktir.lang": (),
    "ktir.library": (),
    "ktir.checking": (),
}
"""What is documented of which module; where nothing is named, what its `__all__` names."""

Definition = ast.FunctionDef | ast.ClassDef


def _tree(module: str) -> ast.Module:
    path = SOURCES.joinpath(*module.split("."))
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())


def definition(module: str, name: str) -> Definition:
    """The function or class that a module names, wherever it comes from. Raises LookupError where there is none."""
    tree = _tree(module)
    for node in ast.walk(tree):
        if isinstance(node, Definition) and node.name == name and node in tree.body:
            return node
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module.startswith("ktir"):
                    return definition(node.module, alias.name)
    raise LookupError(f"{module}.{name}")


def exported(module: str) -> list[str]:
    """What `__all__` of a module names."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return sorted(ast.literal_eval(node.value))
    return []


def _signature(function: ast.FunctionDef, name: str) -> str:
    """As a caller sees it, by the name that he uses."""
    arguments = ast.unparse(function.args)
    gives = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"{name}({re.sub(r'^self(, )?', '', arguments)}){gives}"


def _doc(node: Definition) -> list[str]:
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines += ["```text", inspect.cleandoc("\n" + block), "```", ""] if block.startswith("    ") else [prose(block), ""]
    return lines


def _fields(cls: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of each field below which a text stands."""
    for node, after in pairwise(cls.body):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            default = ast.unparse(node.value) if node.value else ""
            yield ast.unparse(node.target), default or " ", prose(" ".join(str(after.value.value).split()))


def _section(module: str, name: str) -> Iterator[str]:
    node = definition(module, name)
    yield from (f"### `{module}.{name}`", "")
    if isinstance(node, ast.FunctionDef):
        yield from ("```python", _signature(node, name), "```", "")
        yield from _doc(node)
        return
    yield from _doc(node)
    fields = [f"| `{name}` | `{default}` | {meaning} |" for name, default, meaning in _fields(node)]
    yield from ("| field | default | meaning |", "| --- | --- | --- |", *fields, "") if fields else ()
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and (not method.name.startswith("_") or method.name in ("__call__", "__getitem__")):
            if text := ast.get_docstring(method):
                yield from (f"**`{_signature(method, method.name)}`**", "", prose(inspect.cleandoc(text)), "")


def api_page() -> list[str]:
    """The page of what programs call."""
    lines = [
        "# Python API",
        "",
        "What programs call. Modules that are not here may change without notice. Types are those of the sources.",
        "",
    ]
    for module, names in MODULES.items():
        lines += [f"## `{module}`", ""]
        for name in names or exported(module):
            lines += _section(module, name)
    return lines


def environment_page() -> list[str]:
    """The page of the variables that ktir reads."""
    lines = [
        "# Environment variables",
        "",
        "An option is a variable, an argument of `torch.compile(options=...)` without `KTIR_`, and of `ktir.config.patch`.",
        "",
        "| variable | default | meaning |",
        "| --- | --- | --- |",
    ]
    options = config.Config()
    cls = definition("ktir.config", "Config")
    assert isinstance(cls, ast.ClassDef)
    lines += [f"| `KTIR_{name.upper()}` | `{getattr(options, name)}` | {meaning} |" for name, _, meaning in _fields(cls)]
    others = [v for v in config.VARIABLES if v.removeprefix("KTIR_").lower() not in config.NAMES and "TEST" not in v]
    lines += [
        "",
        "Further variables: " + ", ".join(f"`{v}`" for v in others),
        "and those of other programs that the device follows: [](../device.md#environment-variables).",
        "",
    ]
    return lines
