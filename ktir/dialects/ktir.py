"""The `ktir` dialect: attributes by which the passes tell each other what they decided. It has no ops."""

from collections.abc import Mapping
from typing import Any, Literal

from ktir.dialects._base import Attribute, Dialect
from ktir.mlir import ir


class Ktir(Dialect, name="ktir"):
    """Layouts, work division and LX allocation of KTIR programs."""


class LayoutAttr(Attribute, dialect=Ktir, name="layout"):
    """How a logical tensor of shape `size` lies in sticks: the encoding of a laid-out tensor type.

    `device` is the physical shape; `strides` gives, per physical dim, the distance in elements of the logical row-major tensor.
    `dtype` is the element type in memory, `arrangement` how elements lie inside a stick, `pad` what is known of the lanes
    outside the logical tensor.

        #ktir.layout<size = [200, 130], device = [3, 200, 64], strides = [64, 130, 1], dtype = f16, arrangement = standard,
                     pad = uninit>
    """

    size: list[int]
    device: list[int]
    strides: list[int]
    dtype: ir.Type
    arrangement: str
    pad: str

    defaults = {"arrangement": "standard", "pad": "uninit"}

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if len(values["device"]) != len(values["strides"]):
            return f"layout expects one stride per device dim, but got {values['strides']} for {values['device']}"
        if any(n < 0 for n in (*values["size"], *values["device"])):
            return "layout sizes must be non-negative"
        return None


class HostViewAttr(Attribute, dialect=Ktir, name="host_view"):
    """Which elements of host argument `arg` a device tensor holds: offset, sizes and strides in elements.

    #ktir.host_view<arg = 0, offset = 0, size = [57, 64], strides = [64, 1]>
    """

    arg: int
    offset: int
    size: list[int]
    strides: list[int]

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if len(values["size"]) != len(values["strides"]):
            return f"host view expects one stride per dim, but got {values['strides']} for {values['size']}"
        if any(n < 0 for n in (values["arg"], values["offset"], *values["size"], *values["strides"])):
            return "host view numbers must be non-negative"
        return None


class WorkAttr(Attribute, dialect=Ktir, name="work"):
    """The division of a kernel: into how many parts each loop is split, and the extent of one core's part.

    #ktir.work<splits = [1, 29, 1], tile = [2, 2, 64]>
    """

    splits: list[int]
    tile: list[int]

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if len(values["splits"]) != len(values["tile"]):
            return f"work expects one tile extent per split, but got {values['tile']} for {values['splits']}"
        return None if all(n > 0 for n in (*values["splits"], *values["tile"])) else "work numbers must be positive"


class AccAttr(Attribute, dialect=Ktir, name="acc"):
    """The unit whose accumulator a loop-carried tensor lives in: `#ktir.acc<PT>` or `#ktir.acc<SFP>`."""

    unit: Literal["PT", "SFP"]

    positional = ("unit",)


class RotateAttr(Attribute, dialect=Ktir, name="rotate"):
    """A buffer that changes place with every trip: `nbuf` places, `stride` elements apart.

    #ktir.rotate<nbuf = 2, stride = 8192>
    """

    nbuf: int
    stride: int

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        return None if values["nbuf"] > 0 and values["stride"] >= 0 else "rotate needs nbuf > 0 and stride >= 0"
