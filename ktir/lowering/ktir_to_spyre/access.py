"""Access tiles of allocated KTIR -> descriptors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ktir.diagnostics import Unsupported, location_text
from ktir.dialects import ktdp
from ktir.isa.descriptor import LEVELS, Bound, Descriptor
from ktir.mlir import ir
from ktir.target import LANES, STICK_BYTES

from .index import Index, IndexEvaluator, constant


@dataclass(frozen=True)
class Tile:
    """An access tile, evaluated: where it starts, its extents and strides in elements, per dimension an optional limit."""

    op: ir.Operation
    local: bool
    element_bytes: int
    anchor: Index
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: tuple[Index, ...]
    """Coordinate of the tile's first element in the view, per dimension."""
    limits: tuple[Index | None, ...]
    buffer: tuple[int, int]
    """LX: first stick and end of all slots of the view."""

    @property
    def rotation(self) -> int:
        """Slots that the view rotates over."""
        return self.anchor.rotation.buffers if self.anchor.rotation else 1


def evaluate_tile(tile: ir.Value, index: IndexEvaluator) -> Tile:
    """Evaluate an access tile of a kernel at the allocated level."""
    op = tile.owner.opview
    view = op.base.owner.opview
    assert isinstance(op, ktdp.ConstructAccessTileOp)
    assert isinstance(view, ktdp.ConstructMemoryViewOp)
    element_bytes = 2 if isinstance(view.element_type, ir.F16Type) else 4
    sizes = [constant(s) if isinstance(s, int) else index(s) for s in view.sizes]
    limits = tuple(None if isinstance(s, int) else size for s, size in zip(view.sizes, sizes, strict=True))
    if any(not isinstance(s, int) for s in view.strides) or list(op.order) != list(range(len(op.shape))):
        raise Unsupported("'ktdp.construct_access_tile' op expects static strides and the identity order", location_text(op.location))
    strides = tuple(int(s) for s in view.strides if isinstance(s, int))
    operands = [index(v) for v in op.index_operands]
    first = tuple(index.affine(e, operands, op.operation) for e in op.base_map.results)
    anchor = index(view.offset)
    for coordinate, stride in zip(first, strides, strict=True):
        anchor = index._add(anchor, index._multiply(coordinate, constant(stride), op.operation), op.operation)
    local = view.memory_space == "ct_local"
    buffer = (0, 0)
    if local:
        start = index(view.offset)
        length = 1 + sum((s.scalar - 1) * stride for s, stride in zip(sizes, strides, strict=True))
        if start.rotation:
            length += (start.rotation.buffers - 1) * start.rotation.step
        buffer = (start.scalar * element_bytes // STICK_BYTES, -(-(start.scalar + length) * element_bytes // STICK_BYTES))
    return Tile(op.operation, local, element_bytes, anchor, tuple(op.shape), strides, first, limits, buffer)


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
        self,
        tile: Tile,
        walk: list[tuple[int, int | None]],
        *,
        corelet_rows: int = 0,
        splat: bool = False,
    ) -> int:
        """Describe a walk over a tile.

        `walk` lists inner dims, outer to inner, as (extent, tile dimension); dimension None repeats the same entries (stride 0). With
        `corelet_rows` the second corelet starts that many positions further along dimension 1.
        """

        def sticks(elements: int) -> int:
            bytes_ = elements * tile.element_bytes
            if bytes_ % STICK_BYTES:
                raise Unsupported("'ktdp.construct_access_tile' op starts or steps inside a stick", location_text(tile.op.location))
            return bytes_ // STICK_BYTES

        if tile.shape[-1] != LANES or tile.strides[-1] != 1:
            raise Unsupported(f"'ktdp.construct_access_tile' op expects whole sticks of {LANES} lanes", location_text(tile.op.location))
        walk = [w for w in walk if w[0] != 1] or walk[-1:]
        anchor = tile.anchor
        uniform = anchor.is_uniform
        level_step = [0] * LEVELS
        for level, step in anchor.steps.items():
            level_step[level] = sticks(step)
        rotation = anchor.rotation
        descriptor = Descriptor(
            space="lx" if tile.local else "ddr",
            element_bytes=2 if tile.element_bytes == 2 else 4,
            extent=tuple(extent for extent, _ in walk),
            stride=tuple(0 if dim is None else sticks(tile.strides[dim]) for _, dim in walk),
            base=sticks(anchor.scalar) if uniform else 0,
            arg=None if anchor.argument is None else self.arguments[anchor.argument],
            core_table=None if uniform else self._table(np.array([sticks(int(c)) for c in anchor.constant])),
            level_step=tuple(level_step),
            buffers=rotation.buffers if rotation else 1,
            rotate_levels=rotation.levels if rotation else 0,
            rotate_step=sticks(rotation.step) if rotation else 0,
            corelet_step=sticks(tile.strides[1]) * corelet_rows,
            splat=splat,
            bounds=tuple(self._bound(tile, d, walk, corelet_rows) for d, limit in enumerate(tile.limits) if limit is not None),
        )
        return self.add(descriptor)

    def _bound(self, tile: Tile, dim: int, walk: list[tuple[int, int | None]], corelet_rows: int) -> Bound:
        limit, first = tile.limits[dim], tile.first[dim]
        assert limit is not None
        if not limit.is_constant or first.argument is not None or first.rotation or len(first.steps) > 1:
            raise Unsupported("'ktdp.construct_access_tile' op has a bound of more than one loop", location_text(tile.op.location))
        level, step = next(iter(first.steps.items()), (None, 0))
        position = next((i for i, (_, d) in enumerate(walk) if d == dim), None)
        left = limit.constant - first.constant
        uniform = bool((left == left.flat[0]).all())
        return Bound(
            limit=max(int(left.flat[0]), 0) if uniform else 0,
            table=None if uniform else self._table(np.maximum(left, 0)),
            dim=position,
            dim_step=1,
            level=level,
            level_step=step,
            corelet_step=corelet_rows if dim == 1 else 0,
        )
