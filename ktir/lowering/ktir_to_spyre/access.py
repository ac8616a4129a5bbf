"""Access tiles of allocated KTIR, evaluated: where they start, how they step, what clips them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ktir.analysis.attributes.residents import resident_of
from ktir.diagnostics import Unsupported, location_text, refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.lowering.ktir_to_spyre.index import Index, IndexEvaluator, constant
from ktir.mlir import ir, is_a
from ktir.target import BYTES, CORELETS, FORMATS, LANES, ONES, STICK_BYTES, Format, held, is_byte, is_two


@dataclass(frozen=True)
class Clip:
    """What lies beyond is dead: along dimension `dim` position i is live where step*i (+ lane, if `lanes`) < room."""

    dim: int
    room: Index
    step: int = 1
    lanes: bool = False


@dataclass(frozen=True)
class Tile:
    """An access tile, evaluated: where it starts, its extents and strides in elements, and what clips it."""

    op: ir.Operation
    local: bool
    element: Format
    anchor: Index
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    clips: tuple[Clip, ...] = ()
    buffer: tuple[int, int] = (0, 0)
    """LX: first stick and end of all slots of the view."""
    per_corelet: bool = False
    """Whether each corelet has one of its own, the second one's behind the first one's."""

    @property
    def element_bytes(self) -> int:
        """Of a place: 2 or 4, where two bytes share one 2; 1 of bytes that lie one after the other."""
        return 1 if self.element.one else max(self.element.bytes, 2)

    @property
    def corelet_rows(self) -> int:
        """Of one that each corelet has for itself: rows from the first one's to the second one's."""
        return (self.buffer[1] - self.buffer[0]) // CORELETS * STICK_BYTES // self.element_bytes // self.strides[1]

    @property
    def rotation(self) -> int:
        """Slots that the view rotates over."""
        return self.anchor.rotation.buffers if self.anchor.rotation else 1

    def walked_once(self, trips: Mapping[int, int]) -> list[int]:
        """The loop levels, innermost first, whose trips each find another part of the buffer; `trips` are those of the open loops.

        There are none if parts overlap, or if a loop between them comes back to the same part.
        """
        levels: list[int] = []
        length = 1 + sum((n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True))
        for level in sorted(trips, reverse=True):
            if level in self.anchor.steps:
                levels.append(level)
            elif trips[level] > 1:
                break
        if set(levels) != set(self.anchor.steps):
            return []
        for step, count in sorted((self.anchor.steps[level], trips[level]) for level in levels):
            if step < length:
                return []
            length += step * (count - 1)
        return levels if self.anchor.rotation is None or length <= self.anchor.rotation.step else []

    def reach(self, trips: Mapping[int, int]) -> tuple[int, int] | None:
        """First stick and end of what is touched in all trips of the open loops; None where slots rotate, or cores differ."""
        if self.anchor.rotation is not None or not self.anchor.is_uniform:
            return None
        ways = [step * (trips[level] - 1) for level, step in self.anchor.steps.items()]
        ways += [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        first, last = (self.anchor.scalar + sum(w for w in ways if (w > 0) == up) for up in (False, True))
        return first * self.element_bytes // STICK_BYTES, last * self.element_bytes // STICK_BYTES + 1

    def without_dead_rows(self) -> Tile:
        """Leave out what is clipped on every core and in every trip: where a tensor has fewer rows than a block, a dead row's address
        would be the next stick's first row."""
        shape, clips = list(self.shape), []
        for clip in self.clips:
            live = clip.room.scalar
            if not clip.lanes and clip.room.is_constant and clip.room.is_uniform and 0 < live <= shape[clip.dim]:
                shape[clip.dim] = live
            else:
                clips.append(clip)
        return replace(self, shape=tuple(shape), clips=tuple(clips))


@dataclass(frozen=True)
class IndirectTile:
    """A tile whose position in dimension `dim`, below `size`, is what `positions`, a tile of one dimension, holds."""

    tile: Tile
    positions: Tile
    dim: int
    size: int


