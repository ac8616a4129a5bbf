"""What an executor reads of its op: slots of operands and results, attributes, types, the blocks of its regions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ktir.diagnostics import Unsupported, location_text
from ktir.emulator.findings import Where
from ktir.emulator.reference.compile.program import BlockPlan
from ktir.emulator.reference.tape.values import CARRIERS, Entries, element_name
from ktir.mlir import ir

__all__ = ["DYNAMIC", "SLICE", "Numbering", "OpReader", "TensorType", "where_of"]

DYNAMIC = -(2**63)
"""Stands in an array attribute for a number that an operand gives."""
SLICE = ("static_offsets", "static_sizes", "static_strides")
"""Attributes of a slice."""


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a tensor; a scalar has rank 0. A dynamic extent is -1: recording finds it out."""

    shape: tuple[int, ...]
    element: str


class Numbering:
    """Slots of the SSA values of one function."""

    def __init__(self) -> None:
        self.slots: dict[ir.Value, int] = {}
        self.types: dict[ir.Type, TensorType] = {}
        """Those that ops have asked for."""
        self.remote = False
        """Whether a view of the function names the scratchpad of a tile."""

    def define(self, value: ir.Value) -> int:
        return self.slots.setdefault(value, len(self.slots))

    def __getitem__(self, value: ir.Value) -> int:
        return self.slots[value]


CompileBlock = Callable[[ir.Block, Numbering], BlockPlan]


class OpReader:
    """What an executor reads of its op. `where` is what findings name."""

    def __init__(self, op: ir.Operation, numbering: Numbering, compile_block: CompileBlock) -> None:
        self.op = op
        self.numbering = numbering
        self.compile_block = compile_block
        self.where = where_of(op)
        self.operands = [numbering[v] for v in op.operands]
        self.results = [numbering.define(v) for v in op.results]
        self.blocks: list[BlockPlan] = []
        """Those that `block` has compiled."""

    def inner(self, op: ir.Operation) -> OpReader:
        """The reader of an op in a region of this one."""
        return OpReader(op, self.numbering, self.compile_block)

    def view(self) -> Any:
        """The op as its own class, with the accessors of its dialect."""
        return self.op.opview

    def slot(self, value: ir.Value) -> int:
        return self.numbering[value]

    def attribute(self, name: str) -> Any:
        """Attribute `name`, or None."""
        return self.op.attributes[name] if name in self.op.attributes else None

    def integers(self, name: str) -> list[int]:
        """A dense array attribute as integers."""
        attribute = self.op.attributes[name]
        kind = ir.DenseI32ArrayAttr if isinstance(attribute, ir.DenseI32ArrayAttr) else ir.DenseI64ArrayAttr
        return [int(x) for x in kind(attribute)]

    def entries(self, first: int, *names: str) -> list[Entries]:
        """Numbers of array attributes; for those that are dynamic stand, in their order, the operands from `first` on."""
        dynamic = iter(self.operands[first:])
        return [[(False, next(dynamic)) if n == DYNAMIC else (True, n) for n in self.integers(name)] for name in names]

    def groups(self) -> list[list[int]]:
        """Dims of the larger shape per dim of the smaller one, of an op that reshapes."""
        return [[ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(self.attribute("reassociation"))]

    def operand_type(self, i: int) -> TensorType:
        return self.tensor_type(self.op.operands[i].type)

    def result_type(self, i: int = 0) -> TensorType:
        return self.tensor_type(self.op.results[i].type)

    def tensor_type(self, type_: ir.Type) -> TensorType:
        """Shape and element type; refuses what has no NumPy carrier."""
        if (known := self.numbering.types.get(type_)) is not None:
            return known
        shape: tuple[int, ...] = ()
        element = element_name(type_)
        if isinstance(type_, ir.RankedTensorType):
            shape = tuple(-1 if type_.is_dynamic_dim(i) else n for i, n in enumerate(type_.shape))
            element = element_name(type_.element_type)
        if element not in CARRIERS:
            raise self.unsupported(f"uses element type '{element}'")
        return self.numbering.types.setdefault(type_, TensorType(shape, element))

    def block(self, region: int = 0) -> BlockPlan:
        """The one block of a region, compiled."""
        self.blocks.append(self.compile_block(self.op.regions[region].blocks[0], self.numbering))
        return self.blocks[-1]

    def unsupported(self, what: str) -> Unsupported:
        return Unsupported(f"{self.where} {what}, which the executor does not support", self.where.location)


def where_of(op: ir.Operation) -> Where:
    text = location_text(op.location)
    return Where(op.name, None if text == "<unknown>" else text)
