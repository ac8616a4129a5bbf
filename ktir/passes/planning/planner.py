"""Alternatives of a whole program: layouts, kernels and divisions together, without making any of them.

A `Draft` is one such alternative: what lies in the stick at each op, and from there, by the rules of the passes themselves, items, kernels
and divisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ktir.analysis.attributes.plan_attributes import PlannedKernel
from ktir.analysis.flat import Node, read
from ktir.analysis.items import Tensor
from ktir.cost.division import Infeasible
from ktir.hints import Hint
from ktir.mlir import func
from ktir.passes.division.kernel_facts import KernelFacts
from ktir.passes.division.work import Work, divide, others
from ktir.passes.kernels.clustering import Clustering, Move
from ktir.passes.layouts.buffers import Buffers
from ktir.passes.layouts.physical_items import PhysicalItems
from ktir.passes.layouts.stick_roles import Configuration, StickRoles
from ktir.passes.planning.agreement import Agreement
from ktir.passes.planning.kernel_price import kernel_price
from ktir.target import Target

GAIN = 0.97
"""A choice is made anew if a kernel takes less than this part of the cycles; less is within the error of the prices."""


@dataclass(frozen=True)
class Wishes:
    """What every alternative keeps to: the machine that there is, and the division that a user asks for."""

    target: Target
    work_div: str
    hint: Hint


Contents = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Of a kernel: sticks of columns that are dealt out, its items, and those of them whose results other kernels read."""


@dataclass
class Draft:
    """One alternative of a function."""

    roles: StickRoles
    wishes: Wishes
    moves: Mapping[int, Move] = field(default_factory=dict)

    @staticmethod
    def first(function: func.FuncOp, wishes: Wishes) -> Draft:
        """What the passes would do by themselves."""
        nodes = read(function)
        return Draft(StickRoles(function, nodes, Buffers(function, nodes)), wishes)

    @cached_property
    def physical(self) -> PhysicalItems:
        """The ops and stores on physical shapes."""
        return PhysicalItems(self.roles, self.wishes.target)

    def with_moves(self, moves: Mapping[int, Move]) -> Draft:
        """The same layouts, so the same items, with other kernels."""
        changed = Draft(self.roles, self.wishes, moves)
        changed.physical = self.physical
        return changed

    @cached_property
    def clustering(self) -> Clustering:
        """The kernels."""
        return Clustering(self.physical.items, self.wishes.target, self.wishes.work_div, moves=self.moves)

    @cached_property
    def facts(self) -> list[KernelFacts]:
        """What the kernels need to have."""
        return [self.facts_of(i) for i in range(len(self.clustering.clusters))]

    @cached_property
    def works(self) -> list[Work | None]:
        """How the kernels are divided."""
        return [self.work_of(facts) for facts in self.facts]

    def facts_of(self, number: int) -> KernelFacts:
        """What a kernel needs to have."""
        name = f"{self.roles.function.name.value}_kernel{number}"
        return KernelFacts.of_cluster(self.clustering.clusters[number], name, self._crossing, self.wishes.target)

    @cached_property
    def _crossing(self) -> set[Tensor]:
        return set(self.clustering.crossing())

    @cached_property
    def contents(self) -> list[Contents]:
        """What is in each kernel: of the same items, kernels of the same contents are the same."""
        found = []
        for cluster in self.clustering.clusters:
            left = tuple(item.number for item in cluster.compute if item.value in self._crossing)
            found.append((cluster.columns, tuple(item.number for item in cluster.items), left))
        return found

    def work_of(self, facts: KernelFacts) -> Work | None:
        """How a kernel is divided; None where no division is legal or a hint cannot be honoured, which the pass that divides says."""
        try:
            first = divide(facts, self.wishes.hint)
        except Infeasible:
            return None
        if not (more := others(facts, first)):
            return first
        price, best = min(((kernel_price(facts, work, self.wishes.target).cycles, i) for i, work in enumerate(more)))
        return more[best] if price < kernel_price(facts, first, self.wishes.target).cycles * GAIN else first

    def sticks(self) -> dict[Node, Configuration]:
        """What lies in the stick at each op."""
        return self.roles.chosen

    def kernel_of(self, node: Node) -> int | None:
        """The kernel of an op; None for what is loaded."""
        item = self.physical.of_node.get(node)
        return None if item is None else self.clustering.home[item]

    def agreement(self) -> Agreement:
        """Divisions of kernels that hand on tensors, in the same parts where that is faster; as they are where a user asks for some."""
        found = Agreement(self.facts, [*self.works], self.wishes.target)
        if not self.wishes.work_div and not self.wishes.hint.work_div:
            found.run()
        return found

    def kernels(self, works: Sequence[Work | None]) -> list[PlannedKernel]:
        """The kernels with their divisions, as they are written down."""
        clusters = self.clustering.clusters
        return [PlannedKernel(c.columns) if w is None else w.planned(c.columns) for c, w in zip(clusters, works, strict=True)]
