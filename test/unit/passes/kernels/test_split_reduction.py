"""Matmuls whose reduced loop is dealt to several cores: partial sums over the ring, in one order at every level and on the machine."""

from __future__ import annotations

import numpy as np
import pytest
from amounts import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from logical_programs import Logical, gated, linear

from ktir.arithmetic.products import matmul_machine
from ktir.assembly import parse_module, print_module
from ktir.checking import check_levels
from ktir.checking.levels import BIT_EXACT_FROM, LevelResult
from ktir.checking.stream import check_package
from ktir.context import context
from ktir.cost.problem import MatmulShape
from ktir.diagnostics import KtirError
from ktir.emulator.machine.control.control import control
from ktir.hints import hint
from ktir.isa.resources import Resource
from ktir.isa.units import Unit
from ktir.lowering.compile import compile_logical, pipeline
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.kernels.columns import column_division
from ktir.pipeline import parse_pipeline, run_pipeline
from ktir.runtime.executable import Executable
from ktir.target import DATASHEET


def lowered(program: Logical, last: str, cores: int = 32) -> str:
    """The text after the pass `last`; each level below the logical one is verified, for these programs have extents of 1."""
    steps = [step for step in parse_pipeline(pipeline(cores, verify=True)).steps if "level=logical" not in str(step)]
    names = [step.name for step in steps]
    with context(), ir.Location.unknown():
        module = parse_module(program.text())
        run_pipeline(module, ",".join(str(step) for step in steps[: names.index(last) + 2]))
        return print_module(module)


def cycles(program: Logical, cores: int = 32) -> int:
    with context(), ir.Location.unknown():
        files = compile_logical(parse_module(program.text()), cores=cores)
    return sum(k.cycles for k in Executable(read(files)).machine.report.kernels)


def agree(program: Logical, cores: int) -> list[LevelResult]:
    """All levels: the same bits from the tiled level down, and nothing but the order of sums changes above it."""
    lowered(program, "ktir-allocate-scratchpad", cores)
    results = check_levels(program.text(), program.arrays(), cores=cores)
    names = [r.name for r in results]
    assert all(r.exact for r in results[names.index(BIT_EXACT_FROM) :])
    return results


def summed(program: Logical, share: int, parts: int) -> np.ndarray:
    """The linear layer in NumPy: each part in machine order, the parts in the order of the cores."""
    x, w, bias, _ = (a.astype(np.float32) for a in program.arrays())
    total: np.ndarray | None = None
    for part in range(parts):
        k = slice(part * share * 64, (part + 1) * share * 64)
        partial = matmul_machine(x[:, k], w[k], np.zeros((len(x), w.shape[1]), np.float32))
        total = partial if total is None else total + partial
    assert total is not None
    return (total + bias).astype(np.float16)


@pytest.mark.parametrize(
    ("shape", "cores", "parts", "share"),
    [
        ((1, 1000, 64), 32, 4, 4),
        ((5, 200, 70), 3, 2, 2),
        ((16, 449, 7), 32, 8, 1),
        ((3, 320, 130), 3, 3, 2),
        ((33, 700, 100), 32, 3, 4),
        ((2, 65, 1), 2, 2, 1),
    ],
)
def test_the_order_of_the_sum(shape: tuple[int, int, int], cores: int, parts: int, share: int) -> None:
    """Odd K, uneven parts, few and many cores, an epilogue in f16: bit for bit what the order says."""
    program = linear(*shape)
    with hint(work_div={"k": parts}):
        results = agree(program, cores)
        assert f"ktir.sums = {parts}" in lowered(program, "ktir-divide-work", cores)
    assert results[-1].arrays[-1].tobytes() == summed(program, share, parts).tobytes()


@pytest.mark.parametrize(
    "program", [linear(5, 321, 90, transposed=True), linear(9, 192, 192, residual=True)], ids=["transposed", "residual"]
)
@pytest.mark.parametrize("parts", [2, 3])
def test_other_forms(program: Logical, parts: int) -> None:
    with hint(work_div={"k": parts, "n": 2, "m": 2}):
        agree(program, 32)


def test_several_matmuls_of_one_kernel() -> None:
    """Two sums meet in one op."""
    p = Logical()
    x = p.input(4, 256)
    y = p.combine("arith.mulf", p.matmul(x, p.input(256, 64)), p.matmul(x, p.input(256, 64)), "f16")
    p.output(y)
    with hint(work_div={"k": 4}):
        agree(p, 32)
        assert lowered(p, "ktir-divide-work").count("ktdp.inter_tile_reduce") == 2


