"""A function of the flat level as plain data: the loops of each op, and where in which buffer its loads and stores lie."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ktir.analysis.attributes.broken import Broken
from ktir.analysis.attributes.levels import constant_of
from ktir.analysis.flat_rules import check
from ktir.diagnostics import Unsupported, location_names, some_of
from ktir.dialects import ktdp
from ktir.dialects import ktir as kt
from ktir.dialects.module_target import machine
from ktir.dialects.structured import Contraction, Generic
from ktir.mlir import func, ir, is_a, linalg, named
from ktir.target import is_byte_float

Kind = Literal["load", "store", "gather", "scatter", "fill", "pairs", "pointwise", "reduction", "contraction"]


def refuse(op: ir.Operation, text: str) -> Unsupported:
    """An error of an op that names the line of the source, too."""
    names = location_names(op.location)
    origin = f" ({some_of(names)})" if names else ""
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
    """What memory has; of floats of one byte tensors have f16."""
    op: ir.Operation = field(compare=False)
    widens: bool = False
    """Whether what is loaded is wider than what memory has, to which a store rounds."""

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
    require_flat(function)
    ops = [o.operation for o in function.regions[0].blocks[0].operations]
    return [node for op in ops if op.name in _READERS for node in _READERS[op.name](op)]


def require_flat(function: func.FuncOp) -> None:
    """Raise Unsupported for the first op that breaks a rule of the flat level."""
    for op in function.regions[0].blocks[0].operations:
        try:
            check(op.operation)
        except Broken as broken:
            raise refuse(op.operation, str(broken)) from None


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
    if all(is_a(user, linalg.GenericOp) and at == len(user.operands) - 1 for user, at in users):
        return []
    return [Node(op, "fill", [op.results[0]], [list(range(len(shape_of(op.results[0]))))])]


def _generic(op: ir.Operation) -> list[Node]:
    g = Generic(op)
    loops = [[ir.AffineDimExpr(e).position for e in m.results] for m in g.maps]
    contraction = g.contraction
    kind: Kind = "pointwise" if g.is_pointwise else "reduction" if contraction is None else "contraction"
    return [Node(op, kind, [*g.inputs, op.results[0]], loops, generic=g, contraction=contraction)]


def _pairs(op: ir.Operation) -> list[Node]:
    """What makes pairs walks its operand with a loop of its own, of which two trips are one of the result's."""
    rank, along = len(shape_of(op.results[0])), kt.dimension_of(op)
    made = list(range(rank))
    return [Node(op, "pairs", [op.operands[0], op.results[0]], [[rank if d == along else d for d in made], made])]


_READERS = named({kt.PairBytesOp: _pairs, ktdp.LoadOp: _load, ktdp.StoreOp: _store, linalg.FillOp: _fill, linalg.GenericOp: _generic})


def memory_of(view: ir.Value) -> Memory:
    """The memory that a view of the flat level shows."""
    op, constant = view.owner, 0
    v = op.opview
    offset = v.offset
    while not isinstance(offset.owner, ir.Block):
        constant += constant_of(offset.owner.operands[1]) or 0
        offset = offset.owner.operands[0]
    sizes, strides = ([n for n in numbers if isinstance(n, int)] for numbers in (v.sizes, v.strides))
    element = str(v.element_type)
    held = _held(offset) if element == "f16" else None
    return Memory(ir.BlockArgument(offset).arg_number, constant, tuple(sizes), tuple(strides), held or element, op, held is not None)


def _held(argument: ir.Value) -> str | None:
    """The float of one byte that the memory of an argument has, which is f16 to the flat level; None for others. Where the device has
    DLFloat16 in place of f16, which lacks infinities, it has that in memory too."""
    owner = ir.BlockArgument(argument).owner.owner
    if "arg_attrs" not in owner.attributes:
        return None
    attributes = ir.ArrayAttr(owner.attributes["arg_attrs"])[ir.BlockArgument(argument).arg_number]
    type_ = ir.TypeAttr(attributes["ktir.type"]).value if "ktir.type" in attributes else None
    if type_ is None or (element := str(type_.element_type)) == "f16" or not is_byte_float(element):
        return None
    return element if machine(owner.parent).dl16 == "exact" else None


def _tile(tile: ir.Operation) -> tuple[Memory, tuple[Subscript, ...]]:
    memory = memory_of(tile.opview.base)
    return memory, () if is_a(tile, ktdp.ConstructAccessTileOp) else tuple(map(_subscript, tile.opview.subscripts))


def _subscript(given: tuple[ir.AffineMap, ir.Value | None]) -> Subscript:
    variables = tuple(ir.AffineDimExpr(e).position for e in given[0].results)
    return variables[0] if given[1] is None else IndexedBy(memory_of(given[1]), variables)
