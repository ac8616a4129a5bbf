"""Rows of a matmul that are several loops, as batch and position, become one between two matmuls where nothing needs them apart.

A matmul of one row axis is cut into blocks of any rows and dealt out as a whole; one of 8 x 24 rows takes its weights once for each of
the eight. Some op of a model tells the loops apart, as one that adds positions or takes a mean over them, and so the layouts, which have
one form of a tensor for all of a program, keep them apart everywhere. What a matmul reads goes through memory or from core to core anyway;
either form is a view of the other there, so there the forms may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from ktir.cost.estimate import kernel_start
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, element_of, fill, generic, loop_extents
from ktir.mlir import func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.reshapes import collapsed, split
from ktir.passes.flat.memory.windows import groups_of, shape, source, window_of_view
from ktir.target import LANES, Target

Pair = tuple[int, int]
"""Two loops of an op, outer and inner."""


def merge_rows(function: func.FuncOp, target: Target) -> None:
    """Merge the row loops of the matmuls of `function`, up to the next ones, and of what makes their operands."""
    work = [(op, _pairs(op, target)) for op in _ops(function) if is_a(op, linalg.GenericOp)]
    gone: list[ir.Operation] = []
    while work:
        op, pairs = work.pop(0)
        for pair in () if op in gone else pairs:
            region = _Region(gone)
            if region.take(op, pair):
                work += [(maker, [loops]) for maker, loops in region.makers()]
                work += [(new, _pairs(new, target)) for new in region.merged()]
                break
    for op in reversed(_ops(function)):  # users first: regions are not merged in the order of their ops
        if op in gone:
            op.erase()
    _fold(function)


def _ops(function: func.FuncOp) -> list[ir.Operation]:
    return [o.operation for o in function.regions[0].blocks[0].operations]


def _fold(function: func.FuncOp) -> None:
    """Take away reshapes that another one takes back."""
    for op in _ops(function):
        if is_a(op, tensor.CollapseShapeOp):
            before = op.operands[0].owner.operation if not isinstance(op.operands[0].owner, ir.Block) else None
            if is_a(before, tensor.ExpandShapeOp) and before.operands[0].type == op.results[0].type and groups_of(before) == groups_of(op):
                op.results[0].replace_all_uses_with(before.operands[0])


def _pairs(op: ir.Operation, target: Target) -> list[Pair]:
    """Neighbouring row loops of a matmul whose second operand all rows share, where loading that for each position of the outer one takes
    longer than the launch that another form of a tensor may cost."""
    g = Generic(op)
    contraction = g.contraction
    if contraction is None or contraction.batch:
        return []
    extents = loop_extents(op)
    loads = prod(-(-extents[loop] // LANES) for loop in (*contraction.columns, contraction.reduced[-1])) * target.pt_weight_cycles
    return [pair for pair in pairwise(contraction.rows) if (extents[pair[0]] - 1) * loads > target.cores * kernel_start(target)]


@dataclass
class _Region:
    """Ops of which each has two loops that could be one, and the tensors that run along them."""

    gone: list[ir.Operation]
    """Ops that have been replaced, of all regions."""
    pairs: dict[ir.Value, Pair] = field(default_factory=dict)
    """The loops of each op, by its result."""
    dims: dict[ir.Value, int] = field(default_factory=dict)
    """The first one of both dims of each tensor."""

    def take(self, op: ir.Operation, pair: Pair) -> bool:
        """Take in an op and all that its tensors reach up to the next matmuls; whether the loops can be one in all of it."""
        todo = [(op, pair)]
        while todo:
            op, pair = todo.pop()
            known = self.pairs.get(op.results[0])
            if known is not None and known != pair:
                return False
            if known is None:
                self.pairs[op.results[0]] = pair
                more = self._reached(op, pair)
                if more is None:
                    return False
                todo += more
        return True

    def _reached(self, op: ir.Operation, pair: Pair) -> list[tuple[ir.Operation, Pair]] | None:
        """The ops next to one; None where its loops must stay apart."""
        g = Generic(op)
        contraction = g.contraction
        plain = len(op.results) == 1 and all(isinstance(e, ir.AffineDimExpr) for m in g.maps for e in m.results)
        asks = any(is_a(o, linalg.IndexOp) and ir.IntegerAttr(o.attributes["dim"]).value in pair for o in g.body_ops)
        if not plain or asks or (contraction is not None and not set(pair) <= set(contraction.rows)):
            return None
        if any(g.iterators[loop] == "reduction" for loop in pair):
            return None
        found: list[tuple[ir.Operation, Pair]] = []
        for i, value in enumerate([*op.operands, op.results[0]]):
            walk = g.walk(min(i, len(g.inputs)))
            dims = [d for d, loop in enumerate(walk) if loop in pair]
            if not dims:
                continue
            if [walk[d] for d in dims] != list(pair) or dims[1] != dims[0] + 1:
                return None
            near = self._next(value, dims[0])
            if near is None:
                return None
            found += near
        return found

    def _next(self, value: ir.Value, dim: int) -> list[tuple[ir.Operation, Pair]] | None:
        """The ops that make and read a tensor that runs along both loops; None where it cannot be one with a dim less."""
        if value in self.dims:
            return [] if self.dims[value] == dim else None
        self.dims[value] = dim
        maker = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if maker is None or not (is_a(maker, linalg.FillOp, tensor.EmptyOp) or _is_computed(maker)):
            return [] if _is_one(value, dim) else None
        if is_a(maker, linalg.FillOp, tensor.EmptyOp):
            return []
        if any(is_a(use.owner, ktdp.StoreOp) and not _is_stored_as_one(use.owner.operation, dim) for use in value.uses):
            return None
        if _is_read_by_matmul(value):
            return []
        near = [(maker, len(maker.operands) - 1), *((use.owner.operation, use.operand_number) for use in value.uses)]
        walks = [(op, Generic(op).walk(operand)) for op, operand in near if _is_computed(op) and op not in self.gone]
        found = [(op, (outer, inner)) for op, walk in walks if (outer := walk[dim]) is not None and (inner := walk[dim + 1]) is not None]
        return found if len(found) == len(walks) else None

    def makers(self) -> list[tuple[ir.Operation, Pair]]:
        """The ops that make what the region reads."""
        found = []
        for value, dim in self.dims.items():
            if not isinstance(value.owner, ir.Block) and value not in self.pairs and _is_computed(op := value.owner.operation):
                outer, inner = Generic(op).walk(-1)[dim : dim + 2]
                if outer is not None and inner is not None and op not in self.gone:
                    found.append((op, (outer, inner)))
        return found

    def merged(self) -> Iterator[ir.Operation]:
        """Write all ops anew; returns the new matmuls."""
        made: dict[ir.Value, ir.Value] = {}
        block = next(iter(self.pairs)).owner.operation.block
        for op in [o.operation for o in block.operations]:
            if not op.results or op.results[0] not in self.pairs:
                continue
            with ir.InsertionPoint(op), op.location:
                made[op.results[0]] = self._merged(Generic(op), self.pairs[op.results[0]], made)
        for old, new in made.items():
            outside = [use for use in old.uses if not (use.owner.operation.results and use.owner.operation.results[0] in self.pairs)]
            uses = [(use.owner.operation, use.operand_number) for use in outside if use.owner.operation not in self.gone]
            if uses:
                dim = self.dims[old]
                with ir.InsertionPoint.after(new.owner.operation), old.owner.operation.location:
                    apart = split(new, dim, list(shape(old)[dim : dim + 2]))
                for op, operand in uses:
                    op.operands[operand] = apart
            self.gone.append(old.owner.operation)
        return iter([new.owner.operation for new in made.values()])

    def _merged(self, g: Generic, pair: Pair, made: dict[ir.Value, ir.Value]) -> ir.Value:
        numbers = {loop: n for n, loop in enumerate(loop for loop in range(len(g.iterators)) if loop != pair[1])}
        maps = [affine_map(len(numbers), [numbers[d] for d in g.walk(i) if d is not None and d in numbers]) for i in range(len(g.maps))]
        operands = [self._one(value, made) if value in self.dims and pair[0] in g.walk(i) else value for i, value in enumerate(g.inputs)]
        iterators = [g.iterators[loop] for loop in numbers]
        return generic(operands, self._one(g.init, made), maps, iterators, lambda s: g.copy_body(s, numbers), loc=g.op.location)

    def _one(self, value: ir.Value, made: dict[ir.Value, ir.Value]) -> ir.Value:
        """A tensor with both dims as one."""
        if value in made:
            return made[value]
        dim, sizes = self.dims[value], shape(value)
        maker = value.owner.operation
        if is_a(maker, tensor.ExpandShapeOp) and shape(maker.operands[0]) == (*sizes[:dim], sizes[dim] * sizes[dim + 1], *sizes[dim + 2 :]):
            return maker.operands[0]
        groups = [[d] for d in range(len(sizes)) if d not in (dim, dim + 1)]
        groups.insert(dim, [dim, dim + 1])
        groups[dim + 1 :] = [[d] for d in range(dim + 2, len(sizes))]
        if is_a(maker, tensor.EmptyOp, linalg.FillOp):
            empty = tensor.empty([*sizes[:dim], sizes[dim] * sizes[dim + 1], *sizes[dim + 2 :]], element_of(value))
            return empty if is_a(maker, tensor.EmptyOp) else fill(maker.operands[0], empty)
        return collapsed(value, groups)


def _is_computed(op: ir.Operation) -> bool:
    """Whether an op does more than move elements, as to the windows of a convolution."""
    return is_a(op, linalg.GenericOp) and bool(Generic(op).body_ops)


def _is_read_by_matmul(value: ir.Value) -> bool:
    """Whether a tensor is the first operand of a matmul, perhaps seen in another shape."""
    for use in value.uses:
        op = use.owner.operation
        if is_a(op, linalg.GenericOp) and use.operand_number == 0 and Generic(op).is_contraction:
            return True
        if source(op) is not None and _is_read_by_matmul(op.results[0]):
            return True
    return False


def _is_one(value: ir.Value, dim: int) -> bool:
    """Whether a tensor that nobody computes is a window in which a dim follows the next one."""
    op = None if isinstance(value.owner, ir.Block) else value.owner.operation
    if is_a(op, ktdp.LoadOp):
        view = windows.direct_view(op.operands[0].owner.operation)
        return view is not None and _follows(view, dim)
    window = windows.shown(value)
    return op is not None and source(op) is not None and window.strides[dim] == window.strides[dim + 1] * window.sizes[dim + 1]


def _is_stored_as_one(store: ir.Operation, dim: int) -> bool:
    view = windows.direct_view(store.operands[1].owner.operation)
    return view is not None and _follows(view, dim)


def _follows(view: ir.Operation, dim: int) -> bool:
    """Whether a dim of a view of an argument follows the next one in memory."""
    if not is_a(view, ktdp.ConstructMemoryViewOp) or len(list(view.operands)) != 1 or "masked" in view.attributes:
        return False
    _, window = window_of_view(view)
    return window.strides[dim] == window.strides[dim + 1] * window.sizes[dim + 1]
