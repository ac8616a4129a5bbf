"""Kernels for operators that PyTorch has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload

from ktir.diagnostics import KtirError
from ktir.library.kernels import source_of
from ktir.library.operators import Operator, define
from ktir.lowering.inductor.running import calls


def implement(op: Any, kernel: Any, *, when: Callable[..., bool] | None = None) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Lets a kernel compute an operator of PyTorch's, as `torch.ops.aten.silu.default`: in graphs that ktir compiles, and in eager on the
    device. Eager on the host stays PyTorch's.

    Decorates a function as `ktir.library.operator` does; its parameters are the operator's arguments in order, and further ones of those
    have to have their defaults. when: for which calls, by the same arguments; others go the way that they went before.
    """
    _check(op)
    source = source_of(kernel)

    def decorate(results: Callable[..., Any]) -> CustomOpDef:
        made = Operator(str(op), source, results, ())
        defined = define(f"ktir_library::{str(op).replace('.', '_')}_{len(calls.operators)}", made)
        names = [a.name for a in defined._opoverload._schema.arguments]

        def call(*args: Any, **kwargs: Any) -> Any:
            given = _by_position(op, args, kwargs, len(names))
            if given is None or (when is not None and not when(*given)):
                return NotImplemented
            return defined._opoverload(*given)

        calls.implementations[op] = calls.Implementation(call, source.identity)
        eager = sys.modules.get("ktir.device.operators.eager")
        if eager is not None:  # else nothing was compiled there
            eager.forget(op)
        return defined

    return decorate


def _by_position(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> list[Any] | None:
    """The first arguments of a call; None where further ones do not have their defaults."""
    schema = op._schema.arguments
    given = [*args, *(kwargs.get(a.name, a.default_value) for a in schema[len(args) :])]
    rest = zip(given[count:], schema[count:], strict=True)
    return given[:count] if all(value == a.default_value for value, a in rest) else None


def _check(op: Any) -> None:
    if not isinstance(op, OpOverload):
        raise KtirError(f"expects an overload of an operator, as torch.ops.aten.silu.default, but got {op!r:.60}")
    if op._schema.is_mutable:
        raise KtirError(f"'{op}' writes to its arguments; implement the operator that gives new tensors, which compiled graphs call")
    if op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        raise KtirError(f"'{op}' is taken apart before any graph has it; implement the operators that it calls")
