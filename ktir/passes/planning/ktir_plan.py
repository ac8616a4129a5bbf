"""Decides layouts, kernels and divisions of a program together, and writes the decisions down for the passes that materialise them.

The passes after it take what is written (`plan_attributes`), and decide for themselves where nothing is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ktir.analysis.attributes.levels import require_level
from ktir.analysis.attributes.plan_attributes import write_kernel, write_plan, write_stick
from ktir.analysis.calls import calls_of
from ktir.dialects.module_level import Level
from ktir.dialects.module_target import machine
from ktir.mlir import func, ir
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.passes.division.work import Work
from ktir.passes.kernels.columns import wishes
from ktir.passes.layouts.stick_roles import stick_text
from ktir.passes.planning.agreement import Agreement
from ktir.passes.planning.plan_search import STEPS, Found, search
from ktir.passes.planning.planner import Draft, Wishes
from ktir.pipeline import AtLeast, Pass


@dataclass(frozen=True)
class PlanPass(Pass):
    """Decide what lies in the stick at each op, which ops share a kernel, and how each kernel is divided over at most `cores` cores
    of `target` with `lx_bytes` of scratchpad each.

    `steps` changes of what the passes would decide by themselves are priced, the best are made; then kernels that hand on tensors agree
    on divisions where that is faster. 0 leaves the passes' decisions as they are.
    `work_div` (or a `ktir.hint`) fixes parts of rows and columns, as for `ktir-divide-work`.

    Expects: the flat level. Guarantees: the same, with the attributes `ktir.stick`, `ktir.kernel` and `ktir.plan`.
    Remarks give each choice with its cost, the runner-up and what bounds it.
    """

    name: ClassVar[str] = "ktir-plan"
    description: ClassVar[str] = "flat: decide layouts, kernels and divisions together"
    target: str = ""
    cores: int | None = None
    lx_bytes: int | None = None
    work_div: str = ""
    steps: Annotated[int, AtLeast(0)] = STEPS

    def run(self, module: ir.Module) -> None:
        """Plan each function of the module."""
        require_level(module, self.name, Level.FLAT)
        wanted = Wishes(machine(module, self.target, self.cores, self.lx_bytes), self.work_div, wishes(self.work_div))
        for op in module.body.operations:
            if isinstance(op, func.FuncOp) and "grid" not in op.attributes and not calls_of(op):
                found = search(Draft.first(op, wanted), self.steps)
                works = found.draft.works
                self._explain(op, found.draft)
                if self.steps:
                    agreement = found.draft.agreement()
                    works = agreement.works
                    self._explain_agreement(op, found.draft, agreement)
                self._explain_search(op, found)
                _write(op, found.draft, works)

    def _explain_search(self, function: func.FuncOp, found: Found) -> None:
        """What the search looked at."""
        for change in found.changes:
            kind = "passed" if change.taken else "missed"
            self.remark(kind, f"{change.text}: {change.cycles:.0f} cycles instead of {change.before:.0f}", change.node.op.location)
        text = f"{len(found.draft.facts)} kernels, {found.cycles:.0f} cycles; without the search {found.first:.0f}"
        text += f"; {len(found.changes)} changes priced; no plan takes fewer than {found.bound:.0f}"
        self.remark("analysis", text, function.location)

    def _explain_agreement(self, function: func.FuncOp, draft: Draft, agreement: Agreement) -> None:
        """Kernels that are divided with regard to each other."""
        for change in agreement.changes:
            facts = [draft.facts[number] for number in (change.maker, change.reader)]
            names = " and ".join(f"'{f.name}'" for f in facts)
            parts = " and ".join(agreement.text(number) for number in (change.maker, change.reader))
            text = f"kernels {names} deal out alike what the one hands to the other: {parts}"
            text += f"; they and their neighbours take {change.cycles:.0f} cycles instead of {change.before:.0f}"
            self.remark("passed", text, self._place(function, draft, facts[1]))

    @staticmethod
    def _place(function: func.FuncOp, draft: Draft, facts: KernelFacts) -> ir.Location:
        """Where a kernel's first op is; a kernel may hold nothing but what a relayout adds, which no op of this level stands for."""
        nodes = {item: node for node, item in draft.physical.of_node.items()}
        return next((nodes[i].op.location for i in (*facts.ops, *facts.stores) if i in nodes), function.location)

    def _explain(self, function: func.FuncOp, draft: Draft) -> None:
        """The choices as remarks."""
        roles = draft.roles
        for node in roles.nodes:
            if node.kind in ("load", "fill", "store", "scatter") or not roles.relaid(node.result):
                continue
            if (other := roles.runner_up(node)) is not None:
                text = f"{stick_text(roles.made(node.result))}: the program moves {roles.cost} bytes through memory for layouts; "
                self.remark("passed", f"{text}with {stick_text(other[0][-1])} at this op {other[1]}", node.op.location)
        nodes = {item: node for node, item in draft.physical.of_node.items()}
        for item, text in draft.clustering.notes:
            self.remark("passed", text, nodes[item].op.location)
        for facts, work in zip(draft.facts, draft.works, strict=True):
            if work is not None and work.plan is not None:
                self.remark("passed", f"kernel '{facts.name}': {work.plan.explain()}", self._place(function, draft, facts))


def _write(function: func.FuncOp, draft: Draft, works: Sequence[Work | None]) -> None:
    for node, dims in draft.sticks().items():
        write_stick(node.op, dims)
        if (number := draft.kernel_of(node)) is not None:
            write_kernel(node.op, number)
    write_plan(function, draft.kernels(works))
