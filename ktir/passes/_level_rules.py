"""Rules of the levels for single ops and functions. Each raises `Broken` with what the op does not have, or returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from ktir.diagnostics import Diagnostic, Unsupported, location_text
from ktir.dialects import _affine
from ktir.dialects import ktir as kt
from ktir.dialects.structured import IDENTITY, Generic
from ktir.mlir import func, ir, operations
from ktir.passes._broken import Broken
from ktir.passes._calls import callee, callees_first, is_kernel
from ktir.passes._levels import constant_of, kernel_rows
from ktir.passes._pads import folded_pad
from ktir.passes._residents import EXCHANGE, RESIDENTS, resident_of
from ktir.target import LANES

HOST_ROLES = ("input", "output", "input_output")
OWN_ROLES = ("pool", "iota")
"""Of arguments that the host has no buffer for."""
SHARED = "shared"
"""Role of memory of the caller that other calls see too."""
DIVISION = ("grid", "ktir.rows", "ktir.columns", "ktir.work", "ktir.sums", "ktir.lx_bytes", RESIDENTS, EXCHANGE)
"""Attributes of kernels."""


# The program: functions and their attributes


def program(module: ir.Operation, *, level: str, functions: Mapping[str, func.FuncOp]) -> None:
    """One entry, which calls all functions and kernels, itself or through others."""
    called = {callee(op) for f in functions.values() for op in operations(f) if op.name == "func.call"}
    entries = [f for name, f in functions.items() if name not in called and (level == "logical" or not is_kernel(f))]
    if len(entries) != 1:
        names = ", ".join(f"'{f.name.value}'" for f in entries) or "none"
        raise Broken(f"expects one entry function, without 'ktir.rows', but has {names}")
    for name, f in functions.items():
        if f is not entries[0] and name not in called:
            note = Diagnostic("note", "this one", location_text(f.location))
            raise Broken(f"expects the entry function to call every kernel, but it does not call '{name}'", note)
    try:
        callees_first(functions)
    except Unsupported as cycle:
        raise Broken(f"has functions that call themselves: {cycle.message}") from None


def moves_residents(function: ir.Operation) -> bool:
    """Whether a function is a kernel that only moves what stays in the scratchpad from core to core."""
    return EXCHANGE in function.attributes


def calls_what_is_there(call: ir.Operation, *, functions: Mapping[str, func.FuncOp]) -> None:
    """A call gives each argument of a function its address and has no results."""
    function = functions.get(callee(call))
    if function is None:
        raise Broken(f"calls '{callee(call)}', which is not defined")
    count = len(function.regions[0].blocks[0].arguments)
    if len(call.operands) != count or len(call.results):
        raise Broken(f"expects {count} operands and no results, as '{callee(call)}' has, but got {len(call.operands)}")


def function_of(f: ir.Operation, *, level: str, cores: int, formed: bool, called: Collection[str]) -> None:
    """A function from the laid-out level on. `formed`: there are kernels; `called`: what other functions call."""
    if is_kernel(f):
        _kernel(f, level, cores)
        return
    _no_attributes(f, DIVISION, "of a kernel")
    shared = [SHARED] if ir.StringAttr(f.attributes["sym_name"]).value in called else []
    for i, d in enumerate(_argument_attributes(f)):
        role = _role(i, d, (*HOST_ROLES, *OWN_ROLES, *shared))
        _require(i, d, "ktir.layout")
        if role in HOST_ROLES:
            _require(i, d, "ktir.host")
    names = [op.operation.name for op in f.regions[0].blocks[0].operations]
    if not formed and level == "laid-out" and "func.call" not in names:
        return
    for op in f.regions[0].blocks[0].operations:
        if op.operation.name not in ("func.call", "func.return"):
            raise Broken(f"expects an entry function that only calls kernels, but it has '{op.operation.name}'", _at(op.operation))


def _kernel(f: ir.Operation, level: str, cores: int) -> None:
    for op in operations(f):
        if op.name == "func.call":
            raise Broken("expects a kernel that calls nothing", _at(op))
    if level == "laid-out":
        _no_attributes(f, ("grid", "ktir.work", "ktir.sums", "ktir.lx_bytes", RESIDENTS, EXCHANGE), "of a later level")
        return
    for name in ("grid",) if moves_residents(f) else ("grid", "ktir.work"):
        if name not in f.attributes:
            raise Broken(f"expects a kernel with the attribute '{name}'")
    grid = [ir.IntegerAttr(n).value for n in ir.ArrayAttr(f.attributes["grid"])]
    if prod(grid) > cores:
        raise Broken(f"expects a grid of at most {cores} tiles, but got {grid}")
    if moves_residents(f):
        _no_attributes(f, ("ktir.rows", "ktir.work", "ktir.sums"), "of a kernel that computes")
        return
    work = kt.WorkAttr(f.attributes["ktir.work"])
    splits, tile, extents = list(work.splits), list(work.tile), kernel_rows(f)
    sums = ir.IntegerAttr(f.attributes["ktir.sums"]).value if "ktir.sums" in f.attributes else 1
    if prod(grid) != prod(splits) * sums:
        each = f" and {sums} partial sums each" if sums != 1 else ""
        raise Broken(f"expects a grid of as many tiles as 'ktir.work' has parts, but got {grid} for splits {splits}{each}")
    if len(splits) != len(extents) + 2 or len(tile) != len(splits) or tile[-1] != LANES or splits[-1] != 1:
        raise Broken(f"expects 'ktir.work' to divide sticks and rows {extents} of {LANES} lanes, but got splits {splits}, tile {tile}")
    for axis, (parts, share, rows) in enumerate(zip(splits[1:-1], tile[1:-1], extents, strict=True)):
        if not (parts - 1) * share < rows <= parts * share:
            raise Broken(f"expects {parts} parts of {share} rows to cover {rows} rows with no part empty")
        if axis < len(extents) - 1 and rows % share:
            raise Broken(f"expects equal parts of batch axis {axis}, but got {parts} of {share} for {rows}")


def logical_function(f: ir.Operation) -> None:
    """No grid; arguments are base addresses of named host buffers."""
    _no_attributes(f, DIVISION, "of a kernel")
    for i, d in enumerate(_argument_attributes(f)):
        _role(i, d, (*HOST_ROLES, *OWN_ROLES, SHARED))
        _require(i, d, "ktir.type")


def _argument_attributes(f: ir.Operation) -> list[ir.DictAttr | dict[str, ir.Attribute]]:
    types = [a.type for a in f.regions[0].blocks[0].arguments]
    for i, type_ in enumerate(types):
        if not isinstance(type_, ir.IndexType):
            raise Broken(f"expects argument #{i} to be a base address of type 'index', but got '{type_}'")
    return [ir.DictAttr(a) for a in ir.ArrayAttr(f.attributes["arg_attrs"])] if "arg_attrs" in f.attributes else [{} for _ in types]


def _role(i: int, d: ir.DictAttr | dict[str, ir.Attribute], roles: tuple[str, ...]) -> str:
    _require(i, d, "ktir.name")
    _require(i, d, "ktir.role")
    role = ir.StringAttr(d["ktir.role"]).value
    if role not in roles:
        raise Broken(f"expects 'ktir.role' of argument #{i} to be one of {', '.join(roles)}, but got '{role}'")
    return role


def _require(i: int, d: ir.DictAttr | dict[str, ir.Attribute], name: str) -> None:
    if name not in d:
        raise Broken(f"expects argument #{i} to have an attribute '{name}'")


def _no_attributes(op: ir.Operation, names: tuple[str, ...], what: str) -> None:
    for name in names:
        if name in op.attributes:
            raise Broken(f"has '{name}', an attribute {what}")


def _at(op: ir.Operation) -> Diagnostic:
    return Diagnostic("note", f"this '{op.name}' op", location_text(op.location))


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
    if op.name == "ktdp.construct_memory_view":
        _no_attributes(op, ("ktir.layout",), "of the laid-out level")


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
    while op.name != "func.func":
        op = op.parent.operation
    return moves_residents(op)


def even_rows(op: ir.Operation) -> None:
    """A block of rows is halved over the two corelets; a row vector has one row."""
    if moves_residents(op.parent.operation):
        return
    for t in _tensors(op):
        rows = t.shape[-2]
        if rows > 1 and rows % 2 and not _is_piece(op):
            raise Broken(f"expects blocks of an even number of rows, but got '{t}'")


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
    if not isinstance(offset.owner, ir.Block) and offset.owner.name == "arith.addi":
        base, distance = offset.owner.operands
        if constant_of(distance) is not None:
            offset = base
    if not isinstance(offset.owner, ir.Block):
        raise Broken("expects an offset that is an argument of the function, or 'arith.addi' of one and a constant")


def whole_tile(tile: ir.Operation) -> None:
    """Each view is read and written as one whole tile."""
    view = ir.MemRefType(tile.opview.base.type)
    shape = list(tile.results[0].type.shape)
    base = ir.AffineMapAttr(tile.attributes["base_map"]).value if "base_map" in tile.attributes else None
    moved = base is not None and any(not (isinstance(r, ir.AffineConstantExpr) and r.value == 0) for r in base.results)
    if shape != list(view.shape) or (moved and any(constant_of(v) != 0 for v in tile.opview.index_operands)):
        raise Broken(f"expects a tile of the whole view '{view}', but got {shape}")


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
    cut, _ = _affine.lane_bounds(view.attributes["coordinate_set"])
    if "masked" in view.attributes and list(cut) != [(0, size[-1] - 1)]:
        raise Broken(f"expects a masked view that is cut after its last column, {size[-1] - 1}")
    if "masked" not in view.attributes and size[-1] % LANES and _is_linear(view.operands[0]):
        raise Broken(f"expects a view of linear memory to be cut after its last column, {size[-1] - 1}")


def _is_index_view(view: ir.Operation) -> bool:
    """Whether a view only says where an indirect tile reads its indices."""
    users = [(u.owner.operation.name, u.operand_number) for u in view.results[0].uses]
    return bool(users) and all(name == "ktdp.construct_indirect_access_tile" and number > 0 for name, number in users)


def _is_linear(offset: ir.Value) -> bool:
    """Whether an address lies in an argument whose elements follow each other as on the host."""
    while not isinstance(offset.owner, ir.Block):
        if offset.owner.name != "arith.addi":
            return False
        offset = offset.owner.operands[0]
    function = offset.owner.owner
    if "arg_attrs" not in function.attributes:
        return False
    attributes = ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[ir.BlockArgument(offset).arg_number])
    return "ktir.layout" in attributes and len(kt.LayoutAttr(attributes["ktir.layout"]).size) == 1


# Generics


def projected(op: ir.Operation) -> None:
    """Maps are projected permutations plus constants: no sums, no divisions, no loop twice."""
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
    narrow = isinstance(g.body.arguments[-1].type, ir.F16Type | ir.BF16Type)
    if not g.is_pointwise and narrow and g.combiner == "add":
        raise Broken(f"expects a sum to accumulate in f32, but got '{op.results[0].type}'")


def one_block(op: ir.Operation) -> None:
    """A contraction takes one block of 64 rows of its second operand per trip."""
    g = Generic(op)
    if not g.is_contraction:
        return
    block = ir.RankedTensorType(g.inputs[1].type)
    if list(block.shape) != [1, LANES, LANES]:
        raise Broken(f"expects a contraction with one block of {LANES} x {LANES} per trip, but got '{block}'")


class _Elsewhere(Exception):
    """The value comes out of memory that another kernel wrote."""


def pads_kept_out(op: ir.Operation) -> None:
    """What lies beyond a tensor's columns reaches no result: a reduction masks it unless it holds the identity; the first operand of a
    contraction has zeros there, since garbage times zero may be NaN."""
    g = Generic(op)
    if g.is_pointwise:
        return
    try:
        if g.is_contraction:
            for i, (which, v) in enumerate(zip(("first", "second"), g.inputs, strict=True)):
                reduced = _lane_loop(g, i) is not None and g.iterators[_lane_loop(g, i) or 0] == "reduction"
                if reduced and _partial(v) and _pad_of(v) != 0.0:
                    raise Broken(f"expects the lanes of its {which} operand beyond its columns to be zero", _source(v))
        elif g.combiner is not None:
            reduced = [i for i, v in enumerate(g.inputs) if _lane_loop(g, i) is not None and _partial(v)]
            if reduced and _reduced_pad(g) != IDENTITY[g.combiner]:
                raise Broken(f"expects lanes beyond the columns of its operands to be masked with the identity of '{g.combiner}'")
    except _Elsewhere:
        return


def _source(value: ir.Value) -> Diagnostic:
    return Diagnostic("note", "the operand is defined here", location_text(value.location))


def _partial(value: ir.Value) -> bool:
    """Whether the last stick of a laid-out tensor has lanes beyond its columns."""
    size = list(kt.LayoutAttr(ir.RankedTensorType(value.type).encoding).size)
    return bool(size) and size[-1] % LANES != 0


def _reduced_pad(g: Generic) -> float | None:
    masked = _masked_with(g.mapped)
    return masked if masked is not None else folded_pad(g, _shown(g), g.mapped)


def _shown(g: Generic) -> list[float | None]:
    """What operands show in pad lanes; operands that do not walk the lanes show data."""
    return [_pad_of(v) if _lane_loop(g, i) is not None else None for i, v in enumerate(g.inputs)]


def _lane_loop(g: Generic, operand: int) -> int | None:
    """The loop that walks the lanes of an operand; None: it shows lane 0 everywhere."""
    return g.loop_of(operand, len(g.maps[operand].results) - 1)


def _pad_of(value: ir.Value) -> float | None:
    """What a laid-out tensor holds beyond its columns, as far as it follows from the ops that made it; None = anything."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    if owner.name == "ktdp.load":
        view = owner.operands[0].owner.operands[0].owner
        zero = kt.LayoutAttr(view.attributes["ktir.layout"]).pad == "zero"
        if not zero and is_kernel(view.parent):
            raise _Elsewhere
        return 0.0 if zero else None
    if owner.name in ("tensor.expand_shape", "tensor.pad"):
        return _pad_of(owner.operands[0])
    if owner.name == "linalg.fill" and not isinstance(owner.operands[0].owner, ir.Block):
        attribute = owner.operands[0].owner.attributes["value"]
        return ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None
    if owner.name != "linalg.generic" or not (g := Generic(owner)).is_pointwise:
        return None
    masked = _masked_with(g.yielded)
    return masked if masked is not None else folded_pad(g, _shown(g))


