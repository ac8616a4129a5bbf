"""Operators that have no program run in PyTorch on the host, on the same memory, with one warning per operator."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._guards import TracingContext

from ktir import config
from ktir.device.operators import eager, writing
from ktir.device.operators.kernels import aten, is_ours
from ktir.device.operators.schemas import Schema, as_given, functional, schema_of
from ktir.device.operators.trial import host_takes, last
from ktir.device.operators.users import line_of_user
from ktir.device.tensors import current, randomness
from ktir.device.tensors.storage import bytes_on_host, in_turn, on_host, record, to_device
from ktir.diagnostics import KtirError
from ktir.runtime import failures, metrics

_set_part = aten.set_.source_Storage_storage_offset


class FallbackWarning(UserWarning):
    """An operator runs on the host instead of the device."""


_said: set[str] = set()


def refuse(op: Any, reason: str = "") -> None:
    """Under `KTIR_FALLBACK=error` nothing falls back but what torch computes of constants while it traces."""
    if TracingContext.try_get() is None and config.current().fallback == "error":
        because = f": {reason}" if reason else ""
        text = f"'{_name(op)}' has no program on the device 'spyre'{because}; without KTIR_FALLBACK=error the host runs it"
        error = NotImplementedError(text)
        failures.capture(error, "unimplemented", operator=_name(op))
        raise error


def say(op: Any, reason: str = "") -> None:
    """Warn that an operator falls back, once. What torch computes of constants while it traces is none of the program's."""
    if TracingContext.try_get() is None and _name(op) not in _said:
        _said.add(_name(op))
        because = f" ({reason})" if reason else ""
        warnings.warn_explicit(f"{_name(op)} is falling back to cpu{because}", FallbackWarning, *line_of_user())


def _name(op: Any) -> str:
    return op._schema.name.replace("::", ".") + (f".{op._overloadname}" if op._overloadname != "default" else "")


