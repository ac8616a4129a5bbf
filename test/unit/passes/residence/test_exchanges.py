"""Tensors that go from core to core over the ring: what is sent, and the same bits at every level and on the machine."""

from __future__ import annotations

import random
from math import inf, prod

import numpy as np
import pytest
from logical_programs import Logical

from ktir.analysis.attributes.residents import EXCHANGE, RESIDENT
from ktir.analysis.core_numbers import CoreNumbers
from ktir.assembly import parse_module
from ktir.checking import check_levels
from ktir.context import context
from ktir.dialects._ktdp import tile_sets
from ktir.isa.cycles import ring_route
from ktir.lowering.compile import compile_logical, pipeline
from ktir.mlir import func, ir
from ktir.package import read
from ktir.passes.general.cores import Cores
from ktir.passes.residence.exchange_price import Traffic
from ktir.passes.residence.rounds import Piece, pieces, rounds
from ktir.passes.residence.shares import Deal, dealt, share_of
from ktir.pipeline import run_pipeline
from ktir.runtime.executable import Executable
from ktir.target import element_bytes


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
    cores, stops = 12, draw.choice((12, 32))
    extents = tuple(draw.randint(1, 9) for _ in range(draw.randint(1, 3)))
    written, read = (dealt(extents, deals, prod(d.parts for d in deals)) for deals in (draw_deals(draw, extents, cores) for _ in range(2)))
    share = share_of([(0, written)], [])
    found = rounds([written], share.walks, [read], cores, stops)

    shares = np.full((cores, 2 * share.entries + 1), -1)
    for core in range(len(written.start)):
        shares[core, places(share.walks[0].first, share.walks[0].strides, written.live[core])] = written.entries(core).reshape(-1)
    wholes = np.full((cores, prod(extents)), -1)
    for r in found:
        assert set(r.senders) <= set(r.live), "nobody waits for one that sends nothing"
        for core, sender in enumerate(r.senders):
            size = tuple(r.live[sender] if d == r.dim else n for d, n in enumerate(r.extents))
            sent = shares[sender, places(r.sources[sender], r.source_strides, size)]
            wholes[core, places(r.places[core], r.place_strides, size)] = sent
    for core in range(len(read.start)):
        entries = read.entries(core).reshape(-1)
        assert (wholes[core, entries] == entries).all()
    assert set(wholes.reshape(-1)) <= {-1, *range(prod(extents))}
    one_after_the_other = [_alone(p, cores, stops) for p in pieces([written], share.walks, [read], cores, cut=False)]
    assert sum(r.crossing for r in found) <= sum(one_after_the_other), "at once is not slower"
    assert all(len(r.extents) <= 4 for r in found)


def _alone(piece: Piece, cores: int, stops: int) -> int:
    """Entries over the busiest link where one core sends to all."""
    return piece.entries * ring_route([piece.core] * cores, stops)[0]


@pytest.mark.parametrize(
    "numbers", [[3] * 8, [0, 2, 4, 6], [5, 5, 5, 7, 7, 7, 9], [0, 0, 4, 0, 0, 4, 0], [1, 5, 2, 2, 9], [0, 0, 0, 6], [7, 0, 7]]
)
def test_numbers_of_cores_are_written_as_they_are(numbers: list[int]) -> None:
    text = f"func.func @f() attributes {{grid = [{len(numbers)}]}} {{\n  %t = ktdp.get_compute_tile_id : index\n  return\n}}"
    with context(), ir.Location.unknown():
        module = parse_module(text)
        (function,) = module.body.operations
        first, end = function.regions[0].blocks[0].operations
        with ir.InsertionPoint(end):
            value = Cores(len(numbers), first.results[0], 0, len(numbers)).value(numbers)
        assert CoreNumbers(function.operation)(value).numbers.tolist() == numbers


@pytest.mark.parametrize("numbers", [[0, 0, 7, 7], [2, 4, 6], [0, 0, 5, 0], [3, 3]])
def test_cores_without_a_number_have_the_last_one(numbers: list[int]) -> None:
    text = "func.func @f() attributes {grid = [8]} {\n  %t = ktdp.get_compute_tile_id : index\n  return\n}"
    with context(), ir.Location.unknown():
        module = parse_module(text)
        (function,) = module.body.operations
        first, end = function.regions[0].blocks[0].operations
        cores = Cores(8, first.results[0], 0, 8)
        with ir.InsertionPoint(end):
            value = cores.value(numbers)
        found = [value] * 8 if isinstance(value, int) else CoreNumbers(function.operation)(value).numbers.tolist()
        wanted = numbers + numbers[-1:] * (8 - len(numbers))
        assert found == wanted
        assert [tile_sets.members(cores.function(numbers), (core,)) for core in range(8)] == [[n] for n in wanted]


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


def test_all_cores_stay_within_a_tensor_that_fewer_of_them_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six cores of eight, beside one that all use."""
    monkeypatch.setattr(Traffic, "saved", lambda *_: inf)
    p = Logical()
    a, b = (
        p.combine("arith.addf", p.matmul(p.input(m, k), p.input(k, n)), p.input(n), "f16") for m, k, n in ((17, 128, 320), (320, 64, 320))
    )
    p.output(p.matmul(a, b))
    seen = set[int]()
    with context(), ir.Location.unknown():
        module = parse_module(p.text())
        run_pipeline(module, pipeline(8))
        for kernel in module.body.operations:
            if EXCHANGE not in kernel.attributes:
                continue
            numbers = CoreNumbers(kernel.operation)
            for view in (op for op in kernel.body.blocks[0].operations if RESIDENT in op.attributes):
                resident = view.attributes[RESIDENT]
                begin = element_bytes(view.result.type.element_type) * numbers(view.operands[0]).numbers
                assert (resident.address <= begin).all()
                assert (begin < resident.address + resident.bytes).all(), (str(resident), begin)
                seen.add(len(set(begin.tolist())))
    assert max(seen) > 1, "some differ from core to core"


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
