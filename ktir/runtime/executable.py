"""A loaded package, ready to be launched on the instruction emulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from ktir.diagnostics import KtirError
from ktir.emulator.machine import Machine
from ktir.emulator.machine.machine import Mode
from ktir.layout import Digit, Layout
from ktir.package import LaunchArgument, Package
from ktir.runtime.transfer import as_array, from_device, host_view, to_device
from ktir.target import DATASHEET, LANES, Target


@dataclass(frozen=True)
class Launch:
    """One launch, as `recorded` sees it: the program's name and the machine that ran it (its `report` has the cycles)."""

    name: str
    machine: Machine


_recorder: ContextVar[list[Launch] | None] = ContextVar("ktir_launches", default=None)


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Collect the launches of a block, in order."""
    launches: list[Launch] = []
    token = _recorder.set(launches)
    try:
        yield launches
    finally:
        _recorder.reset(token)


def layout_of(argument: LaunchArgument) -> Layout:
    """The layout of a launch argument: digits recovered from the published fields and the logical size."""
    published = argument.layout
    size = tuple(published.size)
    strides = [int(np.prod(size[i + 1 :], dtype=np.int64)) for i in range(len(size))]
    digits = []
    for extent, stride in zip(published.device_size, published.stride_map, strict=True):
        dim = next((d for d, s in enumerate(strides) if size[d] > 1 and stride >= s and stride % s == 0), None)
        digits.append(Digit(None, 0, extent) if stride < 0 or dim is None else Digit(dim, stride // strides[dim], extent))
    return Layout(size, tuple(digits), {"float16": "f16", "float32": "f32", "int32": "i32"}[argument.dtype])


@lru_cache(maxsize=64)
def _iota(layout: Layout) -> np.ndarray:
    """The carrier of a tensor whose element i holds i."""
    values = np.arange(prod(layout.size), dtype=np.int64)
    return to_device(values, layout, "iota").view(np.float32)


@dataclass
class _Held:
    """The device form of an argument from an earlier launch: its entries, and the version of the host tensor that they hold."""

    entries: np.ndarray
    version: object | None = None


class Executable:
    """A program with the transfers of its launch spec.

    Loading verifies the program and runs its control plane once; a launch moves values only. The device forms of the arguments are kept:
    an input whose version is still the same, as weights are, is not arranged again.
    """

    def __init__(self, package: Package, target: Target = DATASHEET) -> None:
        self.spec = package.launch_spec
        self.machine = Machine(package.program, target)
        self.layouts = [layout_of(a) for a in self.spec.args]
        self.lock = Lock()
        self.hosts = 1 + max((a.host.arg for a in self.spec.args if a.host is not None), default=-1)
        self.written = sorted({a.host.arg for a in self.spec.args if a.host is not None and a.role != "input"})
        """Numbers of the host tensors that a launch writes."""
        self._held: dict[int, _Held] = {}
        self.arranged = 0
        """Arguments that the launches so far had to arrange."""

    def __call__(self, *tensors: Any, mode: Mode = "tape", versions: Sequence[object | None] = ()) -> None:
        """Launch on host tensors in the order of the source function's arguments; outputs are written in place.

        Takes NumPy arrays or CPU tensors: float16 or float32, or integers and bool where the program has i32, which the machine carries
        as the bits of float32. versions: per tensor what is equal only while the tensor holds the same, or None. Raises KtirError for a
        wrong number, element type or extent, and for integers beyond 32 bits.
        """
        if len(tensors) != self.hosts:
            raise KtirError(f"'{self.spec.kernel_name}' expects {self.hosts} arguments, but got {len(tensors)}")
        with self.lock:  # a machine runs one launch at a time
            views: list[np.ndarray | None] = []
            device: list[np.ndarray | None] = []
            for i, (argument, layout) in enumerate(zip(self.spec.args, self.layouts, strict=True)):
                if argument.host is None:
                    views.append(None)
                    device.append(_iota(layout) if argument.role == "iota" else None)  # the pool: the machine's own
                    continue
                array = as_array(tensors[argument.host.arg], argument.name, layout.dtype)
                if argument.role != "input" and not array.flags.writeable:
                    raise KtirError(f"argument '{argument.name}' expects an array that can be written")
                view = host_view(array, argument.host.offset, argument.host.size, argument.host.strides, argument.name)
                views.append(view)
                device.append(self._entries(i, view, versions[argument.host.arg] if versions else None))
            self.machine.launch(device, mode=mode)
            self._write_back(views, device)
        launches = _recorder.get()
        if launches is not None:
            launches.append(Launch(self.spec.kernel_name, self.machine))

    def _entries(self, i: int, view: np.ndarray, version: object | None) -> np.ndarray:
        """The device form of argument `i`."""
        argument, layout = self.spec.args[i], self.layouts[i]
        held = self._held.get(i)
        if held is None:
            held = self._held[i] = _Held(np.zeros((layout.entries, LANES), np.float32))
        if argument.role == "input" and version is not None and held.version == version:
            return held.entries
        held.version = None  # of entries that are half arranged, should an error come
        if argument.role == "output":
            held.entries.fill(np.nan)
            return held.entries
        if argument.role != "input":
            held.entries.fill(0)  # the launch before may have written the padding
        self.arranged += 1
        to_device(view, layout, argument.name, held.entries.view(layout.value_type))
        held.version = version
        return held.entries

    def _write_back(self, views: Sequence[np.ndarray | None], device: Sequence[np.ndarray | None]) -> None:
        for argument, layout, view, entries in zip(self.spec.args, self.layouts, views, device, strict=True):
            if view is not None and entries is not None and argument.role != "input":
                from_device(entries.view(layout.value_type), layout, view)
