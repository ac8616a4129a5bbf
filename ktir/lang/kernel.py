"""Kernels: a Python function that is traced once per shapes, types and parameters, and what runs it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ktir.assembly import parse_module, print_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.policy import Policy
from ktir.emulator.reference import execute
from ktir.lang import eager
from ktir.lang.mistakes import Mistake, kind_of
from ktir.lang.scalars import element_of
from ktir.lang.tracing import Traced, trace
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.runtime.executable import Executable

On = Literal["executor", "numpy", "chip"]
_PLACES = ("executor", "numpy", "chip")


@contextmanager
def _spoken() -> Any:
    """An error of a kernel reaches the user without the frames that found it."""
    try:
        yield
    except KtirError as error:
        raise error.with_traceback(None) from None


@dataclass(eq=False)
class Kernel:
    """A kernel: call it on arrays, which it writes in place. Keyword-only arguments are parameters, known when the function is traced.

    `kernel[grid]` runs it on a grid of tiles; without a grid the compiler divides the work.
    """

    function: Callable[..., object]
    grid: tuple[int, ...] | None = None
    on: On = "executor"
    policy: Policy | None = None
    _traced: dict[Any, Traced] = field(default_factory=dict, repr=False, compare=False)
    _compiled: dict[str, Executable] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function, updated=())  # type: ignore[arg-type]

    def __getitem__(self, grid: Any) -> Kernel:
        return self.using(grid=grid)

    def using(self, *, grid: Any = ..., on: Any = None, policy: Policy | None = None) -> Kernel:
        """The same kernel on a grid (None: divided by the compiler), run elsewhere (`executor`, `numpy`, `chip`), under another policy."""
        with _spoken():
            if on is not None and on not in _PLACES:
                raise Mistake(f"a kernel runs on one of {', '.join(_PLACES)}, but got {on!r:.40}")
            wanted = self.grid if grid is ... else None if grid is None else _grid(grid)
            return replace(self, grid=wanted, on=on or self.on, policy=policy or self.policy)

    def __call__(self, *arrays: Any, **named: Any) -> None:
        with _spoken():
            arguments, parameters = self._bound(arrays, named)
            if self.on == "numpy":
                eager.run(self.function, arguments, parameters, self.grid)
                return
            traced = self._trace(arguments, parameters)
            values = [a if isinstance(a, int) else np.ascontiguousarray(a) for a in arguments.values()]
            if self.on == "executor":
                execute(traced.text, traced.name, values, policy=self.policy, source=self._file)
            else:
                self._executable(traced)(*values)
            for given, value, role in zip(arguments.values(), values, traced.roles, strict=True):
                if value is not given and role in ("output", "input_output"):
                    given[...] = value

    def ktir(self, *arrays: Any, **named: Any) -> str:
        """The KTIR of a call."""
        with _spoken(), context():
            arguments, parameters = self._bound(arrays, named)
            return print_module(parse_module(self._trace(arguments, parameters).text, self._file), debuginfo=False)

    @property
    def _file(self) -> str:
        return self.function.__code__.co_filename

    def _executable(self, traced: Traced) -> Executable:
        found = self._compiled.get(traced.text)
        if found is None:
            with context(), ir.Location.unknown():
                found = Executable(read(compile_logical(parse_module(traced.text, self._file))))
            self._compiled[traced.text] = found
        return found

    def _trace(self, arguments: Mapping[str, Any], parameters: Mapping[str, Any]) -> Traced:
        kinds = tuple(int if isinstance(a, int) else (a.shape, a.dtype) for a in arguments.values())
        try:
            key = (self.grid, kinds, tuple(parameters.items()))
            found = self._traced.get(key)
        except TypeError:
            wrong = next((n for n, p in parameters.items() if getattr(p, "__hash__", None) is None), next(iter(parameters)))
            raise Mistake(
                f"parameter '{wrong}' expects a value that does not change, as a number or a tuple, but got {kind_of(parameters[wrong])}"
            ) from None
        if found is None:
            code = self.function.__code__
            found = self._traced[key] = trace(
                self.function, arguments, parameters, self.grid, f"{code.co_filename}:{code.co_firstlineno}:1"
            )
        return found

    def _bound(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arguments and parameters of a call, by name."""
        names, defaults = _signature(self.function)
        if len(arrays) > len(names):
            raise Mistake(f"'{self.function.__name__}' takes {len(names)} arguments ({', '.join(names)}), but got {len(arrays)}")
        arguments = dict(zip(names, arrays, strict=False))
        parameters = dict(defaults)
        for name, value in named.items():
            if name in arguments or (name not in names and name not in defaults):
                known = ", ".join((*names, *defaults))
                what = "already" if name in arguments else "no argument"
                raise Mistake(f"'{self.function.__name__}' has {what} '{name}'; it has {known}")
            (arguments if name in names else parameters)[name] = value
        for name in names:
            if name not in arguments:
                raise Mistake(f"'{self.function.__name__}' expects an argument '{name}'")
        for name, value in parameters.items():
            if value is inspect.Parameter.empty:
                raise Mistake(f"'{self.function.__name__}' expects a parameter '{name}'")
        return {name: _argument(name, arguments[name]) for name in names}, parameters


def _argument(name: str, value: Any) -> Any:
    """An argument as an array on the same memory, or as a whole number."""
    if isinstance(value, np.ndarray):
        element_of(value.dtype)
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        array = value.detach().numpy()  # pyright: ignore[reportAttributeAccessIssue]
    except (AttributeError, TypeError, RuntimeError):
        raise Mistake(
            f"argument '{name}' expects an array or a whole number, but got {kind_of(value)}; what is known when the kernel is traced is a "
            "parameter: write it behind '*'"
        ) from None
    element_of(array.dtype)
    return array


@functools.lru_cache(512)
def _signature(function: Callable[..., object]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the arguments, and parameters with their defaults."""
    names, parameters = [], {}
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise Mistake(f"a kernel expects arguments with names, but '{function.__name__}' has '{p}'")
        if p.kind is p.KEYWORD_ONLY:
            parameters[p.name] = p.default
        elif p.default is not p.empty:
            raise Mistake(f"argument '{p.name}' of '{function.__name__}' has a default; parameters stand behind '*'")
        else:
            names.append(p.name)
    return tuple(names), parameters


def _grid(grid: Any) -> tuple[int, ...]:
    listed = tuple(grid) if isinstance(grid, tuple | list) else (grid,)
    if not 1 <= len(listed) <= 3 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in listed):
        raise Mistake(f"a grid expects 1 to 3 numbers of at least 1, but got {grid!r:.40}")
    return listed


def kernel(function: Any = None, *, grid: Any = None, on: On = "executor") -> Any:
    """Makes a kernel of a function: `@kernel`, or `@kernel(grid=32)`."""
    if function is None:
        return lambda f: kernel(f, grid=grid, on=on)
    with _spoken():
        if not inspect.isfunction(function) or not function.__name__.isidentifier():
            raise Mistake(f"a kernel expects a function with a name, but got {kind_of(function)}")
        _signature(function)
        return Kernel(function).using(grid=grid, on=on)
