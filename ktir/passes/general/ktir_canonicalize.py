"""KTIR -> KTIR: folds of `ktdp` ops that MLIR's canonicalizer cannot know.

Upstream's `canonicalize` folds `arith`, `tensor` and the rest; run the two in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.attributes.levels import constant_of
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.mlir import arith, builtin, func, ir, is_a, named, names, operations, tensor
from ktir.pipeline import Pass

MERGED = names(
    ktdp.GetComputeTileIdOp,
    ktdp.ConstructMemoryViewOp,
    ktdp.ConstructDistributedMemoryViewOp,
    ktdp.ConstructAccessTileOp,
    ktdp.RuntimeArgExtractOp,
)
"""Ops without effects: two with the same operands and attributes are one."""
DROPPED = names(*MERGED, ktdp.ConstructIndirectAccessTileOp, ktdp.LoadOp, arith.ConstantOp, tensor.ExtractSliceOp)
"""Ops that may go when nobody uses their results."""

DYNAMIC = ir.ShapedType.get_dynamic_size()


@dataclass(frozen=True)
class CanonicalizePass(Pass):
    """Fold constants into base maps and strides, merge duplicate views and tiles, narrow loads to the slice in use, drop what is dead.

    Expects: any level. Guarantees: values do not change; bases of tiles that are tensors are read without a load where the tile is the
    whole tensor.
    """

    name: ClassVar[str] = "ktir-canonicalize"
    description: ClassVar[str] = "fold views, tiles and loads of ktdp"

    def run(self, module: ir.Module) -> None:
        """Apply the folds until nothing changes."""
        changed = True
        while changed:
            changed = False
            for op in [op for op in operations(module) if op.name in FOLDS]:  # a fold erases this op, and slices
                for fold in FOLDS[op.name]:
                    if fold(op):
                        self.count(fold.__name__.strip("_").replace("_", "-"))
                        changed = True
                        break
            for what, number in (("ops-merged", _merge(module.operation)), ("ops-dropped", _drop(module))):
                if number:
                    self.count(what, number)
                    changed = True


def _replace(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _rebuilt(op: ir.Operation, operands: Sequence[ir.Value], attributes: dict[str, ir.Attribute]) -> None:
    """Replace `op` by one with other operands, and some other attributes."""
    kept = {name: op.attributes[name] for name in op.attributes}
    with ir.InsertionPoint(op):
        new = ir.Operation.create(
            op.name,
            results=[r.type for r in op.results],
            operands=operands,
            attributes=kept | attributes,
            regions=len(op.regions),
            loc=op.location,
        )
    for old, fresh in zip(op.regions, new.regions, strict=True):
        for block in list(old.blocks):
            block.append_to(fresh)
    _replace(op, new.results[0])


def _sizes(op: ir.Operation) -> list[int]:
    return list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))


def _narrowed(values: Sequence[ir.Value]) -> tuple[list[ir.Value], list[ir.AffineExpr]] | None:
    """The values that are no constants, each once, and for each of `values` what it is in terms of them; None if nothing is gained."""
    kept: list[ir.Value] = []
    expressions: list[ir.AffineExpr] = []
    for value in values:
        number = constant_of(value)
        if number is not None:
            expressions.append(ir.AffineExpr.get_constant(number))
            continue
        if value not in kept:
            kept.append(value)
        expressions.append(ir.AffineExpr.get_dim(kept.index(value)))
    return (kept, expressions) if len(kept) < len(values) else None


def _constant_index(op: ir.Operation) -> bool:
    """Constant and repeated index operands of a tile go into its base map."""
    operands = list(op.operands)
    _, indices, symbols = _sizes(op)
    found = _narrowed(operands[1 : 1 + indices])
    if found is None:
        return False
    kept, expressions = found
    inner = ir.AffineMap.get(len(kept), 0, expressions)
    outer = ir.AffineMapAttr(op.attributes["base_map"]).value
    base_map = ir.AffineMap.get(len(kept), 0, [r.compose(inner) for r in outer.results])
    attributes = {"base_map": ir.AffineMapAttr.get(base_map), "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(kept), symbols])}
    _rebuilt(op, [operands[0], *kept, *operands[1 + indices :]], attributes)
    return True


def _constant_capture(op: ir.Operation) -> bool:
    """Constant and repeated captured values of an indirect tile go into its subscripts."""
    operands = list(op.operands)
    sizes = _sizes(op)
    captured, symbols = sizes[-2:]
    start = len(operands) - captured - symbols
    found = _narrowed(operands[start : start + captured])
    if found is None:
        return False
    kept, expressions = found
    variables = len(list(op.regions[0].blocks[0].arguments))
    inner = ir.AffineMap.get(len(kept) + variables, 0, [*expressions, *(ir.AffineExpr.get_dim(len(kept) + i) for i in range(variables))])
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["per_dim_subscript_maps"])]
    attributes = {
        "per_dim_subscript_maps": ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(ir.AffineMap.get(inner.n_dims, 0, [r.compose(inner) for r in m.results])) for m in maps]
        ),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([*sizes[:-2], len(kept), symbols]),
    }
    _rebuilt(op, [*operands[:start], *kept, *operands[start + captured :]], attributes)
    return True


def _constant_stride(op: ir.Operation) -> bool:
    """Constant strides of a view become static. A dynamic size stays, since it makes the view a masked one."""
    operands = list(op.operands)
    sizes = _sizes(op)[1]
    strides = operands[1 + sizes :]
    numbers = [constant_of(s) for s in strides]
    if all(n is None for n in numbers):
        return False
    rest = iter(numbers)
    static = [
        (DYNAMIC if (n := next(rest)) is None else n) if s == DYNAMIC else s for s in ir.DenseI64ArrayAttr(op.attributes["static_strides"])
    ]
    kept = [s for s, n in zip(strides, numbers, strict=True) if n is None]
    attributes = {
        "static_strides": ir.DenseI64ArrayAttr.get(static),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, sizes, len(kept)]),
    }
    _rebuilt(op, [*operands[: 1 + sizes], *kept], attributes)
    return True


def _offset_box(op: ir.Operation) -> bool:
    """A set that does not begin at zero moves its corner into the base map."""
    box = affine.set_box(op.attributes["access_tile_set"])
    if box is None or not any(box[0]) or _sizes(op)[2]:
        return False
    outer = ir.AffineMapAttr(op.attributes["base_map"]).value
    moved = [r + low for r, low in zip(outer.results, box[0], strict=True)]
    attributes = {
        "base_map": ir.AffineMapAttr.get(ir.AffineMap.get(outer.n_dims, 0, moved)),
        "access_tile_set": affine.box_set(list(box[1])),
    }
    _rebuilt(op, list(op.operands), attributes)
    return True


def _access_tile(value: ir.Value) -> ir.Operation | None:
    """The op that makes a plain access tile."""
    return value.owner.operation if is_a(value.owner, ktdp.ConstructAccessTileOp) else None


def _whole_tensor(op: ir.Operation) -> bool:
    """A load of a tile that is all of a tensor, in order, is that tensor."""
    tile = _access_tile(op.operands[0])
    if tile is None or tile.operands[0].type != op.results[0].type:
        return False
    box = affine.set_box(tile.attributes["access_tile_set"])
    shape = tuple(ir.RankedTensorType(op.results[0].type).shape)
    anchor = [isinstance(r, ir.AffineConstantExpr) and r.value == 0 for r in ir.AffineMapAttr(tile.attributes["base_map"]).value.results]
    order = affine.permutation_of(tile.attributes["access_tile_order"])
    if not all(anchor) or order != list(range(len(shape))) or box != ((0,) * len(shape), shape):
        return False
    _replace(op, tile.operands[0])
    return True


def _sliced_load(op: ir.Operation) -> bool:
    """A load that only a `tensor.extract_slice` uses becomes a load of the smaller tile."""
    uses = list(op.results[0].uses)
    tile = _access_tile(op.operands[0])
    if tile is None or len(uses) != 1 or not is_a(uses[0].owner, tensor.ExtractSliceOp):
        return False
    cut = uses[0].owner.operation
    box, order = affine.set_box(tile.attributes["access_tile_set"]), affine.permutation_of(tile.attributes["access_tile_order"])
    whole, part = ir.RankedTensorType(op.results[0].type), ir.RankedTensorType(cut.results[0].type)
    offsets, sizes, strides = (list(ir.DenseI64ArrayAttr(cut.attributes[f"static_{n}"])) for n in ("offsets", "sizes", "strides"))
    plain = DYNAMIC not in sizes and all(s == 1 for s in strides) and whole.encoding is None and part.encoding is None
    if box is None or order is None or _sizes(tile)[2] or not plain or sizes == list(whole.shape):
        return False
    dynamic = list(cut.operands)[1:]
    if not all(_reaches(v, op) for v in dynamic):
        return False
    values = list(tile.operands)[1:]
    base_map = ir.AffineMapAttr(tile.attributes["base_map"]).value
    anchor, extents = [r + low for r, low in zip(base_map.results, box[0], strict=True)], list(box[1])
    moves = iter(range(len(values), len(values) + len(dynamic)))
    for dim, offset, size in zip(order, offsets, sizes, strict=True):
        anchor[dim] = anchor[dim] + (ir.AffineExpr.get_dim(next(moves)) if offset == DYNAMIC else offset)
        extents[dim] = size
    operands = [tile.operands[0], *values, *dynamic]
    kept = {name: tile.attributes[name] for name in tile.attributes}
    with ir.InsertionPoint(op):
        small = ir.Operation.create(
            ktdp.ConstructAccessTileOp.OPERATION_NAME,
            results=[ktdp.AccessTileType.build(sizes)],
            operands=operands,
            attributes=kept
            | {
                "base_map": ir.AffineMapAttr.get(ir.AffineMap.get(len(operands) - 1, 0, anchor)),
                "access_tile_set": affine.box_set(extents),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(operands) - 1, 0]),
            },
            loc=tile.location,
        )
        loaded = ktdp.load(small.results[0], whole.element_type, loc=op.location)
    if part.rank == whole.rank:
        _replace(cut, loaded)
    else:  # a slice that drops dims keeps doing so, of all that is left
        cut.operands[0] = loaded
        with ir.InsertionPoint(cut):
            full = ir.Operation.create(
                tensor.ExtractSliceOp.OPERATION_NAME,
                results=[part],
                operands=[loaded],
                attributes={
                    "static_offsets": ir.DenseI64ArrayAttr.get([0] * len(sizes)),
                    "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
                    "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0]),
                },
                loc=cut.location,
            )
        _replace(cut, full.results[0])
    op.erase()
    return True


def _reaches(value: ir.Value, op: ir.Operation) -> bool:
    """Whether `value` is known where `op` stands."""
    home = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
    at: ir.Operation | ir.OpView = op
    while at is not None and not is_a(at, builtin.ModuleOp):
        if at.operation.block == home:
            return isinstance(value.owner, ir.Block) or value.owner.operation.is_before_in_block(at.operation)
        at = at.operation.block.owner
    return False


FOLDS: dict[str, tuple[Callable[[ir.Operation], bool], ...]] = named(
    {
        ktdp.ConstructMemoryViewOp: (_constant_stride,),
        ktdp.ConstructAccessTileOp: (_constant_index, _offset_box),
        ktdp.ConstructIndirectAccessTileOp: (_constant_capture,),
        ktdp.LoadOp: (_whole_tensor, _sliced_load),
    }
)

Known = dict[tuple[object, ...], ir.Value]


def _merge(op: ir.Operation) -> int:
    """Merge duplicates below `op`; how many ops went. An op serves all that its first copy dominates."""
    gone = 0
    for region in op.regions:
        entry: Known = {}
        for i, block in enumerate(region.blocks):
            known = entry if i == 0 else dict(entry)
            gone += _merge_block(block, known)
    return gone


def _merge_block(block: ir.Block, known: Known) -> int:
    gone = 0
    for op in [o.operation for o in block.operations]:
        if op.name in MERGED:
            gone += _merge_op(op, known)
        elif op.regions and is_a(op, builtin.ModuleOp, func.FuncOp):
            gone += _merge(op)
        else:
            for region in op.regions:
                inner = dict(known)
                for i, each in enumerate(region.blocks):
                    gone += _merge_block(each, inner if i == 0 else dict(inner))
    return gone


def _merge_op(op: ir.Operation, known: Known) -> int:
    attributes = tuple(sorted(((name, op.attributes[name]) for name in op.attributes), key=lambda entry: entry[0]))
    key = (op.name, tuple(op.operands), attributes, tuple(r.type for r in op.results))
    first = known.get(key)
    if first is None:
        known[key] = op.results[0]
        return 0
    for mine, theirs in zip(op.results, first.owner.results, strict=True):
        mine.replace_all_uses_with(theirs)
    op.erase()
    return 1


def _drop(module: ir.Module) -> int:
    """Erase unused ops, uses before definitions; how many went."""
    gone = 0
    for op in reversed(operations(module)):
        if op.name in DROPPED and not any(list(r.uses) for r in op.results):
            op.erase()
            gone += 1
    return gone
