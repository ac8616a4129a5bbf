"""Integer arguments through a whole launch: bits survive every unit, iotas are made, bool comes back as bool."""

from __future__ import annotations

import numpy as np
import pytest
from streams import argument, executable, through

from ktir.diagnostics import KtirError
from ktir.isa.assembly.text import parse_program
from ktir.layout import Layout


@pytest.mark.parametrize("mode", ["tape", "step"])
def test_bits_survive(mode) -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 100))
    x[0, :8] = [0, -1, 2**31 - 1, -(2**31), 0x7F800001, 0x7FC12345, -0x400000, 1]
    y = np.zeros((2, 100), np.int64)
    layout = Layout.rows(2, 100, "i32")
    through(layout, layout)(x, y, mode=mode)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("layout", [Layout.linear(100, "i32"), Layout.rows(1, 100, "i32")])
def test_iota(layout: Layout) -> None:
    y = np.zeros(layout.size, np.int32)
    run = through(layout, layout, "iota")
    for _ in range(2):
        y[...] = 0
        run(y)
        np.testing.assert_array_equal(y.ravel(), np.arange(100))


def test_bool() -> None:
    x = np.random.default_rng(1).integers(0, 2, 100).astype(bool)
    y = np.zeros(100, bool)
    layout = Layout.linear(100, "i32")
    through(layout, layout)(x, y)
    np.testing.assert_array_equal(y, x)
    with pytest.raises(KtirError, match="argument 'x' expects integers of -2147483648 to 2147483647, but has 3000000000"):
        through(layout, layout)(np.full(100, 3_000_000_000), y)
    with pytest.raises(KtirError, match="argument 'x' expects element type integers or bool, but got float16"):
        through(layout, layout)(np.zeros(100, np.float16), y)


GATHER = """
.program "gather"
.argument a0 = "table", role=input, sticks=79, element_bytes=2
.argument a1 = "ids", role=input, sticks=2, element_bytes=4
.argument a2 = "y", role=output, sticks=11, element_bytes=2
.kernel "k", cores=2
.table t0 = [0, 16]
.table t1 = [4, 3]
.table t2 = [0, 800]
.descriptor %table = ddr, element_bytes=2, extent=[2, 4], stride=[128, 200], arg=a0, lane_stride=2, \
bound=(limit=100, dim=0, dim_step=64, lanes), bound=(limit=t1, dim=1)
.descriptor %lx = lx, element_bytes=2, extent=[2, 4], stride=[512, 128]
.descriptor %ids = ddr, element_bytes=4, extent=[4], stride=[4], arg=a1, core_table=t0, lane_stride=4
.descriptor %y = ddr, element_bytes=2, extent=[2, 4], stride=[128, 200], arg=a2, core_table=t2, lane_stride=2, \
bound=(limit=100, dim=0, dim_step=64, lanes), bound=(limit=t1, dim=1)
.unit MNIL
  move src=%table, dst=%lx, index=%ids, dim=1, size=50 @1
  sig token=0, receiver=MNIS, count=1
  halt
.unit MNIS
  wait token=0, sender=MNIL, count=1
  move src=%lx, dst=%y
  halt
.source 1 = "ktdp.load", "model.py:7:3"
"""


@pytest.mark.parametrize("mode", ["tape", "step"])
def test_embedding(mode) -> None:
    table, ids = np.random.default_rng(0).standard_normal((50, 100)).astype(np.float16), np.array([3, 49, 0, 7, 7, 21, 48])
    y = np.zeros((7, 100), np.float16)
    run = executable(
        parse_program(GATHER),
        argument(0, "table", "input", Layout.linear(5000), 0),
        argument(1, "ids", "input", Layout.linear(7, "i32"), 1),
        argument(2, "y", "output", Layout.linear(700), 2),
    )
    run(table.ravel(), ids, y.ravel(), mode=mode)
    np.testing.assert_array_equal(y, table[ids])
    ids[5] = 50
    with pytest.raises(KtirError, match=r"reads index 50 at element 5 of argument 'ids', but expects 0 to 49 \[ktdp.load\]") as e:
        run(table.ravel(), ids, y.ravel(), mode=mode)
    assert e.value.location == "model.py:7:3"
