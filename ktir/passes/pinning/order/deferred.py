"""Stores to memory that a kernel has read elsewhere: they go to memory of its own, from which a kernel behind it copies them."""

from __future__ import annotations

from dataclasses import dataclass

from ktir.dialects import ktdp
from ktir.mlir import func, ir, is_a, operations, scf

_VIEW, _TILE = ktdp.ConstructMemoryViewOp, ktdp.ConstructAccessTileOp


@dataclass(frozen=True)
class _Access:
    op: ir.Operation
    tile: ir.Operation
    view: ir.Operation
    argument: int

    def is_like(self, other: _Access) -> bool:
        """Whether the other one may be in place: it walks memory in the same way."""
        return self.tile.results[0].type == other.tile.results[0].type and _walk(self.view) == _walk(other.view)


def defer(made: func.FuncOp, memories: int) -> tuple[list[int], func.FuncOp | None]:
    """The arguments, of the first `memories`, whose stores now go to the last arguments of the kernel, in order, and the kernel that copies
    them from its last arguments; both have the same ones."""
    ops = operations(made)
    if any(op.name.startswith("ktdp.inter_tile") for op in ops):
        return [], None
    accesses = [a for op in ops if is_a(op, ktdp.LoadOp, ktdp.StoreOp) and (a := _access(op)) is not None]
    found = [k for k in range(memories) if _waits([a for a in accesses if a.argument == k], ops)]
    if not found:
        return [], None
    with ir.InsertionPoint(made):
        behind: func.FuncOp = made.operation.clone().opview
    for function, copies in ((made, False), (behind, True)):
        block = function.regions[0].blocks[0]
        own = {k: block.add_argument(ir.IndexType.get(), function.location) for k in found}
        types = ir.FunctionType.get([a.type for a in block.arguments], [])
        function.operation.attributes["function_type"] = ir.TypeAttr.get(types)
        for op in operations(function):
            if is_a(op, ktdp.StoreOp):
                _moved(op, {block.arguments[k]: v for k, v in own.items()}, copies)
    return found, behind


def _waits(accesses: list[_Access], ops: list[ir.Operation]) -> bool:
    """Whether stores are no stores in place, and all of them come behind all loads, so that they may as well come last."""
    loads, stores = ([a for a in accesses if is_a(a.op, kind)] for kind in (ktdp.LoadOp, ktdp.StoreOp))
    if not loads or not stores or all(a.is_like(b) for a in loads for b in stores):
        return False
    rows = [ir.RankedTensorType(s.op.operands[0].type).shape[1] for s in stores]
    if any(n % 2 and n != 1 for n in rows):  # no load moves so many
        return False
    if any(set(_loops(a.op)) & set(_loops(b.op)) for a in loads for b in stores):
        return False
    return max(ops.index(a.op) for a in loads) < min(ops.index(b.op) for b in stores)


def _access(op: ir.Operation) -> _Access | None:
    tile = op.operands[-1].owner.operation
    view = tile.operands[0].owner.operation
    arguments = {v.arg_number for v in _arguments(view.operands[0])}
    if not is_a(tile, _TILE) or not is_a(view, _VIEW) or len(arguments) != 1:
        return None
    return _Access(op, tile, view, arguments.pop())


def _arguments(value: ir.Value) -> list[ir.BlockArgument]:
    """The arguments of the function that an address is computed from."""
    if isinstance(value.owner, ir.Block):
        return [ir.BlockArgument(value)] if is_a(value.owner.owner.operation, func.FuncOp) else []
    return [a for v in value.owner.operands for a in _arguments(v)]


def _walk(view: ir.Operation) -> list[str]:
    numbers = [str(v) for v in (*view.opview.sizes, *view.opview.strides) if isinstance(v, int)]
    return [*numbers, str(view.results[0].type), str(view.attributes["coordinate_set"])]


def _loops(op: ir.Operation) -> list[ir.Operation]:
    found, parent = [], op.parent
    while parent is not None and not is_a(parent.operation, func.FuncOp):
        found += [parent.operation] if is_a(parent.operation, scf.ForOp) else []
        parent = parent.operation.parent
    return found


def _moved(store: ir.Operation, own: dict[ir.Value, ir.Value], copies: bool) -> None:
    """Let a store go to the kernel's own memory; `copies`: or let it store what lies there, and nothing else be stored."""
    with ir.InsertionPoint(store), store.location:
        tile = _cloned(store.operands[1], own)
        if copies and tile != store.operands[1]:
            element = ir.RankedTensorType(store.operands[0].type).element_type
            store.operands[0] = ktdp.load(tile, element)
        elif copies:
            store.erase()
        else:
            store.operands[1] = tile


def _cloned(value: ir.Value, own: dict[ir.Value, ir.Value]) -> ir.Value:
    """A value with other arguments; itself where it has none of them."""
    if isinstance(value.owner, ir.Block):
        return own.get(value, value)
    op = value.owner.operation
    operands = [_cloned(v, own) for v in op.operands]
    if all(a == b for a, b in zip(operands, op.operands, strict=True)):
        return value
    clone = op.clone()
    for i, operand in enumerate(operands):
        clone.operands[i] = operand
    return clone.results[0]
