"""What the attributes of a function and of its arguments have to be to each other; each by itself is as `table` declares it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ktir.analysis.attributes import kinds
from ktir.analysis.attributes.broken import Broken, faults_of
from ktir.analysis.attributes.kernel import KernelFunction
from ktir.diagnostics import Diagnostic, location_text
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.mlir import func, ir, is_a, operations
from ktir.roles import HOST_ROLES, Role
from ktir.target import LANES

_WITH_GRID = (Level.DIVIDED, Level.TILED, Level.ALLOCATED)


def dictionaries(f: ir.Operation, name: str) -> list[ir.DictAttr]:
    """The attributes of each argument (`arg_attrs`) or result (`res_attrs`); none where none has any."""
    given = f.attributes.get(name)
    items = list(ir.ArrayAttr(given)) if given is not None and kinds.is_a(ir.ArrayAttr, given) else []
    return [ir.DictAttr(item) for item in items] if all(kinds.is_a(ir.DictAttr, item) for item in items) else []


def place(f: ir.Operation, argument: int) -> ir.Location:
    """Where an argument stands, or where its function does."""
    blocks = list(f.regions[0].blocks)
    location = blocks[0].arguments[argument].location if blocks and argument < len(blocks[0].arguments) else f.location
    return f.location if location == ir.Location.unknown(f.context) else location


def unsaid(f: ir.Operation) -> Iterator[Diagnostic]:
    """Arguments of a function of the device, but for kernels, that do not say what they are."""
    if "ktir.rows" in f.attributes or "grid" in f.attributes or not f.regions[0].blocks:
        return
    given = dictionaries(f, "arg_attrs")
    for i in range(len(f.regions[0].blocks[0].arguments)):
        for name in ("ktir.name", "ktir.role", "ktir.layout"):
            if not given or name not in given[i]:
                text = f"'func.func' op expects argument #{i} to have an attribute '{name}'"
                yield Diagnostic("error", text, location_text(place(f, i)))
                break


def kernel(f: ir.Operation, level: Level | None) -> None:
    """A kernel has no results, and is divided as its rows and its grid say."""
    attributes = f.attributes
    if "ktir.work" in attributes and "ktir.rows" not in attributes:
        raise Broken("expects a kernel that is divided to have the attribute 'ktir.rows'")
    if "ktir.rows" not in attributes and "grid" not in attributes:
        return
    if level is not None and level not in _WITH_GRID and "grid" in attributes and ("ktir.rows" in attributes or not _is_called(f)):
        raise Broken(f"has 'grid', an attribute of the divided, tiled and allocated levels, in a module at level '{level}'")
    results = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value).results
    if results:
        raise Broken(f"expects a kernel without results, but it gives {', '.join(map(str, results))}")
    exchanges = "ktir.exchange" in attributes
    for name in ("ktir.rows", "ktir.work", "ktir.sums") if exchanges else ():
        if name in attributes:
            raise Broken(f"has '{name}', an attribute of a kernel that computes")
    for name in ("grid",) if exchanges or "ktir.rows" not in attributes else ("grid", "ktir.work"):
        if level in _WITH_GRID and name not in attributes:
            raise Broken(f"expects a kernel with the attribute '{name}'")
    if "ktir.work" in attributes:
        _division(f)


def _is_called(f: ir.Operation) -> bool:
    """Whether a function is a kernel by hand, which a program at any level may call."""
    name = ir.StringAttr(f.attributes["sym_name"]).value
    calls = (op for op in operations(f.parent) if is_a(op, func.CallOp))
    return any(ir.FlatSymbolRefAttr(call.attributes["callee"]).value == name for call in calls if "callee" in call.attributes)


def _division(f: ir.Operation) -> None:
    work, extents = kt.WorkAttr(f.attributes["ktir.work"]), list(ir.DenseI64ArrayAttr(f.attributes["ktir.rows"]))
    splits, tile = list(work.splits), list(work.tile)
    if len(splits) != len(extents) + 2 or tile[-1] != LANES or splits[-1] != 1:
        raise Broken(f"expects 'ktir.work' to divide sticks and rows {extents} of {LANES} lanes, but got splits {splits}, tile {tile}")
    for axis, (parts, share, rows) in enumerate(zip(splits[1:-1], tile[1:-1], extents, strict=True)):
        if not (parts - 1) * share < rows <= parts * share:
            raise Broken(f"expects {parts} parts of {share} rows to cover {rows} rows with no part empty")
        if axis < len(extents) - 1 and rows % share:
            raise Broken(f"expects equal parts of batch axis {axis}, but got {parts} of {share} for {rows}")
    if "grid" not in f.attributes:
        return
    grid, sums = list(KernelFunction(f).grid), KernelFunction(f).sums
    if prod(grid) != prod(splits) * sums:
        each = f" and {sums} partial sums each" if sums != 1 else ""
        raise Broken(f"expects a grid of as many tiles as 'ktir.work' has parts, but got {grid} for splits {splits}{each}")


_WIDE_FLOATS = {"f16", "bf16", "f32"}
"""Of which none is held as another one, as integers of other widths and floats of a byte are."""


def faults(f: ir.Operation, module: ir.Operation, level: Level | None) -> Iterator[Diagnostic]:
    """What is wrong with the arguments of a function, each at its place."""
    named: dict[str, int] = {}
    arguments = dictionaries(f, "arg_attrs")
    hosts = module.attributes.get("ktir.hosts") if not _is_private(f) else None  # views of a private function are of what it is given
    for i, given in enumerate(arguments):
        yield from faults_of([f], lambda _, i=i, given=given: _argument(i, given, hosts), lambda i=i: place(f, i))
        if "ktir.name" in given:
            name = ir.StringAttr(given["ktir.name"]).value
            other = named.setdefault(name, i)
            if other != i and not _one_tensor(arguments[other], given, level):
                note = Diagnostic("note", f"argument #{other}", location_text(place(f, other)))
                text = f"'{f.name}' op expects arguments of different names, but '{name}' names #{other} and #{i}"
                yield Diagnostic("error", text, location_text(place(f, i)), (note,))


def _one_tensor(a: ir.DictAttr, b: ir.DictAttr, level: Level | None) -> bool:
    """Whether two arguments may be views of one tensor of the caller, by whose name both go: several device tensors may hold it."""
    if level is None or level.of_host:
        return False
    return any("ktir.host" not in x for x in (a, b)) or kt.HostViewAttr(a["ktir.host"]).arg == kt.HostViewAttr(b["ktir.host"]).arg


def _is_private(f: ir.Operation) -> bool:
    return "sym_visibility" in f.attributes and ir.StringAttr(f.attributes["sym_visibility"]).value == "private"


def _argument(i: int, given: ir.DictAttr, hosts: ir.Attribute | None) -> None:
    if "ktir.layout" in given and (fault := kinds.layout_fault(given["ktir.layout"])):
        raise Broken(f"expects 'ktir.layout' of argument #{i} to have {fault}")
    if "ktir.strides" in given:
        rank = len(ir.RankedTensorType(ir.TypeAttr(given["ktir.type"]).value).shape) if "ktir.type" in given else None
        strides = list(ir.DenseI64ArrayAttr(given["ktir.strides"]))
        if len(strides) != rank:
            wanted = "'ktir.type', whose strides it gives" if rank is None else f"one stride per dim of its 'ktir.type', {rank}"
            raise Broken(f"expects argument #{i} with 'ktir.strides' to have {wanted}, but got {strides}")
    if "ktir.host" in given:
        _host(i, given, hosts)


def _host(i: int, given: ir.DictAttr, hosts: ir.Attribute | None) -> None:
    host = kt.HostViewAttr(given["ktir.host"])
    role = ir.StringAttr(given["ktir.role"]).value if "ktir.role" in given else Role.INPUT
    if role not in HOST_ROLES:
        raise Broken(f"expects 'ktir.role' of argument #{i} with a 'ktir.host' to be one of {', '.join(HOST_ROLES)}, but got '{role}'")
    if "ktir.layout" in given:
        size = list(kt.LayoutAttr(given["ktir.layout"]).size)
        if prod(host.size) != prod(size):
            sizes = f"as many elements as its layout of size {size}, but got {list(host.size)}"
            raise Broken(f"expects the host view of argument #{i} to have {sizes}")
    if hosts is not None and host.arg >= (count := len(ir.ArrayAttr(hosts))):
        raise Broken(f"expects the host view of argument #{i} to be of one of the {count} tensors in 'ktir.hosts', but got {host.arg}")
    if hosts is not None and "ktir.layout" in given:
        tensor: Any = ir.TypeAttr(ir.ArrayAttr(hosts)[host.arg]).value
        element, held = str(tensor.element_type), str(kt.LayoutAttr(given["ktir.layout"]).dtype)
        if element != held and {element, held} <= _WIDE_FLOATS:
            raise Broken(f"expects the layout of argument #{i} to hold the {element} of its tensor in 'ktir.hosts', but got {held}")
