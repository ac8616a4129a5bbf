"""What all walks over a program share: its ops, and what each generic gives where its operands have the same intervals.

The search for bounds walks again and again, and changes one argument at a time: most ops read what they read before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import NamedTuple

from ktir.dialects.structured import loop_extents
from ktir.mlir import arith, func, ir, is_a
from ktir.passes.flat.integers.intervals import Values


class Outcome(NamedTuple):
    """The intervals of the results of a generic, and what was decided of comparisons in its body."""

    results: tuple[Values, ...]
    decided: dict[ir.Operation, int | None]


@dataclass(eq=False)
class WalkedGeneric:
    """A generic, taken apart once; `outcomes` by what it `read`."""

    op: ir.Operation
    outcomes: dict[tuple[Values, ...], Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.block: ir.Block = self.op.regions[0].blocks[0]
        *self.body, self.end = [o.operation for o in self.block.operations]
        self.operands, self.results = list(self.op.operands), list(self.op.results)
        self.extents = loop_extents(self.op)
        reduced = ["reduction" in str(i) for i in ir.ArrayAttr(self.op.attributes["iterator_types"])]
        self.trips = prod(n for n, r in zip(self.extents, reduced, strict=True) if r) if any(reduced) else 0
        """Of the reduced loops, 0 without any."""

    @cached_property
    def read(self) -> list[ir.Value]:
        """Operands, and values of the function that the body reads beside them."""
        own = {*self.block.arguments, *(v for o in self.body for v in o.results)}
        found = [v for o in (*self.body, self.end) for v in o.operands if v not in own]
        return [*self.operands, *(v for v in found if isinstance(v.owner, ir.Block) or not is_a(v.owner, arith.ConstantOp))]


class Walked:
    """Ops and generics of the functions of a module, which does not change meanwhile."""

    def __init__(self) -> None:
        self._ops: dict[ir.Operation, list[tuple[str, ir.Operation]]] = {}
        self._generics: dict[ir.Operation, WalkedGeneric] = {}

    def ops(self, function: func.FuncOp) -> list[tuple[str, ir.Operation]]:
        """The ops of a function with their names, in order."""
        key = function.operation
        if key not in self._ops:
            self._ops[key] = [(o.operation.name, o.operation) for o in function.regions[0].blocks[0].operations]
        return self._ops[key]

    def generic(self, op: ir.Operation) -> WalkedGeneric:
        """A generic, taken apart."""
        if op not in self._generics:
            self._generics[op] = WalkedGeneric(op)
        return self._generics[op]