class TileEvaluator:
    """Evaluates the access tiles of a kernel at the allocated level."""

    def __init__(self, index: IndexEvaluator) -> None:
        self.index = index

    def __call__(self, value: ir.Value) -> Tile:
        op = value.owner.opview
        if not isinstance(op, ktdp.ConstructAccessTileOp):
            raise Unsupported(f"'{op.operation.name}' op is not supported here, only as what is stored to the scratchpad or from it alone",
                              location_text(op.location))  # fmt: skip
        if list(op.order) != list(range(len(op.shape))):
            raise refused(op, "expects the identity order")
        operands = [self.index(v) for v in op.index_operands]
        first = [self.index.affine(e, operands, op.operation) for e in op.base_map.results]
        return self._tile(op.operation, op.base, first, tuple(op.shape), {d: d for d in range(len(op.shape))})

    def indirect(self, op: ktdp.ConstructIndirectAccessTileOp) -> IndirectTile:
        """Evaluate an indirect tile: one dimension of its base is looked up, with one variable or none."""
        rank = len(op.shape)
        captured = [self.index(v) for v in op.captured]
        values = [*captured, *(constant(0) for _ in range(rank))]
        first: list[Index] = []
        variable: dict[int, int] = {}
        looked_up: list[tuple[int, ir.AffineMap, ir.Value]] = []
        for dim, (subscript, view) in enumerate(op.subscripts):
            if view is not None:
                looked_up.append((dim, subscript, view))
                first.append(constant(0))
                continue
            moved = self._variable(op, subscript.results[0], len(captured))
            if moved is not None:
                variable[dim] = moved
            first.append(self.index.affine(subscript.results[0], values, op.operation))
        if len(looked_up) != 1:
            raise refused(op, "expects to look up one dimension")
        ((dim, subscript, view),) = looked_up
        walked = {k: v for k, e in enumerate(subscript.results) if (v := self._variable(op, e, len(captured))) is not None}
        if len(walked) > 1:
            raise refused(op, "expects an index that one variable walks")
        size, strides = op.base.owner.opview.sizes[dim], op.base.owner.opview.strides
        if not isinstance(size, int):
            raise refused(op, "expects a static size of the dimension that is looked up")
        at = [self.index.affine(e, values, op.operation) for e in subscript.results]
        shape = tuple(op.shape)
        if walked:
            ((axis, number),) = walked.items()
            if any(v == number and strides[d] != 0 for d, v in variable.items()):
                raise refused(op, "expects the variable that walks the index to walk nothing else")
            variable[dim] = number
            positions = self._tile(op.operation, view, at, (shape[number],), {axis: 0}, lanes=False)
        else:  # one index for the whole tile
            number = rank - 1
            variable = {d: v + (v >= number) for d, v in variable.items()} | {dim: number}
            shape = (*shape[:-1], 1, shape[-1])
            positions = self._tile(op.operation, view, at, (1,), {}, lanes=False)
        element = str(op.base.owner.opview.element_type)
        if is_byte(element) and not _is_converted(op) and number == len(shape) - 2:
            raise refused(op, f"is on {element}, of which two rows share a stick, but its indices choose single rows")
        tile = self._tile(op.operation, op.base, first, shape, variable)
        if not any(clip.dim == number and not clip.lanes for clip in tile.clips):
            tile = replace(tile, clips=(*tile.clips, *(replace(clip, dim=number) for clip in positions.clips)))
        return IndirectTile(tile, positions, number, size)

    def _variable(self, op: ktdp.ConstructIndirectAccessTileOp, expression: ir.AffineExpr, captured: int) -> int | None:
        """The variable that a subscript adds to what is captured, None if it has none."""
        used = [d - captured for d, factor in _linear(expression, op.operation).items() if d >= captured and factor]
        if len(used) > 1 or any(_linear(expression, op.operation)[d + captured] != 1 for d in used):
            raise refused(op, "has a subscript that is more than a variable and an offset")
        return used[0] if used else None

    def _tile(
        self, op: ir.Operation, base: ir.Value, first: list[Index], shape: tuple[int, ...], walked: dict[int, int], *, lanes: bool = True
    ) -> Tile:
        """A tile of `shape` at `first` in the view `base`, whose dim d is walked by the tile's dim `walked[d]`; the last dim is that of
        `lanes`, but for positions."""
        index, view = self.index, base.owner.opview
        assert isinstance(view, ktdp.ConstructMemoryViewOp)
        element = str(view.element_type)
        if element not in FORMATS and element not in BYTES and not is_two(element):
            raise Unsupported(
                f"'{op.name}' op is on elements of type {element}, but the instruction stream moves {', '.join(FORMATS)}",
                location_text(op.location),
            )
        if any(not isinstance(s, int) for s in view.strides):
            raise refused(op, "expects a view with static strides")
        sizes = [constant(s) if isinstance(s, int) else index(s) for s in view.sizes]
        steps = [int(s) for s in view.strides if isinstance(s, int)]
        anchor = index(view.offset)
        for coordinate, stride in zip(first, steps, strict=True):
            anchor = index.add(anchor, index.multiply(coordinate, constant(stride), op), op)
        strides = [0] * len(shape)
        for dim, position in walked.items():
            strides[position] += steps[dim]
        rows = [dim for dim, size in enumerate(view.sizes) if not isinstance(size, int)]
        clips = []
        for d in rows:
            of_lanes = lanes and walked.get(d) == len(shape) - 1
            room = index.subtract(sizes[d], first[d], op)
            clips.append(Clip(walked.get(d, 0), room, step=int(d in walked and not of_lanes), lanes=of_lanes))
        clips += self._lanes(op, view, first, walked)
        clips = [clip for clip in clips if index.least(clip.room) <= (shape[clip.dim] - 1) * clip.step + (LANES - 1) * clip.lanes]
        local = view.memory_space == "ct_local"
        buffer = _buffer(view, index(view.offset), sizes, steps, held(element).bytes, index.trips) if local else (0, 0)
        per_corelet = "ktir.per_corelet" in view.operation.attributes
        if per_corelet:
            buffer = buffer[0], 2 * buffer[1] - buffer[0]
        alone = is_byte(element) and _is_converted(op)
        tile = Tile(op, local, ONES[element] if alone else held(element), anchor, shape, tuple(strides), tuple(clips), buffer, per_corelet)
        return _in_pairs(tile) if is_byte(element) and not alone else tile

    def _lanes(self, op: ir.Operation, view: ktdp.ConstructMemoryViewOp, first: list[Index], walked: dict[int, int]) -> list[Clip]:
        """Where the view's sticks are cut at a lane: 64*stick + lane <= last."""
        clips = []
        for stick, last in affine.lane_bounds(view.attributes["coordinate_set"])[0] if view.masked else ():
            position = walked.get(stick)
            room = self.index.subtract(constant(last + 1), self.index.multiply(first[stick], constant(LANES), op), op)
            room = self.index.subtract(room, first[-1], op)
            clips.append(Clip(position or 0, room, 0 if position is None else LANES, lanes=True))
        return clips


