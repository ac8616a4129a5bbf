"""The `ktdp` ops that name a part of a view: access tiles, direct ones and such as read coordinates from memory."""

from collections.abc import Sequence
from typing import Annotated, Any

from ktir.diagnostics import KtirError
from ktir.dialects._foundation import affine
from ktir.dialects._foundation.base import Operation, Pure, ReadEffect, Spread, report
from ktir.dialects._ktdp.types import AccessTileType, Ktdp
from ktir.dialects._ktdp.views import may_be_exceeded, sizes_text
from ktir.mlir import ext, ir

MOST_INDEX_VIEWS = 16


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
        dims = affine.permutation(list(self.attributes["access_tile_order"].value.results))
        if dims is None or sorted(dims) != list(range(len(dims))):
            raise KtirError("'ktdp.construct_access_tile' op has an order that is not a permutation", self.location)
        return dims

    def check(self) -> str | None:
        attributes = self.attributes
        _, indices, symbols = ir.DenseI32ArrayAttr(attributes["operandSegmentSizes"])
        base_map, order = attributes["base_map"].value, attributes["access_tile_order"].value
        dims, set_symbols, box = affine.set_facts(attributes["access_tile_set"])
        base = self.operands[0].type
        anchor = list(base_map.results)
        if dims != len(anchor):
            return f"access_tile_set dimensions ({dims}) must match base_map dims ({len(anchor)})"
        if set_symbols != symbols:
            return f"access_tile_set has {set_symbols} symbols but got {symbols} symbol operands"
        if fault := _order_fault("access_tile", order, dims, len(self.shape)):
            return fault
        if base_map.n_dims != indices or base_map.n_symbols:
            return f"base_map expects {base_map.n_dims + base_map.n_symbols} operands but got {indices}"
        if len(base.shape) != dims:
            return f"expects one index per dim of the base, but got {dims} for '{base}'"
        if box is None:
            return None
        constants = [_constant(value) for value in self.index_operands]
        for i, (expr, low, extent) in enumerate(zip(anchor, *box, strict=True)):
            at = affine.evaluate(expr, constants)
            if at is None or not extent or may_be_exceeded(self.operands[0], i):
                continue
            if fault := _bounds_fault("coordinates", at + low, at + low + extent - 1, i, base):
                return fault
        return None

    def doubt(self) -> str | None:
        return _shape_doubt(self.attributes["access_tile_set"], self.attributes["access_tile_order"], self.shape)


def _order_fault(what: str, order: ir.AffineMap, dims: int, rank: int) -> str | None:
    inputs, outputs = order.n_dims + order.n_symbols, len(order.results)
    if inputs != outputs:
        return f"{what}_order must have equal number of inputs ({inputs}) and outputs ({outputs})"
    if outputs != dims:
        return f"{what}_order dimensions ({outputs}) must match {what}_set dimensions ({dims})"
    return None if rank == dims else f"result type rank ({rank}) must match {what}_set dimensions ({dims})"


def _bounds_fault(what: str, first: int, last: int, dim: int, base: Any) -> str | None:
    """What is wrong with touching `first` to `last` in a dim of a base."""
    if base.is_dynamic_dim(dim) or (first >= 0 and last < base.shape[dim]):
        return None
    return f"reaches {what} {first} to {last} in dim {dim}, beyond the base of size {base.shape[dim]}"


def _shape_doubt(points: ir.Attribute, order_attribute: Any, shape: Sequence[int]) -> str | None:
    """What is suspicious about the order of a tile, or about its shape in view of the order."""
    box = affine.set_box(points)
    permuted = affine.permutation_of(order_attribute)
    if permuted is None or sorted(permuted) != list(range(len(permuted))):
        return f"expects an order that is a permutation, but got '{order_attribute.value}'"
    if box is not None and (expected := [box[1][d] for d in permuted]) != shape:
        return f"expects a tile of shape {expected}, the extents of its set in its order, but got {sizes_text(shape)}"
    return None


