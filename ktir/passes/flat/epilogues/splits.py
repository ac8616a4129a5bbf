"""Element-wise ops behind a reshape that splits columns run before it.

The columns of a matmul that are heads are split before the bias is added, and a split of columns is memory: the sums would be written as
they are, in f32, and read again for the sake of a bias. An op that finds all else that it reads at the unsplit columns, too, is done there,
with the matmul, and what it gives is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, affine_map, element_of, elementwise, generic
from ktir.mlir import func, ir, is_a, linalg, tensor
from ktir.passes.flat.memory import windows
from ktir.passes.flat.memory.reshapes import expanded
from ktir.passes.flat.memory.windows import Window, groups_of, shape
from ktir.target import is_narrower


class _Operand(NamedTuple):
    """A tensor, and the unsplit loop along each of its dims."""

    value: ir.Value
    loops: tuple[int, ...]


def epilogues_before_splits(function: func.FuncOp) -> None:
    """Move the element-wise ops of `function` that can be."""
    for op in [o.operation for o in function.regions[0].blocks[0].operations]:
        split = _split(op)
        if split is not None:
            _move(op, split)


def _split(op: ir.Operation) -> ir.Operation | None:
    """The split of computed columns of which an element-wise op reads each element once, and makes no wider ones; None for other ops."""
    if not is_a(op, linalg.GenericOp) or len(op.results) != 1 or not Generic(op).is_pointwise or windows.moved_dims(op) is not None:
        return None
    g = Generic(op)
    every = list(range(len(g.iterators)))
    plain = not any(is_a(o, linalg.IndexOp) for o in g.body_ops) and not list(g.body.arguments[len(g.inputs)].uses)
    if not plain or sorted(d for d in g.walk(len(g.inputs)) if d is not None) != every:
        return None
    for i, value in enumerate(g.inputs):
        split = _maker(value)
        if is_a(split, tensor.ExpandShapeOp) and len(list(value.uses)) == 1 and sorted(d for d in g.walk(i) if d is not None) == every:
            columns = len(groups_of(split)[-1]) > 1 and is_a(_maker(split.operands[0]), linalg.GenericOp)
            narrow = is_narrower(element_of(op.results[0]), element_of(value), or_equal=True)
            if columns and narrow and len(list(split.operands[0].uses)) == 1:
                return split
    return None


def _maker(value: ir.Value) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _move(op: ir.Operation, split: ir.Operation) -> None:
    """Do what `op` does before the split; nothing where it reads something that is not there."""
    g = Generic(op)
    walk = g.walk(g.inputs.index(split.results[0]))
    groups = [[loop for d in group if (loop := walk[d]) is not None] for group in groups_of(split)]
    with ir.InsertionPoint(op), op.location:
        operands = [_before(value, g.walk(i), groups, split) for i, value in enumerate(g.inputs)]
        if None in operands:
            return
        given = [o for o in operands if o is not None]
        result, loops = op.results[0], len(groups)
        init = tensor.empty(list(shape(split.operands[0])), element_of(result))
        maps = [*(affine_map(loops, o.loops) for o in given), affine_map(loops, range(loops))]
        whole = generic([o.value for o in given], init, maps, ["parallel"] * loops, g.copy_body, loc=op.location)
        value = expanded(whole, groups_of(split), list(shape(split.results[0])))
        turned = [walk.index(loop) for loop in g.walk(len(g.inputs))]
        if turned != sorted(turned):
            value = elementwise(
                [value], tensor.empty(list(shape(result)), element_of(result)), walks=[[turned.index(d) for d in range(len(turned))]]
            )
    result.replace_all_uses_with(value)
    op.erase()


def _before(value: ir.Value, walk: Sequence[int | None], groups: Sequence[Sequence[int]], split: ir.Operation) -> _Operand | None:
    """What an operand is where the loops of each group are one, a view made at the insertion point; None where it is nowhere."""
    if None in walk or len(set(walk)) < len(walk):
        return None
    maker = _maker(value)
    order = [loop for group in groups for loop in group]
    if is_a(maker, tensor.ExpandShapeOp) and groups_of(maker) == groups_of(split) and list(walk) == order:
        return _Operand(maker.operands[0], tuple(range(len(groups))))
    unsplit = {group[0]: i for i, group in enumerate(groups) if len(group) == 1}
    if all(loop in unsplit for loop in walk):
        return _Operand(value, tuple(unsplit[loop] for loop in walk if loop is not None))
    return _view(value, walk, order, split)


def _view(value: ir.Value, walk: Sequence[int | None], order: Sequence[int], split: ir.Operation) -> _Operand | None:
    """A load as one of a view with a dim for each group that moves in memory."""
    load = _maker(value)
    view = windows.direct_view(load.operands[0].owner.operation) if is_a(load, ktdp.LoadOp) else None
    if view is None or not is_a(view, ktdp.ConstructMemoryViewOp) or len(list(view.operands)) != 1 or "masked" in view.attributes:
        return None
    base, window = windows.window_of_view(view)
    picked = Window(
        window.offset, shape(split.results[0]), tuple(window.strides[walk.index(loop)] if loop in walk else 0 for loop in order)
    )
    whole = picked.collapse(groups_of(split))
    if whole is None:
        return None
    kept = [i for i, stride in enumerate(whole.strides) if stride != 0]
    shown = whole.pick(kept, [whole.sizes[i] for i in kept])
    tile = ktdp.construct_access_tile(windows.view_of(base, shown, element_of(value)), [0] * len(kept), list(shown.sizes))
    return _Operand(ktdp.load(tile, element_of(value)), tuple(kept))
