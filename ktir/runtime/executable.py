"""A loaded package, ready to be launched on the instruction emulator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
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
from ktir.package import LaunchArgument, Package, ValueRange
from ktir.runtime import metrics
from ktir.runtime.host import Host
from ktir.runtime.memory.allocation import DeviceTensor, View
from ktir.runtime.memory.forms import Form, shared
from ktir.runtime.memory.transfer import as_array, from_device, host_view, to_device
from ktir.target import LANES, Target


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


@lru_cache(maxsize=1 << 12)
def _number(host: tuple[int, tuple[int, ...], tuple[int, ...]], layout: Layout, allowed: ValueRange | None) -> int:
    """Stands for a view of a host tensor in a layout, held against a range, the same in all programs."""
    return next(_numbers)


_numbers = itertools.count()


class Executable:
    """A program with the transfers of its launch spec, on the machine that it was compiled for unless a `target` is given.

    Loading verifies the program and runs its control plane once; a launch moves values only. What a launch only reads is arranged once for
    all programs of the process and kept while it has the same content (`ktir.runtime.memory.forms`).
    """

    def __init__(self, package: Package, target: Target | None = None) -> None:
        self.spec = package.launch_spec
        self.machine = Machine(package.program, package.target if target is None else target)
        self.layouts = [layout_of(a) for a in self.spec.args]
        self.lock = Lock()
        self.hosts = len(self.spec.hosts) or 1 + max((a.host.arg for a in self.spec.args if a.host is not None), default=-1)
        self.written = sorted({a.host.arg for a in self.spec.args if a.host is not None and a.role != "input"})
        """Numbers of the host tensors that a launch writes."""
        self._arrangements = [
            None if a.host is None else _number((a.host.offset, a.host.size, a.host.strides), layout, a.range)
            for a, layout in zip(self.spec.args, self.layouts, strict=True)
        ]
        self._own: dict[int, np.ndarray] = {}
        self.arranged = 0
        """Arguments that the launches so far had to arrange."""

    def __call__(self, *tensors: Any, mode: Mode = "tape", stamps: Sequence[object | None] = ()) -> None:
        """Launch on host tensors in the order of the source function's arguments; outputs are written in place.

        Takes NumPy arrays, of any strides, or CPU tensors: of the shapes and types that the launch spec declares. stamps: per tensor what
        is equal only while nobody has written it, or None. Raises KtirError for a wrong number, type or shape, and OutOfRange, before
        anything is written, for values for which the program is not proved.
        """
        if len(tensors) != self.hosts:
            raise KtirError(f"'{self.spec.kernel_name}' expects {self.hosts} arguments, but got {len(tensors)}")
        with self.lock:  # a machine runs one launch at a time
            taken: list[Form] = []
            try:
                self._launch(tensors, stamps or [None] * self.hosts, mode, taken)
            finally:
                shared.release(taken)
        metrics.count(chip=1)
        launches = _recorder.get()
        if launches is not None:
            launches.append(Launch(self.spec.kernel_name, self.machine))

    def launch(self, *tensors: DeviceTensor) -> None:
        """Launch on tensors of a card in the order of the source function's arguments: in the forms that these have, where they are those
        that the program takes. What it writes becomes the only valid form.
        """
        if len(tensors) != self.hosts:
            raise KtirError(f"'{self.spec.kernel_name}' expects {self.hosts} arguments, but got {len(tensors)}")
        carriers: list[np.ndarray | None] = []
        written: list[tuple[DeviceTensor, View, Layout, np.ndarray]] = []
        with self.lock:
            for argument, layout in zip(self.spec.args, self.layouts, strict=True):
                if argument.host is None:
                    carriers.append(_iota(layout) if argument.role == "iota" else None)
                    continue
                tensor = tensors[argument.host.arg]
                offset = tensor.view.offset + argument.host.offset
                view = View(tensor.view.dtype, offset, argument.host.size, argument.host.strides)
                if argument.role == "output":
                    carrier = np.full((layout.entries, LANES), np.nan, np.float32)
                else:
                    carrier = tensor.allocation.form(view, layout, argument.name).carrier
                if argument.role == "input_output":
                    carrier = carrier.copy()
                if argument.role != "input":
                    written.append((tensor, view, layout, carrier))
                carriers.append(carrier)
            self.machine.launch(carriers)
        for tensor, view, layout, carrier in written:
            tensor.allocation.adopt(view, layout, carrier)
        metrics.count(chip=1)

    def _launch(self, tensors: Sequence[Any], stamps: Sequence[object | None], mode: Mode, taken: list[Form]) -> None:
        """The launch itself; adds the forms that it reads to `taken`."""
        hosts: dict[int, Host] = {}
        views: list[np.ndarray | None] = []
        device: list[np.ndarray | None] = []
        bounds: dict[int, Callable[[], float]] = {}
        for i, (argument, layout) in enumerate(zip(self.spec.args, self.layouts, strict=True)):
            if argument.host is None:
                views.append(None)
                device.append(_iota(layout) if argument.role == "iota" else None)  # the pool: the machine's own
                continue
            number = argument.host.arg
            if number not in hosts:
                wanted = self.spec.hosts[number] if self.spec.hosts else None
                array = as_array(tensors[number], argument.name, layout.dtype)
                hosts[number] = Host(tensors[number], array, wanted, argument.name, stamps[number])
            host = hosts[number]
            if argument.role == "input":
                views.append(None)
                taken.append(self._form(i, host))
                device.append(taken[-1].carrier)
                bounds[i] = taken[-1].largest
            else:
                host.check_written()
                view = self._view(i, host)
                views.append(view)
                device.append(self._written_carrier(i, view))
        self.machine.launch(device, mode, bounds)
        for argument, layout, view, carrier in zip(self.spec.args, self.layouts, views, device, strict=True):
            if view is not None and carrier is not None:
                from_device(carrier.view(layout.value_type), layout, view, argument.range)
        for number in self.written:
            hosts[number].write_back()

    def _view(self, i: int, host: Host) -> np.ndarray:
        """What argument `i` shows of a tensor."""
        argument = self.spec.args[i]
        assert argument.host is not None
        return host_view(host.memory, argument.host.offset, argument.host.size, argument.host.strides, argument.name)

    def _form(self, i: int, host: Host) -> Form:
        """The form of argument `i`, which is only read."""
        layout = self.layouts[i]

        def arrange(form: Form) -> None:
            self.arranged += 1
            argument = self.spec.args[i]
            to_device(self._view(i, host), layout, argument.name, form.carrier.view(layout.value_type), argument.range)

        return shared.take(host.owner, (*host.place, self._arrangements[i]), layout, host.content, arrange)

    def _written_carrier(self, i: int, view: np.ndarray) -> np.ndarray:
        """The carrier of argument `i`, which the program writes: the executable's own."""
        argument, layout = self.spec.args[i], self.layouts[i]
        carrier = self._own.get(i)
        if carrier is None:
            carrier = self._own[i] = np.zeros((layout.entries, LANES), np.float32)
        if argument.role == "output":
            carrier.fill(np.nan)
        else:
            carrier.fill(0)  # the launch before may have written the padding
            self.arranged += 1
            to_device(view, layout, argument.name, carrier.view(layout.value_type), argument.range)
        return carrier
