"""The axes of a kernel: the row loops that its ops share, outer to inner. The last one is the row axis, the others are batch axes.

A laid-out op runs over sticks, rows and lanes; its *row loops* are what lies between. In a kernel the row loops of every op are the axes in
their order (`ktir-form-kernels` puts them in it), up to the row axis of a kernel whose matmuls have no rows: no tensor has that one. Which
dim of a tensor runs along which axis then follows from the maps of the ops that make or read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ktir.analysis.attributes.kernel import KernelFunction
from ktir.dialects.structured import Generic
from ktir.mlir import ir, is_a, linalg, names, tensor

SECOND_OPERAND = names(tensor.PadOp, tensor.ExpandShapeOp)
"""From the laid-out level to the divided one only a contraction's second operand is padded and split into blocks."""


def sticks_of(value: ir.Value) -> int:
    """Extent of a laid-out tensor's first dim."""
    return ir.RankedTensorType(value.type).shape[0]


def row_loops(g: Generic) -> list[int]:
    """The loops of a laid-out op that run over rows: neither sticks nor lanes.

    Loops: pointwise (s, rows.., l); reduction (rows.., s, l); contraction (n, batches.., rows.., j, k, i).
    """
    loops = len(g.iterators)
    if g.is_pointwise:
        return list(range(1, loops - 1))
    if g.is_contraction:
        result = [g.loop_of(len(g.inputs), d) for d in range(1, len(g.maps[-1].results) - 1)]
        return sorted(loop for loop in result if loop is not None)
    return list(range(loops - 2))


def k_in_stick(g: Generic) -> bool:
    """Of a laid-out contraction: whether K lies in the stick of its second operand, whose blocks are then transposed."""
    return g.loop_of(1, 0) == len(g.iterators) - 2


def row_dim(split: ir.Operation) -> int:
    """Which dim of a second operand its split into blocks takes for rows."""
    return [len(ir.ArrayAttr(group)) for group in ir.ArrayAttr(split.attributes["reassociation"])].index(2)


def second_operand_source(g: Generic) -> ir.Value:
    """The whole tensor behind a contraction's second operand, before padding and splitting of its rows."""
    value = g.inputs[1]
    while not isinstance(value.owner, ir.Block) and value.owner.name in SECOND_OPERAND:
        value = value.owner.operands[0]
    return value


@dataclass(frozen=True)
class Axes:
    """The axes of one kernel, at the laid-out (once kernels are formed) or the divided level; reads the kernel as it is now."""

    extents: tuple[int, ...]
    """Of the whole program, not of a core: what `ktir.rows` says."""

    @staticmethod
    def of(kernel: ir.Operation) -> Axes:
        """The axes of a kernel."""
        return Axes(tuple(KernelFunction(kernel).rows))

    @property
    def row(self) -> int:
        """Number of the row axis."""
        return len(self.extents) - 1

    @property
    def batches(self) -> range:
        """Numbers of the batch axes, outer to inner."""
        return range(self.row)

    def of_operand(self, g: Generic, operand: int) -> list[int | None]:
        """Per dim of an operand (the result is the last one) the axis that it runs along; None: sticks, lanes, K, or one position only."""
        axis = {loop: i for i, loop in enumerate(row_loops(g))}
        return [axis.get(loop) if loop is not None else None for loop in g.walk(operand)]

    def of_second_operand(self, g: Generic) -> list[int | None]:
        """The same for the whole tensor behind a contraction's second operand: [n, batches.., K, j], or [k, batches.., N, i]."""
        blocks = self.of_operand(g, 1)
        return [*blocks[:-3], None, None]

    def of_value(self, value: ir.Value) -> list[int | None]:
        """Per dim of a value the axis that it runs along.

        On the laid-out level a loaded tensor may be read in several ways; this is the first of them (`ktir-divide-work` makes a load of
        each).
        """
        owner = value.owner
        if is_a(owner, linalg.GenericOp):
            g = Generic(owner)
            return self.of_operand(g, len(g.inputs))
        for use in value.uses:
            user = use.owner.operation
            if user.name in SECOND_OPERAND:
                return self.of_second_operand(_reader_of_blocks(user))
            if is_a(user, linalg.GenericOp):
                return self.of_operand(Generic(user), use.operand_number)
        return self.of_copied(value)

    def of_copied(self, value: ir.Value) -> list[int | None]:
        """The same for a tensor that is stored as it was loaded or filled: it has the axes in order as its rows."""
        rows = ir.RankedTensorType(value.type).rank - 2
        return [None, *(axis if axis < len(self.extents) else None for axis in range(rows)), None]


def _reader_of_blocks(op: ir.Operation) -> Generic:
    """The contraction that reads a padded or split tensor."""
    while not is_a(op, linalg.GenericOp):
        op = next(iter(op.results[0].uses)).owner.operation
    return Generic(op)