def _masked_with(scalar: ir.Value) -> float | None:
    """The constant that a scalar is in lanes beyond a bound, if it is chosen by a comparison of an index."""
    select = scalar.owner
    if isinstance(select, ir.Block) or select.name != "arith.select" or not _compares_index(select.operands[0]):
        return None
    other = select.operands[2].owner
    if isinstance(other, ir.Block) or other.name != "arith.constant":
        return None
    value = other.attributes["value"]
    return ir.FloatAttr(value).value if isinstance(value, ir.FloatAttr) else ir.IntegerAttr(value).value


def _compares_index(condition: ir.Value) -> bool:
    compare = condition.owner
    return not isinstance(compare, ir.Block) and compare.name == "arith.cmpi" and isinstance(compare.operands[0].type, ir.IndexType)


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
        name = "" if isinstance(made, ir.Block) else made.name
        filled = name == "tensor.insert_slice" and made.operands[1] == argument
        summed = name == "linalg.generic" and Generic(made).is_contraction and Generic(made).init == argument
        begun = isinstance(start.owner, ir.Block) or start.owner.name != "tensor.empty"
        running = begun and name == "linalg.generic" and Generic(made).is_pointwise and argument in list(made.operands)
        inner = name == "scf.for" and argument in list(made.operands)[3:]
        if not (filled or summed or running or inner):
            raise Broken(
                f"carries '{argument.type}', which is neither the accumulator of a contraction nor filled slice by slice, nor a running "
                "value"
            )


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


