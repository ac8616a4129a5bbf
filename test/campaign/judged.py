"""What becomes of a changed package: reported, by whom, or computed nevertheless, with the right values or with wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ktir.analysis.interface.parameters import parameters, roots
from ktir.assembly import parse_module
from ktir.checking.inputs import generate_all
from ktir.checking.stream.compare import check_launch, check_stream, read_expected
from ktir.checking.stream.expected import Expected
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.grid import check_grid
from ktir.emulator.machine.machine import carrier_shape
from ktir.emulator.machine.program.faults import MachineFinding
from ktir.emulator.machine.step.divisions import divides_by_data
from ktir.emulator.machine.step.quotients import Quotients
from ktir.emulator.machine.step.step import Step
from ktir.emulator.machine.trace.trace import Trace
from ktir.isa.wellformed.verify import verify
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import Package, read
from ktir.package.files import ALLOCATED
from ktir.runtime.memory.slot import layout_of
from ktir.runtime.memory.transfer import as_array, from_device, host_view, to_device
from ktir.target import DATASHEET

REPORTED = ("package", "verifier", "emulator", "KTIR", "launch")
"""Who may report a mutant, in this order."""


@dataclass
class Original:
    """A package, its KTIR, host arrays to launch it on, and what they hold afterwards."""

    name: str
    package: Package
    wanted: Expected
    arrays: list[np.ndarray]
    results: list[bytes]


def original(name: str, text: str, cores: int, arrays: Sequence[np.ndarray] | None = None) -> Original:
    """Compile a logical program; the checks must find nothing in it."""
    with context(), ir.Location.unknown():
        module = parse_module(text, name)
        given = list(arrays) if arrays is not None else generate_all(parameters(module, roots(module)[0])[0], 1, {})
        package = read(compile_logical(module, cores=cores))
        wanted = read_expected(package.files[ALLOCATED].decode(), DATASHEET)
    given = [np.asarray(a * 0.1, a.dtype) if arrays is None and a.dtype.kind == "f" else a for a in given]
    made = Original(name, package, wanted, given, [])
    trace = control(package.program, DATASHEET)
    found = check_launch(package.launch_spec, wanted) + check_stream(package.program, trace, wanted, DATASHEET)
    assert not found, f"{name}: {found[0]}"
    made.results = values(made, package, trace, 0)
    assert made.results == values(made, package, trace, 1)
    return made


def values(of: Original, package: Package, trace: Trace, seed: int) -> list[bytes]:
    """All host arrays after a launch of the reference mode, where whatever nothing has written holds random numbers."""
    rng = np.random.default_rng(seed)
    arrays = [a.copy() for a in of.arrays]
    device, views = [], []
    for a, declared in zip(package.launch_spec.args, package.program.arguments, strict=True):
        layout = layout_of(a)
        view = None
        if a.host is not None:
            view = host_view(as_array(arrays[a.host.arg], a.name, layout.dtype), a.host.offset, a.host.size, a.host.strides, a.name)
        if a.role == "iota":
            held = to_device(np.arange(np.prod(layout.size)), layout, a.name).view(np.float32)
        elif view is None or a.role == "output":
            held = rng.standard_normal(carrier_shape(declared)).astype(np.float16).astype(np.float32)
        else:
            held = np.array(to_device(view, layout, a.name, allowed=a.range).view(np.float32))
        device.append(held)
        views.append(view)
    if divides_by_data(package.program):
        Quotients(package.program, trace, DATASHEET.corelets).check(device, None)
    Step(package.program, trace, DATASHEET.corelets, poison=rng).run(device)
    for a, view, held in zip(package.launch_spec.args, views, device, strict=True):
        if view is not None and a.role != "input":
            from_device(held.view(layout_of(a).value_type), layout_of(a), view, a.range)
    return [a.tobytes() for a in arrays]


def judge(of: Original, package: Package) -> tuple[str, str]:
    """(verdict, message): one of `REPORTED`, `right` or `silent`."""
    try:
        package = read(package.to_files())
    except KtirError as e:
        problems = verify(package.program, DATASHEET)
        return ("verifier" if problems else "package"), str(problems[0] if problems else e)
    problems = verify(package.program, DATASHEET)
    if problems:
        return "verifier", str(problems[0])
    try:
        trace = control(package.program, DATASHEET)
        check_grid(package.program, trace)
    except MachineFinding as e:
        return "emulator", str(e)
    except KtirError as e:
        return "emulator", str(e)
    problems = check_launch(package.launch_spec, of.wanted) + check_stream(package.program, trace, of.wanted, DATASHEET)
    if problems:
        return "KTIR", str(problems[0])
    try:
        right = all(values(of, package, trace, seed) == of.results for seed in (2, 3))
    except KtirError as e:
        return "launch", str(e)
    return ("right" if right else "silent"), ""
