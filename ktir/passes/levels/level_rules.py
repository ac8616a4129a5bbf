"""Rules of the levels for single ops. Each raises `Broken` with what the op does not have, or returns."""

from __future__ import annotations

from ktir.analysis.attributes.broken import Broken
from ktir.analysis.attributes.levels import constant_of
from ktir.analysis.attributes.residents import resident_of
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._foundation import affine
from ktir.dialects.byte_pairs import makes_pairs
from ktir.dialects.structured import IDENTITY, SUMS, Generic
from ktir.mlir import arith, func, ir, is_a, linalg, scf, tensor
from ktir.passes.levels.function_rules import moves_residents
from ktir.target import LANES, is_half

# Every op


def located(op: ir.Operation) -> None:
    """Locations survive every pass."""
    if op.location == ir.Location.unknown():
        raise Broken("has no location")


def _tensors(op: ir.Operation) -> list[ir.RankedTensorType]:
    return [ir.RankedTensorType(r.type) for r in op.results if isinstance(r.type, ir.RankedTensorType)]


def static(op: ir.Operation) -> None:
    """Tensors have static shapes."""
    for t in _tensors(op):
        if not t.has_static_shape:
            raise Broken(f"expects tensors of static shape, but got '{t}'")


def without_layout(op: ir.Operation) -> None:
    """Encodings live on whole tensors of the laid-out level only."""
    for t in _tensors(op):
        if t.encoding is not None:
            raise Broken(f"expects tensors without an encoding, but got '{t}'")


def in_sticks(op: ir.Operation) -> None:
    """Tensors are sticks x rows x lanes."""
    for t in _tensors(op):
        if t.rank < 3 or t.shape[-1] != LANES:
            raise Broken(f"expects tensors of sticks of {LANES} lanes, [sticks, rows, {LANES}], but got '{t}'")


def blocks(op: ir.Operation) -> None:
    """Inside of the loops over batch axes a tensor is sticks x rows x lanes. What only moves from core to core is no block."""
    if moves_residents(op.parent.operation):
        return
    for t in _tensors(op):
        if t.rank != 3 and not _is_piece(op):
            raise Broken(f"expects blocks of one batch position, [sticks, rows, {LANES}], but got '{t}'")


def _is_piece(op: ir.Operation) -> bool:
    """Whether an op only moves what stays in the scratchpad, of any shape."""
    while not is_a(op, func.FuncOp):
        op = op.parent.operation
    return moves_residents(op)


def even_rows(op: ir.Operation) -> None:
    """A block of rows is halved over the two corelets; a row vector has one row. What is only stored to memory is not worked on."""
    if moves_residents(op.parent.operation) or _is_stored(op):
        return
    for t in _tensors(op):
        rows = t.shape[-2]
        if rows > 1 and rows % 2 and not _is_piece(op):
            raise Broken(f"expects blocks of an even number of rows, but got '{t}'")


def _is_stored(op: ir.Operation) -> bool:
    """Whether rows of a tensor are only stored to memory."""
    if not is_a(op, tensor.ExtractSliceOp, ktdp.LoadOp):
        return False
    users = [u.owner for u in op.results[0].uses]
    return all(is_a(s, ktdp.StoreOp) and s.operands[1].owner.operands[0].owner.opview.memory_space == "global" for s in users)


def laid_out(op: ir.Operation) -> None:
    """Tensors have a layout whose physical shape is theirs."""
    for t in _tensors(op):
        if not isinstance(t.encoding, kt.LayoutAttr):
            raise Broken(f"expects tensors with a '#ktir.layout', but got '{t}'")
        layout = kt.LayoutAttr(t.encoding)
        if list(layout.device) != list(t.shape) or layout.dtype != t.element_type:
            raise Broken(f"expects a tensor of its layout's shape and type, {list(layout.device)} of {layout.dtype}, but got '{t}'")
    in_sticks(op)


# Views and tiles


def in_global_memory(view: ir.Operation) -> None:
    """The scratchpad has no addresses before the allocated level."""
    if view.opview.memory_space != "global":
        raise Broken(f"expects memory_space 'global' above the allocated level, but got '{view.opview.memory_space}'")


def in_memory_of_kernels(view: ir.Operation) -> None:
    """Before the allocated level the scratchpad has addresses of what stays in it between kernels alone."""
    if resident_of(view) is None:
        in_global_memory(view)