# Data flow of the allocated level


def _space_of(tile: ir.Value) -> str:
    """`global` or `ct_local`: where a tile of a view lies."""
    return tile.owner.operands[0].owner.opview.memory_space


def _is_load(value: ir.Value, space: str) -> bool:
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.name == "ktdp.load" and _space_of(owner.operands[0]) == space


def load_moves(load: ir.Operation) -> None:
    """What comes from global memory goes to the scratchpad; what comes from there to a compute op or to global memory."""
    space = _space_of(load.operands[0])
    for use in load.results[0].uses:
        user = use.owner.operation
        stores = user.name == "ktdp.store" and _space_of(user.operands[1]) == ("ct_local" if space == "global" else "global")
        if not stores and not (space == "ct_local" and user.name in ("linalg.generic", "ktdp.yield_partial")):
            wanted = "stored to the scratchpad" if space == "global" else "read by a compute op, sent to a core or stored to global memory"
            raise Broken(f"expects what is loaded from {space} memory to be {wanted} only", _at(user))


def store_moves(store: ir.Operation) -> None:
    """Global memory is written from the scratchpad; the scratchpad from global memory or by a compute op."""
    value = store.operands[0]
    made = "" if isinstance(value.owner, ir.Block) else value.owner.name
    if _space_of(store.operands[1]) == "global":
        if not _is_load(value, "ct_local"):
            raise Broken("expects a store to global memory of what was loaded from the scratchpad", _source(value))
    elif made not in ("linalg.generic", "linalg.fill", "ktdp.inter_tile_consume") and not _is_load(value, "global"):
        what = "a compute op's result, a fill, a load from global memory or what a core has sent"
        raise Broken(f"expects a store to the scratchpad of {what}", _source(value))


