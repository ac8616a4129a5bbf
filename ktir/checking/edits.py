"""Ways to make a module smaller, for `ktir-reduce`. An edit need not keep the meaning; the verifier and the user's test decide.

Each kind of edit lists its targets on a module, in a fixed order, and applies some of them. Targets are made of positions in the walk
over the ops, so that they can be listed on one copy of the module and applied to another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ktir.mlir import ir, operations

__all__ = ["EDITS", "Edit", "Target", "smaller_numbers"]

Target = tuple[Any, ...]


@dataclass(frozen=True)
class Edit:
    """A kind of edit. `targets` lists what can be changed; `apply` changes one target of a module whose ops are given by position (an op
    that is gone is None), and says whether it did. Several targets of one kind may be applied together."""

    name: str
    targets: Callable[[Sequence[ir.Operation]], list[Target]]
    apply: Callable[[list[ir.Operation | None], Target], bool]


def _is_terminator(op: ir.Operation) -> bool:
    """Whether it is the last op of a block that has to end in one."""
    parent = op.parent
    if parent is None or parent.name == "builtin.module":
        return parent is None
    return op.name.endswith(("yield", "return", "condition", "terminator", "reduce", "yield_partial", "yield_reduced", "in_parallel"))


def _used(op: ir.Operation) -> bool:
    return any(next(iter(r.uses), None) is not None for r in op.results)


def _gone(ops: list[ir.Operation | None], number: int) -> None:
    """Erases op `number` and forgets it and what is in it."""
    op = ops[number]
    assert op is not None
    for i in range(number, number + len(operations(op))):
        ops[i] = None
    op.erase()


# Functions


def _functions(ops: Sequence[ir.Operation]) -> list[Target]:
    return [(i,) for i, op in enumerate(ops) if op.name == "func.func" and op.parent is not None]


def _erase_function(ops: list[ir.Operation | None], target: Target) -> bool:
    """Erases a function, and the calls of it that return nothing."""
    op = ops[target[0]]
    if op is None:
        return False
    name = ir.StringAttr(op.attributes["sym_name"]).value
    inside = set(range(target[0], target[0] + len(operations(op))))
    calls = [i for i, o in enumerate(ops) if o is not None and i not in inside and _callee(o) == name]
    if any(len(o.results) for i in calls if (o := ops[i]) is not None):
        return False
    for i in calls:
        _gone(ops, i)
    _gone(ops, target[0])
    return True


def _callee(op: ir.Operation) -> str | None:
    if op.name != "func.call":
        return None
    return ir.FlatSymbolRefAttr(op.attributes["callee"]).value


# Ops


def _unused(ops: Sequence[ir.Operation]) -> list[Target]:
    """Last op first, so that a whole chain goes at once."""
    return [(i,) for i, op in reversed(list(enumerate(ops))) if op.name != "func.func" and not _is_terminator(op)]


def _erase_unused(ops: list[ir.Operation | None], target: Target) -> bool:
    op = ops[target[0]]
    if op is None or _used(op):
        return False
    _gone(ops, target[0])
    return True


def _replaceable(kind: str) -> Callable[[Sequence[ir.Operation]], list[Target]]:
    def targets(ops: Sequence[ir.Operation]) -> list[Target]:
        return [(i, kind) for i, op in reversed(list(enumerate(ops))) if len(op.results) and op.name != "arith.constant" and _used(op)]

    return targets


def _replace(ops: list[ir.Operation | None], target: Target) -> bool:
    """Replaces the results of an op by values of the same types: its operands, constants, or what was made earlier; erases the op."""
    number, kind = target
    op = ops[number]
    if op is None:
        return False
    find = {"operand": _same_operand, "constant": _constant, "earlier": _earlier}[kind]
    values = [find(op, result) if next(iter(result.uses), None) is not None else result for result in op.results]
    if any(v is None for v in values):
        return False
    for result, value in zip(op.results, values, strict=True):
        if value != result:
            result.replace_all_uses_with(value)
    if _used(op):
        return False
    _gone(ops, number)
    return True


def _same_operand(op: ir.Operation, result: ir.Value) -> ir.Value | None:
    return next((v for v in op.operands if v.type == result.type), None)


def _earlier(op: ir.Operation, result: ir.Value) -> ir.Value | None:
    """The first value of the type in the op's block, or in a block around it."""
    around: Any = op
    while around is not None and around.block is not None and around.parent is not None:
        for argument in around.block.arguments:
            if argument.type == result.type:
                return argument
        for view in around.block.operations:
            if view.operation == around:
                break
            for value in view.operation.results:
                if value.type == result.type:
                    return value
        around = around.parent.operation
        if around.name == "builtin.module":
            return None
    return None


def _constant(op: ir.Operation, result: ir.Value) -> ir.Value | None:
    attribute = _zero(result.type)
    if attribute is None:
        return None
    with ir.InsertionPoint(op), op.location:
        return ir.Operation.create("arith.constant", results=[result.type], attributes={"value": attribute}).results[0]


