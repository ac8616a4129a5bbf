"""How the work of a kernel is divided over the cores: parts and shares of its axes, and of its columns where they may be dealt out.

One axis alone is dealt to as many cores as there are. Of several axes the row axis may be cut unevenly, the batch axes into equal parts;
the cost model (`ktir.cost`) says which of all divisions is the best one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ktir.cost.division import Infeasible, Plan, solve
from ktir.cost.problem import Loop, Operand, Problem
from ktir.dialects.structured import Generic
from ktir.hints import Hint
from ktir.mlir import func, ir
from ktir.passes._axes import Axes, second_operand_source
from ktir.passes._clusters import index_dims
from ktir.passes._columns import column_division, extents, row_parts
from ktir.passes._levels import tensor_bytes
from ktir.target import DATASHEET, LANES


@dataclass(frozen=True)
class Work:
    """Per axis the number of parts and the extent of one; the same for sticks of columns (one part where they are not dealt out)."""

    parts: tuple[int, ...]
    shares: tuple[int, ...]
    column_parts: int = 1
    stick_share: int = 1
    plan: Plan | None = None
    """Why, where there was a choice."""

    @property
    def cores(self) -> int:
        """Cores that have work."""
        cores = self.column_parts
        for parts in self.parts:
            cores *= parts
        return cores


def divide(kernel: func.FuncOp, cores: int, hint: Hint) -> Work:
    """The division of a kernel over at most `cores` cores. Raises Infeasible for a hint that cannot be honoured."""
    facts = _Kernel(kernel)
    if facts.axes.batches:
        return _several_axes(facts, cores, hint)
    rows = facts.axes.extents[0]
    if facts.whole:
        hint = _whole(hint, ["m"])
    if facts.columns:
        shape = max(extents(g) for g in facts.contractions)
        plan = column_division(*shape, cores, hint)
        (row_splits, column_splits, _), (share, sticks, _) = plan.division.splits, plan.division.shares
        return Work((row_splits,), (share,), column_splits, sticks, plan)
    share = -(-rows // row_parts(rows, cores, hint))
    return Work((-(-rows // share),), (share,))


def _several_axes(kernel: _Kernel, cores: int, hint: Hint) -> Work:
    for name, what in (("n", "the columns of this kernel are not dealt out"), ("k", "sums of several cores are not supported")):
        if dict(hint.work_div).get(name, 1) > 1 and not (name == "n" and kernel.columns):
            raise Infeasible(f"hint work_div wants {dict(hint.work_div)[name]} parts of '{name}', but {what}")
    unknown = ("k",) if kernel.columns else ("n", "k")
    asked = Hint(work_div=tuple((name, parts) for name, parts in hint.work_div if name not in unknown))
    fixed = ["k", "d", *([] if kernel.columns else ["n"]), *(kernel.names[axis] for axis in kernel.whole)]
    target = DATASHEET.with_cores(cores)

    def best(problem: Problem) -> Plan:
        names = [loop.name for loop in problem.loops]
        return solve(problem, target, hint=_whole(asked, [name for name in fixed if name in names]))

    if kernel.contractions:
        try:
            plan = best(kernel.matmul())
        except Infeasible:  # the model's tiles do not fit, which is not the last word
            if asked.work_div:
                raise
            plan = best(kernel.vector())
    else:
        plan = best(kernel.vector())
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


class _Kernel:
    """What the cost model needs to know of a formed kernel."""

    def __init__(self, kernel: func.FuncOp) -> None:
        self.name = kernel.name.value
        self.axes = Axes.of(kernel.operation)
        self.columns = ir.IntegerAttr(kernel.attributes["ktir.columns"]).value if "ktir.columns" in kernel.attributes else 0
        self.names = [*(f"b{i}" for i in self.axes.batches), "m"]
        """Of the axes: `m` is the row axis."""
        ops = [o.operation for o in kernel.regions[0].blocks[0].operations]
        self.generics = [Generic(op) for op in ops if op.name == "linalg.generic"]
        self.contractions = [g for g in self.generics if g.is_contraction]
        self.stores = [op for op in ops if op.name == "ktdp.store"]
        self.whole = {axis for op in self.stores if "ktir.ordered" in op.attributes for axis in self._index_axes(op)}
        """Axes that must not be cut: where indices name an element several times, the last value stays."""

    def _index_axes(self, store: ir.Operation) -> Iterator[int]:
        value = store.operands[0]
        axes = self.axes.of_value(value) if value.owner.name == "linalg.generic" else self.axes.of_copied(value)
        yield from (axis for d in index_dims(store) if (axis := axes[d]) is not None)

    def _loops(self) -> list[Loop]:
        """The axes; the row axis first: where two divisions cost the same, the one with fewer parts of rows is taken."""
        rows, *batches = reversed(list(zip(self.names, self.axes.extents, strict=True)))
        return [Loop(*rows), *(Loop(name, extent, even=True) for name, extent in reversed(batches))]

    def _names_of(self, axes: list[int | None]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.names[a] for a in axes if a is not None))

    def _loads(self) -> dict[tuple[ir.Value, tuple[str, ...]], int]:
        """What is read from memory, once for each way of reading, in bytes."""
        found: dict[tuple[ir.Value, tuple[str, ...]], int] = {}
        for g in self.generics:
            for i, value in enumerate(g.inputs):
                second = g.is_contraction and i == 1
                source = second_operand_source(g) if second else value
                if not isinstance(source.owner, ir.Block) and source.owner.name == "ktdp.load":
                    axes = self.axes.of_second_operand(g) if second else self.axes.of_operand(g, i)
                    found[source, self._names_of(axes)] = tensor_bytes(source)
        for value in (op.operands[0] for op in self.stores):
            if value.owner.name == "ktdp.load":
                found[value, self._names_of(self.axes.of_copied(value))] = tensor_bytes(value)
        return found

    def _vector_work(self) -> int:
        """Sticks of results times ops of their bodies, in one row."""
        return sum(ir.RankedTensorType(g.op.results[0].type).shape[0] * len(g.body_ops) for g in self.generics if not g.is_contraction)

    def matmul(self) -> Problem:
        """The longest matmul, with all that the kernel reads."""
        g = max(self.contractions, key=extents)
        _, sticks, depth = extents(g)
        first, second = self._names_of(self.axes.of_operand(g, 0)), self._names_of(self.axes.of_second_operand(g))
        own = {(g.inputs[0], first), (second_operand_source(g), second)}
        others = [(names, size) for (value, names), size in self._loads().items() if (value, names) not in own]
        operands = (
            Operand("rows", (*first, "k")),
            Operand("weights", (*second, "k", "n")),
            *(Operand(f"input {i}", names, whole_bytes=size) for i, (names, size) in enumerate(others)),
            Operand("result", (*self.names, "n"), output=True, resident=True),
        )
        loops = (*self._loops(), Loop("n", sticks * LANES, LANES), Loop("k", depth * LANES, LANES, reduction=True))
        return Problem(f"matmul of kernel '{self.name}'", loops, operands, vector_cycles=max(1.0, self._vector_work() / sticks))

    def vector(self) -> Problem:
        """All ops as one on the vector unit."""
        results = [g.op.results[0] for g in self.generics] or [op.operands[0] for op in self.stores]
        sticks = max(ir.RankedTensorType(v.type).shape[0] for v in results)
        written = sum(tensor_bytes(op.operands[0]) for op in self.stores)
        operands = (
            *(Operand(f"input {i}", names, whole_bytes=size) for i, ((_, names), size) in enumerate(self._loads().items())),
            Operand("result", (*self.names, "d"), output=True, whole_bytes=written),
        )
        loops = (*self._loops(), Loop("d", sticks * LANES, LANES))
        return Problem(f"kernel '{self.name}'", loops, operands, "vector", max(1.0, self._vector_work() / sticks))
