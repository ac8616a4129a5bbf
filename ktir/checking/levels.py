"""Run a logical program at every level, from host shapes down to the instruction stream, and compare each level with the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from ktir.analysis.interface.parameters import parameters, roots
from ktir.assembly import parse_module, print_module
from ktir.checking.bounds import Arrays, bounds, disturbance_of
from ktir.checking.compare import compare
from ktir.checking.inputs import array_of, readable
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.dialects.module_level import Level
from ktir.emulator.policy import Disturbance, Policy
from ktir.emulator.reference import execute
from ktir.emulator.reference.observer import Observer
from ktir.emulator.strides import as_memory, with_strides
from ktir.lowering.compile import compile_logical, launch_arguments
from ktir.mlir import ir
from ktir.package import HostTensor, LaunchArgument, read
from ktir.passes.layouts.host_tensors import host_tensors
from ktir.passes.tiling.tile_hints import OnlineSoftmax
from ktir.pipeline import parse_pipeline
from ktir.roles import OWN_ROLES
from ktir.runtime.executable import Executable
from ktir.runtime.memory.slot import layout_of
from ktir.runtime.memory.transfer import as_array, from_device, host_view, to_device
from ktir.target import LANES, is_two

BIT_EXACT_FROM = "ktir-tile"
"""From this pass on every level has the same bits: reductions run in machine order."""


_GARBAGE = 1 << 30
"""What integers hold that nothing has written."""


class Mismatch(KtirError):
    """A level whose values differ from the level before by more than its pass allows."""


@dataclass(frozen=True)
class LevelResult:
    """Values after one pass (or on one engine): host arrays in argument order, and the largest difference from the level before."""

    name: str
    arrays: tuple[np.ndarray, ...]
    difference: float
    exact: bool


def check_levels(
    text: str, arguments: Sequence[np.ndarray], *, cores: int | None = None, source: str = "-", online_softmax: OnlineSoftmax = "auto"
) -> list[LevelResult]:
    """Execute logical KTIR `text` at every level on copies of `arguments` (host arrays, inputs and outputs). `online_softmax` is the option
    of `ktir-tile`.

    Returns a result per level, the instruction stream (`tape` and `step`) last. Raises Mismatch naming the pass whose values differ, or
    where the stream is not what the allocated KTIR says, and KtirError for a program that some level refuses.
    """
    snapshots: list[tuple[str, str]] = []
    with context(), ir.Location.unknown():
        module = parse_module(text, source)

        def observe(name: str, m: ir.Module) -> None:
            snapshots.append((name, print_module(m, debuginfo=True)))

        elements = _elements(module)
        files = compile_logical(module, cores=cores, observe=observe, online_softmax=online_softmax)
        results: list[LevelResult] = []
        before: ir.Module | None = None
        for name, snapshot in snapshots:
            level = parse_module(snapshot, f"{source}:{name}")
            steps = parse_pipeline(name) if name.startswith("ktir-") else ()
            disturbance = disturbance_of((step.item for step in steps), level)
            known = None if before is None or disturbance is None else _Allowed(before, arguments, elements, disturbance)
            _append(results, name, _run(level, arguments), elements, known)
            before = level
    package = read(files)
    executable = Executable(package)
    differing = check_package(package, executable.machine.trace)
    if differing:
        raise Mismatch(str(differing[0]))
    for mode in ("tape", "step"):
        arrays = [a.copy() for a in arguments]
        executable(*arrays, mode=mode)
        _append(results, mode, arrays, elements, None)
    return results


Elements = Sequence[str | None]
"""Types of arrays; floats that NumPy lacks are held as bits."""


def _elements(module: ir.Module) -> Elements:
    """Of what the caller gives."""
    return [p.element if p.is_buffer else None for p in parameters(module, roots(module)[0])[0] if p.role not in OWN_ROLES]


def _read(arrays: Arrays, elements: Elements) -> Arrays:
    """Arrays of numbers."""
    return [readable(a, e) for a, e in zip(arrays, elements, strict=True)]


@dataclass(frozen=True)
class _Allowed:
    """By how much a level may differ from the one before."""

    before: ir.Module
    arguments: Sequence[np.ndarray]
    elements: Elements
    disturbance: Disturbance

    def __call__(self, arrays: Arrays) -> Arrays:
        return bounds(lambda p: _read(_run(self.before, self.arguments, p), self.elements), self.disturbance, arrays, self.elements)


def _append(results: list[LevelResult], name: str, arrays: Arrays, elements: Elements, allowed: _Allowed | None) -> None:
    if not results:
        results.append(LevelResult(name, tuple(arrays), 0.0, True))
        return
    before = results[-1]
    exact = all(a.tobytes() == b.tobytes() for a, b in zip(before.arrays, arrays, strict=True))
    old, new = _read(before.arrays, elements), _read(arrays, elements)
    found = [compare(a, b) for a, b in zip(old, new, strict=True)]
    difference = max((d.relative for d in found if d is not None), default=0.0)
    if allowed is not None and any(d is not None for d in found):
        found = [compare(a, b, atol=most) for a, b, most in zip(old, new, allowed(old), strict=True)]
    for k, wrong in enumerate(found):
        if wrong is not None:
            raise Mismatch(f"'{name}' changes values of '{before.name}': {wrong.describe(f'array {k}')}; {wrong.elements[0]}")
    if not exact and allowed is None:
        raise Mismatch(f"'{name}' changes zeros or NaNs of '{before.name}', which it may not")
    results.append(LevelResult(name, tuple(arrays), difference, exact))


def _run(module: ir.Module, arguments: Sequence[np.ndarray], policy: Policy | None = None) -> list[np.ndarray]:
    """Arrays after an execution of a level, on copies of `arguments`."""
    if (level := Level.of(module)) is not None and not level.of_host:
        return run_device_level(module, arguments, policy=policy)
    arrays = [a.copy() for a in arguments]
    execute(module, None, [np.atleast_1d(a) for a in arrays], policy=policy)
    return arrays


def run_device_level(
    module: ir.Module, arguments: Sequence[np.ndarray], observer: Observer | None = None, policy: Policy | None = None
) -> list[np.ndarray]:
    """Execute the entry function of a module at the laid-out level or below on copies of host arrays; the arrays after that."""
    arrays = [a.copy() for a in arguments]
    launch = launch_arguments(module)
    with lying(arrays, host_tensors(module)) as held:
        _run_device_level(module, launch, held, observer, policy)
    return arrays


@contextmanager
def lying(arrays: Sequence[np.ndarray], declared: Sequence[HostTensor]) -> Iterator[list[np.ndarray]]:
    """The memory of arrays that lie as their program declares, of copies where they do not; what is written there comes back at the end.
    Arrays are as they are where it declares nothing of them.
    """
    known = dict(enumerate(declared)) if len(declared) == len(arrays) else {}
    held = [with_strides(a, known[i].strides, f"#{i}") if i in known and a.shape == known[i].size else a for i, a in enumerate(arrays)]
    yield [h if h is a else as_memory(h) for a, h in zip(arrays, held, strict=True)]
    for a, h in zip(arrays, held, strict=True):
        if h is not a:
            a[...] = h


def _run_device_level(
    module: ir.Module,
    launch: Sequence[LaunchArgument],
    arrays: Sequence[np.ndarray],
    observer: Observer | None,
    policy: Policy | None,
) -> None:
    """On arrays that lie as the module declares."""
    device: list[np.ndarray] = []
    for argument in launch:
        device.append(storage(argument, arrays))
    execute(module, None, device, observer=observer, policy=policy)
    for argument, entries in zip(launch, device, strict=True):
        if argument.host is not None and argument.role != "input":
            layout = layout_of(argument)
            values = readable(entries, layout.dtype).astype(layout.value_type)
            from_device(values, layout, _view(argument, arrays), argument.range)


def _view(argument: LaunchArgument, arrays: Sequence[np.ndarray]) -> np.ndarray:
    host = argument.host
    assert host is not None
    array = as_array(arrays[host.arg], argument.name, layout_of(argument).dtype)
    return host_view(array, host.offset, host.size, host.strides, argument.name, layout_of(argument).dtype)


def storage(argument: LaunchArgument, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Device memory of an argument as the executor takes it: elements of its own type, garbage where nothing was written."""
    layout = layout_of(argument)
    shape = (layout.entries, LANES)
    if argument.role == "iota":
        return layout.pack(np.arange(np.prod(layout.size, dtype=np.int64)).reshape(layout.size)).reshape(shape)
    if layout.is_byte:
        return layout.pack_bytes(_view(argument, arrays).reshape(layout.size))
    if argument.host is None or argument.role == "output":
        entries = np.full(shape, _GARBAGE if layout.dtype == "i32" else np.nan, layout.value_type)
    else:
        entries = to_device(_view(argument, arrays), layout, argument.name, allowed=argument.range).reshape(shape)
    return entries.view(np.uint32).astype(np.uint16) if is_two(layout.dtype) else array_of(entries, layout.dtype)


def device_index(argument: LaunchArgument, flat: int, arrays: Sequence[np.ndarray], declared: Sequence[HostTensor]) -> int | None:
    """The byte of device memory at which an element of a host array lies, whose program declares that; None if the argument's view does
    not show it."""
    assert argument.host is not None
    marked = [np.zeros(a.shape, np.float32) for a in arrays]
    marked[argument.host.arg].reshape(-1)[flat] = 1
    layout = layout_of(argument)
    with lying(marked, declared) as held:
        places = np.flatnonzero(to_device(_view(argument, held), layout))
    return int(places[0]) * layout.element_bytes if places.size else None
