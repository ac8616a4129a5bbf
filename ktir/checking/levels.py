"""Run a logical program at every level, from host shapes down to the instruction stream, and compare each level with the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ktir.assembly import parse_module, print_module
from ktir.checking.compare import compare
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.reference import execute
from ktir.emulator.reference.observer import Observer
from ktir.lowering.compile import compile_logical, launch_arguments
from ktir.mlir import ir
from ktir.numerics import f32_to_f16
from ktir.package import LaunchArgument, read
from ktir.pipeline import Pass, parse_pipeline
from ktir.runtime.executable import Executable, layout_of
from ktir.runtime.transfer import from_device, host_view, to_device
from ktir.target import LANES

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
    text: str, arguments: Sequence[np.ndarray], *, cores: int = 32, source: str = "-", online_softmax: str = "auto"
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

        files = compile_logical(module, cores=cores, observe=observe, online_softmax=online_softmax)
        results: list[LevelResult] = []
        for name, snapshot in snapshots:
            level = parse_module(snapshot, f"{source}:{name}")
            run = _host_level if ir.StringAttr(level.operation.attributes["ktir.level"]).value == "logical" else run_device_level
            _append(results, name, run(level, arguments), _allowed(name, level))
    package = read(files)
    executable = Executable(package)
    differing = check_package(package, executable.machine.trace)
    if differing:
        raise Mismatch(str(differing[0]))
    for mode in ("tape", "step"):
        arrays = [a.copy() for a in arguments]
        executable(*arrays, mode=mode)
        _append(results, mode, arrays, 0.0)
    return results


def _allowed(name: str, module: ir.Module) -> float:
    """The relative difference that the pass `name` may have caused in the module that it left."""
    steps = parse_pipeline(name) if name.startswith("ktir-") else ()
    return max((step.item.allowed(module) for step in steps if isinstance(step.item, Pass)), default=0.0)


def _append(results: list[LevelResult], name: str, arrays: Sequence[np.ndarray], tolerance: float) -> None:
    if not results:
        results.append(LevelResult(name, tuple(arrays), 0.0, True))
        return
    before = results[-1]
    exact = all(a.tobytes() == b.tobytes() for a, b in zip(before.arrays, arrays, strict=True))
    found = [compare(a, b) for a, b in zip(before.arrays, arrays, strict=True)]
    difference = max((d.relative for d in found if d is not None), default=0.0)
    if difference > tolerance or (not exact and tolerance == 0.0):
        raise Mismatch(f"'{name}' changes values: the largest relative difference from '{before.name}' is {difference:.3g}")
    results.append(LevelResult(name, tuple(arrays), difference, exact))


def _host_level(module: ir.Module, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    arrays = [a.copy() for a in arguments]
    execute(module, None, [np.atleast_1d(a) for a in arrays])
    return arrays


def run_device_level(module: ir.Module, arguments: Sequence[np.ndarray], observer: Observer | None = None) -> list[np.ndarray]:
    """Execute the entry function of a module at the laid-out level or below on copies of host arrays; the arrays after that."""
    arrays = [a.copy() for a in arguments]
    launch = launch_arguments(module)
    device: list[np.ndarray] = []
    for argument in launch:
        device.append(storage(argument, arrays))
    execute(module, None, device, observer=observer)
    for argument, entries in zip(launch, device, strict=True):
        if argument.host is not None and argument.role != "input":
            layout = layout_of(argument)
            from_device(entries.astype(layout.value_type), layout, _view(argument, arrays))
    return arrays


def _view(argument: LaunchArgument, arrays: Sequence[np.ndarray]) -> np.ndarray:
    host = argument.host
    assert host is not None
    return host_view(arrays[host.arg], host.offset, host.size, host.strides, argument.name)


def storage(argument: LaunchArgument, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Device memory of an argument as the executor takes it: elements of its own type, garbage where nothing was written."""
    layout = layout_of(argument)
    shape = (layout.entries, LANES)
    if argument.role == "iota":
        return layout.pack(np.arange(np.prod(layout.size, dtype=np.int64)).reshape(layout.size)).reshape(shape)
    if argument.host is None or argument.role == "output":
        entries = np.full(shape, _GARBAGE if layout.dtype == "i32" else np.nan, layout.value_type)
    else:
        entries = to_device(_view(argument, arrays), layout, argument.name).reshape(shape)
    return f32_to_f16(entries) if layout.dtype == "f16" else np.ascontiguousarray(entries)


def device_index(argument: LaunchArgument, flat: int, arrays: Sequence[np.ndarray]) -> int | None:
    """The byte of device memory at which an element of a host array lies; None if the argument's view does not show it."""
    assert argument.host is not None
    marked = [np.zeros(a.shape, np.float32) for a in arrays]
    marked[argument.host.arg].reshape(-1)[flat] = 1
    layout = layout_of(argument)
    places = np.flatnonzero(to_device(_view(argument, marked), layout))
    return int(places[0]) * (2 if layout.dtype == "f16" else 4) if places.size else None
