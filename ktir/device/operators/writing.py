"""Operators that write results, in place or to `out=`: they are computed as new tensors, which then become what was there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from operator import attrgetter
from typing import Any

import torch
import torch.utils._pytree as pytree

from ktir.device.operators import eager, known
from ktir.device.operators.schemas import Schema, schema_of
from ktir.device.tensors.storage import allocation_of, in_turn
from ktir.runtime.memory.allocation import held
from ktir.runtime.prepared import taking

_handle = torch.Tensor.data_ptr
_nbytes, _version = attrgetter("nbytes"), attrgetter("version")


def written(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pure: Any, warnings: int | None) -> Any:
    """What an operator gives. pure: the overload that computes the same, and writes nothing. warnings: of how many `out=` of a wrong size
    PyTorch warns, if that is known. Raises NoProgram.
    """
    schema = schema_of(op)
    named = schema.named(args, kwargs)
    for name in schema.written:
        if any(n > 1 and not step for n, step in zip(named[name].shape, named[name].stride(), strict=True)):
            raise eager.HostRefuses("elements of what it writes share their place")  # but not for each operator
    given = {n: v for n, v in named.items() if n not in schema.out}
    while True:
        before = _versions(named, schema)
        found = eager.run(pure, (), given)
        found = [found] if isinstance(found, torch.Tensor) else list(found)
        new, results = found[: -len(schema.written)], found[-len(schema.written) :]
        pairs = [(named[name], result) for name, result in zip(schema.written, results, strict=True)]
        if any(not torch.can_cast(r.dtype, t.dtype) or (t.shape != r.shape and not schema.out) for t, r in pairs):
            raise eager.HostRefuses("")
        pairs = [(t, r if r.dtype == t.dtype else r.to(t.dtype)) for t, r in pairs]  # may compile, and what follows may not
        for target, result in pairs[:warnings]:
            _warn_of_size(target, result)
        warnings = 0
        with in_turn(*(target for target, _ in pairs)):
            if before != _versions(named, schema):
                continue  # another thread has written what this is computed from
            others = [t for t in (*pytree.tree_leaves(named), *new) if isinstance(t, torch.Tensor)]
            whole = [_bring(t, r, [*others, *(o for _, o in pairs if o is not r)]) for t, r in pairs]
        if all(whole) and (again := known.action(pure, (), given)) is not None:
            known.keep(op, args, kwargs, _Again(again, schema, named))
        found = tuple(named[name] if name else new.pop(0) for name in schema.returned)
        return found[0] if len(found) == 1 else found


def _warn_of_size(target: torch.Tensor, result: torch.Tensor) -> None:
    """As PyTorch warns of what has elements and gets another size by `out=`, in its words, each time."""
    if target.shape != result.shape and target.numel():
        stand_in = torch.empty(target.shape, dtype=target.dtype, device="meta")
        torch.ops.aten._resize_output_.default(stand_in, result.shape, stand_in.device)


class _Again:
    """Calls on tensors that begin where their memory does, share it in one way, and, where they are written, have all of it."""

    def __init__(self, pure: known.Action, schema: Schema, named: dict[str, Any]) -> None:
        """pure: what computes the results. named: the arguments of one call."""
        leaves = [(name, t) for name, value in named.items() for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
        places = {name: k for k, (name, _) in enumerate(leaves)}
        self._pure = pure
        self._read = taking([k for k, (name, _) in enumerate(leaves) if name not in schema.out])
        self._written = taking([places[name] for name in schema.written])
        handles = [_handle(t) for _, t in leaves]
        self._shared = [*map(handles.index, handles)]
        """Which tensors share their memory."""
        self._nbytes = [leaves[places[name]][1].untyped_storage().nbytes() for name in schema.written]
        self._new = len([name for name in schema.returned if name is None])
        self._results = taking([len(leaves) + k if name is None else places[name] for k, name in _numbered(schema.returned)])
        self._one = len(schema.returned) == 1

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        """None where it is not for these tensors."""
        handles = [*map(_handle, tensors)]
        owners: list[Any] = [*map(held, handles)]
        targets = self._written(owners)
        if None in owners or self._shared != [*map(handles.index, handles)] or self._nbytes != [*map(_nbytes, targets)]:
            return None
        card = targets[0].card
        while True:
            versions = [*map(_version, targets)]
            found = self._pure(self._read(tensors))
            found = (found,) if isinstance(found, torch.Tensor) else found
            with card.compute:
                if versions != [*map(_version, targets)]:
                    continue  # another thread has written what this is computed from
                for target, result in zip(targets, found[self._new :], strict=True):
                    target.take_over(held(_handle(result)))
            given = self._results((*tensors, *found))
            return given[0] if self._one else given


def _numbered(returned: Sequence[str | None]) -> Iterator[tuple[int, str | None]]:
    """The results of an operator, those that are new with their numbers."""
    numbers = count()
    return ((next(numbers) if name is None else 0, name) for name in returned)


def _bring(target: torch.Tensor, result: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Let a target be what was computed for it. Whether it has taken over the memory of that. Who calls holds the card."""
    if target.shape != result.shape:
        resized_as(target, result)
    if whole := _whole(target, result, others):
        allocation_of(target).take_over(allocation_of(result))
    else:
        target.copy_(result)
    return whole


def _versions(named: dict[str, Any], schema: Schema) -> list[int]:
    """How often what is written has been written."""
    return [allocation_of(named[name]).version for name in schema.written]


def resized_as(target: torch.Tensor, result: torch.Tensor) -> None:
    """What `out=` gives a tensor of another size: the size of the result, and its order of elements."""
    target.resize_(result.shape)
    if target.stride() != result.stride() and torch.ops.aten.is_non_overlapping_and_dense(result):
        target.as_strided_(result.shape, result.stride(), int(target.storage_offset()))


def _whole(target: torch.Tensor, result: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Whether a result is all of its memory, in which no other tensor lies, and will be all of the memory of its target."""
    here, there = held(_handle(target)), held(_handle(result))
    if here is None or there is None or here.card is not there.card or (target.dtype, target.stride()) != (result.dtype, result.stride()):
        return False
    nbytes = result.numel() * result.dtype.itemsize
    alone = all(t.untyped_storage()._cdata != result.untyped_storage()._cdata for t in others)
    return alone and here.nbytes == there.nbytes == nbytes and torch.ops.aten.is_non_overlapping_and_dense(result)