def unmasked(view: ir.Operation) -> None:
    """Whole buffers have static sizes and strides."""
    if "masked" in view.attributes or any(not isinstance(n, int) for n in (*view.opview.sizes, *view.opview.strides)):
        raise Broken("expects a view with static sizes and strides that is not masked")


def masked_where_dynamic(view: ir.Operation) -> None:
    """A view that clips says so, and only such a one has a size that differs between cores."""
    if any(not isinstance(n, int) for n in view.opview.strides):
        raise Broken("expects a view with static strides")
    if any(not isinstance(n, int) for n in view.opview.sizes) and "masked" not in view.attributes:
        raise Broken("expects a view with a dynamic size to be 'masked'")


def constant_offset(view: ir.Operation) -> None:
    """Views of the logical level begin at a base address, or at a constant distance from one."""
    offset = view.operands[0]
    if is_a(offset.owner, arith.AddIOp):
        base, distance = offset.owner.operands
        if constant_of(distance) is not None:
            offset = base
    if not isinstance(offset.owner, ir.Block):
        raise Broken("expects an offset that is an argument of the function, or 'arith.addi' of one and a constant")


def whole_tile(tile: ir.Operation) -> None:
    """Each view is read and written as one whole tile."""
    if not isinstance(tile.opview.base.type, ir.MemRefType):
        raise Broken(f"expects a view of memory, but got {tile.opview.base.type}")
    view = ir.MemRefType(tile.opview.base.type)
    shape = list(tile.results[0].type.shape)
    base = ir.AffineMapAttr(tile.attributes["base_map"]).value if "base_map" in tile.attributes else None
    moved = base is not None and any(not (isinstance(r, ir.AffineConstantExpr) and r.value == 0) for r in base.results)
    if shape != list(view.shape) or (moved and any(constant_of(v) != 0 for v in tile.opview.index_operands)):
        raise Broken(f"expects a tile of the whole view '{view}', but got {shape}")
    box = affine.set_box(tile.attributes["access_tile_set"])
    if box is None or list(box[1]) != shape or any(box[0]):
        raise Broken(f"expects a set that is the box of the whole view '{view}', but got {tile.attributes['access_tile_set']}")


def view_of_layout(view: ir.Operation) -> None:
    """A device tensor's view has the layout of what lies there; indices are read as they lie in linear memory."""
    if any(not isinstance(n, int) for n in (*view.opview.sizes, *view.opview.strides)):
        raise Broken("expects a view with static sizes and strides")
    if "ktir.layout" not in view.attributes:
        if not _is_index_view(view):
            raise Broken("expects a view with the attribute 'ktir.layout'")
        return
    layout = kt.LayoutAttr(view.attributes["ktir.layout"])
    if list(layout.device) != view.opview.sizes:
        raise Broken(f"expects a view of its layout's shape {list(layout.device)}, but got {view.opview.sizes}")
    size = list(layout.size)
    cut, _ = affine.lane_bounds(view.attributes["coordinate_set"])
    if "masked" in view.attributes and list(cut) != [(0, size[-1] - 1)]:
        raise Broken(f"expects a masked view that is cut after its last column, {size[-1] - 1}")
    if "masked" not in view.attributes and size[-1] % LANES and _is_linear(view.operands[0]):
        raise Broken(f"expects a view of linear memory to be cut after its last column, {size[-1] - 1}")


def _is_index_view(view: ir.Operation) -> bool:
    """Whether a view only says where an indirect tile reads its indices."""
    users = list(view.results[0].uses)
    return bool(users) and all(is_a(u.owner, ktdp.ConstructIndirectAccessTileOp) and u.operand_number > 0 for u in users)


def _is_linear(offset: ir.Value) -> bool:
    """Whether an address lies in an argument whose elements follow each other as on the host."""
    while not isinstance(offset.owner, ir.Block):
        if not is_a(offset.owner, arith.AddIOp):
            return False
        offset = offset.owner.operands[0]
    function = offset.owner.owner
    if "arg_attrs" not in function.attributes:
        return False
    attributes = ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[ir.BlockArgument(offset).arg_number])
    return "ktir.layout" in attributes and len(kt.LayoutAttr(attributes["ktir.layout"]).size) == 1


