"""Loops are split where that saves memory.

Heads: a load of keys repeats each head for its group, [heads, group (stride 0), ..], and is collapsed to [heads * group, ..]. No window is
that. Instead the loop over all heads becomes two in every op that it runs through: then the group is a loop that the keys do not have.
Rows: a tensor that is reshaped between ops that compute would go through a pool. Where the one dim is of row loops alone, these become as
many as there are dims on the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.structured import Generic, affine_map, maps_of, set_maps
from ktir.mlir import func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.reshapes import collapsed, expanded
from ktir.passes.flat.memory.windows import groups_of, shape, shown

_COMPUTES = (linalg.GenericOp, kt.PairBytesOp)
"""Ops whose loops are split."""


def split_loops(function: func.FuncOp) -> None:
    """Split the loops of `function` over groups of heads and over rows that are reshaped."""
    ops = _ops(function)
    rows = [op for op in ops if _reshapes_computed(op)]
    if not rows and not any(map(_repeats, ops)):
        return
    _own_accumulators(ops)
    for op in rows:  # first: of several sequences, scores of all heads are reshaped to heads of each
        _split_rows(op)
    for collapse in filter(_repeats, _ops(function)):
        for d in _repeating_groups(collapse):
            loops = _Loops()
            if loops.reach(collapse.results[0], d) and loops.batch(collapse.results[0], d):
                sizes = shape(collapse.operands[0])
                _Split(loops, [sizes[i] for i in groups_of(collapse)[d]]).run()
                break  # the collapse is another one now


def _ops(function: func.FuncOp) -> list[ir.Operation]:
    return [o.operation for o in function.regions[0].blocks[0].operations]


def _repeats(op: ir.Operation) -> bool:
    return is_a(op, tensor.CollapseShapeOp) and bool(_repeating_groups(op))


def split_loop(op: ir.Operation, loop: int, factors: Sequence[int]) -> None:
    """Let a loop of a generic be several, outer to inner; what it walks is expanded, and what it makes collapsed for others."""
    _own_accumulators([op])
    g, loops = Generic(op), _Loops(loops={op.results[0]: {loop}})
    for i, value in enumerate([*op.operands, *op.results]):
        for d in range(len(g.maps[min(i, len(g.inputs))].results)):
            if g.loop_of(min(i, len(g.inputs)), d) == loop:
                loops.values.setdefault(value, set()).add(d)
    _Split(loops, factors).run()


def _reshapes_computed(op: ir.Operation) -> bool:
    """Whether an op reshapes what another one computes, for one that computes."""
    if not is_a(op, tensor.ExpandShapeOp, tensor.CollapseShapeOp):
        return False
    return is_a(op.operands[0].owner, *_COMPUTES) and any(is_a(use.owner, *_COMPUTES) for use in op.results[0].uses)


def _split_rows(op: ir.Operation) -> None:
    """Split the row loops that run along a dim that `op` expands, or collapses others to."""
    small, large = (op.operands[0], op.results[0]) if is_a(op, tensor.ExpandShapeOp) else (op.results[0], op.operands[0])
    groups = groups_of(op)
    if len(groups) != len(shape(small)) or [len(g) for g in groups].count(1) != len(groups) - 1:
        return  # the loops have been split by now, or no split makes the reshape go
    d = next(i for i, group in enumerate(groups) if len(group) > 1)
    factors = [shape(large)[i] for i in groups[d]]
    loops = _Loops()
    if loops.reach(small, d) and loops.is_of_rows() and not any(_is_gathered(v) for v in loops.values):
        _Split(loops, factors).run()


def _is_gathered(value: ir.Value) -> bool:
    """Whether a tensor is read from an indirect tile, whose variables stay as they are."""
    op = None if isinstance(value.owner, ir.Block) else value.owner.operation
    return is_a(op, ktdp.LoadOp) and windows.direct_view(op.operands[0].owner.operation) is None


def _repeating_groups(collapse: ir.Operation) -> list[int]:
    """Groups of a collapse that no window shows because it repeats elements in an inner dim."""
    window = shown(collapse.operands[0])
    found = []
    for d, group in enumerate(groups_of(collapse)):
        part = window.pick(group, [window.sizes[i] for i in group])
        if part.strides[-1] == 0 and part.collapse([range(len(group))]) is None:
            found.append(d)
    return found


def _own_accumulators(ops: Sequence[ir.Operation]) -> None:
    """Give every generic an accumulator of its own: equal ones have been made one, which must not tie the loops of their users."""
    for op in ops:
        if not is_a(op, linalg.GenericOp):
            continue
        inputs = len(op.operands) - len(op.results)
        for i in range(inputs, len(op.operands)):
            maker = None if isinstance(op.operands[i].owner, ir.Block) else op.operands[i].owner.operation
            if is_a(maker, tensor.EmptyOp, linalg.FillOp):
                with ir.InsertionPoint(op):
                    copy = maker.clone().operation
                    if is_a(maker, linalg.FillOp) and is_a(maker.operands[1].owner, tensor.EmptyOp):
                        with ir.InsertionPoint(copy):
                            copy.operands[1] = maker.operands[1].owner.operation.clone().operation.results[0]
                op.operands[i] = copy.results[0]


@dataclass
class _Loops:
    """Dims of tensors and loops of generics that are one loop of the program."""

    values: dict[ir.Value, set[int]] = field(default_factory=dict)
    loops: dict[ir.Value, set[int]] = field(default_factory=dict)
    """Of ops that compute, by their first result."""

    def reach(self, value: ir.Value, dim: int) -> bool:
        """Take in a dim and all that follows; whether all of these are loops that may be split: none reduced, none of columns."""
        todo = [(value, dim)]
        while todo:
            value, dim = todo.pop()
            if dim in self.values.setdefault(value, set()):
                continue
            self.values[value].add(dim)
            near = [(use.owner.operation, use.operand_number) for use in value.uses]
            owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if is_a(owner, *_COMPUTES, linalg.FillOp):
                near.append((owner, len(owner.operands) - len(owner.results) + list(owner.results).index(value)))
            for op, operand in near:
                if is_a(op, linalg.FillOp) and operand == 1:
                    todo += [(op.operands[1], dim), (op.results[0], dim)]
                elif is_a(op, kt.PairBytesOp):
                    if dim == kt.dimension_of(op):
                        return False
                    self.loops.setdefault(op.results[0], set()).add(dim)
                    todo += [(op.operands[0], dim), (op.results[0], dim)]
                elif is_a(op, linalg.GenericOp):
                    more = self._through(op, operand, dim)
                    if more is None:
                        return False
                    todo += more
        return True

    def _through(self, op: ir.Operation, operand: int, dim: int) -> list[tuple[ir.Value, int]] | None:
        """What else the loop of an operand's dim walks; None for a loop that must stay whole."""
        g = Generic(op)
        loop = g.loop_of(operand, dim)
        contraction = g.contraction
        plain = all(isinstance(e, ir.AffineDimExpr) for m in g.maps for e in m.results)
        if loop is None or not plain or g.iterators[loop] == "reduction" or (contraction is not None and loop in contraction.columns):
            return None
        if loop in self.loops.setdefault(op.results[0], set()):
            return []
        self.loops[op.results[0]].add(loop)
        cut = len(op.operands) - len(op.results)
        found = []
        for i, m in enumerate(g.maps):
            for d in range(len(m.results)):
                if g.loop_of(i, d) == loop:
                    found += [(op.operands[i], d), *([(op.results[i - cut], d)] if i >= cut else [])]
        return found

    def is_of_rows(self) -> bool:
        """Whether the loop walks outer dims of tensors only: the last ones lie in sticks, which stay whole."""
        ranks = {v: len(shape(v)) for v in self.values}
        return max(ranks.values()) > 1 and not any(ranks[v] > 1 and ranks[v] - 1 in dims for v, dims in self.values.items())

    def batch(self, value: ir.Value, dim: int) -> bool:
        """Whether a dim of `value`, perhaps turned and repeated before, is a batch loop of the second operand of a contraction."""
        for use in value.uses:
            op = use.owner.operation
            if not is_a(op, linalg.GenericOp):
                continue
            turned = windows.moved_dims(op)
            if turned is not None:
                if any(self.batch(op.results[0], d) for d, given in enumerate(turned) if given == dim):
                    return True
                continue
            g = Generic(op)
            contraction = g.contraction
            if contraction is not None and use.operand_number == 1 and g.loop_of(1, dim) in contraction.batch:
                return True
        return False


