"""What a kernel's function reads from around it."""

from __future__ import annotations

import functools
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_DEEPEST = 8
"""Helpers of helpers, and objects in objects, that are looked at."""
_FIXED = ("numpy", "ktir.lang")
"""Modules that stay as they are."""
_PLAIN = (int, float, complex, str, bytes, bool, type(None), np.generic, np.dtype, type)


@functools.cache
def _names(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes that code reads, that of functions in it too."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*inner)


def outside(function: Any, seen: tuple[Any, ...] = ()) -> tuple[Any, ...]:
    """What a function reads from around it, so that a trace is not taken for another one: globals, closures, and those of its helpers."""
    names, around, seen = _names(function.__code__), function.__globals__, (*seen, function)
    found = [(name, _frozen(around[name], names, seen)) for name in names if name in around]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((name, _frozen(cell.cell_contents, names, seen)))
        except ValueError:  # nothing in it yet
            continue
    return tuple(found)


def _frozen(value: Any, names: frozenset[str], seen: tuple[Any, ...]) -> Any:
    """A value as it is now, hashable."""
    if type(value) is ModuleType and value.__name__ in _FIXED:
        return value.__name__
    if isinstance(value, _PLAIN):
        return (type(value), value)
    if isinstance(value, tuple | list):
        return (type(value), *[_frozen(v, names, seen) for v in value])
    if isinstance(value, dict):
        return tuple((str(k), _frozen(v, names, seen)) for k, v in value.items())
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.tobytes())
    wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
    if isinstance(wrapped, FunctionType) and not isinstance(value, FunctionType):  # of a kernel
        value = wrapped
    if isinstance(value, FunctionType):
        own = value in seen or value.__module__.split(".")[0] in ("ktir", "numpy")
        return value if own else (value, outside(value, seen))
    if (
        len(seen) > _DEEPEST
        or not hasattr(value, "__dict__")
        or getattr(value, "__name__", "").split(".")[0] in ("ktir", "numpy", "builtins")
    ):
        return id(value)
    held = vars(value)
    return (id(value), *[(n, _frozen(held[n], names, (*seen, value))) for n in names if n in held])
