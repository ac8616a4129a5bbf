"""Evaluated access tiles -> descriptors and core tables of a kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from ktir.diagnostics import Unsupported, location_text
from ktir.isa.descriptor import LEVELS, MAX_RANK, Bound, Descriptor
from ktir.isa.program import Kernel
from ktir.lowering.ktir_to_spyre.access import Clip, Tile
from ktir.target import LANES, STICK_BYTES

Walk = list[tuple[int, int | None]]
"""Inner dims, outer to inner, as (extent, dimension of the tile); dimension None repeats the same entries (stride 0)."""


def whole(tile: Tile) -> Walk:
    """The walk over all entries of a tile."""
    return list(zip(tile.shape[:-1], range(len(tile.shape) - 1), strict=True))


def stores_apart(kernels: Iterable[Kernel]) -> None:
    """Make no store of a program write what another one may have written: a partly live stick is written as a whole, and so by elements
    where any kernel stores to elements of the same argument."""
    stores = [(kernel, kernel.descriptors[i], i) for kernel in kernels for i in _stored(kernel)]
    mixed = {d.arg for _, d, _ in stores if d.element}
    for kernel, d, i in stores:
        if d.arg in mixed and any(b.lanes for b in d.bounds):
            kernel.descriptors[i] = replace(d, lane_stride=d.lane_step)


def _stored(kernel: Kernel) -> set[int]:
    """The descriptors of arguments that a kernel stores to."""
    targets = {w.operands.get("dst") for words in kernel.units.values() for w in words if w.op == "move"}
    return {i for i in targets if i is not None and kernel.descriptors[i].arg is not None}


@dataclass
class DescriptorTable:
    """Descriptors and core tables of one kernel, each distinct one once."""

    cores: int
    arguments: list[int]
    """Program argument of each kernel argument."""
    descriptors: list[Descriptor] = field(default_factory=list)
    tables: list[list[int]] = field(default_factory=list)
    _ids: dict[Descriptor, int] = field(default_factory=dict)

    def add(self, descriptor: Descriptor) -> int:
        """The id of a descriptor."""
        if descriptor not in self._ids:
            self._ids[descriptor] = len(self.descriptors)
            self.descriptors.append(descriptor)
        return self._ids[descriptor]

    def _table(self, values: np.ndarray) -> int:
        row = [int(v) for v in np.broadcast_to(values, (self.cores,))]
        if row not in self.tables:
            self.tables.append(row)
        return self.tables.index(row)

    def describe(
        self, tile: Tile, walk: Walk, *, corelet_rows: int = 0, splat: bool = False, one_corelet: bool = False, keep: int | None = None
    ) -> int:
        """Describe a walk over a tile.

        With `corelet_rows` the second corelet starts that many positions further along dimension 1; with `one_corelet` it is dead. Dims of
        extent 1 are left out, but for the tile's dimension `keep`.
        """
        walk = [w for w in walk if w[0] != 1 or (keep is not None and w[1] == keep)] or walk[-1:]
        if len(walk) > MAX_RANK:
            raise Unsupported(
                f"'{tile.op.name}' op walks {len(walk)} dims, but a descriptor has {MAX_RANK}", location_text(tile.op.location)
            )
        size, anchor, rotation = tile.element_bytes, tile.anchor, tile.anchor.rotation
        core_table = None if anchor.is_uniform else self._table(anchor.constant * size)
        level_step = [0] * LEVELS
        for level, step in anchor.steps.items():
            level_step[level] = step * size
        bounds = [self._bound(tile, clip, walk, corelet_rows) for clip in tile.clips]
        corelet_step = tile.strides[1] * size * corelet_rows if corelet_rows else 0
        if one_corelet:
            bounds.append(Bound(limit=1, corelet_step=1))
            corelet_step = tile.strides[0] * size * tile.shape[0]  # beyond the tile: no two positions of a destination share a stick
        if len(bounds) > 2:
            raise Unsupported(f"'{tile.op.name}' op is clipped in {len(bounds)} ways, but a descriptor has two bounds",
                              location_text(tile.op.location))  # fmt: skip
        descriptor = Descriptor(
            space="lx" if tile.local else "ddr",
            element_bytes=1 if tile.element_bytes == 1 else 2 if tile.element_bytes == 2 else 4,
            extent=tuple(extent for extent, _ in walk),
            stride=tuple(0 if dim is None else tile.strides[dim] * size for _, dim in walk),
            base=anchor.scalar * size if anchor.is_uniform else 0,
            arg=None if anchor.argument is None else self.arguments[anchor.argument],
            core_table=core_table,
            level_step=tuple(level_step),
            buffers=rotation.buffers if rotation else 1,
            rotate_levels=rotation.levels if rotation else 0,
            rotate_step=rotation.step * size if rotation else 0,
            corelet_step=corelet_step,
            lane_stride=None if self._by_sticks(tile, walk) else tile.strides[-1] * size,
            splat=splat,
            bounds=tuple(bounds),
            half=tile.element.half,
        )
        return self.add(descriptor)

    def describe_positions(self, positions: Tile) -> int:
        """Describe the indices of a gather or scatter: lane 0 of one entry per position."""
        lanes = Tile(positions.op, False, positions.element, positions.anchor, (*positions.shape, LANES), (*positions.strides, 0),
                     positions.clips)  # fmt: skip
        return self.describe(lanes, whole(lanes), keep=0)

    def _by_sticks(self, tile: Tile, walk: Walk) -> bool:
        """Whether all addresses are multiples of a stick, as they must be in the scratchpad."""
        if tile.shape[-1] != LANES:
            raise Unsupported(f"'{tile.op.name}' op expects whole sticks of {LANES} lanes", location_text(tile.op.location))
        if tile.element.one:
            return False
        stick = STICK_BYTES // tile.element_bytes
        whole = LANES if any(clip.lanes for clip in tile.clips) else stick  # the dead half of an entry may lie beyond the memory
        anchor = tile.anchor
        steps = [*anchor.steps.values(), *(tile.strides[dim] for _, dim in walk if dim is not None)]
        steps += [anchor.rotation.step] if anchor.rotation else []
        if tile.strides[-1] == 1 and not (anchor.constant % whole).any() and not any(step % whole for step in steps):
            return True
        if tile.local:
            raise Unsupported(f"'{tile.op.name}' op starts or steps inside a stick of the scratchpad", location_text(tile.op.location))
        return False

    def _bound(self, tile: Tile, clip: Clip, walk: Walk, corelet_rows: int) -> Bound:
        room = clip.room
        if room.argument is not None or room.rotation or len(room.steps) > 1:
            raise Unsupported(f"'{tile.op.name}' op has a bound of more than one loop", location_text(tile.op.location))
        level, step = next(iter(room.steps.items()), (None, 0))
        if not -(2**16) < step <= 0:
            how = "grows" if step > 0 else f"falls by {-step} elements"
            raise Unsupported(f"'{tile.op.name}' op has a bound that {how} from trip to trip", location_text(tile.op.location))
        position = next((i for i, (_, d) in enumerate(walk) if d == clip.dim), None) if clip.step else None
        uniform = bool((room.constant == room.constant.flat[0]).all())
        return Bound(
            limit=max(room.scalar, 0) if uniform else 0,
            table=None if uniform else self._table(np.maximum(room.constant, 0)),
            dim=position,
            dim_step=1 if position is None else clip.step,
            level=level,
            level_step=-step,
            corelet_step=corelet_rows if clip.dim == 1 and not clip.lanes else 0,
            lanes=clip.lanes,
        )
