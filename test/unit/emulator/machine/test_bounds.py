"""What bounds a kernel: the resource without which it is fastest, found by its longest chain and proved by a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from amounts import examples
from chrome_traces import check
from cost_kernels import cases
from machine_builds import program
from machine_programs import all_cases
from random_streams import make
from test_machine_figures import programs
from test_machine_ring import exchange, shifted
from torch import nn

import ktir
from ktir import lang
from ktir.assembly import parse_module
from ktir.context import context
from ktir.cost.program import kernel_work
from ktir.emulator.findings import Finding
from ktir.emulator.machine import Machine
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.reports.bounds import Bottlenecks, at_most, what_if
from ktir.emulator.machine.reports.chrome import chrome_trace
from ktir.isa.problem import ProgramError
from ktir.isa.program import Program
from ktir.isa.resources import Resource
from ktir.isa.units import Unit
from ktir.lowering.compile import compile_logical, pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.package import read
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET, FITTED, Target

KERNELS = {f"{c.kind} {c.name}": c.text for c in cases() if not c.work_div}
QUICK = (
    "matmul 1x512x1024",
    "matmul 64x512x512",
    "softmax 57x100",
    "norm 1x4096",
    "reduction 64x64",
    "relayout 500x100",
    "gather 64 of 1000x512",
)
QUICK += ("attention 2 heads 256x256x64", "attention 16 heads 33x100x32")


def compiled(text: str) -> Program:
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return lower_program(module)


def check_proved(program: Program, target: Target = DATASHEET) -> list[Resource]:
    """Each resource is left out of each kernel: none saves more than the one that is named, nor than it is said to save at most."""
    reports = Machine(program, target).report.kernels
    found = Bottlenecks(program, target, reports)
    saved = {r: [k.cycles - n for k, n in zip(reports, found.without(r), strict=True)] for r in Resource}
    for number, (report, bound) in enumerate(zip(reports, found.kernels, strict=True)):
        assert sum(report.chain.values()) == report.cycles
        most = at_most(program, number, target, report).saves
        for r in Resource:
            assert saved[r][number] <= most[r], r.title
            assert saved[r][number] == bound.saves[r] if r in bound.proved else saved[r][number] <= bound.saves[r]
        assert bound.saves[bound.resource] == saved[bound.resource][number] == max(saved[r][number] for r in Resource)
    together = found.program
    assert together.saves[together.resource] == sum(saved[together.resource]) == max(map(sum, saved.values()))
    return [bound.resource for bound in found.kernels]


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.long) for n in KERNELS])
def test_the_bound_is_what_saves_most(name: str) -> None:
    check_proved(compiled(KERNELS[name]))


CONTENDED = {"4 cores, 16 rows": (4, 16, 512), "6 cores, 8 rows": (6, 8, 384), "8 cores, 4 rows": (8, 4, 512)}


@lang.kernel
def softmax(x: Any, y: Any, *, block: int) -> None:
    """Rows after rows, while the last ones are still being written."""
    for rows in lang.blocks(x.shape[0], block):
        v = x[rows].astype(np.float32)
        e = np.exp(v - v.max(-1, keepdims=True))
        y[rows] = e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("target", [DATASHEET, FITTED], ids=lambda t: t.name)
@pytest.mark.parametrize("name", CONTENDED)
def test_the_bound_where_loads_and_stores_wait_for_each_other(name: str, target: Target) -> None:
    """If a resource is free they get the memory channel in another order, so the longest chain says nothing."""
    cores, block, columns = CONTENDED[name]
    x = np.zeros((256, columns), np.float16)
    with context(), ir.Location.unknown():
        p = read(compile_logical(parse_module(softmax[cores].ktir(x, x.copy(), block=block)))).program
    (report,) = Machine(p, target).report.kernels
    assert any("memory" in unit.stalls for unit in report.units)
    check_proved(p, target)


def layer() -> tuple[Any, torch.Tensor]:
    """Eight kernels, some of which hand tensors on over the ring."""
    made = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, activation="gelu").half().eval()
    return made, torch.zeros(8, 24, 128, dtype=torch.float16)


MODELS: dict[str, Callable[[], tuple[Any, torch.Tensor]]] = {
    "layer of a transformer": layer,
    "convolution": lambda: (nn.Conv2d(16, 32, 3, padding=1).half(), torch.zeros(1, 16, 14, 14, dtype=torch.float16)),
    "strided": lambda: (nn.Conv2d(3, 64, 7, stride=2, padding=3).half(), torch.zeros(1, 3, 56, 56, dtype=torch.float16)),
    "depthwise": lambda: (nn.Conv2d(64, 64, 3, groups=64).half(), torch.zeros(1, 64, 16, 16, dtype=torch.float16)),
    "pooling": lambda: (nn.MaxPool2d(3, 2), torch.zeros(1, 64, 28, 28, dtype=torch.float16)),
    "argmax": lambda: (lambda x: x.argmax(-1), torch.zeros(1, 8000, dtype=torch.float16)),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "convolution" else pytest.mark.long) for n in MODELS])
def test_the_bound_of_kernels_of_models(name: str) -> None:
    with torch.no_grad():
        model, x = MODELS[name]()
        check_proved(compiled(ktir.capture(model, x)))


@pytest.mark.turn
def test_kernels_differ_in_what_bounds_them() -> None:
    """Else a constant answer would pass."""
    assert Resource.MEMORY in check_proved(compiled(KERNELS["matmul 1x512x1024"]))
    assert Resource.LATENCY in check_proved(compiled(KERNELS["softmax 57x100"]))
    assert Resource.LX in check_proved(compiled(KERNELS["relayout 500x100"])) + check_proved(compiled(KERNELS["relayout 64x2000"]))
    assert check_proved(compiled(KERNELS["softmax 57x100"]), replace(DATASHEET, signal_cycles=50)) == [Resource.HANDOVER]
    slow = replace(DATASHEET, partial_sum_bytes_per_cycle=1.0)
    assert Resource.RING in check_proved(exchange([shifted(8, 1), shifted(8, 3)], 16, 4).program, slow)
    assert check_proved(all_cases()["matmul"].program, replace(DATASHEET, launch_cycles=100_000)) == [Resource.LAUNCH]


FIGURES: dict[Resource, tuple[dict[str, float], bool]] = {
    Resource.MEMORY: ({"dram_bytes_per_cycle": float("inf")}, True),
    Resource.LATENCY: ({"dram_latency": 0}, True),
    Resource.HANDOVER: ({"signal_cycles": 0, "sfp_latency": 0}, True),
    Resource.LAUNCH: ({"launch_cycles": 0}, True),
    Resource.RING: ({"ring_bytes_per_cycle": float("inf"), "partial_sum_bytes_per_cycle": float("inf")}, False),
    Resource.PT: ({"pt_weight_cycles": 0, "pt_row_cycles": 0, "pt_fill_cycles": 0}, False),
}
"""The figures of a target that are no limit where a resource is free, and whether these are all that it takes: hops of the ring and drains
of the array cost cycles by themselves."""


@pytest.mark.parametrize("resource", FIGURES, ids=lambda r: r.name.lower())
def test_free_is_a_target_without_the_limit(resource: Resource) -> None:
    figures, all_of_it = FIGURES[resource]
    slow = replace(DATASHEET, launch_cycles=50)
    differ = 0
    for p in (*programs(), *(c.program for c in all_cases().values()), exchange([shifted(4, 1)], 16).program):
        for number in range(len(p.kernels)):
            free = what_if(p, number, slow, {resource})
            pair = replace(p, kernels=p.kernels[max(number - 1, 0) : number + 1])
            other = control(pair, replace(slow, **figures), checks=False).statistics[-1].cycles
            hidden = any(w.operands.get("ahead") for w in p.kernels[number].units[Unit.MNIL])  # under a kernel that is another one then
            usual = what_if(p, number, slow, ())
            assert free <= usual if hidden else free == other if all_of_it else free <= other
            differ += free < usual
    assert differ


def cycles(program: Program, free: Collection[Resource]) -> int:
    return sum(s.cycles for s in control(program, DATASHEET, checks=False, free=free).statistics)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_chains_of_random_programs(seed: int) -> None:
    p = make(seed).program
    try:
        trace = control(p, DATASHEET)
    except (Finding, ProgramError):
        pytest.skip("the program is a faulty one")
    for s in trace.statistics:
        assert sum(s.chain.values()) == s.cycles
    assert cycles(p, tuple(Resource)) == 0, "nothing takes time but these"


def test_order_of_service_changes_no_chain() -> None:
    p = compiled(KERNELS["attention 2 heads 256x256x64"])
    usual = [s.chain for s in control(p, DATASHEET, checks=False).statistics]
    assert [[s.chain for s in control(p, DATASHEET, checks=False, seed=n).statistics] for n in range(2)] == [usual] * 2


@pytest.mark.long
def test_the_prediction_names_the_same_bound() -> None:
    """The price from the words alone: of 9 in 10 kernels what it names saves as much as any other, to 2 % of the cycles."""
    right, kernels = 0, 0
    for text in KERNELS.values():
        p = compiled(text)
        found = Bottlenecks(p, DATASHEET, Machine(p, DATASHEET).report.kernels)
        saved = {r: found.without(r) for r in Resource}
        for number, (kernel, bound) in enumerate(zip(p.kernels, found.kernels, strict=True)):
            named = kernel_work(kernel, DATASHEET).cost.bound.resource
            right += saved[named][number] >= saved[bound.resource][number] - 0.02 * bound.cycles
            kernels += 1
    assert kernels > 70
    assert right >= 0.9 * kernels


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK[:2] else pytest.mark.long) for n in KERNELS])
def test_no_slices_of_a_row_overlap(name: str) -> None:
    """In the traces of as many programs; nor do they where a viewer adds floats."""
    p = compiled(KERNELS[name])
    found = chrome_trace(p, control(p, DATASHEET, checks=False, journal=True), DATASHEET)
    check(found, nested=("cpu_op", "user_annotation", "cuda_runtime"))
    rows = defaultdict(list)
    for e in found["traceEvents"]:
        if e["ph"] == "X" and e["cat"] not in ("cpu_op", "user_annotation", "cuda_runtime"):
            rows[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    assert all(a[1] <= b[0] for row in rows.values() for a, b in pairwise(sorted(row)))


def test_alike_kernels_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    case = all_cases()["softmax"].program
    twice = program("p", case.arguments, *case.kernels, *case.kernels)
    ran: list[int] = []

    def counting(p: Program, kernel: int, target: Target, free: Collection[Resource]) -> int:
        ran.append(kernel)
        return what_if(p, kernel, target, free)

    monkeypatch.setattr("ktir.emulator.machine.reports.bounds.what_if", counting)
    found = Bottlenecks(twice, DATASHEET, Machine(twice, DATASHEET).report.kernels)
    assert found.kernels[0] == found.kernels[len(case.kernels)]
    assert max(ran) < len(case.kernels)
    assert len(ran) < len(Resource) * len(case.kernels), "not all are tried"
