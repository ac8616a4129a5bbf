"""What no plan undercuts: counted by hand for some programs, and below the emulator's cycles for all."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from cost_kernels import attention, cases, chain, embedding, matmul, relayout, softmax

from ktir.assembly import parse_module
from ktir.context import context
from ktir.cost import least
from ktir.cost.least import least_of_kernel, least_of_program
from ktir.cost.program import Transfer, kernel_work
from ktir.emulator.machine.control.control import control
from ktir.isa.program import Argument, Program
from ktir.lowering.compile import pipeline
from ktir.lowering.ktir_to_spyre.convert_ktir_to_spyre import lower_program
from ktir.mlir import ir
from ktir.package import launch_spec
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
    bounds = [least_of_kernel(program, work, DATASHEET) for work in works]
    assert all(a.cycles <= s.cycles and 0 <= a.share(s.cycles) <= 1 for a, s in zip(bounds, counted, strict=True))
    whole = least_of_program(program, works, DATASHEET)
    assert whole.cycles <= sum(s.cycles for s in counted)
    assert whole.bytes <= sum(a.bytes for a in bounds)


@pytest.mark.parametrize("most", [1 << 22, 0], ids=["counted", "by spans"])
def test_distinct_elements(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against NumPy's own views of an array of its places."""
    monkeypatch.setattr(least, "_COUNTED", most)
    shapes = [
        ((4, 8), (8, 1)),
        ((3, 8), (8, 1)),
        ((4, 3, 3), (4, 4, 1)),
        ((2, 5), (0, 2)),
        ((8,), (-1,)),
        ((0, 4), (4, 1)),
        ((2, 3), (16, 1)),
    ]
    array = np.arange(200)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        chosen = [shapes[k] for k in rng.integers(0, len(shapes), rng.integers(1, 4))]
        views = [launch_spec.HostView(0, int(rng.integers(10, 100)), *s) for s in chosen]
        held = [np.lib.stride_tricks.as_strided(array[v.offset :], v.size, [8 * s for s in v.strides]) for v in views]
        exact = len(np.unique(np.concatenate([h.reshape(-1) for h in held])))
        found = least.distinct_elements(views)
        assert found == exact if most else found <= exact
    assert least.distinct_elements([launch_spec.HostView(0, k, (30, 4), (5, 1)) for k in (0, 500)]) == 240


def test_copies_of_one_array_count_once() -> None:
    """An array that is read from several places on, each packed by itself: no plan has to move all of these copies."""
    n = 9
    arguments = (*(Argument(f"x{k}", "input", 100, 2) for k in range(n)), Argument("y", "output", 100, 2))
    moved = [Transfer(True, k, 1, 12800, 12800, 1) for k in range(n)] + [Transfer(False, n, 1, 12800, 12800, 1)]
    work = SimpleNamespace(transfers=moved, multiplications=0, lane_products=0)
    program = SimpleNamespace(arguments=arguments)
    shifted = [launch_spec.HostView(0, k, (6400,), (1,)) for k in range(n)] + [None]
    for found in (least.least_of_program(program, [work], DATASHEET, shifted), least.least_of_kernel(program, work, DATASHEET, shifted)):  # type: ignore[arg-type]
        assert found.bytes == 2 * (6400 + n - 1) + 12800
    apart = [launch_spec.HostView(0, k * 6400, (6400,), (1,)) for k in range(n)] + [None]
    assert least.least_of_program(program, [work], DATASHEET, apart).bytes == 12800 * (n + 1)  # type: ignore[arg-type]
    again = [launch_spec.HostView(0, 0, (64, 100), (0, 1)), *[None] * n]
    assert least.least_of_program(program, [work], DATASHEET, again).bytes == 200 + 12800 * n  # type: ignore[arg-type]