def on_cpu(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the host, on the memory of the device's tensors; the results are on the device."""
    op = as_given(op, args, kwargs)
    schema = schema_of(op)
    call = _Call(schema, schema.named(args, kwargs))
    tensors = filter(is_ours, pytree.tree_leaves((args, kwargs)))
    with in_turn(*tensors) if op.namespace == "aten" else nullcontext():  # what others have made may compile
        host_args = tuple(call.to_host(n, a) for n, a in zip(schema.names, args, strict=False))
        host_kwargs = {n: call.to_host(n, a) for n, a in kwargs.items()}
        try:
            results = op(*host_args, **host_kwargs)
        except RuntimeError as error:
            if "DefaultCPUAllocator" not in str(error):
                raise
            raise torch.OutOfMemoryError(f"the host has no memory for '{op}', which it computes for the device 'spyre': {error}") from None
        call.write_back(schema.named(args, kwargs))
        return call.results(results, schema.named(args, kwargs))


class _Call:
    """One call: the tensors of the host that stand for those of the device."""

    def __init__(self, schema: Schema, named: dict[str, Any]) -> None:
        """named: the arguments."""
        self.schema = schema
        ours = {name: [leaf for leaf in pytree.tree_leaves(value) if is_ours(leaf)] for name, value in named.items()}
        shared = Counter(leaf.untyped_storage()._cdata for leaves in ours.values() for leaf in leaves)
        written = {leaf.untyped_storage()._cdata for name in schema.written if name in ours for leaf in ours[name]}
        self.shared = {place: place in written for place, count in shared.items() if count > 1}
        """Storages that several arguments lie in, and whether one of these is written."""
        self.bases: dict[int, torch.Tensor] = {}
        """What stands for them."""
        self.same: dict[int, torch.Tensor] = {}
        """What stands for tensors in them, by identity: the host refuses to write what it reads, also where there are no elements."""
        self.device: int | None = None
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.given: list[_Place] = []
        """How those of the host lay before the operator."""
        self.outs: dict[str, torch.Tensor] = {}

    def to_host(self, name: str, value: Any) -> Any:
        """An argument as the host's operator takes it."""
        if is_ours(value):
            self.device = value.device.index
            place = value.untyped_storage()._cdata
            if name in self.schema.out and place not in self.shared:  # may change its size, which memory that is lent cannot
                self.outs[name] = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")
                if value.numel():
                    self.outs[name].copy_(on_host(value))
                return self.outs[name]
            if place in self.shared:  # the host looks whether it may write there
                base = self.bases.get(place)
                if base is None:
                    base = self.bases[place] = bytes_on_host(value, write=self.shared[place])
                if id(value) in self.same:
                    return self.same[id(value)]
                host = self.same[id(value)] = on_host(value, base=base)
            else:
                host = on_host(value, write=name in self.schema.written)
            record(value, "D2H")
            self.pairs.append((value, host))
            self.given.append(_place(host))
            return host
        if type(value) in (list, tuple):
            return type(value)(self.to_host(name, v) for v in value)
        if isinstance(value, torch.device) and value.type == "spyre":
            self.device = current.index_of(value)
            return torch.device("cpu")
        return value

    def write_back(self, named: dict[str, Any]) -> None:
        """Bring what the host's operator wrote to `out=`, or did to the metadata of an argument, to the device's tensors."""
        for name, host in self.outs.items():
            ours = named[name]
            if ours.size() != host.size():
                writing.resized_as(ours, host)
            if host.numel():
                on_host(ours, write=True).copy_(host)
                record(ours, "H2D")
        for (ours, host), given in zip(self.pairs, self.given, strict=True):
            if _place(host) != given:
                if _same_memory(host, on_host(ours)):
                    aten.as_strided_.default(ours, host.size(), host.stride(), host.storage_offset())
                else:
                    new = to_device(host, ours.device.index)
                    _set_part(ours, new.untyped_storage(), 0, new.size(), new.stride())

    def results(self, value: Any, named: dict[str, Any]) -> Any:
        """What the call gives: the arguments that were written, views of arguments, or copies on the device."""
        returned = self.schema.returned
        if len(returned) == 1:
            return named[returned[0]] if returned[0] else self._result(value)
        if isinstance(value, Sequence) and len(value) == len(returned):
            return tuple(named[name] if name else self._result(v) for name, v in zip(returned, value, strict=True))
        return self._result(value)

    def _result(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if self.schema.views:
                for ours, host in self.pairs:
                    if ours.dtype == value.dtype and _same_memory(host, value):
                        return aten.as_strided.default(ours, value.size(), value.stride(), value.storage_offset())
            same = next((ours for ours, host in self.pairs if host is value), None)
            return self._copied(value) if same is None else same
        if isinstance(value, (list, tuple)):
            return type(value)(self._result(v) for v in value)
        return value

    def _copied(self, value: torch.Tensor) -> torch.Tensor:
        return to_device(value, current.get() if self.device is None else self.device)


_Place = tuple[torch.Size, tuple[int, ...], int]


def _place(tensor: torch.Tensor) -> _Place:
    """Where the elements of a tensor lie in its storage; one without elements may lie elsewhere on the host."""
    return tensor.size(), tensor.stride(), int(tensor.storage_offset())


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.untyped_storage().nbytes() > 0


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operator that the device has no kernel for, at its first call on operands of some kinds (see `known`)."""
    schema = schema_of(op)
    check_devices(op, schema, args, kwargs)
    if is_random(op, schema, args, kwargs):
        return _random(op, schema, args, kwargs)
    if not any(map(is_ours, _read(schema, args, kwargs))):
        return on_cpu(op, args, kwargs)  # a factory: made on the host, and copied
    if _computes_nothing(op, schema, args, kwargs):
        return on_cpu(op, args, kwargs)
    reason, refused = "programs give new tensors, one by one", False
    try:
        if schema.written and not _host_writes(op, args, kwargs):
            raise eager.HostRefuses("")
        warnings = last.warnings if schema.out else 0
        if not schema.written:
            if eager.has_program(op):
                return eager.run(op, *pytree.tree_map(_beside(op, args, kwargs), (args, kwargs)))
        elif (pure := functional(as_given(op, args, kwargs))) is not None and eager.has_program(pure):
            if _base(op) in _INDEXED:
                args, kwargs = pytree.tree_map(_beside(op, args, kwargs), (args, kwargs))
            return writing.written(op, args, kwargs, pure, warnings)
    except eager.NoProgram as error:
        reason, refused = str(error), isinstance(error, eager.HostRefuses)
    return _on_host(op, args, kwargs, reason, refused)


def refused(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: KtirError) -> Any:
    """What a call gives that is known, and whose program has ended in an error: of its data, or a fault, which the long way meets."""
    if (found := eager.of_data(error)) is None:
        return fallback(op, *args, **kwargs)
    return _on_host(op, args, kwargs, str(found), isinstance(found, eager.HostRefuses))


def _on_host(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], reason: str, refused: bool) -> Any:
    """An operator that has no program, for a reason. refused: since the host refuses it, as far as is known."""
    if not refused:
        refuse(op, reason)
    result = on_cpu(op, args, kwargs)  # which refuses in PyTorch's words
    if refused:
        refuse(op, reason)  # it does not: the numbers decide
    metrics.count(torch=1)
    say(op, reason)  # what fails on the host too is the data's own matter
    return result


def _computes_nothing(op: Any, schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operand is without elements: there is next to nothing to compute, and a program looks at no index of what it does not
    load. What is joined with others need not have any.
    """
    return op not in eager.JOINS and any(is_ours(leaf) and not leaf.numel() for leaf in _read(schema, args, kwargs))


def _host_writes(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the host writes such results, to tensors that lie so."""
    leaves, tree = pytree.tree_flatten((args, kwargs))
    if _base(op) in _INDEXED and any(isinstance(t, torch.Tensor) and t.dtype in (torch.bool, torch.uint8) for t in leaves):
        return True  # how many elements masks choose, and whether there are as many values, is a matter of the data
    return any(host_takes(each, tree, leaves) for each in dict.fromkeys((op, as_given(op, args, kwargs))))


_INDEXED = ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put")
"""Operators that take indices of the host, too."""


def _base(op: Any) -> str:
    return op._schema.name.removeprefix("aten::").rstrip("_")


def check_devices(op: Any, schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """RuntimeError for operands on several devices; numbers of the host, which have no dims, go with all unless they are written."""
    named = schema.named(args, kwargs)
    if _base(op) in _INDEXED:
        place = named["self"].device
        if any(index is not None and index.device not in (place, torch.device("cpu")) for index in named["indices"]):
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({place})")
        values = [named["values"]] if "values" in named and named["values"].dim() else []
        named = {"self": named["self"], "values": values}
    tensors = [t for t in pytree.tree_leaves(named) if isinstance(t, torch.Tensor)]
    written = [id(named[name]) for name in schema.written if name in named]
    devices = dict.fromkeys(str(t.device) for t in tensors if t.dim() or t.device.type != "cpu" or id(t) in written)
    if len(devices) > 1:
        read = next((str(t.device) for t in tensors if is_ours(t) and id(t) not in written), None)
        away = next((str(named[n].device) for n in schema.out if n in named and str(named[n].device) != read), None)
        if away and read and torch.Tag.reduction in op.tags:  # which PyTorch words otherwise
            raise RuntimeError(f"Expected out tensor to have device {read}, but got {away} instead")
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(devices)}!")


def is_random(op: Any, schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call draws random numbers."""
    if "generator" in schema.names:
        return True
    if torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    default = next((a.default_value for a in op._schema.arguments if a.name == "dropout_p"), None)
    return schema.named(args, kwargs).get("dropout_p", default) != 0  # without dropout, attention is as it is


def _beside(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any]:
    """Brings indices that are on the host to the device of the other operands; numbers stay where they are no indices."""
    device = next(t.device for t in pytree.tree_leaves((args, kwargs)) if is_ours(t))
    least = 0 if _base(op) in _INDEXED else 1
    return lambda t: t.to(device) if isinstance(t, torch.Tensor) and t.device.type == "cpu" and t.dim() >= least else t


def _read(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [leaf for name, value in schema.named(args, kwargs).items() if name not in schema.out for leaf in pytree.tree_leaves(value)]


def _random(op: Any, schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Random numbers are drawn on the host, from the generator of the card."""
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if is_ours(t)]
    index = tensors[0].device.index if tensors else current.index_of(kwargs.get("device"))
    generator = randomness.default_generator(index)
    if "generator" in schema.names:
        named = schema.named(args, kwargs)
        with randomness.drawn_on_host(named.get("generator") or generator, torch.device("spyre", index)) as host:
            return on_cpu(op, (), {**named, "generator": host})
    before = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        return on_cpu(op, args, kwargs)
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(before)
