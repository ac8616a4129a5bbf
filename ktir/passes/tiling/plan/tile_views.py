"""What a core owns of a tensor in memory, seen at one batch position as [sticks, rows, lanes].

A divided kernel's views have a dim per row loop. A block is at one position of each batch axis: the position goes into the offset of a view
of the other dims, so that everything below the divided level has three dims.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ktir.analysis.attributes.residents import RESIDENT
from ktir.diagnostics import refused
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.dialects.structured import index_constant, index_sum
from ktir.mlir import arith, ir, is_a
from ktir.target import LANES

Values = Mapping[ir.Value, ir.Value]
"""A value of the divided kernel -> the same in the tiled one."""

Size = int | ir.Value


@dataclass(frozen=True)
class Place:
    """Where a block lies in a tensor of the divided level.

    `batches`: dims that run along a batch axis -> the position, None where the core owns only one. `row`: the dim of the block's rows, None
    where it has none. `rows`: those of the block; what lies beyond the core's own rows is clipped. `inside`: no block hangs over the end of
    the `rows`, or of the `lanes`.
    """

    batches: Mapping[int, ir.Value | None]
    row: int | None
    rows: int
    inside: str = ""

    def moved(self, offset: ir.Value, strides: Sequence[int], dims: Mapping[int, int]) -> ir.Value:
        """An offset moved to the batch position; `dims`: dim of the tensor -> dim of the memory that it walks."""
        for dim, at in dims.items():
            position = self.batches.get(dim)
            if position is not None:
                step = arith.MulIOp(position, index_constant(strides[at])).result
                offset = arith.AddIOp(offset, step).result
        return offset


def is_block(view: ktdp.ConstructMemoryViewOp, place: Place) -> bool:
    """Whether a view of the divided level is one of blocks as it stands."""
    sizes = list(view.sizes)
    if len(sizes) != 3 or 1 in place.batches:
        return False
    if place.row is None:
        return place.rows == 1
    if place.inside:
        return False
    size = sizes[1]
    return not isinstance(size, int) or size % place.rows == 0


def tile_of(access: ir.Operation) -> ir.Operation:
    """The access tile of a load or store."""
    return access.operands[-1].owner.operation


def direct(tile: ir.Operation) -> bool:
    """Whether an access tile names its coordinates itself."""
    return is_a(tile, ktdp.ConstructAccessTileOp)


def first_stick(tile: ktdp.ConstructAccessTileOp, mapping: Values) -> Size:
    """The core's first stick in the view of a tile."""
    stick = tile.indices[0]
    if isinstance(stick, tuple):
        raise refused(tile.operation, "expects a tile that begins at one stick")
    return _size(stick, mapping)


class Window:
    """The memory of a tensor at one batch position; made where it is used, since it computes addresses."""

    def __init__(self, tile: ir.Operation, place: Place, mapping: Values) -> None:
        op = tile.opview
        assert isinstance(op, ktdp.ConstructAccessTileOp)
        if any(n != 0 for n in op.indices[1:]) or list(op.order) != list(range(len(op.shape))):
            raise refused(tile, "expects a tile of all rows of the view in the order of its dims")
        view = op.base.owner.opview
        self.stick = first_stick(op, mapping)
        self.view = mapping[op.base] if is_block(view, place) else block_view(view, place, mapping)

    @property
    def clips_rows(self) -> bool:
        """Whether a block may have more rows than there are."""
        return not isinstance(self.view.owner.opview.sizes[1], int)

    def tile(self, stick: Size, row: Size, shape: Sequence[int]) -> ir.Value:
        """The access tile of `shape` at a stick and a row."""
        return ktdp.construct_access_tile(self.view, [index_sum(self.stick, stick), row, 0], shape)


def line_view(
    view: ktdp.ConstructMemoryViewOp, place: Place, mapping: Values, distance: Size, unit: int, step: int, reach: int, end: int
) -> ir.Value:
    """The view of [sticks, rows, lanes] with rows `unit` elements apart: all from the first one of `view` to the one that lies `reach` rows
    behind the last one, `distance` elements further on. Rows of `view` are `step` rows apart; `end`: where the last tile ends, of which the
    rows that are not there are clipped."""
    assert place.row is not None
    old, strides = list(view.sizes), _strides(view)
    last = len(old) - 1
    _owned(view, old, place)
    offset = place.moved(mapping[view.offset], strides, {d: d for d in range(len(old))})
    moved = index_sum(offset, distance)
    assert not isinstance(moved, int)
    size = _size(old[place.row], mapping)
    if isinstance(size, int):
        live: Size = (size - 1) * step + 1 + reach
    else:
        live = index_sum(arith.MulIOp(size, index_constant(step)).result, 1 + reach - step)
    rows = index_constant(live) if isinstance(live, int) and live < end else live
    kept = [0, place.row, last]
    return _view(view, moved, [_size(old[0], mapping), rows, _size(old[last], mapping)], [strides[0], unit, strides[last]], kept)


