"""Kernels with a grid, compiled and run beside the executor."""

from __future__ import annotations

import numpy as np

from ktir.assembly import parse_module
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.emulator.reference import execute
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import Package, read
from ktir.runtime.executable import Executable


def package_of(text: str, numbers: tuple[str, ...] = ()) -> Package:
    with context(), ir.Location.unknown():
        return read(compile_logical(parse_module(text, "kernel.mlir"), numbers=numbers))


def equal(
    text: str, arrays: list[np.ndarray], numbers: tuple[str, ...] = (), given: tuple[float, ...] = (), addresses: tuple[int, ...] = ()
) -> Executable:
    """The stream, in both modes the executor's bits and what its KTIR says; the last arrays are memory at `addresses`."""
    wanted = [a.copy() for a in arrays]
    count = len(arrays) - len(addresses)
    memory = {("global", address): a for address, a in zip(addresses, wanted[count:], strict=True)}
    execute(text, None, [*wanted[:count], *given], memory=memory)
    package = package_of(text, numbers)
    executable = Executable(package)
    assert check_package(package, executable.machine.trace) == []
    for mode in ("tape", "step"):
        found = [a.copy().reshape(h.size) for a, h in zip(arrays, executable.spec.hosts, strict=True)]
        executable(*found, mode=mode)
        for a, b in zip(found, wanted, strict=True):
            assert a.tobytes() == b.tobytes(), mode
    return executable


def loops(executable: Executable) -> set[tuple[int, ...]]:
    """Trips of the loops of each unit that has any, in order."""
    (kernel,) = executable.machine.program.kernels
    found = {tuple(w["trips"] for w in words if w.op == "loop") for words in kernel.units.values()}
    return found - {()}