@pytest.mark.long
@given(
    m=st.sampled_from([1, 2, 7, 33, 130]),
    k=st.integers(65, 600),
    n=st.sampled_from([1, 64, 65, 200]),
    parts=st.integers(2, 9),
    cores=st.sampled_from([2, 3, 7, 32]),
    transposed=st.booleans(),
)
@settings(max_examples=examples(60), deadline=None, derandomize=True)
def test_any_division(m: int, k: int, n: int, parts: int, cores: int, transposed: bool) -> None:
    sticks = -(-k // 64)
    share = -(-sticks // parts)
    assume(parts <= min(cores, sticks) and -(-sticks // share) == parts)
    program = linear(m, k, n, transposed=transposed)
    with hint(work_div={"k": parts}):
        agree(program, cores)


@pytest.mark.parametrize(("shape", "faster"), [((16, 8192, 64), 1.5), ((32, 16384, 64), 2.0), ((1, 14336, 64), 1.1)])
def test_chosen_where_it_wins(shape: tuple[int, int, int], faster: float) -> None:
    """Little of the result for many cores: the model deals the reduced loop out, and the machine is faster."""
    program = linear(*shape)
    assert column_division(MatmulShape(shape[0], 1, -(-shape[1] // 64)), DATASHEET).division.splits[2] > 1
    best = cycles(program)
    with hint(work_div={"k": 1}):
        assert cycles(program) > faster * best


@pytest.mark.parametrize("shape", [(1, 14336, 1024), (16, 8192, 512)])
def test_not_chosen_where_memory_decides(shape: tuple[int, int, int]) -> None:
    """Weights that cross the memory channel once take as long with any division; partial sums would only come on top."""
    rows, depth, columns = shape
    plan = column_division(MatmulShape(rows, columns // 64, depth // 64), DATASHEET)
    assert plan.division.splits[2] == 1
    assert plan.cost.bound.resource in (Resource.MEMORY, Resource.RING)
    assert plan.cost.dram_bytes / 136.6 > 0.9 * plan.cost.cycles


@pytest.mark.parametrize(
    ("program", "parts", "message"),
    [
        (linear(5, 200, 70), 3, "wants 3 parts of 'k', but equal shares of its 4 units give 2"),
        (linear(5, 200, 70), 5, "wants 5 parts of 'k', which has 4 units of 64"),
        (gated(12, 128, 64), 2, "wants 2 parts of 'k', but the reduced loop of this kernel is not dealt out"),
    ],
)
def test_hints_are_refused_with_reason_and_place(program: Logical, parts: int, message: str) -> None:
    with hint(work_div={"k": parts}), pytest.raises(KtirError, match=message) as error:
        lowered(program, "ktir-divide-work")
    assert error.value.location is not None


def test_matmuls_of_different_depths_keep_their_loops() -> None:
    p = Logical()
    first, second = p.matmul(p.input(4, 256), p.input(256, 64)), p.matmul(p.input(4, 128), p.input(128, 64))
    p.output(p.combine("arith.addf", first, second, "f16"))
    with hint(work_div={"k": 2}), pytest.raises(KtirError, match="the matmuls of this kernel have reduced loops of 2, 4 sticks"):
        lowered(p, "ktir-divide-work")


def test_other_senders_are_found() -> None:
    """A stream that adds up another core's sums is not what its KTIR says, though it breaks no rule of the machine."""
    with context(), ir.Location.unknown(), hint(work_div={"k": 3, "m": 1, "n": 1}):
        package = read(compile_logical(parse_module(linear(4, 192, 64).text()), cores=4))
    kernel = package.program.kernels[0]
    used = {w["group"] for w in kernel.units[Unit.MNIS] if w.op == "move" and w["dst"] is None}
    assert [kernel.groups[g] for g in sorted(used)] == [[1, 1, 2], [2, 1, 2]]
    assert check_package(package, control(package.program, DATASHEET)) == []
    for g in used:
        kernel.groups[g][0] = 1
    found = [str(p) for p in check_package(package, control(package.program, DATASHEET))]
    assert any("'move' names group" in f and "cores receive from [2, 1, 2]" in f for f in found), found