def block_view(view: ktdp.ConstructMemoryViewOp, place: Place, mapping: Values) -> ir.Value:
    """The view of [sticks, rows, lanes] at a batch position."""
    old, strides = list(view.sizes), _strides(view)
    last = len(old) - 1
    _owned(view, old, place)
    offset = place.moved(mapping[view.offset], strides, {d: d for d in range(len(old))})
    sizes: list[Size] = [_size(old[0], mapping), _rows(old, place, mapping), _size(old[last], mapping)]
    kept = [0, place.row, last]
    step = LANES if place.row is None else strides[place.row]
    return _view(view, offset, sizes, [strides[0], step, strides[last]], kept, clipped=place.inside != "lanes")


def _owned(view: ktdp.ConstructMemoryViewOp, sizes: Sequence[Size], place: Place) -> None:
    for dim in place.batches:
        if not isinstance(sizes[dim], int):
            raise refused(view.operation, f"expects as many positions on every core along dim {dim}, a batch axis")


def _strides(view: ktdp.ConstructMemoryViewOp) -> list[int]:
    strides = [s for s in view.strides if isinstance(s, int)]
    if len(strides) != len(view.strides):
        raise refused(view.operation, "expects static strides")
    return strides


def _size(size: Size, mapping: Values) -> Size:
    return size if isinstance(size, int) else mapping[size]


def _rows(sizes: Sequence[Size], place: Place, mapping: Values) -> Size:
    """Rows of a block's view: a static number only where no block hangs over."""
    size = 1 if place.row is None else _size(sizes[place.row], mapping)
    if place.inside == "rows" and isinstance(size, int):
        return size // place.rows * place.rows
    return index_constant(size) if isinstance(size, int) and size % place.rows else size


_DIM = re.compile(r"\bd(\d+)\b")


def _view(
    old: ktdp.ConstructMemoryViewOp,
    offset: ir.Value,
    sizes: Sequence[Size],
    strides: Sequence[int],
    kept: Sequence[int | None],
    *,
    clipped: bool = True,
) -> ir.Value:
    """A view of some dims of `old` (None: of a new one), `clipped` as that is or for tiles that lie inside."""
    extra: list[str] = []
    inner = re.sub(r"^.*? : \(|\)>$", "", str(old.operation.attributes["coordinate_set"])) if clipped else ""
    for constraint in inner.split(", "):
        dims = {int(d) for d in _DIM.findall(constraint)}
        if len(dims) > 1:
            if not dims <= set(kept):
                raise refused(old.operation, f"expects bounds of sticks, rows and lanes, but got '{constraint}'")
            extra.append(_DIM.sub(lambda m: f"d{kept.index(int(m[1]))}", constraint))
    attributes: dict[str, ir.Attribute] = {}
    if extra:
        box = str(affine.box_set([s if isinstance(s, int) else None for s in sizes])).removesuffix(")>")
        attributes = {"coordinate_set": ir.Attribute.parse(f"{box}, {', '.join(extra)})>"), "masked": ir.UnitAttr.get()}
    if RESIDENT in old.operation.attributes:
        attributes[RESIDENT] = old.operation.attributes[RESIDENT]
    return ktdp.construct_memory_view(offset, sizes, strides, old.element_type, old.memory_space, attributes=attributes)


@dataclass
class _Subscript:
    """One dim of the memory behind an indirect tile: its size and stride, and where a block lies in it.

    `role`: `stick`, `row`, `lane` or an index view with what it has as coordinates.
    """

    dim: int | None
    size: Size
    stride: int
    role: str
    index: ir.Value | None = None
    coordinates: list[str] = field(default_factory=list)


