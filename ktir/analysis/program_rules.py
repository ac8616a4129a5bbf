"""What KTIR itself asks of functions and grids, beyond what each op's own verifier sees: kernels, tiles, views of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any

from ktir.analysis.attributes import verify
from ktir.analysis.attributes.broken import Broken, faults_of, refuse
from ktir.analysis.attributes.function_attributes import dictionaries, place
from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import constant_of
from ktir.analysis.calls import Functions, callee, callees_first, functions_of, is_kernel
from ktir.diagnostics import Diagnostic, Unsupported, location_text
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects._ktdp import tile_sets
from ktir.dialects.module_level import Level
from ktir.mlir import arith, func, ir, is_a, linalg, named, operations
from ktir.roles import HOST_ROLES, Role, reach
from ktir.target import is_byte

Rule = Callable[[ir.Operation, tuple[int, ...] | None], None]
_WRONG_DIVISOR = re.compile(r"\b(?:mod|floordiv|ceildiv) \(?(-\d+|0)\b")


def check_module(module: ir.Module) -> None:
    """Raise KtirError for attributes anywhere in a module that are not as declared, and for functions, grids and tiles that cannot be."""
    refuse(verify.faults(module, operations(module)))
    refuse(_faults(module))


def _faults(module: ir.Module) -> Iterator[Diagnostic]:
    functions, level = functions_of(module), Level.of(module)
    sound: set[ir.Attribute] = set()
    yield from faults_of(operations(module), lambda op: _divisors(op, sound))
    calls: dict[str, list[ir.Operation]] = {name: [] for name in functions}
    for name, f in functions.items():
        grid = _grid(f.operation)
        formed = level is Level.LAID_OUT and "ktir.rows" in f.attributes
        for op in operations(f):
            rule = RULES.get(op.name)
            if rule is not None:
                yield from faults_of([op], lambda op, rule=rule, grid=grid: rule(op, grid))
            elif is_a(op, linalg.GenericOp):
                yield from faults_of([op], _generic)
                if formed:
                    yield from faults_of([op], lambda op, f=f: _rows(op, f.operation))
            elif is_a(op, func.CallOp):
                calls[name].append(op)
        yield from _views(f.operation)
    if any(calls.values()):
        yield from _calls(functions, calls)
    if "ktir.hosts" in module.operation.attributes:
        yield from _host_views(module, functions, calls)


def _divisors(op: ir.Operation, sound: set[ir.Attribute]) -> None:
    """Maps and sets divide by numbers of at least 1. `sound`: those that do, and more as they are found."""
    waiting = [op.attributes[name] for name in op.attributes]
    while waiting:
        attribute = waiting.pop()
        if isinstance(attribute, ir.ArrayAttr):
            waiting += list(attribute)
        if attribute in sound or not isinstance(attribute, ir.AffineMapAttr | ir.IntegerSetAttr):
            continue
        if (wrong := _WRONG_DIVISOR.search(str(attribute))) is not None:
            raise Broken(f"divides by {wrong[1]} in {attribute}; divisors of affine expressions are at least 1")
        sound.add(attribute)


def _grid(f: ir.Operation) -> tuple[int, ...] | None:
    return KernelFunction(f).grid if "grid" in f.attributes else None


def _calls(functions: Functions, calls: Mapping[str, list[ir.Operation]]) -> Iterator[Diagnostic]:
    """No function calls itself, and no kernel another one, be it through others."""
    try:
        order = callees_first(functions)
    except Unsupported as recursive:
        yield from recursive.diagnostics
        return
    ways: dict[str, list[str]] = {}
    """Of functions that run a kernel, the names from them to it."""
    for name in order:
        f = functions[name]
        if is_kernel(f):
            yield from faults_of(calls[name], lambda op, f=f: _calls_no_kernel(op, f, functions, ways))
            ways[name] = [name]
        elif (way := next((ways[callee(call)] for call in calls[name] if callee(call) in ways), None)) is not None:
            ways[name] = [name, *way]


def _calls_no_kernel(call: ir.Operation, f: func.FuncOp, functions: Functions, ways: Mapping[str, list[str]]) -> None:
    way = ways.get(callee(call))
    if way is not None:
        note = Diagnostic("note", f"'@{way[-1]}' is defined here", location_text(functions[way[-1]].location))
        through = " through " + ", ".join(f"'@{name}'" for name in way[:-1]) if len(way) > 1 else ""
        raise Broken(f"calls the kernel '@{way[-1]}'{through} from the kernel '@{f.name.value}': its tiles run already", note)


def _host_views(module: ir.Module, functions: Functions, calls: Mapping[str, list[ir.Operation]]) -> Iterator[Diagnostic]:
    """The tensors of the host have each element that views of the entry's arguments show. Those of other functions are of what these are
    given.
    """
    hosts = ir.ArrayAttr(module.operation.attributes["ktir.hosts"])
    called = {callee(call) for own in calls.values() for call in own}
    for f in (f for name, f in functions.items() if name not in called):
        for i, given in enumerate(dictionaries(f.operation, "arg_attrs")):
            if "ktir.host" in given:
                host = kt.HostViewAttr(given["ktir.host"])
                tensor: Any = ir.TypeAttr(hosts[host.arg]).value
                where = partial(place, f.operation, i)
                yield from faults_of([f.operation], lambda _, i=i, host=host, tensor=tensor: _within(i, host, tensor), where)


def _within(i: int, host: kt.HostViewAttr, tensor: Any) -> None:
    shape = list(tensor.shape)
    strides = list(ir.StridedLayoutAttr(tensor.layout).strides) if isinstance(tensor, ir.MemRefType) else None
    held, end = prod(shape) if strides is None else reach(0, shape, strides), reach(host.offset, host.size, host.strides)
    if end > held:
        within = f"within the {held} elements of its tensor in 'ktir.hosts', {tensor}"
        raise Broken(f"expects the host view of argument #{i} to be {within}, but it reaches element {end - 1}")


def _coordinates(op: ir.Operation, grid: tuple[int, ...] | None) -> None:
    """A tile has as many coordinates as its grid has dims."""
    if grid is not None and len(op.results) > len(grid):
        raise Broken(f"asks for {len(op.results)} coordinates of a grid of {len(grid)} dims, {list(grid)}")


def _ct_id(view: ir.Operation, grid: tuple[int, ...] | None) -> None:
    """The scratchpad of a tile of the grid."""
    number = view.opview.ct_id
    if grid is not None and number is not None and number >= prod(grid):
        raise Broken(f"names the scratchpad of tile {number}, but the grid {list(grid)} has {prod(grid)} tiles")


def _groups(op: ir.Operation, grid: tuple[int, ...] | None) -> None:
    """The groups of an exchange are numbered: its set of groups is bounded on both sides."""
    groups: Any = op.results[0].type
    if tile_sets.groups(groups.groups) is None:
        raise Broken(f"expects groups that constants bound on both sides, fewer than {tile_sets.MOST_TILES}, but got '{groups.groups}'")


def _generic(op: ir.Operation) -> None:
    """Each element of a result is written once."""
    from ktir.dialects.structured import overwritten

    if (wrong := overwritten(op)) is not None:
        raise Broken(wrong)


def _rows(op: ir.Operation, kernel: ir.Operation) -> None:
    """The row loops of an op of a kernel are its axes."""
    from ktir.analysis.axes import Axes, row_loops  # loads NumPy, which reading a module of another level goes without
    from ktir.dialects.structured import Generic

    g, axes = Generic(op), Axes.of(kernel)
    if len(row_loops(g)) > len(axes.extents):
        raise Broken(f"runs over {len(row_loops(g))} row loops, but its kernel has 'ktir.rows' {list(axes.extents)}")
    for operand, value in enumerate(op.operands):
        shape = ir.RankedTensorType(value.type).shape if isinstance(value.type, ir.RankedTensorType) else []
        for axis, extent in zip(axes.of_operand(g, operand), shape, strict=False):
            if axis is not None and extent != axes.extents[axis]:
                raise Broken(f"runs over {extent} rows of the axis of {axes.extents[axis]} rows, as its kernel's 'ktir.rows' says")


RULES: dict[str, Rule] = named(
    {
        ktdp.GetComputeTileIdOp: _coordinates,
        ktdp.ConstructMemoryViewOp: _ct_id,
        ktdp.InterTileProduceOp: _groups,
    }
)


def _views(f: ir.Operation) -> Iterator[Diagnostic]:
    """Views of arguments whose tensors are declared by `ktir.type`."""
    blocks = list(f.regions[0].blocks)
    for i, given in enumerate(dictionaries(f, "arg_attrs")):
        role = ir.StringAttr(given["ktir.role"]).value if "ktir.role" in given else Role.INPUT
        if "ktir.type" not in given or role not in HOST_ROLES or not blocks:
            continue
        declared = ir.RankedTensorType(ir.TypeAttr(given["ktir.type"]).value)
        strides = list(ir.DenseI64ArrayAttr(given["ktir.strides"])) if "ktir.strides" in given else None
        note = Diagnostic("note", f"argument #{i} is '{declared}'", location_text(place(f, i)))
        for view, offset in _views_of(blocks[0].arguments[i]):
            yield from faults_of([view], lambda view, offset=offset, d=declared, s=strides, n=note: _view(view, offset, d, s, n))


def _views_of(base: ir.Value, offset: int = 0) -> Iterator[tuple[ir.Operation, int]]:
    """The views that begin at an argument, or at a constant distance from it."""
    for use in base.uses:
        op = use.owner.operation
        if is_a(op, ktdp.ConstructMemoryViewOp) and use.operand_number == 0:
            yield op, offset
        elif is_a(op, arith.AddIOp) and (distance := constant_of(op.operands[1 - use.operand_number])) is not None:
            yield from _views_of(op.results[0], offset + distance)


def _in_memory(element: ir.Type, op: ir.Operation) -> ir.Type:
    """The type that elements of an argument have at the flat level: integers have 32 bits, floats of one byte are held as f16."""
    while op.parent is not None:
        op = op.parent.operation
    if Level.of(op) is not Level.FLAT:
        return element
    if isinstance(element, ir.IntegerType):
        return ir.IntegerType.get_signless(32)
    return ir.F16Type.get() if is_byte(str(element)) else element


def _view(view: ir.Operation, offset: int, declared: ir.RankedTensorType, strides: list[int] | None, note: Diagnostic) -> None:
    if view.opview.element_type not in (declared.element_type, _in_memory(declared.element_type, view)):
        raise Broken(f"shows elements of type {view.opview.element_type} of a tensor that is declared as '{declared}'", note)
    sizes, steps = view.opview.sizes, view.opview.strides
    if view.opview.masked or any(not isinstance(n, int) for n in (*sizes, *steps)) or 0 in sizes:
        return
    shape = list(declared.shape)
    held, end = prod(shape) if strides is None else reach(0, shape, strides), reach(offset, sizes, steps)
    if end > held:
        raise Broken(f"reaches element {end - 1} of a tensor of {held} elements, declared as '{declared}'", note)
