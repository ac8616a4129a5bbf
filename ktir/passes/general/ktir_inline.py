"""KTIR -> KTIR without calls of helper functions.

A function with a grid, or with rows to divide, is a kernel: a call of it is a launch and a barrier, and stays. Every other call is
replaced by the callee's body, inside of loops and branches too, so that the passes and executors that want flat kernels get them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ktir.analysis.calls import callees_first, is_kernel
from ktir.mlir import builtin, func, ir, is_a, operations
from ktir.pipeline import Pass


@dataclass(frozen=True)
class InlinePass(Pass):
    """Replace calls of functions without a grid by their bodies; private functions that no one uses any more are erased.
    Others stay, since whoever reads the module may call them: a program of several functions that nobody calls is none to compile.

    Expects: any level. Guarantees: a call that is left is of a kernel, of a declaration or of a function of several blocks (reported as a
    missed remark). Recursion is refused. Values do not change.
    """

    name: ClassVar[str] = "ktir-inline"
    description: ClassVar[str] = "replace calls of functions without a grid by their bodies"

    def run(self, module: ir.Module) -> None:
        """Work on each symbol table by itself, the inner ones first."""
        tables = [op for op in operations(module) if is_a(op, builtin.ModuleOp)]
        for table in reversed(tables):
            self._inline(table)

    def _inline(self, table: ir.Operation) -> None:
        functions = {f.name.value: f for f in table.regions[0].blocks[0].operations if isinstance(f, func.FuncOp)}
        inlined: set[str] = set()
        for name in callees_first(functions):
            for call in list(_calls(functions[name], functions)):
                callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
                if fault := _obstacle(functions[callee]):
                    if fault != _KERNEL:
                        self.remark("missed", f"'@{callee}' is not inlined: {fault}", call.location)
                    continue
                self.remark("passed", f"'@{callee}' inlined", call.location)
                self.count("calls-inlined")
                inlined.add(callee)
                _replace(call, functions[callee])
        for name in sorted(inlined):
            function = functions[name]
            if "sym_visibility" in function.attributes and name not in _referenced(table):
                function.operation.erase()
                self.count("functions-erased")


_KERNEL = "it is a kernel"


def _obstacle(callee: func.FuncOp) -> str | None:
    """Why calls of `callee` stay."""
    if is_kernel(callee):
        return _KERNEL
    blocks = len(callee.regions[0].blocks)
    if blocks == 1:
        return None
    return f"it has {blocks} blocks" if blocks else "it is a declaration"


def _calls(function: func.FuncOp, functions: dict[str, func.FuncOp]) -> Iterator[ir.Operation]:
    """The calls inside `function` of one of `functions`."""
    for op in operations(function):
        if is_a(op, func.CallOp) and ir.FlatSymbolRefAttr(op.attributes["callee"]).value in functions:
            yield op


def _replace(call: ir.Operation, callee: func.FuncOp) -> None:
    """Put a copy of the callee's body in place of the call."""
    with ir.InsertionPoint(call):
        copy = callee.operation.clone()
    block = copy.regions[0].blocks[0]
    for op in operations(copy):
        op.location = _called(op.location, call.location)
        for region in op.regions:
            for inner in region.blocks:
                for argument in inner.arguments:
                    argument.set_location(_called(argument.location, call.location))
    for argument, operand in zip(block.arguments, call.operands, strict=True):
        argument.replace_all_uses_with(operand)
    *body, end = [op.operation for op in block.operations]
    for op in body:
        op.move_before(call)
    for result, value in zip(call.results, end.operands, strict=True):
        result.replace_all_uses_with(value)
    call.erase()
    copy.erase()


def _called(callee: ir.Location, caller: ir.Location) -> ir.Location:
    return ir.Location.callsite(callee, [caller])


def _referenced(table: ir.Operation) -> set[str]:
    """Every symbol that an op inside of `table` refers to."""
    names: set[str] = set()
    pending: list[ir.Attribute] = [op.attributes[name] for op in operations(table) for name in op.attributes]
    while pending:
        attribute = pending.pop()
        if isinstance(attribute, ir.SymbolRefAttr):
            names.update(attribute.value)
        elif isinstance(attribute, ir.FlatSymbolRefAttr):
            names.add(attribute.value)
        elif isinstance(attribute, ir.ArrayAttr):
            pending += list(attribute)
        elif isinstance(attribute, ir.DictAttr):
            pending += [entry.attr for entry in attribute]
    return names
