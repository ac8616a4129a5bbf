"""The plan: what it decides is what is made, and where its search departs from what each pass would do alone the machine is faster."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from attention_programs import Form, attention
from logical_programs import Logical, gated, linear

import ktir
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.diagnostics import Remark, remarks
from ktir.lowering.compile import launch_spec
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.package import Package, read
from ktir.passes.ktir_to_allocated import ToAllocated
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET


def cycles(program: Logical, *, steps: int, cores: int = 32) -> list[int]:
    """What each kernel takes on the machine."""
    with context(), ir.Location.unknown():
        module = parse_module(program.text())
        run_pipeline(module, ToAllocated(cores=cores, steps=steps).text())
        stream = lower_program(module)
        files = Package(stream, launch_spec(module, stream)).to_files()
    return [kernel.cycles for kernel in Executable(read(files)).machine.report.kernels]


def explained(program: Logical, cores: int = 32) -> list[Remark]:
    """Remarks of the plan."""
    with context(), ir.Location.unknown(), remarks() as found:
        run_pipeline(parse_module(program.text()), ToAllocated(cores=cores).text("ktir-plan"))
    return [r for r in found if r.pass_name == "ktir-plan"]


def narrow() -> Logical:
    """A product of two tensors of 4096 rows and 2 columns: with the columns in the stick 62 of 64 lanes are empty."""
    p = Logical()
    p.output(p.combine("arith.mulf", p.input(4096, 2), p.input(4096, 2), "f16"))
    return p


def wide() -> Logical:
    """Two long rows that are divided five times, and then have their sums taken away."""
    p = Logical()
    x, w = p.input(2, 8192), p.input(2, 8192)
    for _ in range(5):
        x = p.combine("arith.divf", x, w, "f16")
    p.output(p.combine("arith.subf", x, p.row_sum(x), "f16"))
    return p


def odd() -> Logical:
    """The same at sizes that nothing divides."""
    p = Logical()
    x, w = p.input(3, 5000), p.input(3, 5000)
    for _ in range(5):
        x = p.combine("arith.divf", x, w, "f16")
    p.output(p.combine("arith.subf", x, p.row_sum(x), "f16"))
    return p


def softmax(rows: int, keys: int) -> Logical:
    """A softmax along rows."""
    p = Logical()
    x = p.input(rows, keys)
    scores = p.combine("arith.mulf", x, x)
    weights = p.apply("math.exp", p.combine("arith.subf", scores, p.row_max(scores)))
    p.output(p.combine("arith.divf", weights, p.row_sum(weights), "f16"))
    return p


@pytest.mark.parametrize(("program", "gain"), [(narrow, 4.0), (wide, 1.5), (odd, 1.3)], ids=["stick", "cut", "odd cut"])
def test_deciding_together_is_faster(program: Callable[[], Logical], gain: float) -> None:
    alone, together = (sum(cycles(program(), steps=steps)) for steps in (0, 24))
    assert together * gain < alone, f"{together} cycles, {alone} if each pass decides alone"


def test_of_two_divisions_of_attention_the_faster_one_is_taken() -> None:
    """Where the model of a softmax between matmuls finds rows alone about as good as heads and rows, the price of all ops decides."""
    program = attention(Form(heads=8, rows=256, keys=256, mask="causal", after=True))
    with ktir.hint(work_div={"m": 32}):
        rows_alone = sum(cycles(program, steps=24))
    assert sum(cycles(program, steps=24)) * 1.3 < rows_alone


@pytest.mark.parametrize("program", [linear(64, 512, 512), gated(12, 128, 704), linear(5, 500, 1000)], ids=["linear", "gated", "odd"])
def test_the_search_never_makes_it_slower(program: Logical) -> None:
    assert sum(cycles(program, steps=24)) <= 1.02 * sum(cycles(program, steps=0))


@pytest.mark.turn
@pytest.mark.parametrize(("program", "cores"), [(narrow, 3), (wide, 32), (odd, 3), (odd, 32)], ids=["stick", "cut", "odd 3", "odd 32"])
def test_values(program: Callable[[], Logical], cores: int) -> None:
    made = program()
    levels = check_levels(made.text(), [abs(a) + 1 for a in made.arrays()], cores=cores)
    assert levels[-1].name == "step"


def test_remarks_name_the_alternatives() -> None:
    texts = [r.message for r in explained(wide())]
    assert any("a kernel of its own whose columns are dealt out" in t and "cycles instead of" in t for t in texts)
    assert any("no plan takes fewer than" in t and "changes priced" in t for t in texts)


def test_the_plan_is_always_the_same() -> None:
    assert [str(r) for r in explained(wide())] == [str(r) for r in explained(wide())]


def test_without_steps_nothing_is_searched() -> None:
    with context(), ir.Location.unknown(), remarks() as found:
        run_pipeline(parse_module(narrow().text()), "ktir-break-views,ktir-plan{steps=0}")
    assert any("0 changes priced" in r.message for r in found)


def test_a_plan_of_somebody_else_that_cannot_be_kept() -> None:
    """Of a product with two sticks of columns, columns of one: it becomes a kernel in the usual way, and a remark says so."""
    with context(), ir.Location.unknown(), remarks() as found:
        module = parse_module(linear(57, 64, 100).text())
        run_pipeline(module, ToAllocated(steps=0, verify=False).text("ktir-assign-layouts"))
        text = str(module)
        assert "columns = 0" in text
        run_pipeline(parse_module(text.replace("columns = 0", "columns = 1")), "ktir-form-kernels")
    assert any("is not in the kernel that the plan has for it" in r.message for r in found)


def test_a_softmax_of_very_many_keys_stays_one_kernel() -> None:
    with context(), ir.Location.unknown(), remarks() as found:
        module = parse_module(softmax(33, 40000).text())
        run_pipeline(module, ToAllocated().text(until="ktir-form-kernels"))
        assert sum("ktir.rows" in op.attributes for op in module.body.operations) == 1
    assert not any("is not in the kernel that the plan has for it" in r.message for r in found)


def test_kernels_fit_the_scratchpad_that_there_is() -> None:
    """Rows that a kernel cannot hold all of are handed on between kernels, as many as the scratchpad needs."""

    def program() -> Logical:
        p = Logical()
        x, kept = p.input(64, 4096), p.input(64, 4096)
        for _ in range(2):
            x = p.combine("arith.subf", p.combine("arith.mulf", x, kept, "f32"), p.row_sum(x), "f16")
        p.output(x)
        return p

    counts = []
    for lx_bytes in (400_000, 100_000):
        with context(), ir.Location.unknown():
            module = parse_module(program().text())
            run_pipeline(module, ToAllocated(lx_bytes=lx_bytes).text())
            counts.append(len(lower_program(module).kernels))
    assert counts[0] < counts[1]


def test_of_a_table_the_bound_has_the_rows_that_are_looked_up() -> None:
    """And a scalar that is spread counts once."""
    table, at, scale = torch.zeros(30000, 64).half(), torch.zeros(8, dtype=torch.int64), torch.zeros(1).half()
    text = ktir.capture(lambda t, i, s: torch.nn.functional.embedding(i, t) * s.expand(8, 64), table, at, scale)
    with context(), ir.Location.unknown(), remarks() as found:
        run_pipeline(parse_module(text), ToAllocated(cores=32).text("ktir-plan"))
    (bound,) = [int(m[1]) for r in found if (m := re.search(r"no plan takes fewer than (\d+)", r.message))]
    moved = (2 * 8 * 64 + 1) * 2 / DATASHEET.dram_bytes_per_cycle
    assert moved <= bound < moved + DATASHEET.dram_latency + 100
