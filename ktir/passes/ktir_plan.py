"""Decides layouts, kernels and divisions of a program together, and writes the decisions down for the passes that materialise them.

The passes after it take what is written (`_plan_attributes`), and decide for themselves where nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ktir.mlir import func, ir
from ktir.passes._columns import wishes
from ktir.passes._levels import require_level
from ktir.passes._plan_attributes import write_kernel, write_plan, write_stick
from ktir.passes._planner import Draft, Wishes
from ktir.pipeline import Pass
from ktir.target import DATASHEET


@dataclass(frozen=True)
class PlanPass(Pass):
    """Decide what lies in the stick at each op, which ops share a kernel, and how each kernel is divided over at most `cores` cores.

    `work_div` (or a `ktir.hint`) fixes parts of rows and columns, as for `ktir-divide-work`.

    Expects: the logical level without shape ops. Guarantees: the same, with the attributes `ktir.stick`, `ktir.kernel` and `ktir.plan`.
    Remarks give each choice with its cost, the runner-up and what bounds it.
    """

    name: ClassVar[str] = "ktir-plan"
    description: ClassVar[str] = "logical: decide layouts, kernels and divisions together"
    cores: int = DATASHEET.cores
    work_div: str = ""

    def run(self, module: ir.Module) -> None:
        """Plan each function of the module."""
        require_level(module, self.name, "logical")
        wanted = Wishes(self.cores, self.work_div, wishes(self.work_div))
        for op in module.body.operations:
            if isinstance(op, func.FuncOp) and "grid" not in op.attributes:
                _write(op, Draft.first(op, wanted))


def _write(function: func.FuncOp, draft: Draft) -> None:
    for node, dims in draft.sticks().items():
        write_stick(node.op, dims)
        if (number := draft.kernel_of(node)) is not None:
            write_kernel(node.op, number)
    write_plan(function, draft.kernels())
