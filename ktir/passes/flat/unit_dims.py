"""Dims of extent 1 go: what they say is in the strides of a view and in the maps of an op, and sticks and rows have no use for them.

Every tensor, view, tile and loop loses them, but for dims of views that data looks up: what it says is checked there. A loop of one trip
that reduces leaves a pointwise op on what the result held before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ktir.analysis.flat import refuse
from ktir.analysis.flat_rules import is_whole
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import affine_map, fill, index_constant, loop_extents, maps_of
from ktir.mlir import arith, func, ir, is_a, linalg, named, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.reshapes import collapsed, expanded

Shape = tuple[int, ...]


def drop_unit_dims(function: func.FuncOp) -> None:
    """Rewrite the ops of a function that have dims or loops of extent 1, in place."""
    ops = [o.operation for o in function.regions[0].blocks[0].operations]
    found = [_Op(op, [_shape(v) for v in op.operands], [_shape(r) for r in op.results]) for op in ops]
    for each in found:
        if each.has_unit_dims:
            with ir.InsertionPoint(each.op), each.op.location:
                _VISITS[each.op.name](each) if each.op.name in _VISITS else _refuse(each.op)


@dataclass(frozen=True)
class _Op:
    """An op with the shapes that its operands and results had; operands lose their unit dims before the op does."""

    op: ir.Operation
    operands: list[Shape]
    results: list[Shape]

    @property
    def has_unit_dims(self) -> bool:
        return any(1 in s for s in (*self.operands, *self.results))

    def replace(self, *values: ir.Value) -> None:
        """Put values without unit dims in the place of the results."""
        for old, new in zip(self.op.results, values, strict=True):
            old.replace_all_uses_with(new)
        self.op.erase()

    def again(self, attributes: dict[str, ir.Attribute]) -> None:
        """The same op on what its operands are now, with some attributes and results of other shapes."""
        types = [_small_type(r.type) for r in self.op.results]
        given = {name: self.op.attributes[name] for name in self.op.attributes} | attributes
        new = ir.Operation.create(self.op.name, types, list(self.op.operands), given, regions=len(self.op.regions))
        for old, region in zip(self.op.regions, new.regions, strict=True):
            old.blocks[0].append_to(region)
        self.replace(*new.results)


def _refuse(op: ir.Operation) -> None:
    raise refuse(op, "has dims of extent 1, which is not supported")


def _shape(value: ir.Value) -> Shape:
    """Extents of a tensor, view or tile; none for all else."""
    if isinstance(value.type, ir.RankedTensorType | ir.MemRefType | ktdp.AccessTileType):
        return tuple(value.type.shape)
    return ()


def _kept(sizes: Sequence[int]) -> list[int]:
    return [d for d, n in enumerate(sizes) if n != 1]


def _small(sizes: Sequence[int]) -> list[int]:
    return [n for n in sizes if n != 1]


def _small_type(type_: ir.Type) -> ir.Type:
    if isinstance(type_, ir.RankedTensorType):
        return ir.RankedTensorType.get(_small(type_.shape), type_.element_type, type_.encoding)
    if isinstance(type_, ir.MemRefType):
        return ir.MemRefType.get(_small(type_.shape), type_.element_type)
    return type_


# Memory


def _view(each: _Op) -> None:
    base, window = windows.window_of_view(each.op)
    kept = _kept(window.sizes)
    element, sizes = each.op.opview.element_type, window.sizes
    for use in [u for u in each.op.results[0].uses if is_a(u.owner, ktdp.ConstructIndirectAccessTileOp) and not u.operand_number]:
        checked = [d for d, (_, index) in enumerate(use.owner.operation.opview.subscripts) if sizes[d] == 1 and index is not None]
        if checked:
            dims = sorted([*kept, *checked])
            use.owner.operation.operands[0] = windows.view_of(base, window.pick(dims, [sizes[d] for d in dims]), element)
    each.replace(windows.view_of(base, window.pick(kept, _small(sizes)), element))


def _tile(each: _Op) -> None:
    if not is_whole(each.op.opview, each.operands[0]):
        raise refuse(each.op, "expects a tile of the whole view in its order")
    sizes = _small(each.operands[0])
    each.replace(ktdp.construct_access_tile(each.op.operands[0], [0] * len(sizes), sizes))


def _indirect_tile(each: _Op) -> None:
    """Variables of one value are the constant 0; a dim that is read at a constant is a view's offset."""
    tile = each.op.opview
    if list(tile.captured) or list(tile.symbol_values):
        raise refuse(each.op, "captures values, which is not supported on the logical level")
    order = tile.order
    extents = [each.results[0][order.index(v)] for v in range(len(order))]
    variables = _kept(extents)
    now = affine_map(len(variables), [variables.index(v) if v in variables else None for v in range(len(order))])
    view_shapes = iter(each.operands[1:])
    subscripts: list[ir.AffineExpr | tuple[ir.Value, list[ir.AffineExpr]]] = []
    constants: list[int | None] = []
    for size, (m, index) in zip(each.operands[0], tile.subscripts, strict=True):
        # what compose returns has no type of its own, but the results of a map have
        results = list(ir.AffineMap.get(now.n_dims, 0, [e.compose(now) for e in m.results]).results)
        walked = results if index is None else [e for n, e in zip(next(view_shapes), results, strict=True) if n != 1]
        if size == 1 and (index is None or not is_a(tile.base.owner, ktdp.ConstructMemoryViewOp)):
            continue  # data that looks it up must be 0: that is checked where it is read
        constants.append(_constant(results[0]) if index is None else None)
        if index is not None:
            at = [_constant(e) for e in walked]
            subscripts.append((_narrowed(index, at), [e for e, p in zip(walked, at, strict=True) if p is None]))
        elif constants[-1] is None:
            subscripts.append(results[0])
    base = _narrowed(tile.base, constants)
    new_order = [variables.index(v) for v in order if v in variables]
    direct = [ir.AffineDimExpr(s).position for s in subscripts if isinstance(s, ir.AffineDimExpr)]
    is_view = is_a(base.owner, ktdp.ConstructMemoryViewOp)
    if not is_view or len(direct) < len(subscripts) or sorted(direct) != list(range(len(variables))):
        each.replace(ktdp.construct_indirect_access_tile(base, subscripts, [extents[v] for v in variables], new_order))
        return
    sizes = list(ir.MemRefType(base.type).shape)
    view = windows.window_of_view(base.owner.operation)
    shown = view[1].pick([direct.index(v) for v in new_order], [sizes[direct.index(v)] for v in new_order])
    whole = windows.view_of(view[0], shown, ir.MemRefType(base.type).element_type)
    each.replace(ktdp.construct_access_tile(whole, [0] * len(shown.sizes), shown.sizes))


