"""Programs of one kernel, written as an instruction stream, with the files of a package around them."""

from __future__ import annotations

import numpy as np

from ktir.isa.assembly.text import parse_program
from ktir.isa.program import Program
from ktir.layout import Layout
from ktir.package import HostView, LaunchArgument, LaunchSpec, Package, PublishedLayout, read
from ktir.runtime.executable import Executable

DTYPES = {"f16": ("float16", "IEEE_FP16"), "i32": ("int32", "IEEE_INT32")}


def argument(index: int, name: str, role: str, layout: Layout, host: int | None) -> LaunchArgument:
    """A launch argument on a contiguous host array."""
    dtype, published = DTYPES[layout.dtype]
    strides = tuple(int(np.prod(layout.size[i + 1 :])) for i in range(len(layout.size)))
    view = None if host is None else HostView(host, 0, layout.size, strides)
    return LaunchArgument(
        index, name, role, view, dtype, PublishedLayout(layout.size, layout.device_size, layout.stride_map, published, "STANDARD", "zero")
    )


def executable(program: Program, *arguments: LaunchArgument) -> Executable:
    """The program after a round trip through the files of a package."""
    pool = sum(a.sticks * 128 for a in program.arguments if a.role == "pool")
    return Executable(read(Package(program, LaunchSpec(program.name, pool, arguments), {}).to_files()))


THROUGH = """
.program "through"
.argument a0 = "x", role=input, sticks={sticks}, element_bytes=4
.argument a1 = "y", role=output, sticks={sticks}, element_bytes=4
.kernel "k", cores=1
.channel LXLU -> MNIL, token=0, leftover=1
.channel MNIS -> LXSU, token=0, leftover=1
.descriptor %x = ddr, element_bytes=4, extent=[{entries}], stride=[256], arg=a0
.descriptor %y = ddr, element_bytes=4, extent=[{entries}], stride=[256], arg=a1
.descriptor %in = lx, element_bytes=4, extent=[{entries}], stride=[256]
.descriptor %out = lx, element_bytes=4, extent=[{entries}], stride=[256], base={bytes}
.descriptor %push = lx, element_bytes=4, extent=[{half}], stride=[256], corelet_step={part}
.descriptor %pull = lx, element_bytes=4, extent=[{half}], stride=[256], base={bytes}, corelet_step={part}
.unit MNIL
  move src=%x, dst=%in
  sig token=0, receiver=LXLU, count=1
  halt
.unit LXLU
  wait token=0, sender=MNIL, count=1
  push lx=%push, fifo=I0
  sig token=0, receiver=MNIL, count=1
  halt
.unit SFP
  rep groups=1, sticks={half}, start=0, each=2, end=0
    vin dst=r0, fifo=I0
    vout src=r0, fifo=O
  halt
.unit LXSU
  pull lx=%pull, fifo=O
  sig token=0, receiver=MNIS, count=1
  halt
.unit MNIS
  sig token=0, receiver=LXSU, count=1
  wait token=0, sender=LXSU, count=1
  move src=%out, dst=%y
  halt
"""


def through(source: Layout, target: Layout, role: str = "input") -> Executable:
    """y = x, through LX and the vector unit."""
    sizes = {"sticks": source.sticks, "bytes": 128 * source.sticks, "entries": source.entries, "half": source.entries // 2}
    program = parse_program(THROUGH.format(**sizes, part=128 * source.entries))
    program.arguments[0] = type(program.arguments[0])("x", role, source.sticks, 4)
    host = None if role == "iota" else 0
    return executable(program, argument(0, "x", role, source, host), argument(1, "y", "output", target, 0 if host is None else 1))
