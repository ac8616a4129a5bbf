"""Rules of the flat level for single ops. Each raises `Broken` with what the op does not have, or returns.

The level's verifier and its readers hold programs against the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ktir.analysis.attributes.broken import Broken
from ktir.analysis.attributes.levels import constant_of
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.op_facts import ADDRESSES, PLACES
from ktir.dialects.structured import Generic
from ktir.mlir import arith, func, ir, is_a, linalg, named, names, tensor
from ktir.target import FORMATS, format_names, is_byte, is_two

Rule = Callable[[ir.Operation], None]

OPS = frozenset(names(
    func.FuncOp, func.ReturnOp, func.CallOp, *PLACES, ktdp.RegionTerminatorOp, ktdp.LoadOp, ktdp.StoreOp, tensor.EmptyOp,
    linalg.FillOp, linalg.GenericOp, linalg.YieldOp, kt.PairBytesOp,
))  # fmt: skip
"""Ops of the level besides the scalar ones."""


def no_unit_dims(op: ir.Operation) -> None:
    """Tensors have no dims of extent 1: what lies in sticks are dims with a choice."""
    if any(isinstance(r.type, ir.RankedTensorType) and 1 in r.type.shape for r in op.results):
        raise Broken("has dims of extent 1, which 'ktir-break-views' drops")


def in_a_body(op: ir.Operation) -> None:
    """What computes stands in the body of a generic; beside these there are numbers and sums of addresses."""
    if op.name not in OPS and is_a(op.parent, func.FuncOp) and op.name not in ADDRESSES:
        raise Broken("is not supported on the flat level outside of a 'linalg.generic'")


# Generics


def _without_coordinates(g: Generic) -> None:
    if any(is_a(inner, linalg.IndexOp) for inner in g.body_ops):
        raise Broken("computes with coordinates; the nearest supported form reads them from an argument of role 'iota'")


def _projected(g: Generic) -> None:
    loops: set[int] = set()
    for m in g.maps:  # the result's is the last one
        loops = {ir.AffineDimExpr(e).position for e in m.results if isinstance(e, ir.AffineDimExpr)}
        if len(loops) != len(m.results):
            raise Broken("expects projected permutation maps on the flat level")
    parallel = {i for i, kind in enumerate(g.iterators) if kind == "parallel"}
    if loops != parallel:
        raise Broken("expects a result that has all parallel loops and no other")


def _held_in_sticks(g: Generic) -> None:
    _is_held(g.body.arguments[-1].type)


def _is_held(element: ir.Type) -> None:
    if str(element) not in FORMATS:
        raise Broken(f"makes a tensor of {element}, which has no stick layout; {format_names()} have")


def _named_inputs(g: Generic) -> None:
    held = list(g.body.arguments)[-1]
    if g.is_pointwise and (g.yielded == held or any(v == held for inner in g.body_ops for v in inner.operands)):
        raise Broken("reads what its result held before, which is not supported; name it as an input")


def _one_reduced_loop(g: Generic) -> None:
    if g.is_pointwise:
        return
    if g.combiner is None:
        raise Broken("expects a reduction by addf, maximumf, minimumf, addi, maxsi or minsi")
    contraction = g.contraction
    if g.iterators.count("reduction") != 1 and contraction is None:
        raise Broken("reduces several dimensions at once, which is not supported; reduce one after the other")
    if contraction is not None and len(contraction.columns) > 1:
        raise Broken("expects a matrix as second operand: one dimension of columns, but has several, which is not supported")
    beside = {loop for i in range(2, len(g.inputs)) for loop in g.walk(i)}
    if contraction is not None and not beside <= {*g.walk(1)} - {contraction.reduced[-1]}:
        raise Broken("computes a factor of numbers that differ along its sum, or where its second operand does not")


def flat_generic(op: ir.Operation) -> None:
    """One result of an element type that the device has; maps are projected permutations and the result has all parallel loops; no
    coordinates in the body; a pointwise op reads nothing of what its result held; a reduction has one loop and one of six combiners, a
    sum of products a matrix as second factor."""
    if len(op.results) != 1:
        raise Broken("expects one result")
    g = Generic(op)
    for rule in (_without_coordinates, _projected, _held_in_sticks, _named_inputs, _one_reduced_loop):
        rule(g)


def held_fill(op: ir.Operation) -> None:
    """A number is of an element type that the device has; so all that follows may ask for widths."""
    _is_held(op.results[0].type.element_type)


# Memory


def plain_view(op: ir.Operation) -> None:
    """A view is static, of an argument plus a constant, of elements that the device has."""
    view = op.opview
    if view.masked or any(not isinstance(n, int) for n in (*view.sizes, *view.strides)):
        raise Broken("expects a static view that is read or written as a whole on the flat level")
    if str(view.element_type) not in FORMATS and not is_byte(view.element_type) and not is_two(view.element_type):
        raise Broken(f"views elements of type {view.element_type}, which have no stick layout; {format_names()} have")
    offset = view.offset
    while not isinstance(offset.owner, ir.Block):
        if not is_a(offset.owner, arith.AddIOp) or constant_of(offset.owner.operands[1]) is None:
            raise Broken("expects an argument plus a constant as offset on the flat level")
        offset = offset.owner.operands[0]


def whole_tile(op: ir.Operation) -> None:
    """A tile is its whole view, in the view's order."""
    if not is_whole(op.opview, op.opview.base.owner.opview.sizes):
        raise Broken("expects a tile of the whole view in its order")


def is_whole(tile: ktdp.ConstructAccessTileOp, sizes: Sequence[int | ir.Value]) -> bool:
    """Whether a tile is its whole view, of these `sizes`, in the view's order."""
    anchored = all(isinstance(e, ir.AffineConstantExpr) and e.value == 0 for e in tile.base_map.results)
    zeros = all(constant_of(v) == 0 for v in tile.index_operands)
    return (anchored or zeros) and list(tile.order) == list(range(len(tile.order))) and list(tile.shape) == list(sizes)


def looks_up_one_place(op: ir.Operation) -> None:
    """A subscript of an indirect tile is a variable, or an index that is read at variables."""
    tile = op.opview
    order = ir.AffineMapAttr(op.attributes["variables_space_order"]).value
    if list(tile.captured) or list(tile.symbol_values) or order != ir.AffineMap.get_identity(order.n_dims):
        raise Broken("expects variables in the order of the tile's dims, and nothing captured, on the flat level")
    direct, used = [], set()
    for subscript, view in tile.subscripts:
        variables = [ir.AffineDimExpr(e).position for e in subscript.results if isinstance(e, ir.AffineDimExpr)]
        if len(variables) != len(subscript.results):
            raise Broken("computes a subscript, which is not supported; the nearest supported form reads it from an index view")
        direct += variables[:1] if view is None else []
        used.update(variables if view is not None else variables[:1])
    if len(set(direct)) != len(direct) or used != set(range(order.n_dims)):
        raise Broken("expects each variable in one subscript at least, and in one direct subscript at most")


RULES: dict[str, tuple[Rule, ...]] = named(
    {
        linalg.GenericOp: (flat_generic,),
        linalg.FillOp: (held_fill,),
        ktdp.ConstructMemoryViewOp: (plain_view,),
        ktdp.ConstructAccessTileOp: (whole_tile,),
        ktdp.ConstructIndirectAccessTileOp: (looks_up_one_place,),
    }
)
"""Rules of single kinds of op."""


def check(op: ir.Operation) -> None:
    """Raise Broken for the first thing that an op of the function's own block has against the level."""
    for rule in (in_a_body, no_unit_dims, *RULES.get(op.name, ())):
        rule(op)
