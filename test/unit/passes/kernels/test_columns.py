"""Kernels divided over rows and columns: every level has the same bits, more cores work, and the cost model knows how long it takes."""

from __future__ import annotations

import pytest
from logical_programs import Logical, gated, linear

from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.checking.levels import BIT_EXACT_FROM
from ktir.context import context
from ktir.cost.problem import MatmulShape
from ktir.diagnostics import KtirError, remarks
from ktir.dialects import ktir as kt
from ktir.emulator.machine.reports.report import KernelReport
from ktir.hints import hint
from ktir.lowering.compile import compile_logical, pipeline
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.kernels.columns import column_division
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET

PROGRAMS = {
    "one row": linear(1, 256, 1024),
    "one row, weights transposed": linear(1, 256, 1024, transposed=True),
    "nothing divides": linear(5, 500, 1000),
    "nothing divides, weights transposed": linear(5, 500, 1000, transposed=True),
    "operand is also the residual": linear(64, 384, 384, residual=True),
    "uneven rows and columns": linear(35, 150, 1500),
    "three matmuls": gated(12, 128, 704),
    "columns with a tail between matmuls": gated(4, 256, 700),
}


def kernels(program: Logical, cores: int = 32) -> list[KernelReport]:
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(program.text()), cores=cores)
    return list(Executable(read(files)).machine.report.kernels)


def divisions(program: Logical, cores: int = 32) -> list[list[int]]:
    """Splits of each kernel: sticks of columns, rows."""
    with context(), ir.Location.unknown():
        module = parse_module(program.text())
        run_pipeline(module, pipeline(cores).partition(",ktir-tile")[0])
        works = [op.attributes["ktir.work"] for op in module.body.operations if "ktir.work" in op.attributes]
        return [list(kt.WorkAttr(w).splits)[:2] for w in works]


@pytest.mark.parametrize(("name", "cores"), [*((name, 32) for name in PROGRAMS), ("nothing divides", 3), ("three matmuls", 3)])
def test_levels_agree(name: str, cores: int) -> None:
    program = PROGRAMS[name]
    assert any(columns > 1 for columns, _ in divisions(program, cores))
    results = check_levels(program.text(), program.arrays(), cores=cores, source=name)
    names = [r.name for r in results]
    for result in results[names.index(BIT_EXACT_FROM) + 1 :]:
        assert result.exact, f"{result.name} has other bits than the level before"


def test_one_row_runs_on_many_cores() -> None:
    assert divisions(linear(1, 1024, 4096)) == [[8, 1]], "memory is the bound, and 8 cores reach it"
    (report,) = kernels(linear(1, 1024, 4096))
    assert report.dram_utilisation > 0.95


def test_a_shared_operand_is_read_once_per_group_of_cores() -> None:
    (report,) = kernels(linear(64, 512, 512, residual=True))
    assert report.cores == 32
    sticks = 64 * 512 // 64
    weights = 512 * 512 // 64
    # x as first operand and as residual, weights and bias once for the whole chip
    assert report.dram_read == 128 * (2 * sticks + weights + 8)
    assert report.dram_written == 128 * sticks


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1024, 4096), (8, 1024, 2048), (64, 512, 512), (128, 1024, 2048), (300, 300, 2500)])
def test_the_model_predicts_the_machine(m: int, k: int, n: int) -> None:
    (report,) = kernels(linear(m, k, n))
    plan = column_division(MatmulShape(m, -(-n // 64), -(-k // 64)), DATASHEET)
    assert report.cores == plan.division.cores
    # the kernel also reads a bias and stores its result, which the plan leaves out
    extra = 128 * (m + 1) * -(-n // 64) / plan.target.dram_bytes_per_cycle
    assert report.cycles == pytest.approx(plan.cost.cycles + extra, rel=0.15)


def test_small_matmuls_stay_with_their_rows_unless_columns_are_faster() -> None:
    assert divisions(linear(8, 64, 64)) == [[1, 8]]
    assert divisions(linear(57, 64, 100)) == [[2, 15]]
    (report,) = kernels(linear(57, 64, 100))
    with hint(work_div={"n": 1}):
        (rows_alone,) = kernels(linear(57, 64, 100))
    assert report.cycles < rows_alone.cycles


def test_remarks_say_why() -> None:
    with remarks() as found:
        divisions(linear(64, 512, 512))
    texts = [r.message for r in found]
    assert any("kernel of its own, so that its 8 sticks of columns are dealt out: saves" in t for t in texts)
    (plan,) = [t for t in texts if t.startswith("kernel 'f_kernel0'")]
    for part in ("bound by", "runner-up", "candidates compared"):
        assert part in plan


# Hints


def test_hints_are_honoured() -> None:
    program = linear(64, 256, 512)
    with hint(work_div={"m": 4, "n": 2}):
        assert divisions(program) == [[2, 4]]
    with hint(work_div={"n": 1}):
        assert divisions(program) == [[1, 16]], "columns stay together"
    with hint(work_div={"m": 7}):
        assert divisions(linear(57, 64, 100)) == [[2, 7]]
        results = check_levels(linear(57, 64, 100).text(), linear(57, 64, 100).arrays())
    assert all(r.exact for r in results[-5:])


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"k": 5}, "wants 5 parts of 'k', which has 4 units of 64"),
        ({"n": 9}, "wants 9 parts of 'n', which has 8 units of 64"),
        ({"m": 8, "n": 8}, "wants 64 cores, but 32 are available"),
        ({"head": 2}, "names loop 'head'"),
    ],
)
def test_hints_are_refused_with_reason_and_place(wish: dict[str, int], message: str) -> None:
    with hint(work_div=wish), pytest.raises(KtirError, match=message) as error:
        divisions(linear(64, 256, 512))
    assert error.value.location is not None


def test_columns_that_cannot_be_dealt_out() -> None:
    with hint(work_div={"n": 2}), pytest.raises(KtirError, match="the columns of this kernel are not dealt out"):
        divisions(gated(20, 128, 64))
