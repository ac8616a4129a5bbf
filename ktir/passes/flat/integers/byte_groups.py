"""Groups of bytes along the sum of a matmul, each of which has scales and zero points of its own: the sum becomes one over groups and one
in each, so that these numbers are the same along the inner one.

Programs give groups dims of their own and join them in front of the matmul, or repeat the numbers of each for all of its bytes.
"""

from __future__ import annotations

from collections.abc import Collection

from ktir.analysis.flat import shape_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, maps_of, set_maps
from ktir.mlir import func, ir, is_a, linalg, operations, tensor
from ktir.passes.flat.integers.made_of_bytes import is_loaded, made_of_bytes
from ktir.passes.flat.loops.refine import split_loop
from ktir.passes.flat.memory.shapes_to_memory import erase_dead
from ktir.passes.flat.memory.windows import Window, groups_of, view_of, window_of_view
from ktir.target import LANES, is_byte


def groups_of_bytes_apart(function: func.FuncOp) -> None:
    """Split loops of what dequantises bytes, and of the matmuls that read it, in place."""
    for split in (_split_numbers, _split_groups):
        if any([split(o) for o in operations(function) if is_a(o, tensor.CollapseShapeOp)]):
            erase_dead(function)


def _split_numbers(collapse: ir.Operation) -> bool:
    """Where what is made of bytes reads numbers that are repeated for each one of a group, as one dim: let its loop be one over groups, and
    one in each, along which nothing is repeated any more. Whether it has been done."""
    value, uses, groups = collapse.operands[0], list(collapse.results[0].uses), groups_of(collapse)
    joined = [d for d, group in enumerate(groups) if len(group) > 1]
    if not is_loaded(value) or len(joined) != 1 or len(groups[joined[0]]) != 2 or not uses:
        return False
    op, number, window = uses[0].owner.operation, uses[0].operand_number, _window(value)[1]
    inner = groups[joined[0]][1]
    if window.strides[inner] != 0 or window.sizes[inner] % LANES or not is_a(op, linalg.GenericOp):
        return False
    g = Generic(op)
    known = [i for i, v in enumerate(g.inputs) if is_a(v.owner, tensor.CollapseShapeOp) and is_loaded(v.owner.operands[0])]
    loop = g.loop_of(number, joined[0])
    if loop is None or not any(_is_of_bytes(op, i, known) for i in range(len(g.inputs))):
        return False
    split_loop(op, loop, [window.sizes[d] for d in groups[joined[0]]])
    for i in range(len(g.inputs)):
        _load_apart(op, i)
    return True


def _load_apart(op: ir.Operation, number: int) -> None:
    """Let an op read what it expands of what is loaded as a load of its own, each number once."""
    value, maps = op.operands[number], maps_of(op)
    if is_a(value.owner, tensor.ExpandShapeOp) and is_loaded(value.owner.operands[0]):
        base, whole = _window(value.owner.operands[0])
        window = whole.expand(groups_of(value.owner.operation), shape_of(value))
    elif is_loaded(value):
        base, window = _window(value)
    else:
        return
    kept = [d for d, s in enumerate(window.strides) if s != 0]
    with ir.InsertionPoint(op), op.location:
        window = window.pick(kept, [window.sizes[d] for d in kept])
        tile = ktdp.construct_access_tile(view_of(base, window, element_of(value)), [0] * len(kept), list(window.sizes))
        op.operands[number] = ktdp.load(tile, element_of(value))
    maps[number] = ir.AffineMap.get(maps[number].n_dims, 0, [maps[number].results[d] for d in kept])
    set_maps(op, maps)


def _split_groups(collapse: ir.Operation) -> bool:
    """Where a matmul reads, as one dim, groups of bytes each of which has its own numbers: let its sum be one over groups, and in each.
    Whether it has been done."""
    value, uses = collapse.operands[0], list(collapse.results[0].uses)
    groups = [(d, group) for d, group in enumerate(groups_of(collapse)) if len(group) > 1]
    if len(uses) != 1 or len(list(value.uses)) != 1 or [len(group) for _, group in groups] != [2] or isinstance(value.owner, ir.Block):
        return False
    ((dim, group),), op, sizes = groups, uses[0].owner.operation, shape_of(value)
    made = Generic(value.owner.operation) if is_a(value.owner, linalg.GenericOp) else None
    loop = Generic(op).loop_of(uses[0].operand_number, dim) if is_a(op, linalg.GenericOp) else None
    bytes_ = [] if made is None else [i for i in range(len(made.inputs)) if _is_of_bytes(made.op, i)]
    loops = Generic(op).contraction if is_a(op, linalg.GenericOp) else None
    if loop is None or not bytes_ or loops is None or loop not in loops.reduced or sizes[group[-1]] % LANES:
        return False
    first = Generic(op).inputs[1 - uses[0].operand_number]
    if not loops.rows and is_a(first.owner, tensor.CollapseShapeOp) and not is_loaded(first.owner.operands[0]):
        return False  # of a single row that is computed in groups no dim is left that is one of rows
    split_loop(op, loop, [sizes[d] for d in group])
    return True


def _is_of_bytes(op: ir.Operation, number: int, known: Collection[int] = ()) -> bool:
    """Whether an op makes something of each byte that operand `number` loads."""
    value = op.operands[number]
    return is_byte(element_of(value)) and is_loaded(value) and made_of_bytes(op, number, known) is not None


def _window(value: ir.Value) -> tuple[ir.Value, Window]:
    """The memory that a tensor is loaded from."""
    return window_of_view(value.owner.operands[0].owner.operands[0].owner)
