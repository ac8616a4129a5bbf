"""What is loaded several times, also with its dims in other orders, is loaded once: readers walk it as they did."""

from __future__ import annotations

from ktir.analysis.memory_order import arguments_of
from ktir.dialects import ktdp
from ktir.dialects.structured import Generic, element_of, maps_of, set_maps
from ktir.mlir import func, ir, is_a, linalg

_Dims = list[tuple[int, int]]
"""Size and stride of each dim of a view."""


def load_once(function: func.FuncOp) -> None:
    """Let ops read the first one of such loads; between two of them the function may store to other memory. What a matmul reads in another
    order stays as it is, for PT takes its operands in orders of their own, and so does memory that the function stores to."""
    ops = [op.operation for op in function.regions[0].blocks[0].operations]
    stored = frozenset[ir.Value]().union(*(arguments_of(op) for op in ops if is_a(op, ktdp.StoreOp)))
    first: dict[tuple[ir.Value, str, frozenset[tuple[int, int]]], tuple[ir.Value, _Dims]] = {}
    same: dict[tuple[ir.Value, ir.Type, tuple[tuple[int, int], ...]], ir.Value] = {}
    for op in ops:
        view = _whole(op) if is_a(op, ktdp.LoadOp) else None
        if view is None or stored & arguments_of(op):
            continue
        dims = _dims(view)
        value = same.setdefault((view.operands[0], op.results[0].type, tuple(dims)), op.results[0])
        if value != op.results[0]:
            op.results[0].replace_all_uses_with(value)
            op.erase()
            continue
        if len(set(dims)) < len(dims) or not all(_walks(use) for use in value.uses):
            continue
        kept, others = first.setdefault((view.operands[0], str(element_of(op.results[0])), frozenset(dims)), (op.results[0], dims))
        if others != dims:
            for use in list(op.results[0].uses):
                _read(use.owner.operation, use.operand_number, kept, [dims.index(dim) for dim in others])


def _whole(load: ir.Operation) -> ir.Operation | None:
    """The view that a load takes all of, with sizes and strides that are numbers."""
    tile = load.operands[0].owner
    if isinstance(tile, ir.Block) or not is_a(tile, ktdp.ConstructAccessTileOp) or not all(i == 0 for i in tile.opview.indices):
        return None
    base = tile.operands[0].owner
    if isinstance(base, ir.Block) or not is_a(base, ktdp.ConstructMemoryViewOp):
        return None  # memory that the function was given, or made of values
    view = base.opview
    known = all(isinstance(n, int) for n in (*view.sizes, *view.strides))
    same = known and list(view.sizes) == list(ir.RankedTensorType(load.results[0].type).shape)
    return view.operation if same and len(view.operation.operands) == 1 else None


def _dims(view: ir.Operation) -> _Dims:
    return list(zip(view.opview.sizes, view.opview.strides, strict=True))


def _walks(use: ir.OpOperand) -> bool:
    """Whether a use is an input of an op that is no matmul."""
    op = use.owner.operation
    return is_a(op, linalg.GenericOp) and use.operand_number < len(Generic(op).inputs) and Generic(op).contraction is None


def _read(op: ir.Operation, number: int, value: ir.Value, order: list[int]) -> None:
    """Read `value`, whose dim i is dim `order[i]` of what was read."""
    maps = maps_of(op)
    old = maps[number]
    maps[number] = ir.AffineMap.get(old.n_dims, old.n_symbols, [old.results[d] for d in order])
    op.operands[number] = value
    set_maps(op, maps)
