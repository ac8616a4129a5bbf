"""The `ktdp` dialect, in the newest public spelling: views of memory, tiles of views, loads and stores of tiles.

The functions at the end build ops at the current insertion point and location, or at `loc`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from ktir.assembly.parameters import DYNAMIC, Dimensions
from ktir.diagnostics import KtirError
from ktir.dialects import _affine
from ktir.dialects._base import Attribute, Dialect, Operation, Pure, ReadEffect, Type, WriteEffect
from ktir.mlir import ext, ir


class Ktdp(Dialect, name="ktdp"):
    """Kernel-tile data-parallel programs: every compute tile runs the same function body."""


class MemorySpaceAttr(Attribute, dialect=Ktdp, name="memory_space"):
    """Where a view lies: `#ktdp.memory_space<global>`, or `<ct_local>`, the scratchpad of the executing tile or of tile `ct_id`."""

    kind: Literal["global", "ct_local"]
    ct_id: int

    positional = ("kind",)
    defaults = {"ct_id": -1}
    elided = ("ct_id",)

    @staticmethod
    def check(values: Mapping[str, Any]) -> str | None:
        if values["ct_id"] < -1:
            return "ct_id must be non-negative"
        if values["kind"] == "global" and values["ct_id"] != -1:
            return "ct_id is only legal for memory space 'ct_local'"
        return None


class AccessTileType(Type, dialect=Ktdp, name="access_tile"):
    """A set of coordinates arranged as a tile of `shape`: `!ktdp.access_tile<32x64xindex>`."""

    shape: Annotated[list[int], Dimensions()]

    positional = ("shape",)


class GetComputeTileIdOp(Operation, dialect=Ktdp, name="get_compute_tile_id", traits=[Pure]):
    """The executing tile's coordinates: result k is the one along grid dim k.

    %t = ktdp.get_compute_tile_id : index
    """

    ids: Sequence[ext.Result[ir.IndexType]]

    assembly = "attr-dict `:` type($ids)"

    def check(self) -> str | None:
        return None if len(self.results) else "must have at least one result"


class ConstructMemoryViewOp(Operation, dialect=Ktdp, name="construct_memory_view", traits=[Pure]):
    """Memory seen as a tensor: element i lies at `offset + sum(i[d] * strides[d])`, in elements. Nothing is allocated or moved.

    `coordinate_set` says which coordinates the view owns; its symbols stand for the dynamic sizes, in order. A view with a
    dynamic size clips what goes beyond it; those that we make say so with the unit attribute `masked`.

        %v = ktdp.construct_memory_view %x, sizes: [57, %n], strides: [64, 1]
            {coordinate_set = #box, masked, memory_space = #ktdp.memory_space<global>} : memref<57x?xf16>
    """

    result: ext.Result[ir.MemRefType]
    offset: ext.Operand[ir.IndexType]
    dynamic_sizes: Sequence[ext.Operand[ir.IndexType]]
    dynamic_strides: Sequence[ext.Operand[ir.IndexType]]

    required = {
        "static_sizes": ir.DenseI64ArrayAttr,
        "static_strides": ir.DenseI64ArrayAttr,
        "coordinate_set": ir.IntegerSetAttr,
        "memory_space": MemorySpaceAttr,
    }
    assembly = (
        "$offset `,` `sizes:` mixed($dynamic_sizes, $static_sizes) `,` `strides:` mixed($dynamic_strides, $static_strides)"
        " attr-dict `:` type($result)"
    )

    @property
    def sizes(self) -> list[int | ir.Value]:
        """One entry per dim: an int, or the value of a dynamic size."""
        return self._mixed("static_sizes", 0)

    @property
    def strides(self) -> list[int | ir.Value]:
        """One entry per dim, in elements: an int, or the value of a dynamic stride."""
        return self._mixed("static_strides", self._segments()[1])

    @property
    def memory_space(self) -> str:
        """`global` or `ct_local`."""
        return MemorySpaceAttr(self.attributes["memory_space"]).kind

    @property
    def ct_id(self) -> int | None:
        """The tile whose scratchpad this is; None: the executing tile's, or global memory."""
        number = MemorySpaceAttr(self.attributes["memory_space"]).ct_id
        return None if number < 0 else number

    @property
    def masked(self) -> bool:
        """Whether accesses beyond the view are clipped rather than forbidden."""
        return "masked" in self.attributes or DYNAMIC in ir.DenseI64ArrayAttr(self.attributes["static_sizes"])

    @property
    def element_type(self) -> ir.Type:
        return ir.MemRefType(self.results[0].type).element_type

    def _segments(self) -> list[int]:
        return list(ir.DenseI32ArrayAttr(self.attributes["operandSegmentSizes"]))

    def _mixed(self, name: str, skip: int) -> list[int | ir.Value]:
        operands = self.operands
        at = 1 + skip
        entries: list[int | ir.Value] = []
        for entry in ir.DenseI64ArrayAttr(self.attributes[name]):
            if entry == DYNAMIC:
                entries.append(operands[at])
                at += 1
            else:
                entries.append(entry)
        return entries

    def check(self) -> str | None:
        attributes = self.attributes
        sizes = list(ir.DenseI64ArrayAttr(attributes["static_sizes"]))
        strides = list(ir.DenseI64ArrayAttr(attributes["static_strides"]))
        view = self.results[0].type
        if len(sizes) != len(strides):
            return f"expects as many strides as sizes, but got {len(strides)} and {len(sizes)}"
        for what, entries, count in zip(("size", "stride"), (sizes, strides), self._segments()[1:], strict=True):
            if entries.count(DYNAMIC) != count:
                return f"expects one operand per dynamic {what}, but got {count} for {entries.count(DYNAMIC)}"
        if len(view.shape) != len(sizes):
            return f"expects a result of rank {len(sizes)}, but got '{view}'"
        for i, (size, dim) in enumerate(zip(sizes, view.shape, strict=True)):
            if size < 0 and size != DYNAMIC:
                return f"expects non-negative sizes, but got {size}"
            if size != DYNAMIC and not view.is_dynamic_dim(i) and size != dim:
                return f"expects size {size} in dim {i} of the result, but got '{view}'"
        dims, symbols = _affine.set_counts(attributes["coordinate_set"])
        if dims != len(sizes):
            return f"expects a coordinate set of {len(sizes)} dims, but got {dims}"
        if symbols not in (0, sizes.count(DYNAMIC)):
            return f"expects a coordinate set with one symbol per dynamic size, but got {symbols} for {sizes.count(DYNAMIC)}"
        if view.memory_space is not None and view.memory_space != attributes["memory_space"]:
            return "expects the memory space of its result type to be the one in its attribute"
        if "masked" in attributes and DYNAMIC not in sizes:
            return "can only be masked with a dynamic size"
        return None


class ConstructAccessTileOp(Operation, dialect=Ktdp, name="construct_access_tile", traits=[Pure]):
    """The coordinates of `base` that a load or store touches.

    With anchor x = base_map(index operands), set A and order s, tile element s(p) is element x + p of the base, for p in A.

        %t = ktdp.construct_access_tile %v[%row * 2, 0] {access_tile_order = #id, access_tile_set = #box}
            : memref<57x64xf16> -> !ktdp.access_tile<2x64xindex>
    """

    result: ext.Result[AccessTileType]
    base: ext.Operand[ir.MemRefType | ir.RankedTensorType]
    index_values: Sequence[ext.Operand[ir.IndexType]]
    symbol_values: Sequence[ext.Operand[ir.IndexType]]

    required = {
        "base_map": ir.AffineMapAttr,
        "access_tile_set": ir.IntegerSetAttr,
        "access_tile_order": ir.AffineMapAttr,
    }
    assembly = (
        "$base `[` affine($index_values, $base_map) `]` (`symbols` `(` $symbol_values `)`)? attr-dict `:` type($base) `->` type($result)"
    )

    @property
    def base_map(self) -> ir.AffineMap:
        """From the index operands to the anchor in base coordinates."""
        return self.attributes["base_map"].value

    @property
    def index_operands(self) -> list[ir.Value]:
        """What `base_map` is applied to."""
        count = ir.DenseI32ArrayAttr(self.attributes["operandSegmentSizes"])[1]
        return list(self.operands)[1 : 1 + count]

    @property
    def indices(self) -> list[int | ir.Value | tuple[ir.AffineExpr, list[ir.Value]]]:
        """The anchor, one entry per base dim: an int, a value, or else an expression over `index_operands`."""
        values = self.index_operands
        entries: list[int | ir.Value | tuple[ir.AffineExpr, list[ir.Value]]] = []
        for expr in self.base_map.results:
            if isinstance(expr, ir.AffineConstantExpr):
                entries.append(expr.value)
            elif isinstance(expr, ir.AffineDimExpr):
                entries.append(values[expr.position])
            else:
                entries.append((expr, values))
        return entries

    @property
    def shape(self) -> list[int]:
        """Shape of the tile."""
        return self.results[0].type.shape

    @property
    def order(self) -> list[int]:
        """Base dim of each tile dim. Raises KtirError if the order is not a permutation."""
        dims = _affine.permutation(list(self.attributes["access_tile_order"].value.results))
        if dims is None or sorted(dims) != list(range(len(dims))):
            raise KtirError("'ktdp.construct_access_tile' op has an order that is not a permutation", self.location)
        return dims

    @property
    def box_lo(self) -> list[int]:
        """Lowest corner of the set, in base dims. Raises KtirError if the set is not a constant box."""
        return list(self._box()[0])

    @property
    def box_extent(self) -> list[int]:
        """Extents of the set, in base dims. Raises KtirError if the set is not a constant box."""
        return list(self._box()[1])

    def _box(self) -> _affine.Box:
        box = _affine.set_box(self.attributes["access_tile_set"])
        if box is None:
            raise KtirError("'ktdp.construct_access_tile' op has a set that is not a box", self.location)
        return box

    def check(self) -> str | None:
        attributes = self.attributes
        _, indices, symbols = ir.DenseI32ArrayAttr(attributes["operandSegmentSizes"])
        base_map, order = attributes["base_map"].value, attributes["access_tile_order"].value
        dims, set_symbols = _affine.set_counts(attributes["access_tile_set"])
        base, shape = self.operands[0].type, self.shape
        anchor = list(base_map.results)
        steps = list(order.results)
        if dims != len(anchor):
            return f"expects an access tile set of {len(anchor)} dims, one per index, but got {dims}"
        if set_symbols != symbols:
            return f"expects one symbol operand per symbol of the access tile set, but got {symbols} for {set_symbols}"
        if order.n_dims != dims or len(steps) != dims:
            return f"expects an access tile order of {dims} dims to {dims} dims, but got '{order}'"
        if base_map.n_dims != indices or base_map.n_symbols:
            return f"expects a base map of {indices} dims and no symbols, but got '{base_map}'"
        if len(base.shape) != dims:
            return f"expects one index per dim of the base, but got {dims} for '{base}'"
        if len(shape) != dims:
            return f"expects a tile of rank {dims}, but got '{self.results[0].type}'"
        box, permuted = _affine.set_box(attributes["access_tile_set"]), _affine.permutation(steps)
        if box is None or permuted is None:
            return None
        if sorted(permuted) != list(range(dims)):
            return f"expects an access tile order that is a permutation, but got '{order}'"
        if (expected := [box[1][d] for d in permuted]) != shape:
            return f"expects a tile of shape {expected}, the extents of its set in its order, but got {shape}"
        return self._bounds_fault(anchor, box)

    def _bounds_fault(self, anchor: list[ir.AffineExpr], box: _affine.Box) -> str | None:
        """What is provably outside of a base with static bounds."""
        base = self.operands[0]
        view = base.owner.opview if isinstance(base.owner, ir.Operation) else base.owner
        if isinstance(view, ConstructMemoryViewOp) and view.masked:
            return None
        constants = [_constant(value) for value in self.index_operands]
        for i, (expr, low, extent) in enumerate(zip(anchor, *box, strict=True)):
            at = _affine.evaluate(expr, constants)
            if at is None or base.type.is_dynamic_dim(i) or not extent:
                continue
            size = base.type.shape[i]
            if at + low < 0 or at + low + extent > size:
                last = at + low + extent - 1
                return f"reaches coordinates {at + low} to {last} in dim {i}, beyond the base of size {size}"
        return None


def _constant(value: ir.Value) -> int | None:
    """The number that an index value is known to be."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value


def _view_element_type(tile: ir.Value) -> ir.Type | None:
    """Element type of what `tile` is a tile of, where its construction can be seen."""
    owner = tile.owner
    if isinstance(owner, ir.Block) or owner.name != ConstructAccessTileOp.OPERATION_NAME:
        return None
    return owner.operands[0].type.element_type


def _tile_fault(tensor: Any, tile: ir.Value, what: str) -> str | None:
    """What is wrong with moving `tensor` to or from `tile`."""
    shape = [DYNAMIC if tensor.is_dynamic_dim(i) else size for i, size in enumerate(tensor.shape)]
    if shape != tile.type.shape:
        return f"expects {what} of the tile's shape {tile.type.shape}, but got '{tensor}'"
    element = _view_element_type(tile)
    if element is not None and element != tensor.element_type:
        return f"expects {what} of element type '{element}', that of the view, but got '{tensor.element_type}'"
    return None


class LoadOp(Operation, dialect=Ktdp, name="load", traits=[ReadEffect]):
    """The elements of a tile, as a tensor of the tile's shape.

    %x = ktdp.load %t : <2x64xindex> -> tensor<2x64xf16>
    """

    result: ext.Result[ir.RankedTensorType]
    tile: ext.Operand[AccessTileType]

    assembly = "$tile attr-dict `:` stripped($tile) `->` type($result)"

    @property
    def value(self) -> ir.Value:
        """The loaded tensor."""
        return self.results[0]

    def check(self) -> str | None:
        return _tile_fault(self.results[0].type, self.operands[0], "a result")


class StoreOp(Operation, dialect=Ktdp, name="store", traits=[WriteEffect]):
    """Writes a tensor to the elements of a tile of the same shape.

    ktdp.store %x, %t : tensor<2x64xf16>, <2x64xindex>
    """

    value: ext.Operand[ir.RankedTensorType]
    tile: ext.Operand[AccessTileType]

    assembly = "$value `,` $tile attr-dict `:` type($value) `,` stripped($tile)"

    def check(self) -> str | None:
        return _tile_fault(self.operands[0].type, self.operands[1], "a value")


def get_compute_tile_id(n: int = 1, *, loc: ir.Location | None = None) -> list[ir.Value]:
    """The executing tile's `n` coordinates."""
    op = ir.Operation.create(GetComputeTileIdOp.OPERATION_NAME, results=[ir.IndexType.get()] * n, loc=loc)
    return list(op.results)


def construct_memory_view(
    offset: ir.Value,
    sizes: Sequence[int | ir.Value],
    strides: Sequence[int | ir.Value],
    element_type: ir.Type,
    memory_space: str = "global",
    *,
    ct_id: int | None = None,
    attributes: Mapping[str, ir.Attribute] | None = None,
    loc: ir.Location | None = None,
) -> ir.Value:
    """A view of memory at `offset`; sizes and strides in elements. A dynamic size makes it a masked view.

    The coordinate set is the box of `sizes` with a symbol per dynamic one, unless `attributes` gives another.
    """
    dynamic_sizes = [s for s in sizes if not isinstance(s, int)]
    dynamic_strides = [s for s in strides if not isinstance(s, int)]
    static = [None if not isinstance(s, int) else s for s in sizes]
    shape = [ir.ShapedType.get_dynamic_size() if s is None else s for s in static]
    given: dict[str, ir.Attribute] = {
        "coordinate_set": _affine.box_set(static),
        "memory_space": MemorySpaceAttr.build(memory_space, -1 if ct_id is None else ct_id),
        "static_sizes": _integers(sizes),
        "static_strides": _integers(strides),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(dynamic_sizes), len(dynamic_strides)]),
    }
    if dynamic_sizes:
        given["masked"] = ir.UnitAttr.get()
    op = ir.Operation.create(
        ConstructMemoryViewOp.OPERATION_NAME,
        results=[ir.MemRefType.get(shape, element_type)],
        operands=[offset, *dynamic_sizes, *dynamic_strides],
        attributes=given | dict(attributes or {}),
        loc=loc,
    )
    return op.results[0]


