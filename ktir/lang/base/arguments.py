"""The arguments of a call: by name, as arrays and numbers, and on which memory they may lie."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from ktir.lang.base.mistakes import Mistake, kind_of
from ktir.lang.base.scalars import element_of

_MOST_WORK = 100_000
"""Candidates that the search for a shared element looks at, which is a problem of whole numbers; beyond, the arrays count as sharing."""


def bound(function: Callable[..., object], arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments and parameters of a call, by name. Raises Mistake for those that the function does not take."""
    names, defaults = signature(function)
    if len(arrays) > len(names):
        raise Mistake(f"'{function.__name__}' takes {len(names)} arguments ({', '.join(names)}), but got {len(arrays)}")
    arguments = dict(zip(names, arrays, strict=False))
    parameters = dict(defaults)
    for name, value in named.items():
        if name in arguments or (name not in names and name not in defaults):
            known = ", ".join((*names, *defaults))
            what = "already" if name in arguments else "no argument"
            raise Mistake(f"'{function.__name__}' has {what} '{name}'; it has {known}")
        (arguments if name in names else parameters)[name] = value
    for name in names:
        if name not in arguments:
            raise Mistake(f"'{function.__name__}' expects an argument '{name}'")
    for name, value in parameters.items():
        if value is inspect.Parameter.empty:
            raise Mistake(f"'{function.__name__}' expects a parameter '{name}'")
    return {name: _argument(name, arguments[name]) for name in names}, parameters


def numbers(arguments: Mapping[str, Any]) -> dict[int, int]:
    """The arguments of a call that are numbers, by position."""
    return {i: a for i, a in enumerate(arguments.values()) if isinstance(a, int)}


def check_memory(arguments: Mapping[str, Any], written: Collection[str]) -> None:
    """Raises Mistake unless what a kernel writes is memory that can be written, each element once, and that no other argument has: in which
    order tiles read and write is not defined."""
    for name in written:
        if not arguments[name].flags.writeable:
            raise Mistake(f"the kernel writes '{name}', which is read-only memory; pass a copy of it")
        if not _is_apart(arguments[name]):
            raise Mistake(f"the kernel writes '{name}', of which several elements are the same memory; pass a copy of it")
    arrays = [(name, a, name in written) for name, a in arguments.items() if isinstance(a, np.ndarray)]
    for (one, a, is_written), (other, b, other_is) in combinations(arrays, 2):
        if (is_written or other_is) and shares(a, b):
            raise Mistake(shared(one, other, one if one in written else other))


def apart(values: Iterable[Any]) -> list[Any]:
    """Dense arrays and numbers with the same contents, no two arrays on the same memory unless they are one."""
    found: list[Any] = []
    arrays: list[np.ndarray] = []
    for value in values:
        if isinstance(value, np.ndarray):
            value = np.asarray(value, order="C")
            for other in arrays:
                if other is not value and shares(other, value):
                    value = value.copy()
                    break
            arrays.append(value)
        found.append(value)
    return found


def shared(one: str, other: str, written: str) -> str:
    """What to say of two arguments on the same memory."""
    return (
        f"arguments '{one}' and '{other}' share memory, and the kernel writes '{written}': whether it reads there what was or what is "
        "written is not defined; pass a copy of one of them, or let the kernel take one argument that it reads and writes"
    )


def shares(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have an element in common."""
    try:
        return np.shares_memory(one, other, max_work=_MOST_WORK)  # pyright: ignore[reportArgumentType]
    except np.exceptions.TooHardError:
        return True


def _is_apart(array: np.ndarray) -> bool:
    """Whether the elements of an array are memory of their own each."""
    if array.flags.c_contiguous or not array.size:
        return True
    steps = sorted((abs(step), n) for step, n in zip(array.strides, array.shape, strict=True) if n > 1)
    reach = array.itemsize
    for step, n in steps:
        if step < reach:
            break
        reach += step * (n - 1)
    else:
        return True
    places = np.zeros((), np.int64)
    for step, n in steps:
        places = (places[..., None] + step * np.arange(n)).reshape(-1)
    return bool((np.diff(np.sort(places)) >= array.itemsize).all())


def _argument(name: str, value: Any) -> Any:
    """An argument as an array on the same memory, or as a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    array = value if isinstance(value, np.ndarray) else _of_tensor(value)
    if array is None:
        raise Mistake(
            f"argument '{name}' expects an array or a whole number, but got {kind_of(value)}; what is known when the kernel is traced is a "
            "parameter: write it behind '*'"
        )
    element_of(array.dtype)
    return array


def _of_tensor(value: Any) -> np.ndarray | None:
    """A tensor of PyTorch as an array on its memory; None for what is none."""
    try:
        if str(value.dtype) != "torch.bfloat16":
            return value.detach().numpy()
        bits = value.detach().view(sys.modules["torch"].int16).numpy()
    except (AttributeError, TypeError, RuntimeError):
        return None
    return bits.view(bfloat16())


def bfloat16() -> Any:
    """NumPy's type for bf16. Raises Mistake where nobody gives it one."""
    try:
        import ml_dtypes  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise Mistake(
            "bfloat16 in the kernel language needs the package 'ml_dtypes', which gives NumPy that type: pip install ml_dtypes"
        ) from None
    return ml_dtypes.bfloat16


@functools.lru_cache(512)
def signature(function: Callable[..., object]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the arguments, and parameters with their defaults."""
    names, parameters = [], {}
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise Mistake(f"a kernel expects arguments with names, but '{function.__name__}' has '{p}'")
        if p.kind is p.POSITIONAL_ONLY:
            raise Mistake(f"a kernel expects arguments that can be given by name, but '{function.__name__}' has '{p.name}' before '/'")
        if p.kind is p.KEYWORD_ONLY:
            parameters[p.name] = p.default
        elif p.default is not p.empty:
            raise Mistake(f"argument '{p.name}' of '{function.__name__}' has a default; parameters stand behind '*'")
        else:
            names.append(p.name)
    return tuple(names), parameters