def _constant(expression: ir.AffineExpr) -> int | None:
    return ir.AffineConstantExpr(expression).value if isinstance(expression, ir.AffineConstantExpr) else None


def _narrowed(view: ir.Value, at: Sequence[int | None]) -> ir.Value:
    """A view without the dims that are read at one position only; `at` has it, None = the whole dim stays."""
    if all(p is None for p in at):
        return view
    owner = view.owner.operation
    if not is_a(owner, ktdp.ConstructMemoryViewOp):
        raise refuse(owner, "is read at one position of a dim, which is not supported")
    base, window = windows.window_of_view(owner)
    kept = [d for d, p in enumerate(at) if p is None]
    small = window.slice([p or 0 for p in at], window.sizes, [1] * len(at), kept)
    return windows.view_of(base, small, ir.MemRefType(view.type).element_type)


def _load(each: _Op) -> None:
    each.replace(ktdp.load(each.op.operands[0], ir.RankedTensorType(each.op.results[0].type).element_type))


# Tensors


def _reshape(each: _Op) -> None:
    """A collapse or an expansion; none where only unit dims came or went."""
    large, small = each.operands[0], each.results[0]
    if is_a(each.op, tensor.ExpandShapeOp):
        large, small = small, large
    kept = _kept(large)
    groups = [[kept.index(i) for i in g if i in kept] for g, n in zip(windows.groups_of(each.op), small, strict=True) if n != 1]
    value = each.op.operands[0]
    if any(len(g) > 1 for g in groups):
        expands = is_a(each.op, tensor.ExpandShapeOp)
        value = expanded(value, groups, _small(large)) if expands else collapsed(value, groups)
    each.replace(value)


