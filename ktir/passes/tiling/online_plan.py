"""What a softmax over blocks of keys takes: rows and keys of a block that fit the scratchpad, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import NamedTuple

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.analysis.attributes.levels import tensor_bytes
from ktir.analysis.expressions import Node, Tree, nodes
from ktir.analysis.softmax import Softmax, softmax_of
from ktir.cost.attention import KEY_STICKS, RESCALE, subsets
from ktir.cost.softmax import Matrix, SoftmaxPrice, SoftmaxWork, softmax_price
from ktir.cost.tiles import BLOCK_BYTES, ROW_BUFFERS, WEIGHT_BUFFERS
from ktir.diagnostics import Unsupported, location_text
from ktir.dialects.structured import Generic
from ktir.dialects.vector_kinds import is_folded, keeps_lane, kind_of
from ktir.isa.kinds import KINDS
from ktir.mlir import func, ir
from ktir.passes.tiling.contraction_plan import second_operand_bytes
from ktir.passes.tiling.tile_plan import TilePlan, even
from ktir.target import LANES, Target

_ENTRY = {"f16": 2 * LANES, "f32": 4 * LANES}
Remark = Callable[[str, str, ir.Location], None]


class _Choice(NamedTuple):
    price: SoftmaxPrice
    rows: int
    sticks: int
    kept: frozenset[int]


class KeyedPlan(TilePlan):
    """The facts of a kernel whose softmax runs over blocks of keys. It keeps `sticks` of keys at once, and `kept` second operands whole."""

    def __init__(self, source: func.FuncOp, softmax: Softmax, rows: int, target: Target) -> None:
        self.softmax = softmax
        self.sticks = 1
        self.kept: set[ir.Operation] = set()
        super().__init__(source, rows, target)

    def _decide(self, wanted: int, budget: int) -> int:
        s = self.softmax
        along = {*s.keyed, *(p.contraction.op.results[0] for p in s.products)}
        self.fused = {v: op for v, op in self.fused.items() if v not in along}
        self.stored = {}
        choices = list(self._choices(wanted, budget))
        if not choices:
            raise Unsupported(
                f"kernel needs more than the {budget} bytes of scratchpad that are available for two rows and {LANES} keys of a softmax; "
                "the nearest supported form has shorter rows of queries and values",
                location_text(self.source.location),
            )
        self.price, rows, self.sticks, kept = min(choices, key=lambda c: (c.price.cycles, c.price.bytes, len(c.kept), -c.sticks))
        self.kept = {self.contractions[i].op for i in kept}
        self.used = self._fixed(self.sticks, kept) + rows * self._per_row(self.sticks)
        return rows

    def _choices(self, wanted: int, budget: int) -> Iterator[_Choice]:
        work = softmax_work(self, self.softmax, online=True)
        for sticks in KEY_STICKS:
            if sticks > max(self.softmax.columns // LANES, 1):
                break
            parts = -(-self.softmax.sticks // sticks)
            for kept in subsets(len(self.contractions)):
                free = budget - self._fixed(sticks, kept)
                most = min(free // self._per_row(sticks) // 2 * 2, 2 * self.target.pt_accumulator_rows)
                if most < 2:
                    continue
                rows = min(most, even(wanted)) if wanted else even(-(-self.share // -(-self.share // most)))
                rows = min(rows, even(self.share))
                yield _Choice(softmax_price(work, rows, parts, kept, self.target), rows, sticks, kept)

    def _per_row(self, sticks: int) -> int:
        """Bytes of the scratchpad per row of a block."""
        s = self.softmax
        streams = sum(_row_bytes(op.results[0]) for op in s.before if op.name == "ktdp.load" and self.has_rows(op.results[0]))
        others = sum(_row_bytes(op.results[0]) for op in s.before if op.name == "linalg.generic")
        products = sum(_row_bytes(p.contraction.op.results[0]) for p in s.products)
        columns = _row_bytes(s.most.op.results[0]) * 2 + _ENTRY["f32"] * (1 + 2 * len(s.sums))
        after = sum(_row_bytes(op.results[0]) for op in s.after if op.name == "linalg.generic") + products
        keys = max(self._per_stick(s.inside) + 2 * _ENTRY["f32"] + _ENTRY["f16"], self._per_stick(s.again)) * sticks
        return ROW_BUFFERS * streams + others + products + columns + max(after, keys)

    def _per_stick(self, ops: Iterable[ir.Operation]) -> int:
        """Bytes per row and stick of keys."""
        found = 0
        for op in ops:
            if op.name == "ktdp.load" and self.has_rows(op.results[0]):
                found += ROW_BUFFERS * _row_bytes(op.results[0]) // self.softmax.sticks
            elif op.name == "linalg.generic":
                found += _row_bytes(op.results[0]) // self.softmax.sticks
        return found

    def _fixed(self, sticks: int, kept: frozenset[int]) -> int:
        """Bytes of a block that do not depend on its rows."""
        loads = [op.results[0] for op in self.ops if op.name == "ktdp.load"]
        vectors = [v for v in loads if v not in self.second_operands and not self.has_rows(v)]
        keyed = sum(_row_bytes(v) // self.softmax.sticks * sticks for v in vectors if v in self.softmax.keyed)
        others = sum(_row_bytes(v) for v in vectors if v not in self.softmax.keyed)
        whole = sum(second_operand_bytes(g) * (ROW_BUFFERS if self._uses(g, 2)[0] > 1 else 1) for g in self._of(kept))
        streamed = len(self.contractions) - len(kept)
        return ROW_BUFFERS * (keyed + others) + whole + streamed * WEIGHT_BUFFERS * BLOCK_BYTES

    def _of(self, numbers: Iterable[int]) -> list[Generic]:
        return [self.contractions[i] for i in numbers]


def softmax_work(plan: TilePlan, softmax: Softmax, *, online: bool) -> SoftmaxWork:
    """What a core does for a softmax, by whole rows or online."""
    splits = list(KernelFunction(plan.source).work.row_parts)
    along = {p.contraction.op for p in softmax.products}
    matrices = []
    for g in plan.contractions:
        axes = plan.axes.of_second_operand(g)
        members = prod(n for axis, n in enumerate(splits) if axis not in axes)
        bytes_ = second_operand_bytes(g)
        sticks = ir.RankedTensorType(g.op.results[0].type).shape[0]
        matrices.append(Matrix(bytes_ // BLOCK_BYTES, bytes_, plan._uses(g, 2)[0], members, sticks, g.op in along))
    loads = [op.results[0] for op in plan.ops if op.name == "ktdp.load" and op.results[0] not in plan.second_operands]
    stores = [op.operands[0] for op in plan.ops if op.name == "ktdp.store"]
    moved = sum(_row_bytes(v) for v in (*loads, *stores) if plan.has_rows(v))
    positions = prod(plan.loops.values())
    if not online:
        per_stick = sum(_cycles_of(op, plan.target) for op in plan.ops if _is_keyed_op(op, softmax) and op not in plan.fused.values())
        return SoftmaxWork(prod(splits), plan.share, positions, moved, tuple(matrices), per_stick, 0, softmax.sticks)
    trees = [softmax.exponential.tree, *(t for _, t in softmax.sums), *(p.operand for p in softmax.products)]
    per_stick = 1 + len(softmax.sums) + sum(max(_cycles(t, stop=softmax.exponential.score, target=plan.target), 1) for t in trees)
    per_stick += sum(_cycles_of(op, plan.target) for op in softmax.again)
    reductions = plan.target.sfp_lane_reduction_cycles * (1 + len(softmax.sums))
    rescaled = sum(2 * ir.RankedTensorType(p.contraction.op.results[0].type).shape[0] for p in softmax.products)
    return SoftmaxWork(
        prod(splits), plan.share, positions, moved, tuple(matrices), per_stick, reductions + rescaled + RESCALE, softmax.sticks
    )


def silent(*_: object) -> None:
    """No remark."""


def plan_of(source: func.FuncOp, rows: int, target: Target, online: str, remark: Remark = silent) -> TilePlan:
    """The plan of a kernel; `online` says when a softmax runs over blocks of keys: `auto`, `always` or `never`."""
    softmax = None if online == "never" else softmax_of([o.operation for o in source.regions[0].blocks[0].operations])
    if softmax is None:
        return TilePlan(source, rows, target)
    where = softmax.most.op.location
    try:
        plain = TilePlan(source, rows, target) if online == "auto" else None
    except Unsupported:
        plain = None
    try:
        keyed = KeyedPlan(source, softmax, rows, target)
    except Unsupported:
        if plain is None:
            raise
        return plain
    new = f"softmax over blocks of {keyed.sticks * LANES} keys, {keyed.block_rows} rows at once"
    if keyed.kept:
        new += f", {len(keyed.kept)} of its matrices kept in LX"
    if plain is None:
        why = "as the option says" if online == "always" else "no two whole rows of scores fit the scratchpad"
        remark("passed", f"{new}: {keyed.price}; {why}", where)
        return keyed
    kept = frozenset(i for i, g in enumerate(plain.contractions) if any(r.contraction == g.op for r in plain.residents))
    price = softmax_price(softmax_work(plain, softmax, online=False), plain.block_rows, 1, kept, target)
    old = f"softmax of whole rows of scores, {plain.block_rows} rows at once"
    if keyed.price.cycles < price.cycles:
        remark("passed", f"{new}: {keyed.price}; the runner-up is a {old}: {price}", where)
        return keyed
    remark("passed", f"{old}: {price}; the runner-up is a {new}: {keyed.price}", where)
    return plain


def _is_keyed_op(op: ir.Operation, softmax: Softmax) -> bool:
    if op.name != "linalg.generic":
        return False
    g = Generic(op)
    return not g.is_contraction and any(v in softmax.keyed for v in (*g.inputs, op.results[0]))


def _row_bytes(value: ir.Value) -> int:
    """Bytes of a tensor per row."""
    return tensor_bytes(value) // prod(list(ir.RankedTensorType(value.type).shape)[1:-1])


def _cycles_of(op: ir.Operation, target: Target) -> int:
    """Cycles of the vector unit for a stick of an op."""
    return max(sum(_scalar_cycles(o, target) for o in Generic(op).body_ops), 1) if op.name == "linalg.generic" else 0


def _cycles(tree: Tree, *, stop: Tree, target: Target) -> int:
    """The same for a tree, without what is behind `stop`."""
    seen = set(nodes(tree)) - set(nodes(stop))
    return sum(_scalar_cycles(t.op, target) for t in seen if isinstance(t, Node))


def _scalar_cycles(op: ir.Operation, target: Target) -> int:
    kind = None if op.name == "arith.constant" or keeps_lane(op) or is_folded(op) else kind_of(op)
    costs = {"simple": 1, "transcendental": target.sfp_transcendental_cycles, "long": target.sfp_long_cycles}
    return 0 if kind is None else costs[KINDS[kind].cost]
