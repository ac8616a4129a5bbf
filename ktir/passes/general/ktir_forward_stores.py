"""Memory that a tile writes and reads again -> values: what was stored is what the next load of the same place gives.

A loop that adds to one place again and again carries a value instead: loads and stores of the machine have no order within a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ktir.analysis.calls import functions_of, is_kernel
from ktir.analysis.interface.parameters import bytes_of
from ktir.analysis.points import is_index
from ktir.dialects import ktdp
from ktir.dialects._foundation import affine
from ktir.mlir import arith, func, ir, is_a, scf
from ktir.pipeline import Pass

_PURE = (ktdp.ConstructMemoryViewOp, ktdp.ConstructAccessTileOp)


@dataclass(frozen=True)
class ForwardStoresPass(Pass):
    """Replace loads of what the same tile has stored there before, and stores over which another one is written unread.

    Two accesses are of one place where views and subscripts are the same; memory of two arguments is two. An exchange between tiles ends
    what is known.

    Expects: kernels with a grid. Guarantees: values do not change, and neither what memory holds in the end.
    """

    name: ClassVar[str] = "ktir-forward-stores"
    description: ClassVar[str] = "kernels: loads of what was stored are values, loops that add to one place carry them"

    def run(self, module: ir.Module) -> None:
        """Rewrite every kernel of the module."""
        for function in functions_of(module).values():
            if is_kernel(function):
                forward_stores(function.operation)


def may_forward(kernel: ir.Operation) -> bool:
    """Whether some memory is both loaded and stored."""
    found: dict[bool, set[Any]] = {True: set(), False: set()}
    for access in _accesses(kernel.regions[0].blocks[0]):
        found[access.stores] |= access.memory or {None}
    return bool(found[True] & found[False])


def forward_stores(kernel: ir.Operation) -> None:
    """Rewrite the body of a kernel, in place."""
    _block(kernel.regions[0].blocks[0])


@dataclass(frozen=True)
class _Access:
    op: ir.Operation
    stores: bool
    memory: frozenset[ir.Value]
    """The arguments that the address is computed from."""
    place: Any
    """Equal where the same elements are accessed, and no load gives anything else than what was stored."""
    span: tuple[int, int] | None
    """The bytes from and to which a view reaches whose address is a number; None where that is not known."""

    def may_meet(self, other: _Access) -> bool:
        if self.memory or other.memory:
            return bool(self.memory & other.memory)
        return self.span is None or other.span is None or (self.span[0] < other.span[1] and other.span[0] < self.span[1])


def _block(block: ir.Block) -> None:
    """Forward within a block, in order; in loops first."""
    for op in [view.operation for view in block.operations]:
        for region in op.regions:
            for inner in region.blocks:
                _block(inner)
        if is_a(op, scf.ForOp):
            _carried(op)
    known: list[tuple[_Access, ir.Value]] = []
    """What is known to lie where: the last store, or load, of a place, and its value."""
    unread: dict[Any, _Access] = {}
    left: list[tuple[_Access, ir.Operation]] = []
    """What a loop has stored in its last trip, and the loop."""
    for op in [view.operation for view in block.operations]:
        access = _access(op)
        if access is None:
            within = [a for region in op.regions for inner in region.blocks for a in _accesses(inner)]
            exchanges = op.name.startswith("ktdp.inter_tile")
            stores = [a for a in within if a.stores]
            known = [] if exchanges else [(a, v) for a, v in known if not any(a.may_meet(s) for s in stores)]
            if not any(inner.name.startswith("ktdp.inter_tile") for region in op.regions for b in region.blocks for inner in _inside(b)):
                within = [a for a in within if a.stores or not _known(a, known)]
            unread = {} if exchanges else {k: a for k, a in unread.items() if not any(a.may_meet(w) for w in within)}
            left = [] if exchanges else [(a, loop) for a, loop in left if not any(a.may_meet(s) for s in stores)]
            left += [(store, op) for store in stores if not exchanges and _is_left(store, within, op)]
        elif access.stores:
            if access.place in unread:
                unread.pop(access.place).op.erase()
                known = [(a, v) for a, v in known if a.place != access.place]
            known = [(a, v) for a, v in known if not a.may_meet(access)] + [(access, op.operands[0])]
            left = [(a, loop) for a, loop in left if not a.may_meet(access)]
            unread = {k: a for k, a in unread.items() if not a.may_meet(access)} | {access.place: access}
        else:
            if (found := next(((a, loop) for a, loop in left if a.place == access.place), None)) is not None:
                others = [(a, None if loop == found[1] else loop) for a, loop in left if a != found[0]]
                value = _result(found[1], found[0].op)
                left = [(a, value.owner.operation if loop is None else loop) for a, loop in others]
                known.append((found[0], value))
            if not _known(access, known):
                unread = {k: a for k, a in unread.items() if not a.may_meet(access)}


def _known(load: _Access, known: list[tuple[_Access, ir.Value]]) -> bool:
    """Whether what a load gives is known to have been stored; the load is then gone."""
    (result,) = load.op.results
    held = next((v for a, v in known if a.place == load.place and a.stores), None)
    if held is None or held.type != result.type:
        return False
    result.replace_all_uses_with(held)
    load.op.erase()
    return True


def _is_left(store: _Access, within: list[_Access], loop: ir.Operation) -> bool:
    """Whether each trip of a loop stores to one place, and nothing else in it touches that: its last trip says what lies there."""
    body = store.op.block
    if not is_a(loop, scf.ForOp) or body != loop.regions[0].blocks[0] or not _runs(loop) or not _is_outside(store.op.operands[1], loop):
        return False
    return not any(a.op != store.op and a.may_meet(store) for a in within)


def _result(loop: ir.Operation, store: ir.Operation) -> ir.Value:
    """What a loop stores in its last trip, as a value that the loop leaves; the loop is made anew."""
    type_ = ir.RankedTensorType(store.operands[0].type)
    zero = ir.IntegerAttr.get(type_.element_type, 0) if is_index(type_.element_type) else ir.FloatAttr.get(type_.element_type, 0.0)
    with ir.InsertionPoint(loop), store.location:
        nothing = arith.ConstantOp(type_, ir.DenseElementsAttr.get_splat(type_, zero)).result
    made = _longer(loop, nothing, store.operands[0])
    return made.results[len(made.results) - 1]


def _runs(loop: ir.Operation) -> bool:
    """Whether a loop makes a trip on all tiles."""
    bounds = [v.owner for v in list(loop.operands)[:2]]
    return all(is_a(o, arith.ConstantOp) for o in bounds) and _number(bounds[0]) < _number(bounds[1])


def _carried(loop: ir.Operation) -> None:
    """Let a loop carry what each trip loads from one place and stores there again, if it makes a trip on all tiles."""
    if not _runs(loop):
        return
    body = loop.regions[0].blocks[0]
    if any(op.name.startswith("ktdp.inter_tile") for op in _inside(body)):
        return
    every = list(_accesses(body))
    for store in [a for a in every if a.stores and a.op.block == body]:
        others = [a for a in every if a.op != store.op and a.may_meet(store)]
        alone = len(others) == 1 and not others[0].stores and others[0].op.block == body and others[0].place == store.place
        if alone and _before(others[0].op, store.op, body) and _is_outside(store.op.operands[1], loop):
            _carried(_carry(loop, others[0].op, store.op))
            return


def _carry(loop: ir.Operation, load: ir.Operation, store: ir.Operation) -> ir.Operation:
    """Load before the loop, carry the value, store behind it; the new loop."""
    with ir.InsertionPoint(loop), load.location:
        first = ktdp.load(_cloned(load.operands[0], loop), ir.RankedTensorType(load.results[0].type).element_type, loc=load.location)
    made = _longer(loop, first, store.operands[0])
    load.results[0].replace_all_uses_with(list(made.regions[0].blocks[0].arguments)[-1])
    with ir.InsertionPoint.after(made), store.location:
        ktdp.store(made.results[len(made.results) - 1], _cloned(store.operands[1], made))
    load.erase()
    store.erase()
    return made


def _longer(loop: ir.Operation, first: ir.Value, last: ir.Value) -> ir.Operation:
    """The loop made anew, where it carries one value more, which each trip leaves."""
    old = loop.regions[0].blocks[0]
    with ir.InsertionPoint(loop):
        made = scf.ForOp(*list(loop.operands)[:3], [*list(loop.operands)[3:], first], loc=loop.location)
    for a, b in zip(old.arguments, made.regions[0].blocks[0].arguments, strict=False):
        a.replace_all_uses_with(b)
    *ops, end = [view.operation for view in old.operations]
    with ir.InsertionPoint(made.body):
        yields = scf.YieldOp([*end.operands, last], loc=end.location)
    for op in ops:
        op.move_before(yields.operation)
    for a, b in zip(loop.results, made.results, strict=False):
        a.replace_all_uses_with(b)
    loop.erase()
    return made.operation


def _cloned(value: ir.Value, loop: ir.Operation) -> ir.Value:
    """A value that is computed in a loop from what is outside of it, again, at the insertion point."""
    if not _is_inside(value, loop):
        return value
    op = value.owner.operation
    operands = [_cloned(operand, loop) for operand in op.operands]
    clone = op.clone()
    for i, operand in enumerate(operands):
        clone.operands[i] = operand
    return clone.results[0]


def _is_inside(value: ir.Value, loop: ir.Operation) -> bool:
    if isinstance(value.owner, ir.Block):
        return _contains(loop, value.owner)
    return _contains(loop, value.owner.operation.block)


def _contains(loop: ir.Operation, block: ir.Block) -> bool:
    while True:
        owner = block.owner.operation
        if owner == loop:
            return True
        if is_a(owner, func.FuncOp):
            return False
        block = owner.block


def _is_outside(value: ir.Value, loop: ir.Operation) -> bool:
    """Whether a value is computed from what is outside of a loop, without loading."""
    if not _is_inside(value, loop):
        return True
    owner = value.owner
    pure = not isinstance(owner, ir.Block) and (owner.name.startswith("arith.") or is_a(owner, *_PURE))
    return pure and all(_is_outside(v, loop) for v in owner.operands)


def _number(constant: Any) -> int:
    return ir.IntegerAttr(constant.attributes["value"]).value


def _before(a: ir.Operation, b: ir.Operation, block: ir.Block) -> bool:
    order = [view.operation for view in block.operations]
    return order.index(a) < order.index(b)


def _inside(block: ir.Block) -> Iterator[ir.Operation]:
    for view in block.operations:
        yield view.operation
        for region in view.operation.regions:
            for inner in region.blocks:
                yield from _inside(inner)


def _accesses(block: ir.Block) -> Iterator[_Access]:
    for op in _inside(block):
        access = _access(op)
        if access is not None:
            yield access


def _access(op: ir.Operation) -> _Access | None:
    """An access to global memory; None for another op."""
    if not is_a(op, ktdp.LoadOp, ktdp.StoreOp):
        return None
    tile = list(op.operands)[-1]
    if _is_local(tile):
        return None
    return _Access(op, is_a(op, ktdp.StoreOp), frozenset(_arguments(tile)), _place(tile) if _is_plain(tile) else object(), _span(tile))


def _span(tile: ir.Value) -> tuple[int, int] | None:
    """The bytes that a view at a number of an address reaches."""
    view = None if isinstance(tile.owner, ir.Block) or not tile.owner.operands else tile.owner.operands[0].owner
    if view is None or isinstance(view, ir.Block) or not is_a(view, ktdp.ConstructMemoryViewOp):
        return None
    extents = [*view.opview.sizes, *view.opview.strides]
    address, numbers = view.opview.offset.owner, [n for n in extents if isinstance(n, int)]
    if isinstance(address, ir.Block) or not is_a(address, arith.ConstantOp) or numbers != extents or min(numbers, default=0) < 0:
        return None
    sizes, strides = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    size = bytes_of(str(view.opview.element_type))
    first = _number(address)
    return first * size, (first + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1) * size


def _is_plain(tile: ir.Value) -> bool:
    """Whether a load gives what a store to the same tile stored: all of a box, none of it clipped."""
    if isinstance(tile.owner, ir.Block) or not is_a(tile.owner, ktdp.ConstructAccessTileOp):
        return False
    view = tile.owner.operands[0].owner
    memory = not isinstance(view, ir.Block) and is_a(view, ktdp.ConstructMemoryViewOp) and not view.opview.masked
    return memory and affine.set_box(tile.owner.attributes["access_tile_set"]) is not None


def _is_local(value: ir.Value) -> bool:
    """Whether a tile, or a view, is of the scratchpad."""
    if isinstance(value.owner, ir.Block):
        return False
    if is_a(value.owner, ktdp.ConstructMemoryViewOp):
        return value.owner.opview.memory_space != "global"
    return any(_is_local(v) for v in list(value.owner.operands)[:1])


def _arguments(value: ir.Value) -> Iterator[ir.Value]:
    """The arguments of the function that an address is computed from; of a tile and a view that address is their first operand."""
    if isinstance(value.owner, ir.Block):
        if is_a(value.owner.owner.operation, func.FuncOp):
            yield value
        return
    operands = list(value.owner.operands)  # of an indirect tile also the tables, which are read
    for operand in operands[: 1 if is_a(value.owner, *_PURE) else None]:
        yield from _arguments(operand)


def _place(value: ir.Value) -> Any:
    """What a value is computed from, the same for two that are equal."""
    owner = value.owner
    if isinstance(owner, ir.Block) or len(owner.operation.regions) or not (owner.name.startswith("arith.") or is_a(owner, *_PURE)):
        return value
    attributes = tuple(f"{n}={owner.attributes[n]}" for n in owner.attributes)
    return (owner.name, attributes, str(value.type), *(_place(v) for v in owner.operands))
