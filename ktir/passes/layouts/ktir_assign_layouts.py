"""Logical -> laid-out KTIR: every tensor gets its stick layout, and padding is made harmless.

At most one dimension of a tensor lies *in the stick*, the others are *rows*: tensor<sticks x row0 x row1 x .. x 64>. What lies in the
stick is chosen for all ops together (`stick_roles`); where an op makes a tensor in another layout than an op reads, it goes through linear
memory. Row dimensions that every op walks together are one (`row_merging`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ktir.analysis.attributes.kernel import is_authors
from ktir.analysis.attributes.levels import require_level, set_level
from ktir.analysis.attributes.plan_attributes import PLAN, copy_kernel
from ktir.analysis.calls import calls_of, functions_of, set_arguments, text_attribute
from ktir.analysis.flat import Node, refuse
from ktir.dialects import ktir as kt
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.dialects.structured import Generic
from ktir.layout import Layout
from ktir.mlir import func, ir, is_a, linalg, operations
from ktir.passes.layouts.caller_arguments import Callers
from ktir.passes.layouts.device_arguments import DeviceArgument
from ktir.passes.layouts.host_tensors import note_host_tensors
from ktir.passes.layouts.layout_plan import layout_plan
from ktir.passes.layouts.layout_remarks import LayoutRemarks
from ktir.passes.layouts.physical_ops import PhysicalOps
from ktir.passes.layouts.physical_tensors import PhysicalTensors
from ktir.passes.pinning.called_kernels import CalledKernels
from ktir.passes.pinning.copied_inputs import copied_inputs
from ktir.pipeline import Pass
from ktir.roles import OWN_ROLES


@dataclass(frozen=True)
class AssignLayoutsPass(Pass):
    """Give every tensor a stick layout and mask padding where it would be read.

    Expects: the flat level. Guarantees: the laid-out level. Remarks name what goes through memory to get another
    layout, with its bytes, and the weights that could be arranged once instead of at each launch.
    """

    name: ClassVar[str] = "ktir-assign-layouts"
    description: ClassVar[str] = "flat -> laid-out: stick layouts, masks against padding"
    target: str = ""
    cores: int | None = None
    tolerance: ClassVar[float] = 2.0**-10  # a reduction may add its sticks in another order than along the host dimension

    def allowed(self, module: ir.Module) -> float:
        """The tolerance where floats are summed; else nothing."""
        return self.tolerance if any(is_a(op, linalg.GenericOp) and Generic(op).sums_floats for op in operations(module)) else 0.0

    def run(self, module: ir.Module) -> None:
        """Rewrite each function of the module."""
        require_level(module, self.name, Level.FLAT)
        note_host_tensors(module)
        callers = Callers(module, copied_inputs(functions_of(module)))
        pinned = CalledKernels(module, machine(module, self.target, self.cores))
        for name, function in callers.functions.items():
            if is_authors(function):
                callers.given[name] = [_linear(i, held) for i, held in enumerate(pinned.pin(function))]
            else:
                callers.given[name] = callers.rewritten(function) if calls_of(function) else _rewritten(self, function)
        pinned.check(functions_of(module))
        set_level(module, Level.LAID_OUT)


def _linear(position: int, attribute: ir.DictAttr) -> DeviceArgument:
    """An argument of a kernel by hand: memory that it is given, or its own, whose elements lie as they are."""
    held, own = kt.LayoutAttr(attribute["ktir.layout"]), text_attribute(attribute, "ktir.role") in OWN_ROLES
    elements = prod(held.size)
    return DeviceArgument(Layout.linear(elements, str(held.dtype)), attribute, None if own else position, None, 0, elements)


def _rewritten(options: AssignLayoutsPass, source: func.FuncOp) -> list[DeviceArgument]:
    """Build the laid-out function in place of the source; returns its arguments."""
    if "grid" in source.attributes:
        raise refuse(source.operation, "expects a function without grid")
    plan = layout_plan(source)
    visibility = source.attributes["sym_visibility"] if "sym_visibility" in source.attributes else None
    with ir.InsertionPoint(source), source.location:
        function = func.FuncOp(source.name.value, ([], []))
    function.attributes["sym_visibility"] = ir.StringAttr.get("public")
    block = function.add_entry_block()
    tensors = PhysicalTensors(plan, block)
    ops = PhysicalOps(tensors)
    with ir.InsertionPoint(block):
        for node in plan.nodes:
            with node.op.location:
                _build(ops, tensors, node)
        with source.regions[0].blocks[0].operations[-1].operation.location:
            func.ReturnOp([])
    set_arguments(function, [a.attribute for a in tensors.arguments.given])
    if PLAN in source.attributes:
        function.attributes[PLAN] = source.attributes[PLAN]
    LayoutRemarks(options, source, tensors).remark()
    source.operation.erase()
    del function.attributes["sym_visibility"]
    if visibility is not None:
        function.attributes["sym_visibility"] = visibility
    return tensors.arguments.given


def _build(ops: PhysicalOps, tensors: PhysicalTensors, node: Node) -> None:
    if node.kind == "load":
        if not tensors.is_packed(node):
            for user in tensors.plan.roles.users[node.result]:
                tensors.operand(*user)  # here, since what lies there may change before it is used
    elif node.kind in ("store", "scatter"):
        copy_kernel(node.op, tensors.store(node))
    elif node.kind != "fill":
        build = {"pairs": ops.pairs, "pointwise": ops.pointwise, "reduction": ops.reduction, "contraction": ops.contraction}
        made = tensors.gather(node) if node.kind == "gather" else build[node.kind](node)
        if node.kind != "gather":
            copy_kernel(node.op, made.value.owner)
        if (stored := tensors.keep(node.result, made)) is not None:
            copy_kernel(node.op, stored)
