"""How the work of a kernel is divided over the cores: parts and shares of its axes, and of its columns where they may be dealt out.

One axis alone is dealt to as many cores as there are. Of several axes the row axis may be cut unevenly, the batch axes into equal parts;
the cost model (`ktir.cost`) says which of all divisions is the best one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ktir.analysis.attributes.plan_attributes import PlannedKernel
from ktir.cost.division import Infeasible, Plan, solve
from ktir.cost.problem import Problem
from ktir.hints import Hint
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.passes.division.softmax_problem import softmax_problem
from ktir.passes.kernels.columns import WHOLE, column_division, refuse_parts, row_parts
from ktir.target import Target


@dataclass(frozen=True)
class Work:
    """Per axis the number of parts and the extent of one; the same for sticks of columns (one part where they are not dealt out)."""

    parts: tuple[int, ...]
    shares: tuple[int, ...]
    column_parts: int = 1
    stick_share: int = 1
    plan: Plan | None = None
    """Why, where there was a choice."""
    sums: int = 1
    """Cores that share the reduced loop of matmuls, and hold partial sums; `depth_share`: sticks of it of one core."""
    depth_share: int = 0

    @property
    def cores(self) -> int:
        """Cores that have work."""
        cores = self.column_parts * self.sums
        for parts in self.parts:
            cores *= parts
        return cores

    def planned(self, columns: int) -> PlannedKernel:
        """As a plan writes it, of a kernel with `columns` sticks of columns."""
        splits, shares = (self.column_parts, *self.parts), (self.stick_share, *self.shares)
        return PlannedKernel(columns, splits, shares, self.sums, self.depth_share)

    def divides(self, facts: KernelFacts) -> bool:
        """Whether it is a division of a kernel: its axes, and its columns if it has any, in shares that leave no core without work."""
        if len(self.parts) != len(facts.extents) or (self.column_parts > 1 and not facts.columns):
            return False
        if self.sums > 1 and (facts.whole_depth or not facts.columns):
            return False
        extents, splits, shares = [*facts.extents], [*self.parts], [*self.shares]
        if facts.columns:
            extents.append(facts.columns)
            splits.append(self.column_parts)
            shares.append(self.stick_share)
        if self.sums > 1:
            extents.append(max(item.matmul_extents for item in facts.contractions)[2])
            splits.append(self.sums)
            shares.append(self.depth_share)
        even = all(n % share == 0 for n, share in zip(facts.extents[:-1], self.shares, strict=False))
        return even and all(-(-n // share) == parts for n, parts, share in zip(extents, splits, shares, strict=True))


def work_of(planned: PlannedKernel) -> Work | None:
    """The division that a plan says; None where it says none."""
    if not planned.splits:
        return None
    parts, shares = planned.splits[1:], planned.tile[1:]
    return Work(parts, shares, planned.splits[0], planned.tile[0], sums=planned.sums, depth_share=planned.depth_share)


def divide(facts: KernelFacts, hint: Hint) -> Work:
    """The division of a kernel over the cores of its target. Raises Infeasible for a hint that cannot be honoured."""
    if facts.has_batches or (facts.columns and not facts.contractions):
        return _several_axes(facts, hint)
    rows = facts.extents[-1]
    if facts.whole:
        hint = _whole(hint, ["m"])
    if facts.columns:
        shape = max(item.matmul_shape for item in facts.contractions)._replace(alone=facts.multiplies_alone)
        plan = column_division(shape, facts.target, hint, facts.whole_depth)
        (row_splits, column_splits, sums), (share, sticks, depth) = plan.division.splits, plan.division.shares
        return Work((row_splits,), (share,), column_splits, sticks, plan, sums, depth)
    share = -(-rows // row_parts(rows, facts.target, hint))
    return Work((-(-rows // share),), (share,))


@lru_cache(maxsize=1024)
def _solved(problem: Problem, target: Target, hint: Hint) -> Plan:
    """The best division of a problem; kernels of equal layers have equal problems."""
    return solve(problem, target, hint=hint)


def _several_axes(kernel: KernelFacts, hint: Hint) -> Work:
    for name, reason in WHOLE.items():
        if not (name == "n" and kernel.columns):
            refuse_parts(hint, name, reason)
    unknown = ("k",) if kernel.columns else ("n", "k")
    asked = Hint(work_div=tuple((name, parts) for name, parts in hint.work_div if name not in unknown))
    fixed = ["k", "d", "keys", *([] if kernel.columns else ["n"]), *(kernel.names[axis] for axis in kernel.whole)]

    def best(problem: Problem) -> Plan:
        names = [loop.name for loop in problem.loops]
        nameless = replace(problem, name="")
        plan = _solved(nameless, kernel.target, _whole(asked, [name for name in fixed if name in names]))
        return replace(plan, problem=problem)

    if kernel.contractions:
        softmax = None if kernel.columns else softmax_problem(kernel)
        try:
            plan = best(softmax or kernel.matmul())
        except Infeasible:  # the model's tiles do not fit, which is not the last word
            if asked.work_div:
                raise
            plan = best(kernel.vector())
    else:
        plan = best(kernel.vector())
    return _as_work(kernel, plan)


def others(kernel: KernelFacts, work: Work) -> list[Work]:
    """The next best divisions by the model of a kernel with a softmax between its matmuls; none of another kernel. That model knows all
    ops beside the matmuls as one number of cycles; whoever can tell them apart may compare them.
    """
    plan = work.plan
    if plan is None or plan.problem.kind != "softmax":
        return []
    first = plan.division, plan.cost
    return [_as_work(kernel, replace(plan, division=d, cost=cost, others=(first,))) for d, cost in plan.others]


def _as_work(kernel: KernelFacts, plan: Plan) -> Work:
    number = {loop.name: i for i, loop in enumerate(plan.problem.loops)}
    parts = tuple(plan.division.splits[number[name]] for name in kernel.names)
    shares = tuple(plan.division.shares[number[name]] for name in kernel.names)
    if not kernel.columns:
        return Work(parts, shares, plan=plan)
    return Work(parts, shares, plan.division.splits[number["n"]], plan.division.shares[number["n"]], plan)


def _whole(hint: Hint, names: list[str]) -> Hint:
    """A hint under which some loops are not cut. Raises Infeasible where it wants to cut them."""
    for name, parts in hint.work_div:
        if name in names and parts > 1:
            raise Infeasible(f"hint work_div wants {parts} parts of '{name}', but elements that are named several times need one order")
    return Hint(work_div=(*((n, p) for n, p in hint.work_div if n not in names), *((n, 1) for n in names)))