def _zero(type_: ir.Type) -> ir.Attribute | None:
    if isinstance(type_, ir.IndexType | ir.IntegerType):
        return ir.IntegerAttr.get(type_, 0)
    if isinstance(type_, ir.RankedTensorType) and type_.has_static_shape:
        element = _zero(type_.element_type)
        return None if element is None else ir.DenseElementsAttr.get_splat(type_, element)
    try:
        return ir.FloatAttr.get(type_, 0.0)
    except (ValueError, ir.MLIRError):
        return None


# Regions

_SINGLE = ("scf.for", "scf.if", "scf.execute_region")


def _regions(ops: Sequence[ir.Operation]) -> list[Target]:
    """Loops and conditions whose body may stand alone: (op, number of the region)."""
    return [(i, k) for i, op in enumerate(ops) if op.name in _SINGLE for k, region in enumerate(op.regions) if len(region.blocks)]


def _unwrap(ops: list[ir.Operation | None], target: Target) -> bool:
    """Puts the body of a loop (its first trip) or a branch in place of the op."""
    op = ops[target[0]]
    if op is None:
        return False
    block = op.regions[target[1]].blocks[0]
    arguments = [op.operands[0], *op.operands[3:]] if op.name == "scf.for" else []
    body = [view.operation for view in block.operations]
    if not body or len(block.arguments) != len(arguments):
        return False
    for argument, value in zip(list(block.arguments), arguments, strict=True):
        argument.replace_all_uses_with(value)
    last = body.pop()
    yielded = list(last.operands)
    if len(yielded) != len(op.results):
        return False
    for each in body:
        each.move_before(op)
    for result, value in zip(op.results, yielded, strict=True):
        result.replace_all_uses_with(value)
    kept = {o for each in body for o in operations(each)}
    for i in range(target[0], len(ops)):
        found = ops[i]
        if found is not None and (found == op or (found not in kept and _within(found, op))):
            ops[i] = None
    op.erase()
    return True


def _within(op: ir.Operation, outer: ir.Operation) -> bool:
    at: Any = op
    while at is not None:
        if at == outer:
            return True
        at = at.parent.operation if at.parent is not None else None
    return False


# Arguments of functions


def _arguments(ops: Sequence[ir.Operation]) -> list[Target]:
    found = []
    for i, op in enumerate(ops):
        if op.name == "func.func" and len(op.regions[0].blocks):
            block = op.regions[0].blocks[0]
            found += [(i, k) for k in reversed(range(len(block.arguments))) if next(iter(block.arguments[k].uses), None) is None]
    return found


def _erase_argument(ops: list[ir.Operation | None], target: Target) -> bool:
    """Erases an argument that nothing uses, and what calls pass for it."""
    op, k = ops[target[0]], target[1]
    if op is None:
        return False
    block = op.regions[0].blocks[0]
    if k >= len(block.arguments) or next(iter(block.arguments[k].uses), None) is not None:
        return False
    name = ir.StringAttr(op.attributes["sym_name"]).value
    for i, call in enumerate(ops):
        if call is not None and _callee(call) == name:
            with ir.InsertionPoint(call), call.location:
                operands = [v for j, v in enumerate(call.operands) if j != k]
                new = ir.Operation.create(
                    "func.call",
                    results=[r.type for r in call.results],
                    operands=operands,
                    attributes={n.name: n.attr for n in _named(call)},
                )
            for old, result in zip(call.results, new.results, strict=True):
                old.replace_all_uses_with(result)
            call.erase()
            ops[i] = new
    type_: Any = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
    inputs = [t for j, t in enumerate(type_.inputs) if j != k]
    op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, type_.results))
    if "arg_attrs" in op.attributes:
        kept = [a for j, a in enumerate(ir.ArrayAttr(op.attributes["arg_attrs"])) if j != k]
        op.attributes["arg_attrs"] = ir.ArrayAttr.get(kept)
    block.erase_argument(k)
    return True


def _named(op: ir.Operation) -> list[ir.NamedAttribute]:
    return [op.attributes[i] for i in range(len(op.attributes))]


# Inputs of linalg.generic


def _inputs(ops: Sequence[ir.Operation]) -> list[Target]:
    return [
        (i, k)
        for i, op in enumerate(ops)
        if op.name == "linalg.generic"
        for k in reversed(range(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])[0]))
    ]


def _drop_input(ops: list[ir.Operation | None], target: Target) -> bool:
    """Drops an input that the body does not read."""
    op, k = ops[target[0]], target[1]
    if op is None:
        return False
    inputs, outputs = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    block = op.regions[0].blocks[0]
    if k >= inputs or next(iter(block.arguments[k].uses), None) is not None:
        return False
    attributes = {n.name: n.attr for n in _named(op)}
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([inputs - 1, outputs])
    maps = ir.ArrayAttr(op.attributes["indexing_maps"])
    attributes["indexing_maps"] = ir.ArrayAttr.get([m for j, m in enumerate(maps) if j != k])
    with ir.InsertionPoint(op), op.location:
        new = ir.Operation.create(
            "linalg.generic",
            results=[r.type for r in op.results],
            operands=[v for j, v in enumerate(op.operands) if j != k],
            attributes=attributes,
            regions=1,
        )
    block.append_to(new.regions[0])
    block.erase_argument(k)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()
    ops[target[0]] = new
    return True


