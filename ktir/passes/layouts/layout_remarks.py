"""Remarks of the layouts: what goes through memory, what the host rearranges, what the array does not take."""

from __future__ import annotations

from ktir.analysis.attributes.plan_attributes import STICK
from ktir.analysis.flat import Node, shape_of
from ktir.dialects.structured import Generic
from ktir.mlir import func, is_a, linalg
from ktir.passes.layouts.physical_tensors import PhysicalTensors
from ktir.passes.layouts.stick_roles import stick_text
from ktir.pipeline import Pass


class LayoutRemarks:
    """Says of one function what its layouts cost."""

    def __init__(self, options: Pass, source: func.FuncOp, tensors: PhysicalTensors) -> None:
        self.options, self.source, self.tensors = options, source, tensors

    def remark(self) -> None:
        """Makes all remarks."""
        self._relayouts()
        self._wide_matmuls()

    def _wide_matmuls(self) -> None:
        for view in self.source.regions[0].blocks[0].operations:
            op = view.operation
            if is_a(op, linalg.GenericOp) and Generic(op).is_wide_matmul:
                text = "matmul of f32 operands runs on the vector unit, a product and a sum per element; the array takes f16"
                self.options.remark("missed", text, op.location)

    def _relayouts(self) -> None:
        roles = self.tensors.plan.roles
        for node in self.tensors.plan.nodes:
            if node.kind == "load" and self.tensors.is_packed(node):
                self._packed(node)
            if node.kind in ("load", "fill", "store", "scatter") or not (relaid := roles.relaid(node.result)):
                continue
            moved = roles.relayout_bytes(node.result, roles.made(node.result), relaid)
            text = f"tensor<{'x'.join(map(str, shape_of(node.result)))}> is made with {stick_text(roles.made(node.result))} and read with "
            text += f"{' and '.join(stick_text(s) for s in relaid)}: {moved} bytes through memory"
            other = None if STICK in node.op.attributes else roles.runner_up(node)  # a plan has compared them
            if other is not None:
                text += f"; with {stick_text(other[0][-1])} at this op the program moves {other[1]} bytes, so {roles.cost}"
            self.options.remark("passed", text, node.op.location)
        exact = "no choice moves fewer" if roles.cost == roles.bound else f"no choice moves fewer than {roles.bound}"
        if roles.cost:
            self.options.remark("analysis", f"relayouts and linear memory: {roles.cost} bytes; {exact}", self.source.location)

    def _packed(self, node: Node) -> None:
        memory = node.memory
        assert memory is not None
        for user in self.tensors.plan.roles.users[node.result]:
            stick = self.tensors.plan.roles.chosen[user[0]][user[1]]
            if stick is not None and memory.strides[stick] != 1 and 1 in memory.strides and memory.sizes[stick] > 1:
                name = self.tensors.plan.buffers.name(memory.argument)
                self.options.remark(
                    "missed", f"'{name}' is transposed by the host at each launch; it can be arranged before", node.op.location
                )
                return
