"""Whether PyTorch's kernel on the host takes a call: what it refuses, the device refuses too, in its words."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

_SMALL, _LARGE = 1 << 16, 1 << 20
"""Elements of operands up to which each call is tried, and beyond which none is."""
_MOST = 1 << 12
"""Calls that are known to be taken."""
_taken: set[Hashable] = set()


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
    elements = sum(t.numel() for t in tensors)
    if elements > _LARGE:
        return True
    kinds = tuple(map(key_of if elements <= _SMALL else _kind, leaves))
    key = op, tree, kinds, _shared(tensors), torch.are_deterministic_algorithms_enabled()
    if again or key not in _taken:
        if not any(_runs(op, tree, leaves, number) for number in (0, 1)):
            return False
        if len(_taken) >= _MOST:
            _taken.clear()
        _taken.add(key)
    return True


def _shared(tensors: Sequence[torch.Tensor]) -> Hashable:
    """Which of the tensors have their memory in common, and where they begin in it."""
    places = [t.untyped_storage()._cdata for t in tensors]
    if len(set(places)) == len(places):
        return None
    return tuple((places.index(place), int(t.storage_offset())) for place, t in zip(places, tensors, strict=True))


def _runs(op: Any, tree: Any, leaves: Sequence[Any], number: int) -> bool:
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    with torch._C.DisableTorchFunction(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stand_ins = _stand_ins(tensors, number)
        given = [
            next(stand_ins) if isinstance(x, torch.Tensor) else torch.device("cpu") if isinstance(x, torch.device) else x for x in leaves
        ]
        args, kwargs = pytree.tree_unflatten(given, tree)
        try:
            op(*args, **kwargs)
        except Exception:
            return False
    return True


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