def sends_from_scratchpad(produce: ir.Operation) -> None:
    """What a core sends to another one lies in its scratchpad."""
    for value in list(produce.regions[0].blocks[0].operations)[-1].operands:
        if not _is_load(value, "ct_local"):
            raise Broken("expects to send what was loaded from the scratchpad", _source(value))


def gives_nothing(branch: ir.Operation) -> None:
    """A branch stores what it makes."""
    if len(branch.results):
        raise Broken("expects no results: what a branch makes is stored in it")


def received_once(consume: ir.Operation) -> None:
    """What a core receives goes to one place of its scratchpad; one core sends it."""
    uses = [u.owner.operation for u in consume.results[0].uses]
    if len(consume.results) != 1 or len(uses) != 1 or uses[0].name != "ktdp.store" or _space_of(uses[0].operands[1]) != "ct_local":
        raise Broken("expects one tensor, which is stored to one place of the scratchpad", *map(_at, uses))


def computes_on_scratchpad(op: ir.Operation) -> None:
    """A compute op reads the scratchpad or an accumulator; its result goes to the scratchpad or stays in the accumulator."""
    g = Generic(op)
    for i, value in enumerate(g.inputs):
        owner = value.owner
        accumulator = not isinstance(owner, ir.Block) and owner.name == "scf.for" and "ktir.acc" in owner.attributes
        if not accumulator and not _is_load(value, "ct_local"):
            raise Broken(f"expects operand #{i} to be loaded from the scratchpad or to be an accumulator", _source(value))
    for use in op.results[0].uses:
        if use.owner.operation.name not in ("ktdp.store", "scf.yield"):
            raise Broken("expects its result to be stored to the scratchpad or carried as an accumulator", _at(use.owner.operation))
