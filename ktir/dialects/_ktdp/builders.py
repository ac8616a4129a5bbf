"""Functions that build `ktdp` ops at the current insertion point and location, or at `loc`."""

from collections.abc import Callable, Mapping, Sequence

from ktir.assembly.parameters import DYNAMIC
from ktir.dialects._foundation import affine
from ktir.dialects._foundation.base import Operation
from ktir.dialects._ktdp.inter_tile import (
    InterTileAllToAllOp,
    InterTileConsumeOp,
    InterTileGatherOp,
    InterTileProduceOp,
    InterTileReduceOp,
    InterTileReduceScatterOp,
    InterTileScatterOp,
    YieldPartialOp,
    YieldReducedOp,
)
from ktir.dialects._ktdp.kernel import EXTRACTS, GetComputeTileIdOp, RuntimeArgExtractOp
from ktir.dialects._ktdp.memory import LoadOp, StoreOp
from ktir.dialects._ktdp.tiles import ConstructAccessTileOp, ConstructIndirectAccessTileOp, RegionTerminatorOp
from ktir.dialects._ktdp.types import AccessTileType, MemorySpaceAttr, RuntimeArgType, TileFutureType
from ktir.dialects._ktdp.views import ConstructDistributedMemoryViewOp, ConstructMemoryViewOp
from ktir.mlir import ir


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
        "coordinate_set": affine.box_set(static),
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
            "access_tile_set": affine.box_set(list(shape)),
            "access_tile_order": ir.AffineMapAttr.get(ir.AffineMap.get(len(shape), 0, steps)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(values), 0]),
        },
        loc=loc,
    )
    return op.results[0]


Subscript = ir.AffineExpr | tuple[ir.Value, Sequence[ir.AffineExpr]]
"""A direct subscript, or an index view and where to read it: expressions over the captured values and then the variables."""


def construct_indirect_access_tile(
    view: ir.Value,
    subscripts: Sequence[Subscript],
    extents: Sequence[int],
    order: Sequence[int] | None = None,
    *,
    captured: Sequence[ir.Value] = (),
    loc: ir.Location | None = None,
) -> ir.Value:
    """The elements of `view` at `subscripts`, for all values of as many variables as there are `extents`.

    `order[k]` is the variable of tile dim k; None keeps their order.
    """
    order = list(range(len(extents))) if order is None else list(order)
    views = [s[0] for s in subscripts if isinstance(s, tuple)]
    dims = len(captured) + len(extents)
    maps = [ir.AffineMap.get(dims, 0, list(s[1]) if isinstance(s, tuple) else [s]) for s in subscripts]
    syntax = ConstructIndirectAccessTileOp.operand_fields
    steps = [ir.AffineExpr.get_dim(d) for d in order]
    op = ir.Operation.create(
        ConstructIndirectAccessTileOp.OPERATION_NAME,
        results=[AccessTileType.build([extents[d] for d in order])],
        operands=[view, *views, *captured],
        attributes={
            "per_dim_subscript_kinds": ir.ArrayAttr.get([ir.BoolAttr.get(isinstance(s, tuple)) for s in subscripts]),
            "per_dim_subscript_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
            "variables_space_set": affine.box_set(list(extents)),
            "variables_space_order": ir.AffineMapAttr.get(ir.AffineMap.get(len(extents), 0, steps)),
            "operandSegmentSizes": syntax.segment_attribute([1, len(views), len(captured), 0]),
        },
        regions=1,
        loc=loc,
    )
    location = loc or op.location
    block = ir.Block.create_at_start(op.regions[0], [ir.IndexType.get()] * len(extents), [location] * len(extents))
    with ir.InsertionPoint(block):
        ir.Operation.create(RegionTerminatorOp.OPERATION_NAME, loc=location)
    return op.results[0]