# Attributes

_OPTIONAL = ("grid", "sym_visibility", "arg_attrs", "masked", "no_inline")


def _attributes(ops: Sequence[ir.Operation]) -> list[Target]:
    """Attributes that an op can do without. MLIR crashes where one is missing that the op's own class has."""
    return [(i, n.name) for i, op in enumerate(ops) for n in _named(op) if "." in n.name or n.name in _OPTIONAL]


def _erase_attribute(ops: list[ir.Operation | None], target: Target) -> bool:
    op = ops[target[0]]
    if op is None or target[1] not in op.attributes:
        return False
    del op.attributes[target[1]]
    return True


def _grids(ops: Sequence[ir.Operation]) -> list[Target]:
    """(function, dim, new extent)."""
    found = []
    for i, op in enumerate(ops):
        if op.name == "func.func" and "grid" in op.attributes:
            for d, n in enumerate(_grid(op)):
                found += [(i, d, m) for m in dict.fromkeys((1, n // 2)) if 0 < m < n]
    return found


def _grid(op: ir.Operation) -> list[int]:
    return [ir.IntegerAttr(n).value for n in ir.ArrayAttr(op.attributes["grid"])]


def _shrink_grid(ops: list[ir.Operation | None], target: Target) -> bool:
    op, d, extent = ops[target[0]], target[1], target[2]
    if op is None or _grid(op)[d] <= extent:
        return False
    grid = list(ir.ArrayAttr(op.attributes["grid"]))
    grid[d] = ir.IntegerAttr.get(ir.IntegerAttr(grid[d]).type, extent)
    op.attributes["grid"] = ir.ArrayAttr.get(grid)
    return True


def _constants(ops: Sequence[ir.Operation]) -> list[Target]:
    """(constant, new value): integers to 0, 1 or half of them, everything else to 0."""
    found: list[Target] = []
    for i, op in enumerate(ops):
        if op.name != "arith.constant":
            continue
        value = op.attributes["value"]
        if isinstance(value, ir.IntegerAttr) and not isinstance(value, ir.BoolAttr):
            n = value.value
            found += [(i, m) for m in dict.fromkeys((0, 1, n // 2)) if abs(m) < abs(n)]
        elif (zero := _zero(op.results[0].type)) is not None and zero != value:
            found.append((i, None))
    return found


def _shrink_constant(ops: list[ir.Operation | None], target: Target) -> bool:
    op, new = ops[target[0]], target[1]
    if op is None:
        return False
    type_ = op.results[0].type
    value = _zero(type_) if new is None else ir.IntegerAttr.get(type_, new)
    if value is None or op.attributes["value"] == value:
        return False
    op.attributes["value"] = value
    return True


EDITS = (
    Edit("functions", _functions, _erase_function),
    Edit("unused ops", _unused, _erase_unused),
    Edit("bodies in place of loops and conditions", _regions, _unwrap),
    Edit("operands in place of ops", _replaceable("operand"), _replace),
    Edit("constants in place of ops", _replaceable("constant"), _replace),
    Edit("earlier values in place of ops", _replaceable("earlier"), _replace),
    Edit("unused inputs", _inputs, _drop_input),
    Edit("unused arguments", _arguments, _erase_argument),
    Edit("attributes", _attributes, _erase_attribute),
    Edit("grids", _grids, _shrink_grid),
    Edit("constants", _constants, _shrink_constant),
)
"""In the order in which they are tried: what removes most comes first."""


def smaller_numbers(text: str) -> list[str]:
    """Versions of `text` in which one extent is smaller everywhere at once: in types, sizes and strides, and, less 1, in the bounds of
    integer sets. Extents that are products of it stay as they are."""
    shapes = {int(n) for dims in re.findall(r"(?:tensor|memref|tile)?<((?:\d+x)+)", text) for n in dims.split("x") if n}
    shapes |= {int(n) for sizes in re.findall(r"sizes: \[([^\]]*)\]", text) for n in re.findall(r"\d+", sizes)}
    versions = []
    for extent in sorted((n for n in shapes if n > 1), reverse=True):
        for new in dict.fromkeys((1, extent // 2)):
            if 0 < new < extent:
                versions.append(_with_extent(text, extent, new))
    return versions


def _with_extent(text: str, old: int, new: int) -> str:
    def in_set(match: re.Match[str]) -> str:
        return re.sub(rf"(?<![\w.])(?:{old - 1})(?![\w.])", str(new - 1), match.group()) if old > 1 else match.group()

    text = re.sub(r"affine_set<[^>]*?:(?:[^>]|>=)*?\)>", in_set, text)
    text = re.sub(rf"(?<=[<x]){old}(?=x)", str(new), text)
    return re.sub(r"(?:sizes|strides|static_sizes|static_strides)(?::| = array<i64:) ?\[?[^\]>]*[\]>]", lambda m: _entry(m, old, new), text)


def _entry(match: re.Match[str], old: int, new: int) -> str:
    return re.sub(rf"(?<![\w%#.]){old}(?![\w.])", str(new), match.group())