def _is_converted(tile: ir.Operation) -> bool:
    """Whether what is loaded from a tile, or stored to it, has another type: then its bytes lie one after the other."""
    user = next(iter(tile.results[0].uses)).owner.operation
    tensor = user.results[0] if is_a(user, ktdp.LoadOp) else user.operands[0]
    return ir.RankedTensorType(tensor.type).element_type != tile.operands[0].type.element_type


def _in_pairs(tile: Tile) -> Tile:
    """A tile of bytes as one of places of 16 bits: rows 2r and 2r + 1 of 64 lanes each are one row of it."""
    *outer, row, lane = tile.strides
    anchor, dim = tile.anchor, len(outer)
    steps = [*outer, *anchor.steps.values(), *([anchor.rotation.step] if anchor.rotation else []), *anchor.constant.tolist()]
    whole = not any(step % STICK_BYTES for step in steps)
    if (row, lane) != (LANES, 1) or tile.shape[dim] % 2 or not whole or any(clip.lanes for clip in tile.clips):
        raise refused(tile.op, f"is on {tile.element.name}, of which two rows share a stick, but its tile is not of whole pairs of rows")
    rotation = anchor.rotation and replace(anchor.rotation, step=anchor.rotation.step // 2)
    halved = Index(anchor.constant // 2, anchor.argument, {level: step // 2 for level, step in anchor.steps.items()}, rotation)
    clips = tuple(replace(clip, step=2 * clip.step) if clip.dim == dim else clip for clip in tile.clips)
    shape = (*tile.shape[:dim], tile.shape[dim] // 2, tile.shape[-1])
    return replace(tile, anchor=halved, shape=shape, strides=(*(s // 2 for s in outer), LANES, 1), clips=clips)


def _buffer(
    view: ktdp.ConstructMemoryViewOp, start: Index, sizes: list[Index], strides: list[int], element_bytes: int, trips: Mapping[int, int]
) -> tuple[int, int]:
    """First stick and end of all slots of a view of LX, wherever the loops of `trips` trips step to; of a resident, of all of it."""
    resident = resident_of(view.operation)
    if resident is not None:
        return resident.address // STICK_BYTES, (resident.address + resident.bytes) // STICK_BYTES
    length = 1 + sum((s.scalar - 1) * stride for s, stride in zip(sizes, strides, strict=True))
    if start.rotation:
        length = start.rotation.buffers * start.rotation.step
    elif start.steps:
        length += sum(step * (trips[level] - 1) for level, step in start.steps.items())
    return start.scalar * element_bytes // STICK_BYTES, -(-(start.scalar + length) * element_bytes // STICK_BYTES)


def _linear(expression: ir.AffineExpr, op: ir.Operation) -> dict[int, int]:
    """Factor of each dim in a linear expression."""
    if isinstance(expression, ir.AffineDimExpr):
        return {ir.AffineDimExpr(expression).position: 1}
    if isinstance(expression, ir.AffineConstantExpr):
        return {}
    if isinstance(expression, ir.AffineAddExpr):
        left, right = (_linear(e, op) for e in (expression.lhs, expression.rhs))
        return {d: left.get(d, 0) + right.get(d, 0) for d in left | right}
    if isinstance(expression, ir.AffineMulExpr) and isinstance(expression.rhs, ir.AffineConstantExpr):
        return {d: factor * expression.rhs.value for d, factor in _linear(expression.lhs, op).items()}
    raise refused(op, "has a subscript that is not linear")
