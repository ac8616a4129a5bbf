"""Names in test configurations: types, devices, classes, operators, globs, expressions of marks."""

from __future__ import annotations

import ast
import importlib
import math
import operator
import os
import re
from collections.abc import Callable, Collection
from typing import Any

import torch

from ktir.checking.suites.source import Value

_SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
_TOKENS = {"TORCH_ROOT": "PYTORCH_ROOT", "TORCH_DEVICE_ROOT": "TORCH_SPYRE_ROOT"}
"""Token of a path -> the environment variable that it stands for."""
_LITERALS = {"Ellipsis": ..., "inf": math.inf, "nan": math.nan}


def dtype_named(name: str) -> torch.dtype | None:
    """The type that torch calls so."""
    found = getattr(torch, _SHORT.get(name, name), None)
    return found if isinstance(found, torch.dtype) else None


def dtype(value: Value) -> torch.dtype:
    """A type by its name in torch."""
    name = value.text()
    if name in _SHORT or (found := dtype_named(name)) is None:
        raise value.error(f"expects the name of a torch dtype, but got '{name}'")
    return found


def short_dtype(value: Value) -> torch.dtype:
    """A type by its name in torch, or fp16, bf16, fp32."""
    found = dtype_named(value.text())
    if found is None:
        raise value.error(f"expects the name of a torch dtype, or fp16, bf16, fp32, but got '{value.text()}'")
    return found


def device(value: Value) -> str:
    """A device, with or without a number."""
    name = value.text()
    try:
        torch.device(name)
    except RuntimeError:
        raise value.error(f"expects a device, but got '{name}'") from None
    return name


def device_type(value: Value) -> str:
    """A device without a number."""
    name = device(value)
    if ":" in name:
        raise value.error(f"expects the type of a device, but got '{name}'")
    return name


def identifier(value: Value) -> str:
    """A name that pytest takes as a mark."""
    name = value.text()
    if not name.isidentifier():
        raise value.error(f"expects a name of letters, digits and underscores, but got '{name}'")
    return name


def glob(value: Value) -> str:
    """A pattern of the shell."""
    pattern = value.text()
    if pattern.count("[") != pattern.count("]") or any(part.rfind("[") < 0 for part in pattern.split("]")[:-1]):
        raise value.error(f"expects a glob, but got '{pattern}', whose brackets do not match")
    return pattern


def class_path(value: Value) -> type:
    """A class by its module and name: torch.nn.Linear."""
    found = _attribute(value.text())
    if "." not in value.text() or not isinstance(found, type):
        raise value.error(f"expects a class with its module, as torch.nn.Linear, but got '{value.text()}'")
    return found


def function_path(value: Value) -> Callable[..., Any]:
    """A function of torch: torch.nn.functional.softmax, torch.ops.aten.view, and torch.getitem for indices."""
    name = value.text()
    found = operator.getitem if name == "torch.getitem" else _attribute(name) if name.startswith("torch.") else None
    if not callable(found):
        raise value.error(f"expects a function of torch, as torch.add or torch.ops.aten.view, but got '{name}'")
    return found


def _attribute(path: str) -> Any:
    words = path.split(".")
    for most in range(len(words), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(words[:most]))
            for word in words[most:]:
                found = getattr(found, word)
            return found
        except (ImportError, AttributeError, ValueError):
            continue
    return None


def with_tokens(value: Value) -> str:
    """A path whose tokens are replaced by what the environment says."""

    def replaced(match: re.Match[str]) -> str:
        token = match[1]
        if token not in _TOKENS:
            raise value.error(f"has the token '${{{token}}}', but there are {', '.join(f'${{{t}}}' for t in _TOKENS)} only")
        if not (root := os.environ.get(_TOKENS[token])):
            raise value.error(f"has the token '${{{token}}}', but the environment variable {_TOKENS[token]} is not set")
        return root

    return re.sub(r"\$\{([^}]*)\}", replaced, value.text())


def literal(value: Value) -> Any:
    """A Python literal, with slices, Ellipsis, inf and nan; nothing is executed."""
    try:
        return _literal(ast.parse(value.text().strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise value.error(f"expects a Python literal, but got {value.text()!r}") from None


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Name(name) if name in _LITERALS:
            return _LITERALS[name]
        case ast.Call(ast.Name("slice"), args, []) if 1 <= len(args) <= 3:
            return slice(*map(_literal, args))
        case ast.Tuple(elements):
            return tuple(map(_literal, elements))
        case ast.List(elements):
            return list(map(_literal, elements))
        case ast.UnaryOp(ast.USub(), operand):
            return -_literal(operand)
        case ast.Slice():
            raise ValueError
    return ast.literal_eval(node)


def marks_fit(expression: str, marks: Collection[str]) -> bool:
    """Whether marks fit an expression as pytest's `-m` takes it: `a and not (b or c)`. Raises ValueError; an empty one fits all."""

    def fits(node: ast.expr) -> bool:
        match node:
            case ast.Name(name):
                return name in marks
            case ast.UnaryOp(ast.Not(), operand):
                return not fits(operand)
            case ast.BoolOp(kind, values):
                return (all if isinstance(kind, ast.And) else any)([fits(v) for v in values])
        raise ValueError(f"expected marks with and, or, not, but got '{expression}'")

    if not expression.strip():
        return True
    try:
        return fits(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError:
        raise ValueError(f"expected marks with and, or, not, but got '{expression}'") from None
