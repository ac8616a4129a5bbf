"""Kernels as operators of PyTorch."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._library.custom_ops import CustomOpDef

import ktir
from ktir.diagnostics import Diagnostic, KtirError
from ktir.lang.base.arguments import shared, shares
from ktir.lang.base.outside import Exactly
from ktir.library import launches
from ktir.library.kernels import Program, Source, Tensor, program_of, source_of, unknown
from ktir.lowering.inductor.running import calls

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
_OWN = (str(Path(ktir.__file__).parent), str(Path(torch.__file__).parent), "<")


def operator(name: str, kernel: Any, *, mutates_args: Sequence[str] = ()) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Makes an operator of PyTorch of a kernel: of `ktir.lang`, with its grid, or the path of a file of KTIR with one function.

    Decorates a function whose parameters and annotations are those of the operator, and which gives its results without values, as
    `torch.empty_like(x)`. The kernel gets what has the names of its arguments and parameters; its other arguments are the results, in
    order. What it stores into besides is named by `mutates_args`.

    The operator is a `torch.library.CustomOpDef`: `register_autograd` gives it gradients in eager.
    """
    source = source_of(kernel)
    return lambda results: define(name, Operator(name, source, results, tuple(mutates_args)))


def define(name: str, made: Operator) -> CustomOpDef:
    """Make an operator known to PyTorch under a name. Raises KtirError for a name or a signature that PyTorch has no operator for."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise KtirError(f"an operator expects a name with a namespace, as 'mine::{made.source.name}', but got {name!r:.60}", made.place)
    try:
        schema = torch.library.infer_schema(made.results, mutates_args=made.mutates)
        parsed = torch._C.parse_schema(f"{name}{schema}")
    except (ValueError, RuntimeError) as error:
        raise KtirError(f"'{name}': {str(error).removeprefix('infer_schema(func): ')}", made.place) from None
    made.check(parsed)
    defined = torch.library.custom_op(name, made.run, mutates_args=made.mutates, schema=schema)
    defined.register_fake(made.results)
    calls.operators[defined._opoverload] = made
    return defined


class Operator:
    """An operator, and the kernel that it is made of."""

    def __init__(self, name: str, source: Source, results: Callable[..., Any], mutates: tuple[str, ...]) -> None:
        self.name, self.source, self.mutates, self.results = name, source, mutates, results
        self._signature = inspect.signature(results)
        self.made = tuple(n for n in source.arguments if n not in self._signature.parameters)
        """The names that results have in the kernel."""
        self._programs = functools.lru_cache(256)(self._program)

    def check(self, schema: Any) -> None:
        """Raise KtirError for a signature that is not the kernel's."""
        for name in self._signature.parameters:
            if name not in (*self.source.arguments, *self.source.parameters):
                raise KtirError(f"'{self.name}': {unknown(name, self.source)}", self.place)
        count = len(schema.returns)
        if count != len(self.made):
            rest = f"{len(self.made)} ({', '.join(self.made)})" if self.made else "none"
            raise KtirError(
                f"'{self.name}' has {count} results, but kernel '{self.source.name}' has {rest} beside the operator's arguments",
                self.place,
            )
        for result in schema.returns:
            if str(result.type) != "Tensor":
                raise KtirError(f"'{self.name}' expects tensors as results, but has a result of type {result.type}", self.place)

    @property
    def place(self) -> str:
        code = self.results.__code__
        return f"{code.co_filename}:{code.co_firstlineno}:1"

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The operator in eager."""
        where = user_line()
        given = self.bound(args, kwargs)
        self._check_memory(given, where)
        results = self.results(*args, **kwargs)
        listed = _listed(results)
        called = self.called(given)
        self._check_results(called, given, listed, where)
        values = given | dict(zip(self.made, listed, strict=True))
        tensors = {n: values[n] for n in self.source.arguments if isinstance(values[n], torch.Tensor)}
        program = self.program(values, where)
        if not program.written:  # tensors without elements
            return results
        try:
            launches.launch(called, program, tensors)
        except KtirError as error:
            raise self._at(where, f"{called} failed", error) from None
        return results

    def check_call(self, args: Sequence[Any], kwargs: Mapping[str, Any], where: str | None) -> None:
        """Raise KtirError for a call that a user has written on memory that it may not have."""
        self._check_memory(self.bound(args, kwargs), where)

    def of_call(self, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any, where: str | None) -> Program:
        """The program of a call in a graph."""
        given = self.bound(args, kwargs)
        made = _listed(results) if self.made else []  # a node that writes only may say anything
        return self.program(given | dict(zip(self.made, made, strict=True)), where)

    def part(self, program: Program) -> calls.Part | None:
        """The program as a part of others, where the chip's compiler takes it."""
        program = program.lifted()
        if not program.written or not launches.is_taken(f"'{self.name}'", program):
            return None
        return calls.Part(*program.as_functions(), tuple(a.name for a in program.arguments))

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the operator by name."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def called(self, given: dict[str, Any]) -> str:
        """The operator and its operands, for messages."""
        operands = [str(_tensor(v)) for v in given.values() if isinstance(v, torch.Tensor)]
        return f"'{self.name}'" + (f" of {' and '.join(operands)}" if operands else "")

    def program(self, values: dict[str, Any], where: str | None) -> Program:
        """The program for operands and results, by name. Raises KtirError at a place of the user where the kernel does not take them."""
        given = {n: _tensor(v) if isinstance(v, torch.Tensor) else v for n in self.source.arguments for v in [values[n]]}
        known = {n: values[n] for n in self.source.parameters if n in values}
        called = self.called({n: values[n] for n in given if n not in self.made})
        for name, value in given.items():
            if not isinstance(value, Tensor | int) or isinstance(value, bool):
                raise KtirError(f"{called}: argument '{name}' expects a tensor or a whole number, but got {value!r:.40}", where)
        try:
            program = self._programs(tuple(given.items()), tuple((n, Exactly(v)) for n, v in known.items()), self.source.state())
        except KtirError as error:
            raise self._at(where, f"{called} is not what its kernel takes", error) from None
        self._check_roles(called, program, {n for n, v in given.items() if isinstance(v, Tensor) and 0 in v.shape}, where)
        return program

    def _at(self, where: str | None, what: str, error: KtirError) -> KtirError:
        """An error of the kernel as one of a call."""
        found = KtirError(f"{what}: {error.message}", where)
        if error.location:
            found.diagnostics.append(Diagnostic("note", f"kernel '{self.source.name}': {error.message}", error.location))
        found.diagnostics += [*error.notes, *error.diagnostics[1:]]
        return found

    def _program(self, given: tuple[tuple[str, Tensor | int], ...], known: tuple[tuple[str, Exactly], ...], _: object) -> Program:
        return program_of(self.source, dict(given), {n: v.value for n, v in known})

    def _check_roles(self, called: str, program: Program, empty: set[str], where: str | None) -> None:
        allowed = {*self.made, *self.mutates}
        for name in sorted(program.written - allowed):
            raise KtirError(
                f"{called}: kernel '{program.name}' stores into argument '{name}'; declare it, as in "
                f"ktir.library.operator(.., mutates_args=({name!r},)), or let it be a result",
                where,
            )
        for name in sorted({*self.made} - program.written - empty):
            raise KtirError(f"{called}: kernel '{program.name}' stores nothing into result '{name}'", where)

    def _check_memory(self, given: dict[str, Any], where: str | None) -> None:
        """Raise KtirError for an operand that is written on memory that another one has."""
        for written in self.mutates:
            for name, other in given.items():
                own = given[written]
                if name != written and all(isinstance(t, torch.Tensor) for t in (own, other)) and _shares(own, other):
                    one, two = sorted((written, name), key=list(given).index)
                    raise KtirError(f"{self.called(given)}: {shared(one, two, written)}", where)

    def _check_results(self, called: str, given: dict[str, Any], results: Sequence[Any], where: str | None) -> None:
        """Raise KtirError for results that are not memory of their own."""
        if len(results) != len(self.made):
            raise KtirError(f"{called} expects {len(self.made)} results of its function, but got {len(results)}", where)
        owners: dict[int, str] = {}
        devices = {v.device for v in given.values() if isinstance(v, torch.Tensor)}
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                owners[value.untyped_storage()._cdata] = f"argument '{name}'"
        for name, value in zip(self.made, results, strict=True):
            if not isinstance(value, torch.Tensor):
                raise KtirError(f"{called} expects a tensor as result '{name}', but got {type(value).__name__}", where)
            other = owners.setdefault(value.untyped_storage()._cdata, f"result '{name}'")
            if other != f"result '{name}'":
                raise KtirError(
                    f"{called}: result '{name}' shares its memory with {other}; give memory of its own, as torch.empty_like(..), or name "
                    "what is written by mutates_args and return nothing",
                    where,
                )
            devices.add(value.device)
        if len(devices) > 1:
            raise KtirError(f"{called} expects tensors of one device, but got {' and '.join(sorted(map(str, devices)))}", where)


def _listed(results: Any) -> list[Any]:
    return [] if results is None else list(results) if isinstance(results, tuple | list) else [results]


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have memory in common."""
    same = one.untyped_storage()._cdata == other.untyped_storage()._cdata
    return same and shares(np.asarray(_Lying(one)), np.asarray(_Lying(other)))


class _Lying:
    """Where a tensor lies in its storage, as NumPy asks for it. Nobody looks into the memory, which fake tensors do not have."""

    def __init__(self, tensor: torch.Tensor) -> None:
        size = tensor.itemsize
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": tuple(map(int, tensor.shape)),
            "strides": tuple(int(n) * size for n in tensor.stride()),
            "data": ((1 << 20) + int(tensor.storage_offset()) * size, True),
        }


def _tensor(value: torch.Tensor) -> Tensor:
    return Tensor(tuple(value.shape), str(value.dtype).removeprefix("torch."))


def user_line() -> str | None:
    """The place outside of torch and of this package that is being run."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}:1" if frame else None
