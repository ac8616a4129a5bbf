"""A flat logical function as plain data: the loops of each op, and where in which buffer its loads and stores lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ktir.diagnostics import Unsupported, location_names
from ktir.dialects import ktdp
from ktir.dialects.structured import Contraction, Generic
from ktir.mlir import func, ir

Kind = Literal["load", "store", "gather", "scatter", "fill", "pointwise", "reduction", "contraction"]


def refuse(op: ir.Operation, text: str) -> Unsupported:
    """An error of an op that names the line of the source, too."""
    names = location_names(op.location)
    origin = f" ({', '.join(names)})" if names else ""
    return Unsupported(f"'{op.name}' op{origin} {text}", op.location)


def shape_of(value: ir.Value) -> list[int]:
    """Extents of a tensor."""
    return list(ir.RankedTensorType(value.type).shape)


def dtype_of(value: ir.Value) -> str:
    """Element type of a tensor, as text."""
    return str(ir.RankedTensorType(value.type).element_type)


@dataclass(frozen=True)
class Memory:
    """Part of a host buffer or pool: elements `offset + sum(i[d] * strides[d])` of argument `argument`."""

    argument: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    element: str
    op: ir.Operation = field(compare=False)

    @property
    def reach(self) -> int:
        """End of the elements that it shows."""
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True) if s > 0)


@dataclass(frozen=True)
class IndexedBy:
    """A subscript that is read from memory: the index view, and per dim of it the variable that walks it."""

    memory: Memory
    variables: tuple[int, ...]


Subscript = int | IndexedBy
"""What walks a dim of the base of an indirect tile: a variable, or what is read with variables."""


@dataclass(eq=False)
class Node:
    """An op that makes or stores a tensor. `tensors` are its operands, then its result; `loops` has the loop of each of their dims.

    The loops of loads and stores are the dims of the tensor.
    """

    op: ir.Operation
    kind: Kind
    tensors: list[ir.Value]
    loops: list[list[int]]
    memory: Memory | None = None
    subscripts: tuple[Subscript, ...] = ()
    """Of indirect loads and stores: per dim of the base."""
    generic: Generic | None = None
    contraction: Contraction | None = None

    @property
    def reads(self) -> int:
        """How many of the tensors are operands."""
        return len(self.tensors) - (self.kind not in ("store", "scatter"))

    @property
    def result(self) -> ir.Value:
        """The tensor that it makes."""
        return self.tensors[-1]

    @property
    def is_source(self) -> bool:
        """Whether the tensor can be had in any layout by doing the op again: it is a view of memory, or a constant."""
        return self.kind in ("load", "fill")

    @property
    def rows(self) -> list[int]:
        """Loops of the result, or of what is stored; the order in which its row loops run."""
        return self.loops[-1]

    def extent(self, loop: int) -> int:
        """Trips of a loop."""
        return next(shape_of(v)[loops.index(loop)] for v, loops in zip(self.tensors, self.loops, strict=True) if loop in loops)


def read(function: func.FuncOp) -> list[Node]:
    """The nodes of a flat function, in program order. Refuses what the level does not have."""
    nodes: list[Node] = []
    for op in (o.operation for o in function.regions[0].blocks[0].operations):
        if any(isinstance(r.type, ir.RankedTensorType) and 1 in r.type.shape for r in op.results):
            raise refuse(op, "has dims of extent 1, which 'ktir-break-views' drops")
        if op.name in _READERS:
            nodes.extend(_READERS[op.name](op))
        elif op.name not in _PASSED_OVER:
            raise refuse(op, "is not supported on the logical level")
    return nodes


_PASSED_OVER = (
    "arith.constant", "arith.addi", "ktdp.construct_memory_view", "ktdp.construct_access_tile", "ktdp.construct_indirect_access_tile",
    "tensor.empty", "func.return",
)  # fmt: skip
"""Ops that are read where their result is used."""


def _load(op: ir.Operation) -> list[Node]:
    memory, subscripts = _tile(op.operands[0].owner)
    dims = list(range(len(shape_of(op.results[0]))))
    return [Node(op, "gather" if subscripts else "load", [op.results[0]], [dims], memory, subscripts)]


def _store(op: ir.Operation) -> list[Node]:
    memory, subscripts = _tile(op.operands[1].owner)
    dims = list(range(len(shape_of(op.operands[0]))))
    return [Node(op, "scatter" if subscripts else "store", [op.operands[0]], [dims], memory, subscripts)]


def _fill(op: ir.Operation) -> list[Node]:
    """A fill is a node only where its tensor is data; as accumulator of a reduction it belongs to that."""
    users = [(u.owner.operation, u.operand_number) for u in op.results[0].uses]
    if all(user.name == "linalg.generic" and at == len(user.operands) - 1 for user, at in users):
        return []
    return [Node(op, "fill", [op.results[0]], [list(range(len(shape_of(op.results[0]))))])]


def _generic(op: ir.Operation) -> list[Node]:
    g = Generic(op)
    tensors = [*g.inputs, op.results[0]]
    loops: list[list[int]] = []
    for i, value in enumerate(tensors):
        found = [g.loop_of(i, d) for d in range(len(shape_of(value)))]
        if any(loop is None for loop in found) or len(set(found)) < len(found) or len(found) != len(g.maps[i].results):
            raise refuse(op, "expects projected permutation maps on the logical level")
        loops.append([loop for loop in found if loop is not None])
    for inner in g.body_ops:
        if inner.name == "linalg.index":
            raise refuse(inner, "computes with coordinates; the nearest supported form reads them from an argument of role 'iota'")
    if dtype_of(op.results[0]) not in ("f16", "f32", "i32"):
        raise refuse(op, f"makes a tensor of {dtype_of(op.results[0])}, which has no stick layout; f16, f32 and i32 have")
    parallel = {i for i, kind in enumerate(g.iterators) if kind == "parallel"}
    if set(loops[-1]) != parallel:
        raise refuse(op, "expects a result that has all parallel loops and no other")
    if g.is_pointwise:
        if g.yielded == list(g.body.arguments)[-1] or any(v == list(g.body.arguments)[-1] for o in g.body_ops for v in o.operands):
            raise refuse(op, "reads what its result held before, which is not supported; name it as an input")
        return [Node(op, "pointwise", tensors, loops, generic=g)]
    if g.combiner is None:
        raise refuse(op, "expects a reduction by addf, maximumf, minimumf, addi, maxsi or minsi")
    if g.iterators.count("reduction") != 1:
        raise refuse(op, "reduces several dimensions at once, which is not supported; reduce one after the other")
    contraction = g.contraction
    if contraction is not None and len(contraction.columns) > 1:
        raise refuse(op, "expects a matrix as second operand: one dimension of columns, but has several, which is not supported")
    return [Node(op, "reduction" if contraction is None else "contraction", tensors, loops, generic=g, contraction=contraction)]


_READERS = {"ktdp.load": _load, "ktdp.store": _store, "linalg.fill": _fill, "linalg.generic": _generic}


def memory_of(view: ir.Value) -> Memory:
    """The memory that a view shows."""
    op = view.owner
    v = op.opview
    sizes = [n for n in v.sizes if isinstance(n, int)]
    strides = [n for n in v.strides if isinstance(n, int)]
    if len(sizes) != len(v.sizes) or len(strides) != len(v.strides) or v.masked:
        raise refuse(op, "expects a static view that is read or written as a whole on the logical level")
    element = str(v.element_type)
    if element not in ("f16", "f32", "i32"):
        raise refuse(op, f"views elements of type {element}, which have no stick layout; f16, f32 and i32 have")
    constant, offset = 0, v.offset
    while not isinstance(offset.owner, ir.Block):
        add = offset.owner
        if add.name != "arith.addi" or add.operands[1].owner.name != "arith.constant":
            raise refuse(op, "expects an argument plus a constant as offset on the logical level")
        constant += ir.IntegerAttr(add.operands[1].owner.attributes["value"]).value
        offset = add.operands[0]
    return Memory(ir.BlockArgument(offset).arg_number, constant, tuple(sizes), tuple(strides), element, op)


def _tile(tile: ir.Operation) -> tuple[Memory, tuple[Subscript, ...]]:
    if tile.name == "ktdp.construct_access_tile":
        require_whole(tile.opview, tile.opview.base.owner.opview.sizes)
        return memory_of(tile.opview.base), ()
    return memory_of(tile.opview.base), tuple(_subscripts(tile.opview))


def require_whole(tile: ktdp.ConstructAccessTileOp, sizes: Sequence[int | ir.Value]) -> None:
    """Refuse a tile that is not its whole view, of these `sizes`, in the view's order."""
    anchored = all(isinstance(e, ir.AffineConstantExpr) and e.value == 0 for e in tile.base_map.results)
    zeros = all(v.owner.name == "arith.constant" and ir.IntegerAttr(v.owner.attributes["value"]).value == 0 for v in tile.index_operands)
    whole = list(tile.shape) == list(sizes)
    if not (anchored or zeros) or list(tile.order) != list(range(len(tile.order))) or not whole:
        raise refuse(tile.operation, "expects a tile of the whole view in its order on the logical level")


def _subscripts(tile: ktdp.ConstructIndirectAccessTileOp) -> Sequence[Subscript]:
    """Subscripts of an indirect tile: variables, or indices read at variables; anything else is refused."""
    order = ir.AffineMapAttr(tile.attributes["variables_space_order"]).value
    if list(tile.captured) or list(tile.symbol_values) or order != ir.AffineMap.get_identity(order.n_dims):
        raise refuse(tile.operation, "expects variables in the order of the tile's dims, and nothing captured, on the logical level")
    found: list[Subscript] = []
    for subscript, view in tile.subscripts:
        variables = [e.position for e in subscript.results if isinstance(e, ir.AffineDimExpr)]
        if len(variables) != len(subscript.results):
            raise refuse(
                tile.operation, "computes a subscript, which is not supported; the nearest supported form reads it from an index view"
            )
        found.append(variables[0] if view is None else IndexedBy(memory_of(view), tuple(variables)))
    direct = [s for s in found if isinstance(s, int)]
    used = {v for s in found for v in ([s] if isinstance(s, int) else s.variables)}
    if len(set(direct)) != len(direct) or used != set(range(order.n_dims)):
        raise refuse(tile.operation, "expects each variable in one subscript at least, and in one direct subscript at most")
    return found
