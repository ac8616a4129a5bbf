"""Alternatives of a whole program: layouts, kernels and divisions together, without making any of them.

A `Draft` is one such alternative: what lies in the stick at each op, and from there, by the rules of the passes themselves, items, kernels
and divisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ktir.cost.division import Infeasible
from ktir.hints import Hint
from ktir.mlir import func
from ktir.passes._buffers import Buffers
from ktir.passes._clustering import Clustering, Move
from ktir.passes._flat import Node, read
from ktir.passes._physical_items import PhysicalItems
from ktir.passes._plan_attributes import PlannedKernel
from ktir.passes._stick_roles import Configuration, StickRoles
from ktir.passes._work import KernelFacts, Work, divide


@dataclass(frozen=True)
class Wishes:
    """What every alternative keeps to: the cores, and the division that a user asks for."""

    cores: int
    work_div: str
    hint: Hint


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
        return PhysicalItems(self.roles)

    def with_moves(self, moves: Mapping[int, Move]) -> Draft:
        """The same layouts, so the same items, with other kernels."""
        changed = Draft(self.roles, self.wishes, moves)
        changed.physical = self.physical
        return changed

    @cached_property
    def clustering(self) -> Clustering:
        """The kernels."""
        return Clustering(self.physical.items, self.wishes.cores, self.wishes.work_div, moves=self.moves)

    @cached_property
    def facts(self) -> list[KernelFacts]:
        """What the kernels need to have."""
        crossing = set(self.clustering.crossing())
        name = self.roles.function.name.value
        return [KernelFacts.of_cluster(c, f"{name}_kernel{i}", crossing) for i, c in enumerate(self.clustering.clusters)]

    @cached_property
    def works(self) -> list[Work | None]:
        """How the kernels are divided; None where no division is legal or a hint cannot be honoured, which the pass that divides says."""
        return [self._work(facts) for facts in self.facts]

    def _work(self, facts: KernelFacts) -> Work | None:
        try:
            return divide(facts, self.wishes.cores, self.wishes.hint)
        except Infeasible:
            return None

    def sticks(self) -> dict[Node, Configuration]:
        """What lies in the stick at each op."""
        return self.roles.chosen

    def kernel_of(self, node: Node) -> int | None:
        """The kernel of an op; None for what is loaded."""
        item = self.physical.of_node.get(node)
        return None if item is None else self.clustering.home[item]

    def kernels(self) -> list[PlannedKernel]:
        """The kernels as they are written down."""
        clusters = self.clustering.clusters
        return [PlannedKernel(c.columns) if w is None else w.planned(c.columns) for c, w in zip(clusters, self.works, strict=True)]
