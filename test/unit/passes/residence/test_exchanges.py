"""Tensors that go from core to core over the ring: what is sent, and the same bits at every level and on the machine."""

from __future__ import annotations

import random
from math import inf, prod

import numpy as np
import pytest
from logical_programs import Logical

from ktir.analysis.attributes.residents import EXCHANGE
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.lowering.compile import compile_logical, pipeline
from ktir.mlir import func, ir
from ktir.package import read
from ktir.passes.residence.exchange_price import Traffic
from ktir.passes.residence.exchanges import pieces
from ktir.passes.residence.shares import Deal, dealt, share_of
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable


def draw_deals(draw: random.Random, extents: tuple[int, ...], cores: int) -> tuple[Deal, ...]:
    """A division of some dims, the last part of each perhaps smaller."""
    deals, below = [], 1
    for extent in extents:
        parts = draw.choice([1, 2, 3, cores])
        share = -(-extent // parts)
        parts = -(-extent // share)
        deals.append(Deal(parts, share, below) if parts * below <= cores else Deal())
        below *= deals[-1].parts
    return tuple(deals)


@pytest.mark.parametrize("seed", range(40))
def test_every_core_gets_what_it_reads(seed: int) -> None:
    draw = random.Random(seed)
    extents = tuple(draw.randint(1, 7) for _ in range(draw.randint(1, 3)))
    deals = draw_deals(draw, extents, 6)
    parts = prod(d.parts for d in deals)
    written = dealt(extents, deals, parts)
    share = share_of([(0, written)], [])
    wanted = np.array(draw.sample(range(prod(extents)), draw.randint(1, prod(extents))))
    found = pieces([written], share.walks, wanted)

    shares = np.full((parts, 2 * share.entries + 1), -1)
    for core in range(parts):
        shares[core, places(share.walks[0].first, share.walks[0].strides, written.live[core])] = written.entries(core).reshape(-1)
    whole = np.full(prod(extents), -1)
    for piece in found:
        sent = shares[piece.core, places(piece.source.first, piece.source.strides, piece.extents)]
        whole[places(piece.place.first, piece.place.strides, piece.extents)] = sent
    assert (whole[wanted] == wanted).all()
    assert set(whole) <= {-1, *range(prod(extents))}
    assert all(len(p.extents) <= 4 and p.entries > 0 for p in found)
    assert sum(p.entries for p in found) == (whole >= 0).sum(), "nothing is sent twice"


def places(first: int, strides: tuple[int, ...], extents: tuple[int, ...] | np.ndarray) -> np.ndarray:
    at = np.array([first])
    for extent, stride in zip(extents, strides, strict=True):
        at = (at[:, None] + np.arange(extent) * stride).reshape(-1)
    return at


def two_layers(m: int, k: int, n: int, last: int) -> Logical:
    """x w, plus a bias, times another w: the second matmul reads all columns of what the first one's cores have some of."""
    p = Logical()
    h = p.combine("arith.addf", p.matmul(p.input(m, k), p.input(k, n)), p.input(n), "f16")
    p.output(p.combine("arith.addf", p.matmul(h, p.input(n, last)), p.input(last), "f16"))
    return p


def exchanges(program: Logical, cores: int) -> int:
    """How many kernels of a program move what stays between kernels."""
    with context(), ir.Location.unknown():
        module = parse_module(program.text())
        run_pipeline(module, pipeline(cores))
        return sum(isinstance(op, func.FuncOp) and EXCHANGE in op.attributes for op in module.body.operations)


@pytest.mark.parametrize(("shape", "cores"), [((17, 500, 1000, 450), 3), ((1, 300, 700, 260), 32)])
def test_matmuls_exchange_what_is_between_them(shape: tuple[int, int, int, int], cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Traffic, "saved", lambda *_: inf)  # whatever it costs
    program = two_layers(*shape)
    assert exchanges(program, cores) >= 1
    check_levels(program.text(), program.arrays(), cores=cores)


def test_small_activations_go_over_the_ring() -> None:
    """Rows of 64 tokens between two matmuls whose time is that of memory: fewer bytes, and fewer cycles."""
    program = two_layers(64, 512, 1024, 512)
    assert exchanges(program, 32) == 1
    cycles, moved = zip(*(on_the_machine(program, exchange) for exchange in (True, False)), strict=True)
    assert cycles[0] < cycles[1]
    assert moved[1] - moved[0] == 2 * 64 * 1024 * 2, "neither written nor read"


def on_the_machine(program: Logical, exchange: bool) -> tuple[int, int]:
    """Cycles and bytes of memory."""
    with context(), ir.Location.unknown(), pytest.MonkeyPatch.context() as patch:
        if not exchange:
            patch.setattr(Traffic, "saved", lambda *_: 0.0)
        report = Executable(read(compile_logical(parse_module(program.text())))).machine.report
    return sum(k.cycles for k in report.kernels), report.dram_bytes
