"""Arguments that a program no longer uses are taken out of its entry function, the calls and the kernels."""

from __future__ import annotations

from collections.abc import Collection

from ktir.mlir import func, ir
from ktir.passes._pool_accesses import called_kernels, entry_of


def drop_arguments(module: ir.Module, arguments: Collection[int]) -> None:
    """Remove arguments of the entry function, and of the kernels that it gives them to. Nothing may use them."""
    entry = entry_of(module)
    parameters = list(entry.regions[0].blocks[0].arguments)
    for call, kernel in called_kernels(module):
        gone = [i for i, v in enumerate(call.operands) if parameters.index(v) in arguments]
        _without(kernel, gone)
        with ir.InsertionPoint(call), call.location:
            func.CallOp([], kernel.name.value, [v for i, v in enumerate(call.operands) if i not in gone])
        call.erase()
    attributes = list(ir.ArrayAttr(entry.attributes["arg_attrs"])) if parameters else []
    _without(entry, arguments)
    entry.attributes["arg_attrs"] = ir.ArrayAttr.get([a for i, a in enumerate(attributes) if i not in arguments])


def _without(function: func.FuncOp, arguments: Collection[int]) -> None:
    block = function.regions[0].blocks[0]
    for number in sorted(arguments, reverse=True):
        block.erase_argument(number)
    type_ = ir.FunctionType.get([a.type for a in block.arguments], [])
    function.attributes["function_type"] = ir.TypeAttr.get(type_)
