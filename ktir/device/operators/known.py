"""Calls of operators that have come before on operands of the same kinds: what was found out about them then is done at once.

Whether the chip computes a call, and by which program, depends on the overload, on numbers, on types, devices, sizes and strides of
tensors, on the default type of floats, and on whether only deterministic algorithms are wanted, since PyTorch refuses some others then.
These are the key of a call; one that depends on anything else, as on what indices of the host hold, is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import torch
from torch._guards import _TLS

from ktir.diagnostics import KtirError

_MOST = 1024
"""Calls that are kept at least; those made longest ago go."""
_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
_LISTS = frozenset((list, tuple, torch.Size))
_default = torch.get_default_dtype
_deterministic = torch.are_deterministic_algorithms_enabled
_PLAIN = frozenset((int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format))

Action = Callable[[Sequence[torch.Tensor]], Any]
"""What a call does with its tensors. Gives None, with nothing done, where it is not for these."""

_known: dict[Hashable, Action] = {}
_before: dict[Hashable, Action] = {}
"""Calls that were made before those of `_known`: an order of use would be changed by each call, under a lock."""


class _Unkept(Exception):
    """A call that has no key."""


def again(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a call gives that is known; None, with nothing done, for all others. Raises KtirError where the program has not taken the data,
    or for a fault; then it is not known any more.
    """
    with torch._C.DisableTorchFunction():
        tensors: list[torch.Tensor] = []
        try:
            if kwargs:
                key: Hashable = _key_of(op, args, kwargs, tensors)
            else:
                key = (op._op, _default(), _deterministic(), *_parts(args, tensors))
            if (action := _known.get(key)) is None:
                if (action := _before.get(key)) is None:
                    return None
                _keep(key, action)
        except (_Unkept, TypeError):  # a SymInt, which has no hash
            return None
        if getattr(_TLS, "tracing_context", None) is not None:  # as `TracingContext.try_get`
            return None
        try:
            return action(tensors)
        except KtirError:
            for calls in (_known, _before):
                calls.pop(key, None)
            raise


def keep(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], action: Action) -> None:
    """A call has come to its end, and later ones of its kind are to do no more than this."""
    tensors: list[torch.Tensor] = []
    try:
        key = _key_of(op, args, kwargs, tensors)
        if all(t.device.type == "spyre" for t in tensors):
            _keep(key, action)
    except (_Unkept, TypeError):
        pass


def action(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Action | None:
    """What a call does that is known."""
    try:
        key = _key_of(op, args, kwargs, [])
        return _known.get(key) or _before.get(key)
    except (_Unkept, TypeError):
        return None


def forget() -> None:
    """What an operator is compiled to has changed."""
    _known.clear()
    _before.clear()


def _keep(key: Hashable, action: Action) -> None:
    global _known, _before
    if len(_known) >= _MOST:
        _known, _before = {}, _known
    _known[key] = action


def _key_of(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> Hashable:
    """Raises _Unkept. Adds the tensors of a call, in order."""
    if not kwargs:
        return op._op, _default(), _deterministic(), *_parts(args, tensors)
    return op._op, _default(), _deterministic(), *_parts(args, tensors), *kwargs, *_parts(kwargs.values(), tensors)


def _parts(values: Iterable[Any], tensors: list[torch.Tensor]) -> list[Hashable]:
    parts: list[Hashable] = []
    for value in values:
        kind = type(value)
        if kind in _TENSORS:
            tensors.append(value)
            parts.append((value.dtype, value.device, value.shape, value.stride()))
        elif kind in _PLAIN:
            parts.append((kind, value))
        elif kind is float:
            parts.append((kind, value.hex()))  # which tells zeros apart, and no NaN from itself
        elif kind in _LISTS:
            parts.append((kind, *_parts(value, tensors)))
        else:
            raise _Unkept
    return parts
