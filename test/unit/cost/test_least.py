"""What no plan undercuts: counted by hand for some programs, and below the emulator's cycles for all."""

from __future__ import annotations

import pytest
from cost_kernels import attention, cases, chain, embedding, matmul, relayout, softmax

from ktir.assembly import parse_module
from ktir.context import context
from ktir.cost.least import least_of_kernel, least_of_program
from ktir.cost.program import kernel_work
from ktir.emulator.machine.control.control import control
from ktir.isa.program import Program
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.pipeline import run_pipeline
from ktir.target import DATASHEET

SOME = [c for c in cases() if not c.work_div][::9]


def compiled(text: str) -> Program:
    with context(), ir.Location.unknown():
        module = parse_module(text)
        run_pipeline(module, pipeline(DATASHEET.cores))
        return lower_program(module)


@pytest.mark.parametrize(
    ("text", "elements", "products"),
    [
        (matmul(128, 512, 1536), 128 * 512 + 512 * 1536 + 128 * 1536, 128 * 512 * 1536),
        (softmax(512, 1024), 2 * 512 * 1024, 0),
        (chain(512, 1024, 3), 4 * 512 * 1024, 0),
        (attention(8, 128, 128, 64), 4 * 8 * 128 * 64, 2 * 8 * 128 * 128 * 64),
        # what the kernels hand on is not counted; of the sums, which are f32, those of rows lie in two sticks each
        (relayout(256, 256), 256 * 256 + 256 * 2 * 64 + 2 * 256, 0),
        # rows of the table that are asked for, their numbers in granules (int64 is 32 bits wide on the card), and the result
        (embedding(1000, 512, 64), 2 * 64 * 512 + 64 * 2, 0),
    ],
    ids=["matmul", "softmax", "chain", "attention", "relayout", "gather"],
)
def test_by_hand(text: str, elements: int, products: int) -> None:
    program = compiled(text)
    found = least_of_program(program, [kernel_work(k, DATASHEET) for k in program.kernels], DATASHEET)
    assert found.bytes == 2 * elements
    assert products <= found.multiplications <= 1.2 * products
    # 204.8 GB/s and 98.304 TFLOP/s at 1.5 GHz
    assert found.cycles == pytest.approx(max(2 * elements / 204.8 * 1.5, found.multiplications * 2 / 98_304 * 1.5))


@pytest.mark.parametrize("case", SOME, ids=lambda c: f"{c.kind} {c.name}")
def test_nothing_is_faster(case: object) -> None:
    program = compiled(case.text)  # type: ignore[attr-defined]
    works = [kernel_work(k, DATASHEET) for k in program.kernels]
    counted = control(program, DATASHEET, checks=False).statistics
    least = [least_of_kernel(program, work, DATASHEET) for work in works]
    assert all(a.cycles <= s.cycles and 0 <= a.share(s.cycles) <= 1 for a, s in zip(least, counted, strict=True))
    whole = least_of_program(program, works, DATASHEET)
    assert whole.cycles <= sum(s.cycles for s in counted)
    assert whole.bytes <= sum(a.bytes for a in least)
