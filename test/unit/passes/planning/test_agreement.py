"""Kernels that hand on tensors are divided with regard to each other: nothing has to move, fewer cycles, the same bits."""

from __future__ import annotations

from functools import partial

import pytest
from attention_programs import _LOWEST, _PRODUCT, _Program
from logical_programs import Logical

from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.lowering.compile import compile_logical
from ktir.mlir import ir
from ktir.package import read
from ktir.passes.planning.agreement import Agreement
from ktir.runtime.executable import Executable


def attention(batch: int, heads: int, rows: int, keys: int) -> Logical:
    """Attention on queries, keys and values that are scaled before, in a kernel of its own: they must be there before the matmuls."""
    p = _Program({"g": batch, "h": heads, "r": rows, "k": keys, "i": 64, "o": 64})
    scaled = (
        "%x = arith.extf %p0 : f16 to f32\n%c = arith.constant 0.3 : f32\n%y = arith.mulf %x, %c : f32\n%r = arith.truncf %y : f32 to f16"
    )
    queries, found, values = (p.op(axes, [p.load(axes)], scaled, "f16") for axes in ("ghri", "ghki", "ghko"))
    product = p.op("ghrk", [queries, found], _PRODUCT, start="0.0", reduced="i")
    most = p.op("ghr", [product], "%r = arith.maximumf %o, %p0 : f32", start=_LOWEST, reduced="k")
    powers = p.op("ghrk", [product, most], "%d = arith.subf %p0, %p1 : f32\n%r = math.exp %d : f32")
    total = p.op("ghr", [powers], "%r = arith.addf %o, %p0 : f32", start="0.0", reduced="k")
    weights = p.op("ghrk", [powers, total], "%q = arith.divf %p0, %p1 : f32\n%r = arith.truncf %q : f32 to f16", "f16")
    mixed = p.op("ghro", [weights, values], _PRODUCT, start="0.0", reduced="k")
    p.output(p.op("ghro", [mixed], "%r = arith.truncf %p0 : f32 to f16", "f16"))
    return p


def machine(program: Logical, cores: int, *, agree: bool) -> tuple[int, int]:
    """Cycles, and how many kernels move tensors from core to core."""
    with context(), ir.Location.unknown(), pytest.MonkeyPatch.context() as patch:
        if not agree:
            patch.setattr(Agreement, "run", lambda self: self.works)
        report = Executable(read(compile_logical(parse_module(program.text()), cores=cores))).machine.report
    return sum(k.cycles for k in report.kernels), sum(k.name.endswith("_exchange") for k in report.kernels)


def test_what_both_deal_out_alike_stays_where_it_is() -> None:
    program = attention(8, 12, 24, 24)
    agreed, alone = (machine(program, 32, agree=agree) for agree in (True, False))
    assert agreed[0] < 0.9 * alone[0]
    assert (agreed[1], alone[1]) == (0, 1)


@pytest.mark.parametrize(
    ("make", "cores"), [(partial(attention, 3, 5, 7, 70), 32), (partial(attention, 2, 3, 65, 9), 3), (partial(attention, 4, 1, 33, 64), 8)]
)
def test_values_and_never_slower(make: partial[Logical], cores: int) -> None:
    program = make()
    check_levels(program.text(), program.arrays(), cores=cores)
    assert machine(program, cores, agree=True)[0] <= 1.01 * machine(program, cores, agree=False)[0]
