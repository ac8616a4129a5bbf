"""What a kernel reads from around it and is given as parameters: to the bit, for a trace holds all of it as constants."""

from __future__ import annotations

import functools
import os
import struct
from collections import deque
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

_DEEPEST = 8
"""Helpers of helpers, and objects in objects, that are looked at."""
_FIXED = ("numpy", "ktir.lang")
"""Modules that stay as they are."""
_OURS = frozenset({"ktir", "numpy", "builtins"})
"""Packages of which nothing is looked at."""
_PLAIN = (int, str, bytes, bool, type(None), np.dtype)
_PROCESS = os.urandom(8).hex()


class Same:
    """An object that is itself alone. It is held, so that no later one has its place in memory."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"{_PROCESS}:{id(self.value)}"


class Exactly:
    """A value as a key: equal to those alone that nobody can tell from it, which 0.0 and -0.0, 1 and True are not."""

    def __init__(self, value: Any, function: FunctionType | None = None) -> None:
        """function: which reads it, as a parameter."""
        self.value = value
        self.key = frozen(value, function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exactly) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.cache
def _names(code: CodeType) -> frozenset[str]:
    """The names of globals and attributes that code reads, that of functions in it too."""
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(code.co_names).union(*inner)


def frozen(value: Any, function: FunctionType | None = None) -> Any:
    """A value as it is now, hashable. function: whose names say which attributes of objects count."""
    return _frozen(value, frozenset() if function is None else _names(function.__code__), ())


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
    if isinstance(value, np.generic):
        return (type(value), value.tobytes())
    if isinstance(value, _PLAIN):
        return (type(value), value)
    if isinstance(value, float | complex):
        return (type(value), struct.pack("dd", value.real, value.imag))
    if any(value is s for s in seen):
        return Same(value)
    within = (*seen, value)
    if isinstance(value, tuple | list | set | frozenset | deque):
        return (type(value), *[_frozen(v, names, within) for v in value])
    if isinstance(value, dict):
        return (type(value), *[(_frozen(k, names, within), _frozen(v, names, within)) for k, v in value.items()])
    if isinstance(value, range | slice):
        return (type(value), *[_frozen(v, names, within) for v in (value.start, value.stop, value.step)])
    if isinstance(value, np.ndarray):
        content = _frozen(value.tolist(), names, within) if value.dtype.hasobject else value.tobytes()
        return (type(value), value.dtype, value.shape, content)
    if isinstance(value, functools.partial):
        return (type(value), *[_frozen(v, names, within) for v in (value.func, value.args, value.keywords)])
    if isinstance(value, MethodType):
        names |= _names(value.__func__.__code__) if isinstance(value.__func__, FunctionType) else frozenset()
        return (type(value), *[_frozen(v, names, within) for v in (value.__func__, value.__self__)])
    wrapped = getattr(value, "__dict__", {}).get("__wrapped__")
    if isinstance(wrapped, FunctionType) and not isinstance(value, FunctionType):  # of a kernel
        value = wrapped
    if isinstance(value, FunctionType):
        if any(value is s for s in seen) or str(value.__module__).split(".")[0] in _OURS:
            return value
        given = _frozen((value.__defaults__, value.__kwdefaults__), names, within)
        return (value, value.__code__, given, outside(value, seen))
    return _object(value, names, seen)


def _object(value: Any, names: frozenset[str], seen: tuple[Any, ...]) -> Any:
    """An object by itself, and what it has, or its class, under the names that are read: by its methods too."""
    kind = value if isinstance(value, type) else type(value)
    module = value.__name__ if isinstance(value, ModuleType) else str(kind.__module__)
    if len(seen) > _DEEPEST or module.split(".")[0] in _OURS:
        return Same(value)
    classes = [vars(c) for c in kind.__mro__ if str(c.__module__).split(".")[0] not in _OURS]
    names = _with_methods(classes, names)
    within, found = (*seen, value), []
    for held in (*([] if isinstance(value, type) else [getattr(value, "__dict__", {})]), *classes):
        for n in sorted(names & held.keys()):
            one = getattr(value, n, None) if isinstance(held[n], MemberDescriptorType) else held[n]
            found += [(n, _frozen(f, names, within)) for f in (_functions(one) or [one])]
    return (Same(value), *found)


def _with_methods(classes: list[Any], names: frozenset[str]) -> frozenset[str]:
    """Names, those of operators, and those that the methods read which are called by them."""
    names |= {n for held in classes for n in held if n.startswith("__") and n != "__init__" and _functions(held[n])}
    while True:
        read = [_names(f.__code__) for held in classes for n in names & held.keys() for f in _functions(held[n])]
        wider = names.union(*read)
        if wider == names:
            return names
        names = wider


def _functions(member: Any) -> list[FunctionType]:
    """The functions that a member of a class is."""
    inner = (member, *(getattr(member, n, None) for n in ("__func__", "func", "fget") if not isinstance(member, FunctionType)))
    return [f for f in inner if isinstance(f, FunctionType)]