def construct_distributed_memory_view(partitions: Sequence[ir.Value], shape: Sequence[int], *, loc: ir.Location | None = None) -> ir.Value:
    """One tensor of `shape` whose parts are `partitions`, of which there is at least one."""
    op = ir.Operation.create(
        ConstructDistributedMemoryViewOp.OPERATION_NAME,
        results=[ir.MemRefType.get(list(shape), ir.MemRefType(partitions[0].type).element_type)],
        operands=list(partitions),
        attributes={"operandSegmentSizes": ConstructDistributedMemoryViewOp.operand_fields.segment_attribute([len(partitions)])},
        loc=loc,
    )
    return op.results[0]


def runtime_arg_extract(argument: ir.Value, extracts: str = "value", *, loc: ir.Location | None = None) -> ir.Value:
    """The value of a runtime argument, or its `granularity` or `upperbound`."""
    result = RuntimeArgType(argument.type).underlying if extracts == "value" else ir.IndexType.get()
    kind = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), EXTRACTS.index(extracts))
    return ir.Operation.create(
        RuntimeArgExtractOp.OPERATION_NAME, results=[result], operands=[argument], attributes={"kind": kind}, loc=loc
    ).results[0]


def load(tile: ir.Value, element_type: ir.Type, encoding: ir.Attribute | None = None, *, loc: ir.Location | None = None) -> ir.Value:
    """The tensor in `tile`; `encoding` becomes that of its type."""
    result = ir.RankedTensorType.get(AccessTileType(tile.type).shape, element_type, encoding)
    return ir.Operation.create(LoadOp.OPERATION_NAME, results=[result], operands=[tile], loc=loc).results[0]


def store(value: ir.Value, tile: ir.Value, *, ordered: bool = False, loc: ir.Location | None = None) -> ir.Operation:
    """Writes `value` to `tile`. `ordered`: of several values for one element the last one stays."""
    attributes = {"ktir.ordered": ir.UnitAttr.get()} if ordered else {}
    return ir.Operation.create(StoreOp.OPERATION_NAME, operands=[value, tile], attributes=attributes, loc=loc)


Body = Callable[..., Sequence[ir.Value]]
"""Builds a region from its arguments and returns what the region yields."""


def inter_tile_produce(
    producers: ir.Attribute, groups: ir.Attribute, roles: Sequence[ir.Type], body: Body, *, loc: ir.Location | None = None
) -> ir.Value:
    """The future of what `body(group)` yields on each of the `producers`: tensors of types `roles`."""
    op = ir.Operation.create(
        InterTileProduceOp.OPERATION_NAME,
        results=[TileFutureType.build(list(roles), groups)],
        attributes={"producer_tiles_per_group": producers},
        regions=1,
        loc=loc,
    )
    _fill(op, [ir.IndexType.get()], YieldPartialOp, body)
    return op.results[0]


def inter_tile_consume(
    future: ir.Value, consumers: ir.Attribute, dependency: ir.Attribute | None = None, *, loc: ir.Location | None = None
) -> list[ir.Value]:
    """One producer's values on each of the `consumers`; `dependency` says whose."""
    return _deliver(InterTileConsumeOp, future, consumers, dependency, TileFutureType(future.type).roles, loc=loc)


def inter_tile_reduce(
    future: ir.Value,
    consumers: ir.Attribute,
    identities: Sequence[ir.Value],
    combiner: Body,
    dependency: ir.Attribute | None = None,
    *,
    loc: ir.Location | None = None,
) -> list[ir.Value]:
    """The fold with `combiner(left..., right...)` on each of the `consumers`."""
    roles = TileFutureType(future.type).roles
    return _deliver(InterTileReduceOp, future, consumers, dependency, roles, identities=identities, combiner=combiner, loc=loc)


