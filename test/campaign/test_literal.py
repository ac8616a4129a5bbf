"""Compiled programs on any bits: tape and step give those of the literal machine."""

from __future__ import annotations

import numpy as np
import pytest
from campaign.graphs import program
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
from ktir.target import DATASHEET

SEEDS = (5, 22, 60, 77)
"""Small ones: a gather, integers, products, reductions."""
MOST_ENTRIES = 30_000
"""Entries of memory beyond which a program is left out: the literal machine takes them one by one."""


def compiled(seed: int) -> tuple[Package, list[np.ndarray]]:
    """The package of a random program on a few cores, and its arguments."""
    text, arguments = program(seed)
    with context(), ir.Location.unknown():
        return read(compile_logical(parse_module(text, f"graph-{seed}.mlir"), cores=(1, 3, 5)[seed % 3])), arguments


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


def agrees(seed: int) -> bool:
    """Whether the program of a seed was run; raises AssertionError where the machines differ."""
    try:
        package, arrays = compiled(seed)
    except KtirError:
        return False
    p = package.program
    if sum(int(np.prod(carrier_shape(a))) // 64 for a in p.arguments) > MOST_ENTRIES:
        return False
    rng = np.random.default_rng(seed)
    given = [carrier(a, arrays, rng) for a in package.launch_spec.args]
    trace, found = control(p, DATASHEET), None
    for executor in (Tape(Builder(p, trace, DATASHEET.corelets).build()), Step(p, trace, DATASHEET.corelets)):
        got = [a.copy() for a in given]
        try:
            executor.run(got)
        except MachineFinding:
            return False
        found = found or literal(p, given, seed)
        difference = differing(p, found, got)
        assert difference is None, f"graph {seed}, {type(executor).__name__}: {difference}"
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_graph_on_any_bits(seed: int) -> None:
    assert agrees(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 1000, 50))
def test_many_graphs_on_any_bits(first: int) -> None:
    assert sum(map(agrees, range(first, first + 50))) > 20
