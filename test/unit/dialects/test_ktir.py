"""Attributes of the ktir dialect as Python values."""

import pytest

from ktir.assembly import pretty
from ktir.diagnostics import KtirError
from ktir.dialects.ktir import AccAttr, HostViewAttr, LayoutAttr, RotateAttr, WorkAttr
from ktir.mlir import ir

pytestmark = pytest.mark.usefixtures("mlir")


def test_layout() -> None:
    layout = LayoutAttr.build([200, 130], [3, 200, 64], [64, 130, 1], ir.F16Type.get(), pad="zero")
    assert layout.size == [200, 130]
    assert layout.device == [3, 200, 64]
    assert layout.strides == [64, 130, 1]
    assert layout.dtype == ir.F16Type.get()
    assert (layout.arrangement, layout.pad) == ("standard", "zero")
    text = "size = [200, 130], device = [3, 200, 64], strides = [64, 130, 1], dtype = f16, arrangement = standard, pad = zero"
    assert pretty(layout) == f"#ktir.layout<{text}>"
    assert layout == LayoutAttr.build([200, 130], [3, 200, 64], [64, 130, 1], ir.F16Type.get(), "standard", "zero")
    assert LayoutAttr(ir.RankedTensorType.get([3, 200, 64], ir.F16Type.get(), layout).encoding).pad == "zero"


def test_the_others() -> None:
    host = HostViewAttr.build(arg=0, offset=3, size=[57, 64], strides=[64, 1])
    assert (host.arg, host.offset, host.size, host.strides) == (0, 3, [57, 64], [64, 1])
    work = WorkAttr.build([1, 29, 1], [2, 2, 64])
    assert (work.splits, work.tile) == ([1, 29, 1], [2, 2, 64])
    assert AccAttr.build("PT").unit == "PT"
    rotate = RotateAttr.build(nbuf=2, stride=8192)
    assert (rotate.nbuf, rotate.stride) == (2, 8192)
    assert pretty(ir.DictAttr.get({"a": rotate, "b": work})) == (
        "{a = #ktir.rotate<nbuf = 2, stride = 8192>, b = #ktir.work<splits = [1, 29, 1], tile = [2, 2, 64]>}"
    )


def test_builders_refuse_what_the_parser_refuses() -> None:
    with pytest.raises(KtirError, match="one stride per device dim"):
        LayoutAttr.build([4], [64], [], ir.F16Type.get())
    with pytest.raises(KtirError, match="must be positive"):
        WorkAttr.build([0], [1])
    with pytest.raises(KtirError, match="expected one of: PT, SFP, but got 'LX'"):
        AccAttr.build("LX")
    with pytest.raises(TypeError, match="missing parameter 'stride'"):
        RotateAttr.build(nbuf=2)
    with pytest.raises(TypeError, match="no parameter 'steps'"):
        RotateAttr.build(nbuf=2, stride=1, steps=3)