def inter_tile_reduce_scatter(
    future: ir.Value,
    consumers: ir.Attribute,
    dims: Sequence[int],
    results: Sequence[ir.Type],
    identities: Sequence[ir.Value],
    combiner: Body,
    dependency: ir.Attribute | None = None,
    *,
    loc: ir.Location | None = None,
) -> list[ir.Value]:
    """The shares, of types `results`, of the fold cut on `dims`."""
    lists = {"scatter_dimensions": dims}
    return _deliver(
        InterTileReduceScatterOp, future, consumers, dependency, results, lists, identities=identities, combiner=combiner, loc=loc
    )


def inter_tile_gather(
    future: ir.Value,
    consumers: ir.Attribute,
    dims: Sequence[int],
    results: Sequence[ir.Type],
    dependency: ir.Attribute | None = None,
    *,
    loc: ir.Location | None = None,
) -> list[ir.Value]:
    """The contributions side by side on `dims`, of types `results`."""
    return _deliver(InterTileGatherOp, future, consumers, dependency, results, {"gather_dimensions": dims}, loc=loc)


def inter_tile_all_to_all(
    future: ir.Value,
    consumers: ir.Attribute,
    split: Sequence[int],
    concat: Sequence[int],
    results: Sequence[ir.Type],
    dependency: ir.Attribute | None = None,
    *,
    loc: ir.Location | None = None,
) -> list[ir.Value]:
    """Shares of all contributions, cut on `split` and joined on `concat`, of types `results`."""
    lists = {"split_dimensions": split, "concat_dimensions": concat}
    return _deliver(InterTileAllToAllOp, future, consumers, dependency, results, lists, loc=loc)


def inter_tile_scatter(
    future: ir.Value, consumers: ir.Attribute, dims: Sequence[int], results: Sequence[ir.Type], *, loc: ir.Location | None = None
) -> list[ir.Value]:
    """The shares, of types `results`, of one producer's values cut on `dims`."""
    return _deliver(InterTileScatterOp, future, consumers, None, results, {"scatter_dimensions": dims}, loc=loc)


def _deliver(
    op_class: type[Operation],
    future: ir.Value,
    consumers: ir.Attribute,
    dependency: ir.Attribute | None,
    results: Sequence[ir.Type],
    lists: Mapping[str, Sequence[int]] | None = None,
    *,
    identities: Sequence[ir.Value] = (),
    combiner: Body | None = None,
    loc: ir.Location | None,
) -> list[ir.Value]:
    attributes: dict[str, ir.Attribute] = {
        "consumer_tiles_per_group": consumers,
        "resultSegmentSizes": op_class.result_fields.segment_attribute([len(results)]),
    }
    if dependency is not None:
        attributes["producer_dependency_per_consumer"] = dependency
    for name, dims in (lists or {}).items():
        attributes[name] = ir.DenseI64ArrayAttr.get(list(dims))
    if combiner:
        attributes["operandSegmentSizes"] = op_class.operand_fields.segment_attribute([1, len(identities)])
    op = ir.Operation.create(
        op_class.OPERATION_NAME,
        results=list(results),
        operands=[future, *identities],
        attributes=attributes,
        regions=1 if combiner else 0,
        loc=loc,
    )
    if combiner:
        roles = TileFutureType(future.type).roles
        _fill(op, [*roles, *roles], YieldReducedOp, combiner)
    return list(op.results)


def _fill(op: ir.Operation, types: Sequence[ir.Type], terminator: type[Operation], body: Body) -> None:
    block = ir.Block.create_at_start(op.regions[0], list(types), [op.location] * len(types))
    with ir.InsertionPoint(block), op.location:
        values = list(body(*block.arguments))
        sizes = terminator.operand_fields.segment_attribute([len(values)])
        ir.Operation.create(terminator.OPERATION_NAME, operands=values, attributes={"operandSegmentSizes": sizes})


def _integers(entries: Sequence[int | ir.Value]) -> ir.Attribute:
    return ir.DenseI64ArrayAttr.get([e if isinstance(e, int) else DYNAMIC for e in entries])