def _constant(value: ir.Value) -> int | None:
    """The number that an index value is known to be."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return ir.IntegerAttr(owner.attributes["value"]).value


class RegionTerminatorOp(Operation, dialect=Ktdp, name="region_terminator", traits=[ir.IsTerminatorTrait]):
    """Ends the region of an indirect access tile; the text of the op that owns it does not show it."""


class ConstructIndirectAccessTileOp(Operation, dialect=Ktdp, name="construct_indirect_access_tile", traits=[ReadEffect]):
    """As `construct_access_tile`, but the coordinates in some dims of the base are read from index views.

    For each point v of `variables_space_set`, tile element order(v) is the element of the base whose coordinate in dim j is the j-th
    subscript, or what the index view of the j-th subscript holds there. Values from outside that subscripts use are `captured`.

        %t = ktdp.construct_indirect_access_tile intermediate_variables(%i, %j) %x[ind(%rows[%i + %off]), (%j)]
            {variables_space_order = #id, variables_space_set = #box} : memref<99x64xf16>, memref<16xi32> -> !ktdp.access_tile<8x64xindex>
    """

    result: ext.Result[AccessTileType]
    base: ext.Operand[ir.MemRefType | ir.RankedTensorType]
    index_views: Annotated[Sequence[ext.Operand[ir.MemRefType]], Spread(MOST_INDEX_VIEWS)]
    captured: Sequence[ext.Operand[ir.IndexType]]
    symbol_values: Sequence[ext.Operand[ir.IndexType]]
    variables: ext.Region

    required = {
        "per_dim_subscript_kinds": ir.ArrayAttr,
        "per_dim_subscript_maps": ir.ArrayAttr,
        "variables_space_set": ir.IntegerSetAttr,
        "variables_space_order": ir.AffineMapAttr,
    }
    assembly = (
        "`intermediate_variables` variables($variables, ktdp.region_terminator) $base"
        " `[` indirect($index_views, $captured, $per_dim_subscript_kinds, $per_dim_subscript_maps, $variables) `]`"
        " (`symbols` `(` $symbol_values `)`)? attr-dict `:` type($base) (`,` type($index_views))? `->` type($result)"
    )

    @property
    def shape(self) -> list[int]:
        """Shape of the tile."""
        return self.results[0].type.shape

    @property
    def order(self) -> list[int]:
        """Variable of each tile dim."""
        return [ir.AffineDimExpr(e).position for e in self.attributes["variables_space_order"].value.results]

    @property
    def subscripts(self) -> list[tuple[ir.AffineMap, ir.Value | None]]:
        """Per dim of the base a map over captured values and variables, and the index view that it addresses, if any."""
        views = iter(self.index_views)
        kinds = [bool(ir.BoolAttr(kind).value) for kind in ir.ArrayAttr(self.attributes["per_dim_subscript_kinds"])]
        maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(self.attributes["per_dim_subscript_maps"])]
        return [(m, next(views) if kind else None) for m, kind in zip(maps, kinds, strict=True)]

    def check(self) -> str | None:
        attributes = self.attributes
        order = attributes["variables_space_order"].value
        dims, set_symbols, _ = affine.set_facts(attributes["variables_space_set"])
        _, views, captured, symbols = self.operand_fields.sizes(self)
        if dims != order.n_dims + order.n_symbols:
            return f"variables_space_set dimensions ({dims}) must match variables_space_order inputs ({order.n_dims + order.n_symbols})"
        if fault := _order_fault("variables_space", order, dims, len(self.shape)):
            return fault
        if set_symbols != symbols:
            return f"variables_space_set has {set_symbols} symbols but got {symbols} symbol operands"
        kinds, maps = list(attributes["per_dim_subscript_kinds"]), list(attributes["per_dim_subscript_maps"])
        if len(kinds) != len(maps):
            return f"per_dim_subscript_kinds size ({len(kinds)}) must match per_dim_subscript_maps size ({len(maps)})"
        rank = len(self.operands[0].type.shape)
        if len(kinds) != rank:
            return f"number of subscripts ({len(kinds)}) must match base rank ({rank})"
        if not all(isinstance(kind, ir.BoolAttr) for kind in kinds):
            return "per_dim_subscript_kinds must contain BoolAttr elements"
        indirect = sum(bool(kind.value) for kind in kinds)
        if indirect != views:
            return f"number of indirect dimensions ({indirect}) must match number of indirect memrefs ({views})"
        for i, m in enumerate(maps):
            if not isinstance(m, ir.AffineMapAttr):
                return f"per_dim_subscript_maps[{i}] must be an AffineMapAttr"
            if m.value.n_dims != captured + dims or m.value.n_symbols:
                return (
                    f"subscript map for dimension {i} has {m.value.n_dims} dimensions, but expected {captured + dims}"
                    " (captured_variables + intermediate_variables)"
                )
        return self._subscript_fault()

    def _subscript_fault(self) -> str | None:
        for i, (subscript, view) in enumerate(self.subscripts):
            results = len(subscript.results)
            if view is None and results != 1:
                return f"direct subscript map for dimension {i} must produce exactly 1 result, but produces {results}"
            if view is not None and results != len(view.type.shape):
                rank = len(view.type.shape)
                return f"indirect subscript map for dimension {i} produces {results} results, but indirect memref has rank {rank}"
        return self._reach(indirect=False)

    def _reach(self, indirect: bool) -> str | None:
        """What is provably read outside of the index views, or of the base by its direct subscripts."""
        space = self.attributes["variables_space_set"]
        dims, _, box = affine.set_facts(space)
        if box is not None and not all(box[1]):
            return None
        ranges: list[affine.Range | None] = []
        for value in self.captured:
            number = _constant(value)
            ranges.append(None if number is None else (number, number))
        ranges += [(low, low + extent - 1) for low, extent in zip(*box, strict=True)] if box else [None] * dims
        base = self.operands[0]
        for i, (subscript, view) in enumerate(self.subscripts):
            target = base if view is None else view
            if (view is not None) != indirect:
                continue
            for k, expr in enumerate(subscript.results):
                reach = affine.interval(expr, ranges)
                at, what = (i, "coordinates") if view is None else (k, "indices")
                if reach and not may_be_exceeded(target, at) and (fault := _bounds_fault(what, *reach, at, target.type)):
                    return fault
        return None

    def doubt(self) -> str | None:
        attributes = self.attributes
        return _shape_doubt(attributes["variables_space_set"], attributes["variables_space_order"], self.shape) or self._reach(
            indirect=True
        )

    @staticmethod
    def verify_region_invariants(op: Any) -> bool:
        blocks = list(op.regions[0].blocks)
        dims = affine.set_counts(op.attributes["variables_space_set"])[0]
        if len(blocks) != 1 or [o.operation.name for o in blocks[0].operations] != [RegionTerminatorOp.OPERATION_NAME]:
            return report(op, "expects a region of one block with nothing but a terminator")
        variables = len(blocks[0].arguments)
        if variables != dims:
            return report(op, f"number of intermediate variables ({variables}) must match variables_space_set dimensions ({dims})")
        if not all(isinstance(argument.type, ir.IndexType) for argument in blocks[0].arguments):
            return report(op, "expects intermediate variables of type 'index'")
        return True