class IndirectWindow:
    """The same for an indirect tile: index views are seen at the batch position too."""

    def __init__(self, tile: ir.Operation, place: Place, mapping: Values) -> None:
        op = tile.opview
        assert isinstance(op, ktdp.ConstructIndirectAccessTileOp)
        self.op, self.place, self.mapping = op, place, mapping
        self.stick: Size = 0
        """The core's first stick in the view."""
        view = op.base.owner.opview
        sizes, strides = list(view.sizes), _strides(view)
        rank = len(op.shape)
        self.dim_of = {variable: dim for dim, variable in enumerate(op.order)}
        """Dim of the tensor that a variable walks."""
        self.rank = rank
        walked: dict[int, int] = {}
        found: list[_Subscript] = []
        for d, (subscript, index) in enumerate(op.subscripts):
            if index is not None:
                rebuilt, coordinates = self._index_view(index, list(subscript.results))
                found.append(_Subscript(d, _size(sizes[d], mapping), strides[d], "index", rebuilt, coordinates))
                continue
            role, dim = self._role(subscript.results[0])
            if role == "batch":
                assert dim is not None
                walked[dim] = d
            elif role != "only":
                size = _size(sizes[d], mapping) if role != "row" else _rows(sizes, Place({}, d, place.rows), mapping)
                found.append(_Subscript(d, size, strides[d], role))
        if place.rows > 1 and not any(s.role == "row" for s in found):
            # no dim of the memory tells a block's rows apart: one of stride 0 says which of them there are
            found.insert(len(found) - 1, _Subscript(None, self._live_rows(), 0, "row"))
        self.subscripts = found
        _owned(view, sizes, Place({d: None for d in walked.values()}, None, 1))
        offset = place.moved(mapping[view.offset], strides, walked)
        self.view = _view(view, offset, [s.size for s in found], [s.stride for s in found], [s.dim for s in found])

    def _role(self, expression: ir.AffineExpr) -> tuple[str, int | None]:
        """What a subscript walks, and the tensor's dim that it is."""
        captured = list(self.op.captured)
        if isinstance(expression, ir.AffineConstantExpr) and ir.AffineConstantExpr(expression).value == 0:
            return "only", None
        first: ir.Value | None = None
        if isinstance(expression, ir.AffineAddExpr):
            terms = [ir.AffineAddExpr(expression).lhs, ir.AffineAddExpr(expression).rhs]
            for term, other in (terms, terms[::-1]):
                if isinstance(term, ir.AffineDimExpr) and ir.AffineDimExpr(term).position < len(captured):
                    first, expression = captured[ir.AffineDimExpr(term).position], other
                    break
        number = ir.AffineDimExpr(expression).position - len(captured) if isinstance(expression, ir.AffineDimExpr) else -1
        if number < 0:
            raise refused(self.op.operation, f"expects subscripts that are variables, but got '{expression}'")
        dim = self.dim_of[number]
        if first is not None:
            if dim != 0:
                raise refused(self.op.operation, "expects only sticks to begin elsewhere")
            self.stick = self.mapping[first]
        if dim in (0, self.rank - 1):
            return ("stick" if dim == 0 else "lane"), dim
        if dim == self.place.row:
            return "row", dim
        return ("batch" if dim in self.place.batches else "only"), dim

    def _index_view(self, index: ir.Value, expressions: list[ir.AffineExpr]) -> tuple[ir.Value, list[str]]:
        """An index view at the batch position, and the coordinates at which a block reads it: `row`, or `only` its first element."""
        view = index.owner.opview
        sizes, strides = list(view.sizes), _strides(view)
        walked: dict[int, int] = {}
        rows: int | None = None
        for d, expression in enumerate(expressions):
            role, dim = self._role(expression)
            if role in ("stick", "lane"):
                raise refused(self.op.operation, "expects indices that are the same for all sticks and lanes of a row")
            if role == "row":
                rows = d
            elif dim is not None:
                walked[dim] = d
        offset = self.place.moved(self.mapping[view.offset], strides, walked)
        if rows is None:
            return _view(view, offset, [1], [1], [None]), ["only"]
        size = _rows(sizes, Place({}, rows, self.place.rows), self.mapping)
        return _view(view, offset, [size], [strides[rows]], [rows]), ["row"]

    def _live_rows(self) -> Size:
        """How many rows the core has, of a block whose memory is found by index."""
        for subscript, index in self.op.subscripts:
            for d, expression in enumerate(subscript.results):
                if index is not None and self._role(expression)[0] == "row":
                    return _rows(list(index.owner.opview.sizes), Place({}, d, self.place.rows), self.mapping)
        return index_constant(1)

    @property
    def clips_rows(self) -> bool:
        """Whether a block may have more rows than there are."""
        return True

    def tile(self, stick: Size, row: Size, shape: Sequence[int]) -> ir.Value:
        """The indirect tile of `shape` at a stick and a row."""
        stick = index_sum(self.stick, stick)
        captured = [v for v in (stick, row) if not isinstance(v, int)]
        first = {"stick": stick, "row": row}
        expressions: dict[str, ir.AffineExpr] = {"only": ir.AffineExpr.get_constant(0)}
        for variable, role in enumerate(("stick", "row", "lane")):
            start = first.get(role, 0)
            number = ir.AffineExpr.get_dim(len(captured) + variable)
            if not isinstance(start, int):
                number = ir.AffineExpr.get_dim(captured.index(start)) + number
            expressions[role] = number + start if isinstance(start, int) and start else number
        subscripts = [
            expressions[s.role] if s.index is None else (s.index, [expressions[c] for c in s.coordinates]) for s in self.subscripts
        ]
        return ktdp.construct_indirect_access_tile(self.view, subscripts, shape, captured=captured)


def window(tile: ir.Operation, place: Place, mapping: Values) -> Window | IndirectWindow:
    """The memory of a loaded or stored tensor at one batch position."""
    return (Window if direct(tile) else IndirectWindow)(tile, place, mapping)
