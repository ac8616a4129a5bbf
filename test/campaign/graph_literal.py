"""Compiled programs on any bits: tape and step give those of the literal machine, in whatever order its units are served and with as many
loads ahead of a kernel as it pleases."""

from __future__ import annotations

import numpy as np
from literal_runs import differing, literal

from ktir.assembly import parse_module
from ktir.context import context
from ktir.diagnostics import KtirError
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.machine import carrier_shape
from ktir.emulator.machine.program.faults import MachineFinding
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.tape import Tape
from ktir.emulator.machine.step.step import Step
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import LaunchArgument, Package, read
from ktir.runtime.memory.slot import layout_of
from ktir.runtime.memory.transfer import host_view, to_device

MOST_ENTRIES = 30_000
"""Entries of memory beyond which a program is left out: the literal machine takes them one by one."""


def compiled(name: str, text: str, cores: int | None) -> Package:
    """The package of a program."""
    with context(), ir.Location.unknown():
        return read(compile_logical(parse_module(text, name), cores=cores))


def carrier(a: LaunchArgument, arrays: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """What an argument holds before a run: any bits of f16 and f32, integers and indices as they are given."""
    layout = layout_of(a)
    shape = (layout.entries, 64)
    if a.role == "iota":
        return to_device(np.arange(np.prod(layout.size)), layout, a.name).view(np.float32)
    if a.host is None or a.role == "output":
        return np.zeros(shape, np.float32)
    if layout.dtype == "i32":
        view = host_view(arrays[a.host.arg], a.host.offset, a.host.size, a.host.strides, a.name)
        return np.array(to_device(view, layout, a.name)).view(np.float32)
    if layout.dtype == "f32":
        return rng.integers(0, 2**32, shape, np.uint32).view(np.float32)
    bits = rng.integers(0, 2**16, shape, np.uint16)
    small = rng.random(shape) < 0.5  # of any bits one in 32 is an infinity or a NaN, and sums of them hide everything else
    return np.where(small, bits & 0xBFFF, bits).astype(np.uint16).view(np.float16).astype(np.float32)


def agrees(seed: int, text: str, arrays: list[np.ndarray], cores: int | None) -> bool:
    """Whether the program of a seed was run; raises AssertionError where the machines differ."""
    try:
        package = compiled(f"graph-{seed}.mlir", text, cores)
    except KtirError:
        return False
    target = package.target
    p = package.program
    if sum(int(np.prod(carrier_shape(a))) // 64 for a in p.arguments) > MOST_ENTRIES:
        return False
    rng = np.random.default_rng(seed)
    given = [carrier(a, arrays, rng) for a in package.launch_spec.args]
    trace, found = control(p, target), None
    for executor in (Tape(Builder(p, trace, target.corelets).build()), Step(p, trace, target.corelets)):
        got = [a.copy() for a in given]
        try:
            executor.run(got)
        except MachineFinding:
            return False
        found = found or literal(p, given, seed)
        difference = differing(p, found, got)
        assert difference is None, f"graph {seed}, {type(executor).__name__}: {difference}"
    return True
