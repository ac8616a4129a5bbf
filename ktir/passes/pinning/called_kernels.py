"""Kernels by hand that planned functions call: each is pinned in place of what its author wrote, on linear memory that both see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ktir.analysis.calls import argument_attributes, callee, calls_of, set_arguments
from ktir.analysis.interface.parameters import parameters
from ktir.diagnostics import refused
from ktir.mlir import func, ir
from ktir.passes.pinning.callers import NEW, check_memory, new_entry
from ktir.passes.pinning.ktir_pin import pin_kernel
from ktir.passes.pinning.scratchpad import Access, check_parts
from ktir.roles import Role
from ktir.target import Target

_TILES = "_tiles"
"""Behind the name of an author's kernel: what runs on the tiles."""


class CalledKernels:
    """The kernels of a module that the compiler does not plan."""

    def __init__(self, module: ir.Module, target: Target) -> None:
        self.module, self.target = module, target
        self.accesses: dict[str, list[Access]] = {}
        """What each one does in the scratchpad."""

    def pin(self, kernel: func.FuncOp) -> list[ir.DictAttr]:
        """Put in place of an author's kernel a function that calls the pinned one; returns what its arguments are: the memory that the
        author's is given, and then memory of its own. Raises Unsupported."""
        name, visibility = kernel.name.value, kernel.attributes.get("sym_visibility")
        found, places = parameters(self.module, name)
        if places or not all(p.is_buffer for p in found):
            raise refused(kernel.operation, "is called by a program, so all that it is given must be memory, as arguments")
        check_memory(found, kernel)
        self.accesses[name] = []
        pinned = pin_kernel(kernel, {}, [], self.target, self.accesses[name])
        caller = new_entry(self.module, kernel, found, pinned)
        caller.operation.move_before(kernel.operation)
        kernel.operation.erase()
        made = [f for part in pinned for f in part.functions]
        for function in made:
            function.attributes["sym_name"] = ir.StringAttr.get(function.name.value.removesuffix(NEW) + _TILES)
        for call in calls_of(caller):
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(callee(call) + _TILES)
        caller.attributes["sym_name"] = ir.StringAttr.get(name)
        for function in (caller, *made):
            if visibility is not None:
                function.attributes["sym_visibility"] = visibility
        attributes = [_shared(a) for a in argument_attributes(caller)]
        set_arguments(caller, attributes)
        return attributes

    def check(self, functions: Mapping[str, func.FuncOp]) -> None:
        """Raise Unsupported where kernels of one caller, between which the scratchpad keeps what is in it, use the same stick of it."""
        for function in functions.values():
            check_parts([access for name in _called(function) for access in self.accesses.get(name, [])])


def _shared(attribute: ir.DictAttr) -> ir.DictAttr:
    """What an argument with memory of the host is, where it is the caller's; the function's own stays."""
    if "ktir.host" not in attribute:
        return attribute
    given = {a.name: a.attr for a in attribute if a.name != "ktir.host"}
    return ir.DictAttr.get(given | {"ktir.role": ir.StringAttr.get(Role.SHARED)})


def _called(function: func.FuncOp) -> Iterable[str]:
    return dict.fromkeys(map(callee, calls_of(function)))