def construct_access_tile(
    view: ir.Value,
    indices: Sequence[int | ir.Value],
    shape: Sequence[int],
    order: Sequence[int] | None = None,
    *,
    loc: ir.Location | None = None,
) -> ir.Value:
    """The box of `shape` (in base dims) at `indices`. `order[k]` is the base dim of tile dim k; None keeps the base's order."""
    order = list(range(len(shape))) if order is None else list(order)
    values: list[ir.Value] = []
    anchor: list[ir.AffineExpr] = []
    for index in indices:
        if isinstance(index, int):
            anchor.append(ir.AffineExpr.get_constant(index))
            continue
        if index not in values:
            values.append(index)
        anchor.append(ir.AffineExpr.get_dim(values.index(index)))
    steps = [ir.AffineExpr.get_dim(d) for d in order]
    op = ir.Operation.create(
        ConstructAccessTileOp.OPERATION_NAME,
        results=[AccessTileType.build([shape[d] for d in order])],
        operands=[view, *values],
        attributes={
            "base_map": ir.AffineMapAttr.get(ir.AffineMap.get(len(values), 0, anchor)),
            "access_tile_set": _affine.box_set(list(shape)),
            "access_tile_order": ir.AffineMapAttr.get(ir.AffineMap.get(len(shape), 0, steps)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(values), 0]),
        },
        loc=loc,
    )
    return op.results[0]


def load(tile: ir.Value, element_type: ir.Type, encoding: ir.Attribute | None = None, *, loc: ir.Location | None = None) -> ir.Value:
    """The tensor in `tile`; `encoding` becomes that of its type."""
    result = ir.RankedTensorType.get(AccessTileType(tile.type).shape, element_type, encoding)
    return ir.Operation.create(LoadOp.OPERATION_NAME, results=[result], operands=[tile], loc=loc).results[0]


def store(value: ir.Value, tile: ir.Value, *, loc: ir.Location | None = None) -> None:
    """Writes `value` to `tile`."""
    ir.Operation.create(StoreOp.OPERATION_NAME, operands=[value, tile], loc=loc)


def _integers(entries: Sequence[int | ir.Value]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([e if isinstance(e, int) else DYNAMIC for e in entries])
