"""Whether PyTorch's kernel on the host takes a call: what it refuses, the device refuses too, in its words."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from ktir.device.operators.users import line_of_user

_SMALL, _LARGE = 1 << 16, 1 << 20
"""Elements of operands up to which each call is tried, and beyond which none is."""
_MOST = 1 << 12
"""Calls that are known to be taken."""
_RESIZED = "elements was resized since it had shape"
_taken: dict[Hashable, int] = {}
"""And of how many `out=` of a wrong size it has warned."""


class _Last(threading.local):
    """Of this thread's call that was asked for last: of how many `out=` of a wrong size the host warns; None where that is not known."""

    warnings: int | None = None


last = _Last()


def key_of(leaf: Any) -> Hashable:
    """What a program depends on of an operand. A number is told from an equal one of another type or sign."""
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.device, leaf.shape, leaf.stride()
    return (float, leaf.hex()) if isinstance(leaf, float) else (type(leaf), leaf)


def _kind(leaf: Any) -> Hashable:
    return (leaf.dtype, leaf.dim() > 0) if isinstance(leaf, torch.Tensor) else leaf if isinstance(leaf, torch.dtype) else type(leaf)


def host_takes(op: Any, tree: Any, leaves: Sequence[Any], *, again: bool = False) -> bool:
    """Whether the host takes such operands, or they are too large to try. Operands that share memory share it there, too.

    It is run with numbers that are all 0, and if it takes none of these, all 1; with large operands once for all of the same types, unless
    it is wanted `again`.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    elements, last.warnings = sum(t.numel() for t in tensors), None
    if elements > _LARGE:
        return True
    kinds = tuple(map(key_of if elements <= _SMALL else _kind, leaves))
    key = op, tree, kinds, _shared(tensors), torch.are_deterministic_algorithms_enabled()
    if again or key not in _taken:
        warned = _warned(op, tree, leaves, 0)
        if warned is None:
            warned = _warned(op, tree, leaves, 1)
        if warned is None:
            return False
        if len(_taken) >= _MOST:
            _taken.clear()
        _taken[key] = warned
    if elements <= _SMALL:
        last.warnings = _taken.get(key)
    return True


def _shared(tensors: Sequence[torch.Tensor]) -> Hashable:
    """Which of the tensors have their memory in common, and where they begin in it."""
    places = [t.untyped_storage()._cdata for t in tensors]
    if len(set(places)) == len(places):
        return None
    return tuple((places.index(place), int(t.storage_offset())) for place, t in zip(places, tensors, strict=True))


def _warned(op: Any, tree: Any, leaves: Sequence[Any], number: int) -> int | None:
    """Of how many `out=` of a wrong size the host warns; None where it refuses."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    with torch._C.DisableTorchFunction(), torch.no_grad(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        stand_ins = _stand_ins(tensors, number)
        given = [
            next(stand_ins) if isinstance(x, torch.Tensor) else torch.device("cpu") if isinstance(x, torch.device) else x for x in leaves
        ]
        args, kwargs = pytree.tree_unflatten(given, tree)

        def run(number: float) -> float:
            op(*args, **kwargs)
            return number

        try:
            torch.zeros(1, device="cpu").apply_(run)  # where warnings come to an end: those of the operator itself are its caller's
        except Exception:
            return None
    others = [w for w in said if _RESIZED not in str(w.message)]
    for warning in others:  # some PyTorch says once per process
        warnings.warn_explicit(warning.message, warning.category, *line_of_user())
    return len(said) - len(others)


def _stand_ins(tensors: Sequence[torch.Tensor], number: int) -> Iterator[torch.Tensor]:
    """Tensors of the host that lie as these, filled with a number."""
    places = [t.untyped_storage()._cdata for t in tensors]
    memories: dict[int, torch.Tensor] = {}
    same: dict[int, torch.Tensor] = {}
    for place, t in zip(places, tensors, strict=True):
        if id(t) not in same:
            if places.count(place) == 1 or t.untyped_storage().nbytes() > _LARGE * 8:
                stand_in = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu")
            else:
                memory = memories.setdefault(place, torch.zeros(t.untyped_storage().nbytes(), dtype=torch.uint8))
                stand_in = torch.empty(0, dtype=t.dtype).set_(memory.untyped_storage(), int(t.storage_offset()), t.shape, t.stride())
            same[id(t)] = stand_in.fill_(number)
        yield same[id(t)]
