"""Rules of the levels for the program: functions, their attributes, calls. Each raises `Broken` with what is not so, or returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from ktir.analysis.attributes.broken import Broken, note_at
from ktir.analysis.attributes.kernel import KernelFunction, is_authors
from ktir.analysis.attributes.residents import EXCHANGE
from ktir.analysis.calls import callee, callees_first, calls_of, is_kernel
from ktir.analysis.shared_memory import own_uses
from ktir.diagnostics import Diagnostic, Unsupported, location_text
from ktir.dialects.module_level import Level
from ktir.mlir import func, ir, is_a, operations
from ktir.roles import HOST_ROLES, OWN_ROLES, Role


def one_entry(module: ir.Operation, *, level: Level, functions: Mapping[str, func.FuncOp]) -> None:
    """One entry, which calls all functions and kernels, itself or through others."""
    called = {callee(op) for f in functions.values() for op in operations(f) if is_a(op, func.CallOp)}
    entries = [f for name, f in functions.items() if name not in called and (level.of_host or not is_kernel(f))]
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


def function_of(f: ir.Operation, *, level: Level, cores: int, formed: bool, called: Collection[str]) -> None:
    """A function from the laid-out level on. `formed`: there are kernels; `called`: what other functions call."""
    if is_kernel(f):
        _kernel(f, cores)
        return
    shared = [Role.SHARED] if ir.StringAttr(f.attributes["sym_name"]).value in called else []
    for i, d in enumerate(_argument_attributes(f)):
        role = _role(i, d, (*HOST_ROLES, *OWN_ROLES, *shared))
        _require(i, d, "ktir.layout")
        if role in HOST_ROLES:
            _require(i, d, "ktir.host")
    ops = f.regions[0].blocks[0].operations
    if not formed and level is Level.LAID_OUT and not any(is_a(op, func.CallOp) for op in ops):
        return
    for op in ops:
        if not is_a(op, func.CallOp, func.ReturnOp):
            raise Broken(f"expects an entry function that only calls kernels, but it has '{op.operation.name}'", note_at(op.operation))


def _kernel(f: ir.Operation, cores: int) -> None:
    for op in operations(f):
        if is_a(op, func.CallOp):
            raise Broken("expects a kernel that calls nothing", note_at(op))
    if "grid" in f.attributes:
        grid = list(KernelFunction(f).grid)
        if prod(grid) > cores:
            raise Broken(f"expects a grid of at most {cores} tiles, but got {grid}")


def logical_function(f: ir.Operation) -> None:
    """Arguments are base addresses of named host buffers, and what is done to them is what their roles say."""
    roles: list[str] = []
    given = _argument_attributes(f)
    for i, d in enumerate(given):
        roles.append(_role(i, d, tuple(Role)))
        if any("ktir.type" in each for each in given):  # a program by hand may declare none
            _require(i, d, "ktir.type")
    function = f.opview
    if not isinstance(function, func.FuncOp) or is_authors(function) or calls_of(function):
        return
    try:
        written = own_uses(function).writes
    except Unsupported:
        return  # addresses that a rule of their own refuses
    for i, role in enumerate(roles):
        if role in (Role.INPUT, Role.IOTA) and i in written:
            also = "; what is read and written is 'input_output'" if role == Role.INPUT else ""
            raise Broken(f"expects argument #{i}, whose 'ktir.role' is '{role}', not to be written{also}")
        if role == Role.OUTPUT and i not in written and _elements(f, i):
            raise Broken(f"expects argument #{i}, whose 'ktir.role' is 'output', to be written; what is only read is 'input'")


def _elements(f: ir.Operation, i: int) -> int:
    """Of the tensor that an argument is; 1 where it declares none."""
    given = ir.DictAttr(ir.ArrayAttr(f.attributes["arg_attrs"])[i])
    return prod(ir.RankedTensorType(ir.TypeAttr(given["ktir.type"]).value).shape) if "ktir.type" in given else 1


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