class _Split:
    """Replaces each dim and loop of a class by several."""

    def __init__(self, loops: _Loops, factors: Sequence[int]) -> None:
        self.values, self.loops = loops.values, loops.loops
        self.factors = list(factors)

    def run(self) -> None:
        """Rewrite the ops; what comes from elsewhere is expanded, what goes elsewhere collapsed."""
        inside = [v for v in self.values if self._is_inside(v)]
        for value in self.values:
            if value not in inside:
                self._expand(value)
        for result, loops in self.loops.items():
            op = result.owner.operation
            if is_a(op, kt.PairBytesOp):
                before = sum(loop < kt.dimension_of(op) for loop in loops)
                moved = kt.dimension_of(op) + before * (len(self.factors) - 1)
                op.attributes["dimension"] = ir.IntegerAttr.get(op.attributes["dimension"].type, moved)
            else:
                self._generic(op, loops)
        for value in inside:
            self._retype(value)

    def _is_inside(self, value: ir.Value) -> bool:
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        return owner is not None and (self._is_split(owner) or is_a(owner, tensor.EmptyOp, linalg.FillOp))

    def _is_split(self, op: ir.Operation) -> bool:
        return bool(op.results) and op.results[0] in self.loops

    def _groups(self, value: ir.Value) -> tuple[list[list[int]], list[int]]:
        """Groups of the dims that the dims of `value` become, and their extents."""
        groups: list[list[int]] = []
        sizes: list[int] = []
        for d, size in enumerate(shape(value)):
            parts = self.factors if d in self.values[value] else [size]
            groups.append(list(range(len(sizes), len(sizes) + len(parts))))
            sizes += parts
        return groups, sizes

    def _expand(self, value: ir.Value) -> None:
        groups, sizes = self._groups(value)
        users = [(use.owner.operation, use.operand_number) for use in value.uses if self._is_split(use.owner.operation)]
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        point = ir.InsertionPoint.at_block_begin(users[0][0].block) if owner is None else ir.InsertionPoint.after(owner)
        with point, value.location:
            inner = owner.operands[0] if is_a(owner, tensor.CollapseShapeOp) else None
            if inner is not None and list(shape(inner)) == sizes:
                new = inner
            elif inner is not None and (parts := _parts(shape(inner), sizes)):
                new = collapsed(inner, parts)
            else:
                new = expanded(value, groups, sizes)
        for op, i in users:
            op.operands[i] = new

    def _retype(self, value: ir.Value) -> None:
        owner = value.owner.operation
        groups, sizes = self._groups(value)
        before = ir.RankedTensorType(value.type)
        users = [(use.owner.operation, use.operand_number) for use in value.uses]
        users = [(op, i) for op, i in users if not self._is_split(op) and not is_a(op, linalg.FillOp)]
        value.set_type(ir.RankedTensorType.get(sizes, before.element_type))
        for i, (op, _) in reversed(list(enumerate(users))):
            if is_a(op, tensor.ExpandShapeOp) and list(shape(op.results[0])) == sizes:
                op.results[0].replace_all_uses_with(value)
                del users[i]
        if users:
            with ir.InsertionPoint.after(owner), owner.location:
                whole = collapsed(value, groups)
            for op, i in users:
                op.operands[i] = whole

    def _generic(self, op: ir.Operation, loops: set[int]) -> None:
        kinds = list(ir.ArrayAttr(op.attributes["iterator_types"]))
        numbers: list[list[int]] = []
        iterators: list[ir.Attribute] = []
        for loop, kind in enumerate(kinds):
            count = len(self.factors) if loop in loops else 1
            numbers.append(list(range(len(iterators), len(iterators) + count)))
            iterators += [kind] * count
        walks = [[n for e in m.results for n in numbers[ir.AffineDimExpr(e).position]] for m in maps_of(op)]
        set_maps(op, [affine_map(len(iterators), walk) for walk in walks])
        op.attributes["iterator_types"] = ir.ArrayAttr.get(iterators)


def _parts(sizes: Sequence[int], of: Sequence[int]) -> list[list[int]]:
    """Neighbouring dims of these `sizes` that make dims of the sizes `of`; empty where none do."""
    found: list[list[int]] = []
    rest = list(range(len(sizes)))
    for size in of:
        part = [rest.pop(0)] if rest else []
        while rest and prod(sizes[d] for d in part) < size:
            part.append(rest.pop(0))
        if not part or prod(sizes[d] for d in part) != size:
            return []
        found.append(part)
    return [] if rest else found
