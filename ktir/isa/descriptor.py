"""Access descriptors: 192 bytes that tell a unit where its entries live.

    address (in bytes) = base + arg_base(arg) + table[core_table][core] + corelet * corelet_step
        + sum over levels of level_step[l] * counter[l]
        + ((sum of counter[l] over rotate_levels) mod buffers) * rotate_step
        + sum over inner dims of index[d] * stride[d]

Inner dims run row-major (last fastest) over `extent`, counted in entries of 64 lanes: one stick of 128 bytes for floats of 16 bits, two
adjacent ones for f32, half of one for floats of a byte, which element descriptors move. Every address is a multiple of the descriptor's
unit, a stick.

An *element* descriptor (memory only) is one with a `lane_stride`: lane l lies l * lane_stride further on, the unit is an element, and only
the elements of live lanes are touched: stores write with byte enables.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ktir.target import HALVES, LANES, STICK_BYTES

NONE16 = 0xFFFF
LEVELS = 8
MAX_RANK = 4
PADS = ("zero", "-inf", "+inf")
DESCRIPTOR_BYTES = 192


@dataclass(frozen=True)
class Bound:
    """Clips a descriptor: a position is live iff `level_step*counter[level] + dim_step*index[dim] + corelet*corelet_step (+ lane) < limit`.

    `table` names a core table of limits; then `limit` is 0. `lanes` adds the lane number, for tails inside a stick.
    """

    limit: int = 0
    table: int | None = None
    dim: int | None = None
    dim_step: int = 1
    level: int | None = None
    level_step: int = 0
    corelet_step: int = 0
    lanes: bool = False


@dataclass(frozen=True)
class Descriptor:
    """One access pattern; see the module's formula. `space` is `ddr` (needs `arg`) or `lx`."""

    space: Literal["ddr", "lx"]
    element_bytes: Literal[1, 2, 4]
    extent: tuple[int, ...]
    stride: tuple[int, ...]
    base: int = 0
    arg: int | None = None
    core_table: int | None = None
    level_step: tuple[int, ...] = (0,) * LEVELS
    buffers: int = 1
    rotate_levels: int = 0
    """Bit mask of the loop levels whose counters choose the buffer."""
    rotate_step: int = 0
    corelet_step: int = 0
    lane_stride: int | None = None
    """Bytes between the lanes of an element descriptor, which needs `space` ddr; 0 = all lanes alike. None: a descriptor of sticks."""
    splat: bool = False
    pad: Literal["zero", "-inf", "+inf"] = "zero"
    half: str = HALVES[0]
    """Which floats elements of 2 bytes are; of one byte, in memory alone, `ktir.target.NARROW`."""
    bounds: tuple[Bound, ...] = field(default=())

    @property
    def element(self) -> bool:
        """Whether this is an element descriptor."""
        return self.lane_stride is not None

    @property
    def lane_step(self) -> int:
        """Bytes between the lanes of an entry."""
        return self.element_bytes if self.lane_stride is None else self.lane_stride

    @property
    def unit(self) -> int:
        """Bytes of which all addresses are multiples."""
        return self.element_bytes if self.element else STICK_BYTES

    @property
    def entries(self) -> int:
        """Entries of 64 lanes that one walk visits."""
        n = 1
        for e in self.extent:
            n *= e
        return n

    @property
    def entry_bytes(self) -> int:
        """Bytes of 64 adjacent lanes: one stick for 2 bytes each, two for 4."""
        return LANES * self.element_bytes

    @property
    def bytes(self) -> int:
        """Bytes that one walk visits."""
        return self.entries * self.entry_bytes


# Encoding, little-endian; NumPy dtype fields (name, format, shape). Absent = 0xFFFF (u16) or 0xFF (u8).
BOUND_LAYOUT = (
    ("dim", "u1"),
    ("level", "u1"),
    ("table", "<u2"),
    ("flags", "<u2"),  # bit 0: used, bit 1: lanes
    ("corelet_step", "<u2"),
    ("dim_step", "<u2"),
    ("level_step", "<u2"),
    ("limit", "<u4"),
)
DESCRIPTOR_LAYOUT = (
    ("base", "<u8"),
    ("arg", "<u2"),
    ("core_table", "<u2"),
    ("space", "u1"),  # 0 ddr, 1 lx
    ("log2_element_bytes", "u1"),
    ("rank", "u1"),
    ("flags", "u1"),  # bit 0: splat, bit 1: element, bits 4-5: pad
    ("extent", "<u4", 4),
    ("stride", "<i8", 4),
    ("level_step", "<i8", 8),
    ("rotate_step", "<i8"),
    ("lane_stride", "<i8"),
    ("corelet_step", "<i8"),
    ("buffers", "u1"),
    ("rotate_levels", "u1"),
    ("half", "u1"),  # place in `ktir.target.MOVED`; 0 for 4 bytes
    ("reserved", "u1", 5),
    ("bounds", BOUND_LAYOUT, 2),
)