# Generics


def projected(op: ir.Operation) -> None:
    """Maps are projected permutations plus constants: no sums, no divisions, no loop twice. What makes pairs of bytes reads two sticks."""
    if makes_pairs(Generic(op)):
        return
    for attribute in ir.ArrayAttr(op.attributes["indexing_maps"]):
        loops = []
        for result in ir.AffineMapAttr(attribute).value.results:
            if isinstance(result, ir.AffineDimExpr):
                loops.append(result.position)
            elif not isinstance(result, ir.AffineConstantExpr):
                raise Broken(f"expects maps that are projected permutations plus constants, but got '{attribute}'")
        if len(set(loops)) != len(loops):
            raise Broken(f"expects maps that name a loop once, but got '{attribute}'")


def wide_sum(op: ir.Operation) -> None:
    """Sums accumulate in f32, or in f64."""
    g = Generic(op)
    narrow = is_half(g.body.arguments[-1].type)
    if not g.is_pointwise and narrow and g.combiner in SUMS:
        raise Broken(f"expects a sum to accumulate in f32, but got '{op.results[0].type}'")


def from_identity(op: ir.Operation) -> None:
    """A reduction begins from what its combiner leaves as it is; what lies in its `outs` otherwise would be lost."""
    g = Generic(op)
    if g.begins_elsewhere:
        raise Broken(
            f"expects 'outs' without content or filled with {IDENTITY[g.combiner or 'add']}, which '{g.combiner}' begins from; "
            "what is there is combined with the result by an op of its own"
        )


def one_block(op: ir.Operation) -> None:
    """A contraction takes one block of 64 rows of its second operand per trip."""
    g = Generic(op)
    if not g.is_contraction:
        return
    block = ir.RankedTensorType(g.inputs[1].type)
    if list(block.shape) != [1, LANES, LANES]:
        raise Broken(f"expects a contraction with one block of {LANES} x {LANES} per trip, but got '{block}'")


# Loops


def equal_trips(loop: ir.Operation) -> None:
    """Bounds are constants, so that every core makes the same number of trips."""
    for what, value in zip(("lower bound", "upper bound", "step"), loop.operands, strict=False):
        if constant_of(value) is None:
            raise Broken(f"expects a constant {what}, so that every core makes as many trips")


def carries_accumulators(loop: ir.Operation) -> None:
    """A loop carries the sum of a contraction, a tensor that it, or a loop in it, fills slice by slice, or a running value of which a
    pointwise op or an inner loop makes the next one."""
    block = loop.regions[0].blocks[0]
    carried = zip(list(block.arguments)[1:], list(loop.operands)[3:], list(block.operations)[-1].operands, strict=True)
    for argument, start, value in carried:
        made = value.owner
        goes_on = value != argument and _before(value) == argument
        begun = not is_a(start.owner, tensor.EmptyOp)
        running = begun and (is_a(made, scf.ForOp) or (is_a(made, linalg.GenericOp) and Generic(made).is_pointwise))
        if not (goes_on or running):
            raise Broken(
                f"carries '{argument.type}', which is neither the accumulator of a contraction nor filled slice by slice, nor a running "
                "value"
            )


def _before(value: ir.Value) -> ir.Value:
    """What a value was before ops that insert slices or add to the sums of a contraction, and loops that carry it, each on what the one
    before leaves."""
    while True:
        owner = value.owner
        if is_a(owner, tensor.InsertSliceOp):
            value = owner.operands[1]
        elif is_a(owner, scf.ForOp):
            value = owner.operands[3 + ir.OpResult(value).result_number]
        elif is_a(owner, linalg.GenericOp) and Generic(owner.operation).is_contraction:
            value = Generic(owner.operation).init
        else:
            return value


def carries_declared(loop: ir.Operation) -> None:
    """At the allocated level only a declared accumulator crosses trips."""
    block = loop.regions[0].blocks[0]
    carried, declared = list(block.arguments)[1:], "ktir.acc" in loop.attributes
    if carried and not declared:
        raise Broken(f"carries '{carried[0].type}' without 'ktir.acc', which says whose accumulator it is")
    if declared and not carried:
        raise Broken("has 'ktir.acc', but carries no tensor")
    if carried:
        carries_accumulators(loop)
