"""Every instruction of the table is known to all who run, check or price words, and does the same for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from literal_runs import differing, literal
from samples import GATHER, MATMUL, ROW_SHARE

from ktir.cost.program import kernel_work
from ktir.emulator.machine.control.control import control
from ktir.emulator.machine.grid import check_grid
from ktir.emulator.machine.machine import carrier_shape
from ktir.emulator.machine.replay.builder import Builder
from ktir.emulator.machine.replay.tape import Tape
from ktir.emulator.machine.step.step import Step
from ktir.isa.assembly.text import parse_program
from ktir.isa.instructions import OPCODES, Does
from ktir.isa.program import Argument
from ktir.isa.wellformed.verify import verify
from ktir.target import DATASHEET

EXCHANGE = """\
.program "exchange"
.argument a0 = "x", role=input, sticks=8, element_bytes=2
.argument a1 = "rows", role=input, sticks=2, element_bytes=4
.argument a2 = "y", role=output, sticks=8, element_bytes=2

.kernel "exchange_0", cores=2
.table t0 = [0, 512]
.table t1 = [0, 16]
.group g0 = [1, 0]
.descriptor %x = ddr, element_bytes=2, extent=[4], stride=[128], arg=a0, core_table=t0
.descriptor %mine = lx, element_bytes=2, extent=[4], stride=[128]
.descriptor %other = lx, element_bytes=2, extent=[4], stride=[128], base=512
.descriptor %filled = lx, element_bytes=2, extent=[4], stride=[128], base=1024
.descriptor %threes = lx, element_bytes=4, extent=[4], stride=[256], base=1536
.descriptor %made = lx, element_bytes=2, extent=[4], stride=[128], base=2560, corelet_step=512
.descriptor %out = lx, element_bytes=2, extent=[4], stride=[128], base=2560
.descriptor %rows = ddr, element_bytes=4, extent=[4], stride=[4], arg=a1, core_table=t1, lane_stride=4
.descriptor %y = ddr, element_bytes=2, extent=[4], stride=[128], arg=a2, lane_stride=2
.unit MNIL
  move src=%x, dst=%mine
  sig token=0, receiver=MNIS, count=1
  fill lx=%filled, value=1.5
  fill lx=%threes, value=3
  move dst=%other, group=g0
  sig token=0, receiver=LXLU, count=1
  halt
.unit MNIS
  wait token=0, sender=MNIL, count=1
  move src=%mine, group=g0
  wait token=0, sender=LXSU, count=1
  move src=%out, dst=%y, index=%rows, dim=0, size=8
  halt
.unit LXLU
  wait token=0, sender=MNIL, count=1
  par streams=3
    push lx=%other, fifo=I0
    push lx=%filled, fifo=I1
    push lx=%threes, fifo=I2
  halt
.unit SFP
  rep groups=4, sticks=1, start=2, each=9, end=0
    vconst dst=r3, value=2.0
    vconst dst=r4, value=3
    vin dst=r0, fifo=I0
    vin dst=r1, fifo=I1
    vin dst=r2, fifo=I2
    v2 kind=cmpi_eq, dst=r5, src=r2, src2=r4
    v3 kind=select, dst=r6, src=r5, src2=r0, src3=r1
    vlive dst=r7, lanes=50
    v3 kind=select, dst=r8, src=r7, src2=r6, src3=r3
    vmask dst=r9, src=r8, lanes=60, fill=-1.0
    vout src=r9, fifo=O
  halt
.unit LXSU
  pull lx=%made, fifo=O
  sig token=0, receiver=MNIS, count=1
  halt
"""
"""Each of two cores takes what the other one has loaded, and scatters 50 lanes of it, 10 twos and 4 of -1."""
PROGRAMS = {name: parse_program(text) for name, text in dict(exchange=EXCHANGE, share=ROW_SHARE, gather=GATHER, matmul=MATMUL).items()}


def filled(a: Argument) -> np.ndarray:
    """Contents of an argument: indices, or numbers that half precision has."""
    rng = np.random.default_rng(0)
    if a.element_bytes == 4:
        return np.resize(rng.permutation(8).astype(np.int32), carrier_shape(a)).view(np.float32)
    return rng.integers(1, 9, carrier_shape(a)).astype(np.float32)


def test_the_programs_have_every_word() -> None:
    """An instruction that none of them has is not seen below."""
    found = [w for p in PROGRAMS.values() for kernel in p.kernels for words in kernel.units.values() for w in words]
    assert {w.op for w in found} == OPCODES.keys()
    assert {w.does for w in found} == set(Does)
    assert all(set(o.reads) | {o.writes} - {""} <= {f.name for f in o.fields if f.kind == "descriptor"} for o in OPCODES.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_word_is_known_everywhere(name: str) -> None:
    """Verifier, control, types, tape, step and cost have a branch for each word; the literal machine, which has its own, gives the same."""
    p = PROGRAMS[name]
    assert not verify(p, DATASHEET)
    trace = control(p, DATASHEET)
    check_grid(p, trace)
    assert all(kernel_work(kernel, DATASHEET).cost.cycles > 0 for kernel in p.kernels)
    given = [filled(a) if a.given else np.zeros(carrier_shape(a), np.float32) for a in p.arguments]
    wanted = literal(p, given)
    for executor in (Tape(Builder(p, trace, 2).build()), Step(p, trace, 2)):
        got = [a.copy() for a in given]
        executor.run(got)
        assert differing(p, wanted, got) is None
