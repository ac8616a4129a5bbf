"""What a configuration puts in place of upstream's: operators and modules besides, inputs of its own."""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ktir.checking.suites.config import Entry
from ktir.checking.suites.inputs import Inputs
from ktir.checking.suites.selection import class_name
from ktir.diagnostics import KtirError


def missing_ops(there: Sequence[Any], entries: Iterable[Entry]) -> list[Any]:
    """The operators that are included and not there."""
    from torch.testing._internal import common_methods_invocations as database

    found: list[Any] = []
    for name, place in _included(entries, "ops"):
        if any(op.name == name for op in (*there, *found)):
            continue
        # by its name: a type checker takes many seconds for the type of the list of references, which nobody has written down
        known = [op for op in (*database.op_db, *vars(database)["python_ref_db"]) if op.name == name]
        if not known:
            raise KtirError(f"torch's database has no operator '{name}'", place)
        found += known
    return found


def missing_modules(there: Sequence[Any], entries: Iterable[Entry]) -> list[Any]:
    """The modules that are included and not there."""
    from torch.testing._internal.common_modules import module_db

    found: list[Any] = []
    for name, place in _included(entries, "modules"):
        if any(class_name(info.module_cls) == name for info in (*there, *found)):
            continue
        known = [info for info in module_db if class_name(info.module_cls) == name]
        if not known:
            raise KtirError(f"torch's database has no module '{name}'", place)
        found += known
    return found


def _included(entries: Iterable[Entry], kind: str) -> list[tuple[str, str]]:
    return [pair for entry in entries for pair in getattr(entry, kind).include.items()]


def module_of_types(info: Any, dtypes: list[torch.dtype]) -> Any:
    """A module that is tested in these types."""
    other = copy.copy(info)
    other.dtypes = tuple(dtypes)
    other.supported_dtypes = lambda _: tuple(dtypes)
    return other


def inputs(test: Any, params: dict[str, Any], given: Inputs) -> tuple[Any, dict[str, Any]]:
    """A variant whose inputs are the given ones: samples of an operator, of a module's forward, or arguments of the test."""
    if "op" in params:
        return test, {**params, "op": _operator(params["op"], given)}
    if "module_info" in params:
        own = {name: value for name, value in given.kwargs.items() if name in inspect.signature(test).parameters}
        return test, {**params, **own, "module_info": _module(params["module_info"], given, own)}
    return _called(test, params, given), params


def _operator(op: Any, given: Inputs) -> Any:
    from torch.testing._internal.opinfo.core import SampleInput

    def samples(_: Any, device: Any, dtype: torch.dtype, requires_grad: bool = False, **__: Any) -> Any:
        other = [spec for spec in given.tensors if spec.dtype != dtype]
        if other:
            text = f"{given.place}: warning: a tensor of {str(other[0].dtype)[6:]} becomes {str(dtype)[6:]}, the type of the variant"
            warnings.warn(text, UserWarning, stacklevel=2)
        first, *rest = given.make(dtype) or [None]
        for leaf in (first, *rest):
            if isinstance(leaf, torch.Tensor) and requires_grad and leaf.is_floating_point():
                leaf.requires_grad_()
        yield SampleInput(first, args=tuple(rest), kwargs=dict(given.kwargs))

    changed = copy.copy(op)
    changed.sample_inputs_func = changed.reference_inputs_func = samples
    return changed


def _module(info: Any, given: Inputs, own: dict[str, Any]) -> Any:
    from torch.testing._internal.common_modules import FunctionInput, ModuleInput

    forward = {name: value for name, value in given.kwargs.items() if name not in own}

    def module_inputs(info: Any, device: Any, dtype: torch.dtype, requires_grad: bool, training: bool, **kwargs: Any) -> Any:
        first = info_inputs(info, device=device, dtype=dtype, requires_grad=requires_grad, training=training, **kwargs)[0]
        return [ModuleInput(first.constructor_input, FunctionInput(*given.make(), **forward), first.desc)]

    info_inputs = info.module_inputs_func
    changed = copy.copy(info)
    changed.module_inputs_func = module_inputs
    return changed


_OURS = ("self", "device", "devices", "dtype", "dtypes")
"""Parameters of a test that the framework gives."""


def _called(test: Any, params: dict[str, Any], given: Inputs) -> Any:
    free = [name for name in inspect.signature(test).parameters if name not in (*_OURS, *params)]
    if len(given.args) > len(free) or not set(given.kwargs) <= set(free):
        raise KtirError(
            f"'{test.__name__}' takes {', '.join(free) or 'no arguments'}, but got {len(given.args)} positional arguments"
            + (f" and {', '.join(given.kwargs)}" if given.kwargs else ""),
            given.place,
        )

    @functools.wraps(test)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return test(self, *args, **kwargs, **dict(zip(free, given.make(), strict=False)), **given.kwargs)

    return called
