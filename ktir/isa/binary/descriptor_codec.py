"""Descriptors <-> records of 192 bytes, and the rules that hold for a single descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from ktir.isa.descriptor import BOUND_LAYOUT, DESCRIPTOR_BYTES, DESCRIPTOR_LAYOUT, LEVELS, MAX_RANK, NONE16, PADS, Bound, Descriptor
from ktir.isa.program import Argument
from ktir.target import MOVED, NARROW

BOUND_DTYPE = np.dtype(list(BOUND_LAYOUT))
DESCRIPTOR_DTYPE = np.dtype([(f[0], BOUND_DTYPE if f[0] == "bounds" else f[1], *f[2:]) for f in DESCRIPTOR_LAYOUT])
assert DESCRIPTOR_DTYPE.itemsize == DESCRIPTOR_BYTES

NONE8 = 0xFF
MAX_BOUNDS = 2
MAX_BASE = 2**40
"""Beyond any memory, and small enough that sums of addresses fit into 64 bits."""
ELEMENT_BYTES: tuple[Literal[1, 2, 4], ...] = (1, 2, 4)
MAX_STEP = 2**37
SPACES = ("ddr", "lx")

_U32 = (0, 2**32 - 1)
_U16 = (0, 2**16 - 1)


def _in(value: Any, limits: tuple[int, int]) -> bool:
    return type(value) is int and limits[0] <= value <= limits[1]


def faults(d: Descriptor, arguments: int, tables: int) -> Iterator[str]:
    """What is wrong with `d` in a kernel that has so many arguments and core tables."""
    if d.space not in SPACES:
        yield f"space expects ddr or lx, but got {d.space!r}"
    if d.element_bytes not in (1, 2, 4) or type(d.element_bytes) is not int:
        yield f"element_bytes expects 1, 2 or 4, but got {d.element_bytes!r}"
        return
    yield from half_faults(d)
    if len(d.extent) != len(d.stride) or len(d.extent) > MAX_RANK:
        yield f"extent and stride expect equal ranks of 0 to {MAX_RANK}, but got {len(d.extent)} and {len(d.stride)}"
    for e in d.extent:
        if not _in(e, (1, _U32[1])):
            yield f"extent expects values of 1 to {_U32[1]}, but got {e!r}"
            return
    if d.bytes > _U32[1]:
        yield f"extent describes {d.bytes} bytes, more than a descriptor can"
    for name, values in (
        ("stride", d.stride),
        ("level_step", d.level_step),
        ("corelet_step", (d.corelet_step,)),
        ("lane_stride", () if d.lane_stride is None else (d.lane_stride,)),
    ):
        for v in values:
            if not _in(v, (-MAX_STEP, MAX_STEP)):
                yield f"{name} expects values of {-MAX_STEP} to {MAX_STEP}, but got {v!r}"
    if len(d.level_step) != LEVELS:
        yield f"level_step expects {LEVELS} values, but got {len(d.level_step)}"
    if not _in(d.base, (0, MAX_BASE)):
        yield f"base expects a value of 0 to {MAX_BASE}, but got {d.base!r}"
    if d.space == "ddr" and d.arg is None:
        yield "a ddr descriptor needs an argument"
    if d.space == "lx" and d.arg is not None:
        yield "an lx descriptor has no argument"
    if d.arg is not None and not _in(d.arg, (0, arguments - 1)):
        yield f"arg {d.arg!r} is not one of the {arguments} arguments"
    if d.core_table is not None and not _in(d.core_table, (0, tables - 1)):
        yield f"core_table {d.core_table!r} is not one of the {tables} tables"
    yield from _element_faults(d)
    yield from _rotation_faults(d)
    if d.pad not in PADS:
        yield f"pad expects one of {', '.join(PADS)}, but got {d.pad!r}"
    if len(d.bounds) > MAX_BOUNDS:
        yield f"expects at most {MAX_BOUNDS} bounds, but got {len(d.bounds)}"
    for i, bound in enumerate(d.bounds):
        for fault in _bound_faults(bound, len(d.extent), tables):
            yield f"bound {i}: {fault}"


def half_faults(held: Descriptor | Argument) -> Iterator[str]:
    """What is wrong with the floats of 16 bits of a descriptor or an argument."""
    if held.half not in MOVED:
        yield f"half expects one of {', '.join(MOVED)}, but got {held.half!r}"
    elif (held.half in NARROW) != (held.element_bytes == 1) or (held.half != MOVED[0] and held.element_bytes == 4):
        yield f"half is {held.half}, but elements have {held.element_bytes} bytes"


def _element_faults(d: Descriptor) -> Iterator[str]:
    if d.element_bytes == 1 and not d.element:
        yield "elements of 1 byte have a lane_stride"
    if d.element and d.space != "ddr":
        yield f"only a ddr descriptor has a lane_stride, but this one is of {d.space}"
    if d.element and d.corelet_step:
        yield "an element descriptor has no corelet_step"


def _rotation_faults(d: Descriptor) -> Iterator[str]:
    if not _in(d.buffers, (1, 255)):
        yield f"buffers expects 1 to 255, but got {d.buffers!r}"
    if not _in(d.rotate_levels, (0, 2**LEVELS - 1)):
        yield f"rotate_levels expects a mask of {LEVELS} levels, but got {d.rotate_levels!r}"
    if not _in(d.rotate_step, (0, MAX_STEP)):
        yield f"rotate_step expects a value of 0 to {MAX_STEP}, but got {d.rotate_step!r}"
    if d.buffers == 1 and (d.rotate_levels or d.rotate_step):
        yield "rotate_levels and rotate_step must be zero for one buffer"


def _bound_faults(b: Bound, rank: int, tables: int) -> Iterator[str]:
    for name in ("dim_step", "level_step", "corelet_step"):
        if not _in(getattr(b, name), _U16):
            yield f"{name} expects a value of 0 to {_U16[1]}, but got {getattr(b, name)!r}"
    if b.dim is not None and not _in(b.dim, (0, rank - 1)):
        yield f"dim {b.dim!r} is not one of the {rank} inner dims"
    if b.dim is None and b.dim_step != 1:
        yield "dim_step needs a dim"
    if b.level is not None and not _in(b.level, (0, LEVELS - 1)):
        yield f"level expects 0 to {LEVELS - 1}, but got {b.level!r}"
    if b.level is None and b.level_step != 0:
        yield "level_step needs a level"
    if b.table is not None and not _in(b.table, (0, tables - 1)):
        yield f"table {b.table!r} is not one of the {tables} tables"
    if not _in(b.limit, _U32):
        yield f"limit expects a value of 0 to {_U32[1]}, but got {b.limit!r}"
    if b.table is not None and b.limit != 0:
        yield "limit must be 0 where a table gives the limits"


def pack(descriptors: list[Descriptor]) -> np.ndarray:
    """The records of descriptors without faults."""
    array = np.zeros(len(descriptors), DESCRIPTOR_DTYPE)
    for record, d in zip(array, descriptors, strict=True):
        rank = len(d.extent)
        record["base"] = d.base
        record["arg"] = NONE16 if d.arg is None else d.arg
        record["core_table"] = NONE16 if d.core_table is None else d.core_table
        record["space"] = SPACES.index(d.space)
        record["log2_element_bytes"] = d.element_bytes.bit_length() - 1
        record["rank"] = rank
        record["half"] = MOVED.index(d.half)
        record["flags"] = int(d.splat) | int(d.element) << 1 | PADS.index(d.pad) << 4
        record["extent"][:rank] = d.extent
        record["stride"][:rank] = d.stride
        record["level_step"] = d.level_step
        record["buffers"] = d.buffers
        record["rotate_levels"] = d.rotate_levels
        record["rotate_step"] = d.rotate_step
        record["lane_stride"] = d.lane_stride or 0
        record["corelet_step"] = d.corelet_step
        for slot, b in zip(record["bounds"], d.bounds, strict=False):
            slot["dim"] = NONE8 if b.dim is None else b.dim
            slot["level"] = NONE8 if b.level is None else b.level
            slot["table"] = NONE16 if b.table is None else b.table
            slot["flags"] = 1 | int(b.lanes) << 1
            slot["corelet_step"] = b.corelet_step
            slot["dim_step"] = 0 if b.dim is None else b.dim_step
            slot["level_step"] = b.level_step
            slot["limit"] = b.limit
    return array


def unpack(record: np.void) -> tuple[Descriptor | None, list[str]]:
    """The descriptor of a record, or None and what is wrong with its encoding. `faults` checks the values themselves."""
    problems = []
    r = {name: record[name].tolist() for name in DESCRIPTOR_DTYPE.names or () if name != "bounds"}
    if r["space"] >= len(SPACES):
        problems.append(f"unknown space code {r['space']}")
    if r["log2_element_bytes"] not in range(3):
        problems.append(f"log2_element_bytes expects 0, 1 or 2, but got {r['log2_element_bytes']}")
    if r["rank"] > MAX_RANK:
        problems.append(f"rank expects 0 to {MAX_RANK}, but got {r['rank']}")
    if r["flags"] & ~0x33 or r["flags"] >> 4 >= len(PADS):
        problems.append(f"unknown flags {r['flags']:#04x}")
    if r["half"] >= len(MOVED):
        problems.append(f"unknown half code {r['half']}")
    if any(r["reserved"]):
        problems.append("reserved field is not zero")
    if any(r["extent"][r["rank"] :]) or any(r["stride"][r["rank"] :]):
        problems.append("extent and stride beyond the rank must be zero")
    bounds = [_unpack_bound(b, problems) for b in record["bounds"]]
    if bounds[0] is None and bounds[1] is not None:
        problems.append("bound 1 is used without bound 0")
    if problems:
        return None, problems
    d = Descriptor(
        space="lx" if r["space"] else "ddr",
        element_bytes=ELEMENT_BYTES[r["log2_element_bytes"]],
        extent=tuple(r["extent"][: r["rank"]]),
        stride=tuple(r["stride"][: r["rank"]]),
        base=r["base"],
        arg=None if r["arg"] == NONE16 else r["arg"],
        core_table=None if r["core_table"] == NONE16 else r["core_table"],
        level_step=tuple(r["level_step"]),
        buffers=r["buffers"],
        rotate_levels=r["rotate_levels"],
        rotate_step=r["rotate_step"],
        corelet_step=r["corelet_step"],
        lane_stride=r["lane_stride"] if r["flags"] & 2 else None,
        splat=bool(r["flags"] & 1),
        pad=PADS[r["flags"] >> 4],
        half=MOVED[r["half"]],
        bounds=tuple(b for b in bounds if b is not None),
    )
    return d, problems


def _unpack_bound(record: np.void, problems: list[str]) -> Bound | None:
    r = {name: record[name].item() for name in BOUND_DTYPE.names or ()}
    if not r["flags"] & 1:
        if any(r.values()):
            problems.append("an unused bound must be zero")
        return None
    if r["flags"] & ~3:
        problems.append(f"unknown flags {r['flags']:#06x} of a bound")
    dim = None if r["dim"] == NONE8 else r["dim"]
    if dim is None and r["dim_step"]:
        problems.append("dim_step of a bound without a dim must be zero")
    return Bound(
        limit=r["limit"],
        table=None if r["table"] == NONE16 else r["table"],
        dim=dim,
        dim_step=1 if dim is None else r["dim_step"],
        level=None if r["level"] == NONE8 else r["level"],
        level_step=r["level_step"],
        corelet_step=r["corelet_step"],
        lanes=bool(r["flags"] & 2),
    )