def _slice(each: _Op) -> None:
    """A box of a tensor, taken or put: the part has the dims of the box that are no unit dims."""
    whole = each.operands[0] if is_a(each.op, tensor.ExtractSliceOp) else each.results[0]
    kept = _kept(whole)
    names = ("static_offsets", "static_sizes", "static_strides")
    lists = {n: list(ir.DenseI64ArrayAttr(each.op.attributes[n])) for n in names}
    each.again({n: ir.DenseI64ArrayAttr.get([values[d] for d in kept]) for n, values in lists.items()})


def _pad(each: _Op) -> None:
    """A filled tensor with the operand put into it."""
    block = each.op.regions[0].blocks[0]
    maker = list(block.operations)[-1].operands[0].owner
    if not is_a(maker, arith.ConstantOp):
        raise refuse(each.op, "pads with a value that is no constant, which is not supported")
    kept = _kept(each.results[0])
    low = list(ir.DenseI64ArrayAttr(each.op.attributes["static_low"]))
    scalar = maker.operation.clone().results[0]
    element = ir.RankedTensorType(each.op.results[0].type).element_type
    whole = fill(scalar, tensor.empty(_small(each.results[0]), element))
    sizes = [each.operands[0][d] for d in kept]
    each.replace(tensor.InsertSliceOp(each.op.operands[0], whole, [], [], [], [low[d] for d in kept], sizes, [1] * len(kept)).result)


def _fill(each: _Op) -> None:
    scalar, init = each.op.operands
    each.replace(fill(scalar, init))


def _along(each: _Op) -> None:
    """A scan or a sort; nothing along a dim of extent 1."""
    dim = ir.IntegerAttr(each.op.attributes["dimension"])
    kept = _kept(each.operands[0])
    if dim.value not in kept:
        each.replace(*each.op.operands)
    else:
        each.again({"dimension": ir.IntegerAttr.get(dim.type, kept.index(dim.value))})


def _same(each: _Op) -> None:
    """An op whose results have the shapes of its operands, whatever those are."""
    each.again({})


def _nothing(_: _Op) -> None:
    """An op without results that depends on no shape."""


def _generic(each: _Op) -> None:
    """Loops of one trip go with the dims."""
    op = each.op
    maps, extents = maps_of(op), loop_extents(op, each.operands)
    loops = _kept(extents)
    now = affine_map(len(loops), [loops.index(i) if i in loops else None for i in range(len(extents))])
    small = [
        ir.AffineMap.get(len(loops), 0, [e.compose(now) for n, e in zip(sizes, m.results, strict=True) if n != 1])
        for sizes, m in zip(each.operands, maps, strict=True)
    ]
    kinds = list(ir.ArrayAttr(op.attributes["iterator_types"]))
    for inner in [o.operation for o in op.regions[0].blocks[0].operations if is_a(o, linalg.IndexOp)]:
        _renumber(inner, loops)
    each.again(
        {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in small]),
            "iterator_types": ir.ArrayAttr.get([kinds[i] for i in loops]),
        }
    )


def _renumber(index: ir.Operation, loops: Sequence[int]) -> None:
    dim = ir.IntegerAttr(index.attributes["dim"])
    if dim.value in loops:
        index.attributes["dim"] = ir.IntegerAttr.get(dim.type, loops.index(dim.value))
        return
    with ir.InsertionPoint(index), index.location:
        zero = index_constant(0)
    index.results[0].replace_all_uses_with(zero)
    index.erase()


_VISITS: dict[str, Callable[[_Op], None]] = named(
    {
        ktdp.ConstructMemoryViewOp: _view,
        ktdp.ConstructAccessTileOp: _tile,
        ktdp.ConstructIndirectAccessTileOp: _indirect_tile,
        ktdp.LoadOp: _load,
        ktdp.StoreOp: _nothing,
        kt.ScatterAddOp: _nothing,
        tensor.EmptyOp: _same,
        kt.MaterializeOp: _same,
        linalg.FillOp: _fill,
        linalg.GenericOp: _generic,
        tensor.PadOp: _pad,
        kt.ScanOp: _along,
        kt.SortOp: _along,
        tensor.InsertSliceOp: _slice,
        tensor.ExtractSliceOp: _slice,
        tensor.ExpandShapeOp: _reshape,
        tensor.CollapseShapeOp: _reshape,
    }
)
