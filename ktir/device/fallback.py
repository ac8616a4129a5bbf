"""Operators that have no program run in PyTorch on the host, on the same memory, with one warning per operator."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

import ktir
from ktir import config
from ktir.device import current, randomness
from ktir.device.kernels import aten, is_ours
from ktir.device.schemas import Schema, schema_of
from ktir.device.storage import on_host, to_device

_INNER = tuple(str(Path(module.__file__ or "").parent) for module in (torch, ktir))
_set_part = aten.set_.source_Storage_storage_offset


class FallbackWarning(UserWarning):
    """An operator runs on the host instead of the device."""


_said: set[str] = set()


def say(op: Any, reason: str = "") -> None:
    """Warn that an operator falls back, once; under `KTIR_FALLBACK=error` it is an error."""
    name = op._schema.name.replace("::", ".") + (f".{op._overloadname}" if op._overloadname != "default" else "")
    because = f" ({reason})" if reason else ""
    if config.current().fallback == "error":
        raise NotImplementedError(f"'{name}' has no program on the device 'spyre'{because}; without KTIR_FALLBACK=error the host runs it")
    if name not in _said:
        _said.add(name)
        warnings.warn_explicit(f"{name} is falling back to cpu{because}", FallbackWarning, *_line_of_user())


def _line_of_user() -> tuple[str, int]:
    """The line of the program that torch and we were called from."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INNER):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def on_cpu(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the host, on the memory of the device's tensors; the results are on the device."""
    schema = schema_of(op)
    call = _Call(schema)
    host_args = tuple(call.to_host(n, a) for n, a in zip(schema.names, args, strict=False))
    host_kwargs = {n: call.to_host(n, a) for n, a in kwargs.items()}
    results = op(*host_args, **host_kwargs)
    call.write_back(schema.named(args, kwargs))
    return call.results(results, schema.named(args, kwargs))


class _Call:
    """One call: the tensors of the host that stand for those of the device."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.device: int | None = None
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.outs: dict[str, torch.Tensor] = {}

    def to_host(self, name: str, value: Any) -> Any:
        """An argument as the host's operator takes it."""
        if is_ours(value):
            self.device = value.device.index
            if name in self.schema.out:  # may change its size, which memory that is lent cannot
                self.outs[name] = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
                if value.numel():
                    self.outs[name].copy_(on_host(value))
                return self.outs[name]
            host = on_host(value, write=name in self.schema.written)
            self.pairs.append((value, host))
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
                ours.resize_(host.size())
            if host.numel():
                on_host(ours, write=True).copy_(host)
        for ours, host in self.pairs:
            if (ours.size(), ours.stride(), ours.storage_offset()) != (host.size(), host.stride(), host.storage_offset()):
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


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.untyped_storage().nbytes() > 0


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What torch calls for every operator that the device has no kernel for."""
    schema = schema_of(op)
    if "generator" in schema.names or torch.Tag.nondeterministic_seeded in op.tags:
        return _random(op, schema, args, kwargs)
    if not any(map(is_ours, _read(schema, args, kwargs))):
        return on_cpu(op, args, kwargs)  # a factory: made on the host, and copied
    say(op)
    return on_cpu(op, args, kwargs)


def _read(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [leaf for name, value in schema.named(args, kwargs).items() if name not in schema.out for leaf in pytree.tree_leaves(value)]


def _random(op: Any, schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Random numbers are drawn on the host, from the generator of the card."""
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if is_ours(t)]
    generator = randomness.default_generator(tensors[0].device.index if tensors else current.index_of(kwargs.get("device")))
    if "generator" in schema.names:
        if schema.named(args, kwargs).get("generator") is None:
            kwargs = {**kwargs, "generator": generator}
        return on_cpu(op, args, kwargs)
    before = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        return on_cpu(op, args, kwargs)
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(before)
