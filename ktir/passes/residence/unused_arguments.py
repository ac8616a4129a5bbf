"""Arguments that a program no longer uses are taken out of its functions, their calls and the kernels."""

from __future__ import annotations

from collections.abc import Collection

from ktir.analysis.calls import argument_attributes, callee, calls_of, functions_of, replace_call, set_arguments, set_type
from ktir.mlir import func, ir
from ktir.passes.residence.pool_accesses import called_kernels


def drop_arguments(module: ir.Module, entry: func.FuncOp, arguments: Collection[int]) -> None:
    """Remove arguments of a function that calls kernels, also from these and from its callers. Nothing may use them."""
    parameters = list(entry.regions[0].blocks[0].arguments)
    for call, kernel in called_kernels(module, entry):
        gone = [i for i, v in enumerate(call.operands) if parameters.index(v) in arguments]
        _without(kernel, gone)
        replace_call(call, [v for i, v in enumerate(call.operands) if i not in gone])
    _drop(module, entry, arguments)


def _drop(module: ir.Module, function: func.FuncOp, arguments: Collection[int]) -> None:
    """Remove arguments of a function; what its callers gave them, and nothing else uses, goes there too."""
    if not arguments:
        return
    attributes = [a for i, a in enumerate(argument_attributes(function)) if i not in arguments]
    _without(function, arguments)
    set_arguments(function, attributes)
    for caller in functions_of(module).values():
        calls = [call for call in calls_of(caller) if callee(call) == function.name.value]
        given = {call.operands[i] for call in calls for i in arguments}
        for call in calls:
            replace_call(call, [v for i, v in enumerate(call.operands) if i not in arguments])
        unused = [i for i, v in enumerate(caller.regions[0].blocks[0].arguments) if v in given and not any(True for _ in v.uses)]
        _drop(module, caller, unused)


def _without(function: func.FuncOp, arguments: Collection[int]) -> None:
    block = function.regions[0].blocks[0]
    for number in sorted(arguments, reverse=True):
        block.erase_argument(number)
    set_type(function)
